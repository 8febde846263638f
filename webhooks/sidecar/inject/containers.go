package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// mergeContainers merges the template's containers into those of the pod that
// have their names, or puts them in their place.
func (inj *injection) mergeContainers() error {
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := range inj.actions[l] {
			f := &inj.actions[l][i]
			if f.kind != mergeInto && f.kind != replace {
				continue
			}
			raw := inj.in.Rendered.Elements[l][i].Raw
			if f.raw != nil {
				raw = f.raw
			}
			it := inj.now.Pod.Element(inj.now.Pod.Lists[l].From + f.index)
			own := it.Text
			at := merge.Path{}.Member("spec").Member(l.String()).Element(f.index, merge.NameKey(inj.in.Profile.Elements[l][i].Name))
			if f.kind == replace {
				inj.record.NoteOriginal(at.FieldPath, json.RawMessage(bytes.Clone(own)))
				if err := inj.now.Editor.Replace(at.Pointer, own, raw); err != nil {
					return err
				}
				continue
			}
			template := inj.withoutAppArmor(it.Name.Text(), rawjson.Value(raw))
			if policy := own.Get("restartPolicy"); inj.in.Profile.Elements[l][i].IsNative && !it.IsNative && policy.Kind() == rawjson.String {
				inj.keep(at.Member("restartPolicy").Display, fmt.Sprintf("the pod has %s, but the profile sets %q", merge.Describe(policy), corev1.ContainerRestartPolicyAlways))
				template = merge.RemoveMembers(template, "restartPolicy", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
			}
			kept := inj.merger.OnConflict
			inj.merger.OnConflict = func(path, message string) { inj.in.Report.Step("same name", "kept", path+": "+message) }
			inj.merger.OnClash = kept
			err := inj.merger.Object(at, own, template, merge.ContainerRules)
			inj.merger.OnConflict, inj.merger.OnClash = kept, nil
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (inj *injection) addToApp() error {
	for i := range inj.in.Profile.Additions {
		a := &inj.in.Profile.Additions[i]
		if i > 0 {
			// Two additions can be about one container.
			if err := inj.now.Flush(inj.in.Reader); err != nil {
				return err
			}
		}
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			if l == podtext.InitContainers && !a.InitContainers {
				continue
			}
			for k := inj.now.Pod.Lists[l].From; k < inj.now.Pod.Lists[l].To; k++ {
				it := inj.now.Pod.Element(k)
				name := it.Name.Text()
				if !inj.in.Owners.IsApp(l, name) || len(a.Names) > 0 && !slices.Contains(a.Names, name) || slices.Contains(a.Except, name) {
					continue
				}
				at := merge.Path{}.Member("spec").Member(l.String()).Element(k-inj.now.Pod.Lists[l].From, merge.NameKey(name))
				if err := inj.addTo(at, it.Text, inj.withoutAppArmor(name, inj.in.Rendered.App[i])); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addTo adds to one of the pod's own containers. An environment variable that it
// has is its own business; a path where something else is mounted is not, nor is
// the name of a port.
func (inj *injection) addTo(at merge.Path, own, template rawjson.Value) error {
	kept := inj.merger.OnConflict
	inj.merger.OnClash = kept
	defer func() { inj.merger.OnConflict, inj.merger.OnClash = kept, nil }()
	for nameText, value := range template.Members() {
		name := nameText.Text()
		inj.merger.OnConflict = kept
		if name != "volumeMounts" && name != "volumeDevices" {
			inj.merger.OnConflict = func(path, message string) { inj.in.Report.Step("app container", "kept", path+": "+message) }
		}
		if err := inj.merger.Member(at.Member(name), own, name, value, merge.ContainerRules.Field(name)); err != nil {
			return err
		}
	}
	return nil
}

// withoutAppArmor returns what is added to one of the pod's own containers without an
// AppArmor profile other than the one that the pod's annotation gives it: the
// API server refuses a pod that says both.
func (inj *injection) withoutAppArmor(container string, template rawjson.Value) rawjson.Value {
	security := template.Get("securityContext")
	profile := security.Get("appArmorProfile")
	if profile.Kind() != rawjson.Object {
		return template
	}
	annotation := inj.now.Pod.Annotations.Get(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container)
	if annotation == nil || annotation.Is(appArmorValue(profile)) {
		return template
	}
	inj.in.Report.Step("app container", "kept", "the AppArmor profile of container "+podtext.Quote(container)+", which an annotation of the pod sets")
	rest := merge.RemoveMembers(security, "appArmorProfile")
	template = merge.RemoveMembers(template, "securityContext")
	if rest.Len() == 0 {
		return template
	}
	e := merge.Editor{Text: template}
	if err := e.Add("", template, "securityContext", json.RawMessage(rest)); err != nil {
		return template // It cannot happen: the value is the text.
	}
	return e.Result()
}

// appArmorValue returns what an annotation says for an AppArmor profile.
func appArmorValue(profile rawjson.Value) string {
	switch corev1.AppArmorProfileType(profile.Get("type").Text()) {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeUnconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeLocalhost:
		return corev1.DeprecatedAppArmorBetaProfileNamePrefix + profile.Get("localhostProfile").Text()
	default:
		return ""
	}
}
