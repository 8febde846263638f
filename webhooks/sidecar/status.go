package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// entry is what the status annotation says about one profile.
type entry struct {
	Name           string   `json:"name"`
	Revision       string   `json:"revision"`
	InitContainers []string `json:"initContainers"`
	Containers     []string `json:"containers"`
	Volumes        []string `json:"volumes"`
	// Reused are volumes that the profile uses and the pod already had.
	Reused []string `json:"reusedVolumes"`
}

func (e *entry) empty() bool {
	return len(e.InitContainers)+len(e.Containers)+len(e.Volumes)+len(e.Reused) == 0
}

// entry is what the status annotation says once the plan is carried out. A nil
// plan adds everything.
func (p *profile) entry(made *plan) entry {
	e := entry{Name: p.name, Revision: p.revision}
	for l := range lists {
		for i := range p.elements[l] {
			name := p.elements[l][i].name
			switch {
			case made != nil && made.fate(l, i).what == reused:
				e.Reused = append(e.Reused, name)
			case l == initContainers:
				e.InitContainers = append(e.InitContainers, name)
			case l == containers:
				e.Containers = append(e.Containers, name)
			default:
				e.Volumes = append(e.Volumes, name)
			}
		}
	}
	return e
}

// names are the names in each list of the pod.
func (p *pod) names() [lists]map[string]bool {
	var all [lists]map[string]bool
	for l := range lists {
		all[l] = make(map[string]bool)
		for i := p.lists[l].from; i < p.lists[l].to; i++ {
			all[l][p.item(i).name.Text()] = true
		}
	}
	return all
}

// prune is the entry without what it claims and is not there.
func (e *entry) prune(there [lists]map[string]bool) entry {
	in := func(l list, names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !there[l][name] })
	}
	return entry{
		Name:           e.Name,
		Revision:       e.Revision,
		InitContainers: in(initContainers, e.InitContainers),
		Containers:     in(containers, e.Containers),
		Volumes:        in(volumes, e.Volumes),
		Reused:         in(volumes, e.Reused),
	}
}

// claims tells whether the entry lists an element.
func (e *entry) claims(l list, name string) bool {
	if e == nil {
		return false
	}
	switch l {
	case initContainers:
		return slices.Contains(e.InitContainers, name)
	case containers:
		return slices.Contains(e.Containers, name)
	case volumes:
		return slices.Contains(e.Volumes, name) || slices.Contains(e.Reused, name)
	case ephemeralContainers:
		return false
	default:
		return false
	}
}

// maxStatus is the length of the longest status annotation that is read, in
// bytes: 400 profiles at 160. The API server allows 256 KiB for all annotations.
const maxStatus = 64 << 10

// parseStatus reads a status annotation. Members that it does not know are
// ignored: a newer Gatehouse may have written them.
func parseStatus(text string) ([]entry, error) {
	if len(text) > maxStatus {
		return nil, fmt.Errorf("not a status: longer than %d bytes", maxStatus)
	}
	var status struct {
		Profiles []entry `json:"profiles"`
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return nil, fmt.Errorf("not a status: %w", err)
	}
	if status.Profiles == nil {
		return nil, errors.New("not a status: profiles is absent")
	}
	seen := make(map[string]bool, len(status.Profiles))
	for i := range status.Profiles {
		name := status.Profiles[i].Name
		if seen[name] {
			return nil, fmt.Errorf("not a status: profile %q occurs twice", name)
		}
		seen[name] = true
	}
	return status.Profiles, nil
}

// renderStatus writes a status annotation: one line of JSON, the profiles by
// name, and no list that is empty.
func renderStatus(entries []entry) string {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	dst := []byte(`{"profiles":[`)
	for i := range entries {
		e := &entries[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = rawjson.AppendString(dst, e.Name)
		dst = append(dst, `,"revision":`...)
		dst = rawjson.AppendString(dst, e.Revision)
		dst = appendNames(dst, `,"initContainers":`, e.InitContainers)
		dst = appendNames(dst, `,"containers":`, e.Containers)
		dst = appendNames(dst, `,"volumes":`, e.Volumes)
		dst = appendNames(dst, `,"reusedVolumes":`, e.Reused)
		dst = append(dst, '}')
	}
	return string(append(dst, `]}`...))
}

func appendNames(dst []byte, key string, names []string) []byte {
	if len(names) == 0 {
		return dst
	}
	dst = append(append(dst, key...), '[')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, name)
	}
	return append(dst, ']')
}
