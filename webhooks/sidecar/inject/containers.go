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
			template := rawjson.Value(raw)
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
			if err := inj.now.Flush(); err != nil {
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
				if err := inj.addTo(at, it.Text, inj.in.Rendered.App[i]); err != nil {
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
		if name == "env" && own.Get("envFrom").Len() > 0 {
			inj.in.Report.Step("app container", "hides", at.Member("envFrom").Display+": a variable of the profile takes precedence over one of the same name from envFrom")
		}
		if err := inj.merger.Member(at.Member(name), own, name, value, merge.ContainerRules.Field(name)); err != nil {
			return err
		}
	}
	return nil
}
