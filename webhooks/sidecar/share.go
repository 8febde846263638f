package sidecar

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// tokenPath is where the API server mounts the token of the service account into
// every container: k8s.io/kubernetes/plugin/pkg/admission/serviceaccount,
// DefaultAPITokenMountPath.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" // #nosec G101 -- a path

// shareAll gives containers of the template what the pod's own containers have.
func (pl *plan) shareAll() error {
	for i := range pl.profile.share {
		s := &pl.profile.share[i]
		for l := initContainers; l <= containers; l++ {
			k := slices.IndexFunc(pl.profile.elements[l], func(e element) bool { return e.name == s.Container })
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
func (pl *plan) share(s *v1alpha1.SidecarShare, l list, k int) error {
	given, err := pl.given(s)
	if err != nil || given == nil {
		return err
	}
	f := pl.fate(l, k)
	m := merger{status: new(status)}
	m.kept = func(path, _ string) {
		if !strings.Contains(path, "env[") {
			pl.conflict("", pl.profile.declineHint(), fmt.Sprintf("container %q of sidecar profile %q has something else at %s than the pod's own containers, with which it shares",
				s.Container, pl.profile.name, path))
		}
	}
	if f.what != present {
		text := []byte(pl.elements[l][k].raw)
		if f.raw != nil {
			text = f.raw
		}
		m.editor = &editor{text: text}
		if err := m.object(place{}, text, given, containerRules); err != nil {
			return err
		}
		if pl.fates[l] == nil {
			pl.fates[l] = make([]fate, len(pl.profile.elements[l]))
		}
		pl.fates[l][k].raw = m.editor.result()
		return nil
	}
	// Two shares can be about one container.
	if err := pl.advance(); err != nil {
		return err
	}
	m.editor = &pl.pending
	own := slices.Contains(pl.earlier.Merged, s.Container)
	if own {
		// The container is the pod's, and stays when what was added goes.
		m.status, m.mine = &pl.made, pl.mine
	}
	at := place{}.member("spec").member(l.String()).element(f.index, named(s.Container))
	err = m.object(at, pl.pod.item(pl.pod.lists[l].from+f.index).text, given, containerRules)
	if own {
		pl.merger.added = append(pl.merger.added, m.added...)
	}
	return err
}

// given is what is shared, as a partial container, or nil.
func (pl *plan) given(s *v1alpha1.SidecarShare) (rawjson.Value, error) {
	all := map[string]rawjson.Value{}
	add := func(list string, value rawjson.Value) error {
		own := all[list]
		if own == nil {
			own = rawjson.Value("[]")
		}
		e := editor{text: own}
		m := merger{editor: &e, status: new(status), kept: func(_, _ string) {
			if list != "env" {
				path := cmp.Or(value.Get("mountPath").Text(), value.Get("devicePath").Text())
				pl.conflict("", pl.profile.declineHint(), fmt.Sprintf("the pod's own containers differ in what is at %s, which sidecar profile %q shares with container %q",
					quote(path), pl.profile.name, s.Container))
			}
		}}
		err := m.list(place{path: list}, own, rawjson.Value("["+string(value)+"]"), containerRules.field(list))
		all[list] = e.result()
		return err
	}
	// What profiles add to the pod's own containers is not shared: whether it is
	// there already would depend on their order and on the number of calls.
	from := pl.first.lists[containers]
	for i := from.from; i < from.to; i++ {
		it := pl.first.item(i)
		if name := it.name.Text(); !pl.isApp(containers, name) || len(s.From) > 0 && !slices.Contains(s.From, name) {
			continue
		}
		var wanted []string
		if s.VolumeMounts {
			for _, mount := range it.text.Get("volumeMounts").Elements() {
				if mount.Get("mountPath").Is(tokenPath) {
					continue
				}
				wanted = append(wanted, variables(mount.Get("subPathExpr").Text())...)
				if s.ReadOnly {
					var err error
					if mount, err = readOnly(mount); err != nil {
						return nil, err
					}
				}
				if err := add("volumeMounts", mount); err != nil {
					return nil, err
				}
			}
		}
		if s.VolumeDevices {
			for _, device := range it.text.Get("volumeDevices").Elements() {
				if err := add("volumeDevices", device); err != nil {
					return nil, err
				}
			}
		}
		for _, variable := range it.text.Get("env").Elements() {
			name := variable.Get("name").Text()
			if !slices.Contains(s.Env, "*") && !slices.Contains(s.Env, name) && !slices.Contains(wanted, name) {
				continue
			}
			if err := add("env", variable); err != nil {
				return nil, err
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	dst := []byte{'{'}
	for _, list := range slices.Sorted(maps.Keys(all)) {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(rawjson.AppendString(dst, list), ':'), all[list]...)
	}
	return append(dst, '}'), nil
}

// readOnly is the mount, read-only.
func readOnly(mount rawjson.Value) (rawjson.Value, error) {
	e := editor{text: mount}
	m := merger{editor: &e, status: new(status)}
	var err error
	if own := mount.Get("readOnly"); own == nil {
		err = m.member(place{}, mount, "readOnly", rawjson.Value("true"), nil)
	} else if !own.IsTrue() {
		err = e.replace("", own, json.RawMessage("true"))
	}
	return e.result(), err
}

// variables are the names of the environment variables that a subPathExpr
// expands: $(NAME), where $$ stands for $.
func variables(text string) []string {
	var all []string
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '$' {
			continue
		}
		switch i++; text[i] {
		case '(':
			if end := strings.IndexByte(text[i:], ')'); end > 0 {
				all = append(all, text[i+1:i+end])
				i += end
			}
		default: // $$, or a $ that stands for itself
		}
	}
	return all
}
