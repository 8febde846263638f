package sidecar

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

// shareAll gives containers of the template what the pod's own containers have.
func (pl *plan) shareAll() error {
	for i := range pl.profile.Shares {
		s := &pl.profile.Shares[i]
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			k := slices.IndexFunc(pl.profile.Elements[l], func(e profile.Element) bool { return e.Name == s.Container })
			if k < 0 {
				continue
			}
			if err := pl.share(s, l, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// share gives one container of the template what the pod's own have, in the text
// that is added, or in the pod if it is there already.
func (pl *plan) share(s *v1alpha1.SidecarShare, l podtext.List, k int) error {
	given, needed, err := pl.given(s, pl.privileged(l, k))
	if err != nil || given == nil {
		return err
	}
	f := pl.fate(l, k)
	pl.checkNeeded(s, l, k, given, needed)
	m := merge.Merger{Record: new(merge.Record)}
	m.OnConflict = func(path, _ string) {
		if !strings.Contains(path, "env[") {
			pl.conflict("", pl.profile.DeclineHint(), fmt.Sprintf("container %q of sidecar profile %q has something else at %s than the pod's own containers, with which it shares",
				s.Container, pl.profile.Name, path))
		}
	}
	if f.what != present {
		text := []byte(pl.Elements[l][k].Raw)
		if f.raw != nil {
			text = f.raw
		}
		m.Editor = &merge.Editor{Text: text}
		if err := m.Object(merge.Path{}, text, given, merge.ContainerRules); err != nil {
			return err
		}
		if pl.fates[l] == nil {
			pl.fates[l] = make([]fate, len(pl.profile.Elements[l]))
		}
		pl.fates[l][k].raw = m.Editor.Result()
		return nil
	}
	// Two shares can be about one container.
	if err := pl.advance(); err != nil {
		return err
	}
	m.Editor = &pl.pending
	own := slices.Contains(pl.earlier.Merged, s.Container)
	if own {
		// The container is the pod's, and stays when what was added goes.
		m.Record, m.Earlier = &pl.made, pl.mine
	}
	at := merge.Path{}.Member("spec").Member(l.String()).Element(f.index, merge.NameKey(s.Container))
	err = m.Object(at, pl.pod.Element(pl.pod.Lists[l].From+f.index).Text, given, merge.ContainerRules)
	if own {
		pl.merger.Added = append(pl.merger.Added, m.Added...)
	}
	return err
}

// privileged tells whether a container of the template is privileged, as the
// API server will see it.
func (pl *plan) privileged(l podtext.List, k int) bool {
	if f := pl.fate(l, k); f.what == merged || f.what == present {
		own := pl.pod.Element(pl.pod.Lists[l].From+f.index).Text.Get("securityContext", "privileged")
		if own.Kind() == rawjson.Bool {
			return own.IsTrue()
		}
	}
	return rawjson.Value(pl.Rendered.Elements[l][k].Raw).Get("securityContext", "privileged").IsTrue()
}

// checkNeeded finds variables that paths of shared mounts expand, and which the
// container has already with another value: it would see another directory than
// the pod's own containers.
func (pl *plan) checkNeeded(s *v1alpha1.SidecarShare, l podtext.List, k int, given rawjson.Value, needed map[string]bool) {
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
			if !sameVariable(last[name], want[name]) {
				pl.conflict("", pl.profile.DeclineHint(), fmt.Sprintf("container %q of sidecar profile %q has another value of the variable %s than the pod's own containers, with which it shares a path that expands it",
					s.Container, pl.profile.Name, podtext.Quote(name)))
			}
		}
	}
	f := pl.fate(l, k)
	if f.what == merged || f.what == present {
		check(pl.pod.Element(pl.pod.Lists[l].From + f.index).Text)
	}
	switch {
	case f.what == present:
	case f.raw != nil: // another share has been at it
		check(f.raw)
	default:
		check(rawjson.Value(pl.Rendered.Elements[l][k].Raw))
	}
}
