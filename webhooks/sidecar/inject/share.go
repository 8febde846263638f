package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// tokenPath is where the API server mounts the token of the service account into
// every container: k8s.io/kubernetes/plugin/pkg/admission/serviceaccount,
// DefaultAPITokenMountPath.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" // #nosec G101 -- a path

// shareMounts adds mounts, devices and variables of the pod's own containers to containers
// of the template.
func (inj *injection) shareMounts() error {
	for i := range inj.in.Profile.Shares {
		s := &inj.in.Profile.Shares[i]
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			k := slices.IndexFunc(inj.in.Profile.Elements[l], func(e profile.Element) bool { return e.Name == s.Container })
			if k < 0 {
				continue
			}
			if err := inj.share(s, l, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// share adds the shared settings to one container of the template: to the text that is
// added, or to the container in the pod if it is there already.
func (inj *injection) share(s *v1alpha1.SidecarShare, l podtext.List, k int) error {
	given, needed, err := inj.sharedSettings(s, inj.isPrivileged(l, k))
	if err != nil || given == nil {
		return err
	}
	f := inj.action(l, k)
	inj.checkVariables(s, l, k, given, needed)
	m := merge.Merger{Record: new(merge.Record)}
	m.OnConflict = func(path, _ string) {
		if !strings.Contains(path, "env[") {
			inj.conflict("", inj.in.Profile.DeclineHint(), fmt.Sprintf("container %q of sidecar profile %q has something else at %s than the pod's own containers, with which it shares",
				s.Container, inj.in.Profile.Name, path))
		}
	}
	if f.kind != present {
		text := []byte(inj.in.Rendered.Elements[l][k].Raw)
		if f.raw != nil {
			text = f.raw
		}
		m.Editor = &merge.Editor{Text: text}
		if err := m.Object(merge.Path{}, text, given, merge.ContainerRules); err != nil {
			return err
		}
		if inj.actions[l] == nil {
			inj.actions[l] = make([]action, len(inj.in.Profile.Elements[l]))
		}
		inj.actions[l][k].raw = m.Editor.Result()
		return nil
	}
	// Two shares can be about one container.
	if err := inj.now.Flush(inj.in.Reader); err != nil {
		return err
	}
	m.Editor = &inj.now.Editor
	own := slices.Contains(inj.in.Earlier.Merged, s.Container)
	if own {
		// The container is the pod's, and stays when what was added goes.
		m.Record, m.Earlier = &inj.record, inj.earlierPaths
	}
	at := merge.Path{}.Member("spec").Member(l.String()).Element(f.index, merge.NameKey(s.Container))
	err = m.Object(at, inj.now.Pod.Element(inj.now.Pod.Lists[l].From+f.index).Text, given, merge.ContainerRules)
	if own {
		inj.merger.Added = append(inj.merger.Added, m.Added...)
	}
	return err
}

// isPrivileged reports whether a container of the template is privileged, as the
// API server will see it.
func (inj *injection) isPrivileged(l podtext.List, k int) bool {
	if f := inj.action(l, k); f.kind == mergeInto || f.kind == present {
		own := inj.now.Pod.Element(inj.now.Pod.Lists[l].From+f.index).Text.Get("securityContext", "privileged")
		if own.Kind() == rawjson.Bool {
			return own.IsTrue()
		}
	}
	return rawjson.Value(inj.in.Rendered.Elements[l][k].Raw).Get("securityContext", "privileged").IsTrue()
}

// checkVariables finds variables that paths of shared mounts expand, and which the
// container has already with another value: it would see another directory than
// the pod's own containers.
func (inj *injection) checkVariables(s *v1alpha1.SidecarShare, l podtext.List, k int, given rawjson.Value, needed map[string]bool) {
	if len(needed) == 0 {
		return
	}
	want := make(map[string]rawjson.Value, len(needed))
	for _, variable := range given.Get("env").Elements() {
		if name := variable.Get("name").Text(); needed[name] {
			want[name] = variable
		}
	}
	check := func(container rawjson.Value) {
		last := make(map[string]rawjson.Value)
		for _, variable := range container.Get("env").Elements() {
			if name := variable.Get("name").Text(); want[name] != nil {
				last[name] = variable
			}
		}
		for _, name := range slices.Sorted(maps.Keys(last)) {
			if !isSameVariable(last[name], want[name]) {
				inj.conflict("", inj.in.Profile.DeclineHint(), fmt.Sprintf("container %q of sidecar profile %q has another value of the variable %s than the pod's own containers, with which it shares a path that expands it",
					s.Container, inj.in.Profile.Name, podtext.Quote(name)))
			}
		}
	}
	f := inj.action(l, k)
	if f.kind == mergeInto || f.kind == present {
		check(inj.now.Pod.Element(inj.now.Pod.Lists[l].From + f.index).Text)
	}
	switch {
	case f.kind == present:
	case f.raw != nil: // another share has been at it
		check(f.raw)
	default:
		check(rawjson.Value(inj.in.Rendered.Elements[l][k].Raw))
	}
}
