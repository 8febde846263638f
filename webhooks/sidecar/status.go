package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// statusField is the field path of the annotation.
const statusField = "metadata.annotations[" + v1alpha1.StatusAnnotation + "]"

// status is what the status annotation of a pod says.
type status struct {
	Profiles []entry `json:"profiles"`
	record
}

// entry is what the status annotation says about one profile.
type entry struct {
	Name           string   `json:"name"`
	Revision       string   `json:"revision"`
	InitContainers []string `json:"initContainers"`
	Containers     []string `json:"containers"`
	Volumes        []string `json:"volumes"`
	// Reused are volumes that the profile uses and the pod already had.
	Reused []string `json:"reusedVolumes"`
	// Merged and Replaced are containers of the pod's own that have the name of
	// one of the template's.
	Merged   []string `json:"mergedContainers"`
	Replaced []string `json:"replacedContainers"`
	// Added are the trails of everything else.
	Added []string `json:"added"`
}

func (e *entry) empty() bool {
	return len(e.InitContainers)+len(e.Containers)+len(e.Volumes)+len(e.Reused)+len(e.Merged)+len(e.Replaced)+len(e.Added) == 0
}

// list are the names of what was added to a list.
func (e *entry) list(l list) *[]string {
	switch l {
	case initContainers:
		return &e.InitContainers
	case containers:
		return &e.Containers
	case volumes, ephemeralContainers:
		return &e.Volumes
	default:
		return &e.Volumes
	}
}

// adds tells whether the entry lists a container that the profile has added.
func (e *entry) adds(l list, name string) bool {
	switch l {
	case initContainers:
		return slices.Contains(e.InitContainers, name)
	case containers:
		return slices.Contains(e.Containers, name)
	case volumes, ephemeralContainers:
		return false
	default:
		return false
	}
}

// claims tells whether the entry lists an element in any way.
func (e *entry) claims(l list, name string) bool {
	switch {
	case e == nil:
		return false
	case l == volumes:
		return slices.Contains(e.Volumes, name) || slices.Contains(e.Reused, name)
	default:
		return e.adds(l, name) || slices.Contains(e.Merged, name) || slices.Contains(e.Replaced, name)
	}
}

// claimed are the names that claims is true for.
func (e *entry) claimed(l list) map[string]bool {
	out := map[string]bool{}
	others := [...][]string{e.Merged, e.Replaced}
	if l == volumes {
		others = [...][]string{e.Reused, nil}
	}
	for _, names := range [...][]string{*e.list(l), others[0], others[1]} {
		for _, name := range names {
			out[name] = true
		}
	}
	return out
}

// prune is the entry without what it claims and is not there.
func (e *entry) prune(found *undo, there [lists]map[string]bool) entry {
	in := func(names []string, ls ...list) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return !slices.ContainsFunc(ls, func(l list) bool { return there[l][name] })
		})
	}
	return entry{
		Name:           e.Name,
		Revision:       e.Revision,
		InitContainers: in(e.InitContainers, initContainers),
		Containers:     in(e.Containers, containers),
		Volumes:        in(e.Volumes, volumes),
		Reused:         in(e.Reused, volumes),
		Merged:         in(e.Merged, initContainers, containers),
		Replaced:       in(e.Replaced, initContainers, containers),
		Added:          slices.DeleteFunc(slices.Clone(e.Added), func(trail string) bool { return !found.found(trail) }),
	}
}

// maxStatus is the length of the longest status annotation that is read, in
// bytes: what the API server allows for all annotations together
// (k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB), so that
// whatever was written can be read.
const maxStatus = 256 << 10

// parseStatus reads a status annotation. Members that it does not know are
// ignored: a newer Gatehouse may have written them.
func parseStatus(text string) (*status, error) {
	if len(text) > maxStatus {
		return nil, fmt.Errorf("not a status: longer than %d bytes", maxStatus)
	}
	s := new(status)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("not a status: %w", err)
	}
	if s.Profiles == nil {
		return nil, errors.New("not a status: profiles is absent")
	}
	seen := make(map[string]bool, len(s.Profiles))
	for i := range s.Profiles {
		name := s.Profiles[i].Name
		if seen[name] {
			return nil, fmt.Errorf("not a status: profile %q occurs twice", name)
		}
		seen[name] = true
	}
	s.believable()
	return s, nil
}

// believable drops what no decision can have written: a pod can come with any
// annotation, and what it claims is not looked at when a decision is made.
func (s *status) believable() {
	known := make(map[string]bool)
	for i := range s.Profiles {
		e := &s.Profiles[i]
		e.Added = slices.DeleteFunc(e.Added, func(trail string) bool { return !addable(trail) })
		for _, trail := range e.Added {
			known[trail] = true
		}
		for _, name := range e.Replaced {
			known["/spec/initContainers/"+named(name)] = true
			known["/spec/containers/"+named(name)] = true
		}
	}
	s.Created = slices.DeleteFunc(s.Created, func(trail string) bool {
		return strings.Count(trail, "/") > deepest || trail != "/metadata" && !strings.HasPrefix(trail, "/metadata/") && !strings.HasPrefix(trail, "/spec/")
	})
	for _, trail := range s.Created {
		known[trail] = true
	}
	maps.DeleteFunc(s.Originals, func(trail string, _ json.RawMessage) bool { return !known[trail] })
}

// deepest is how many steps a trail may have: no field of a pod is as deep.
const deepest = 64

// addable tells whether a decision can have added what stands at the end of a
// trail: a label or annotation that a profile may set, or something in the spec
// that is no container and no volume, which go by their names.
func addable(trail string) bool {
	if strings.Count(trail, "/") > deepest {
		return false
	}
	tokens := strings.Split(trail, "/")
	const (
		field   = 3 // /spec/tolerations
		element = 4 // /spec/containers/name=app
	)
	switch {
	case len(tokens) < field:
		return false
	case tokens[1] == "metadata":
		return len(tokens) == element && (tokens[2] == "labels" || tokens[2] == "annotations" && !reserved(unescape(tokens[3])))
	case tokens[1] != "spec", tokens[2] == volumes.String(), tokens[2] == ephemeralContainers.String():
		return false
	case tokens[2] == initContainers.String(), tokens[2] == containers.String():
		return len(tokens) > element
	default:
		return true
	}
}

// find is the entry of a profile, or nil.
func (s *status) find(profile string) *entry {
	if s == nil {
		return nil
	}
	for i := range s.Profiles {
		if s.Profiles[i].Name == profile {
			return &s.Profiles[i]
		}
	}
	return nil
}

// undo is how to take out of a pod what the status lists.
func (s *status) undo() *undo {
	root := new(undo)
	for i := range s.Profiles {
		e := &s.Profiles[i]
		for l := range lists {
			for _, name := range *e.list(l) {
				root.at(l.path() + "/" + named(name)).remove = true
			}
		}
		for _, trail := range e.Added {
			root.at(trail).remove = true
		}
	}
	for _, trail := range s.Created {
		root.at(trail).created = true
	}
	for _, trail := range slices.Sorted(maps.Keys(s.Originals)) {
		root.at(trail).original = s.Originals[trail]
	}
	root.at("/metadata/annotations/" + escape(v1alpha1.StatusAnnotation)).remove = true
	return root
}

// render writes a status annotation: one line of JSON, the profiles by name, and
// no list that is empty.
func (s *status) render() string {
	slices.SortFunc(s.Profiles, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	const usual = 512
	dst := append(make([]byte, 0, usual), `{"profiles":[`...)
	for i := range s.Profiles {
		e := &s.Profiles[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = rawjson.AppendString(dst, e.Name)
		dst = append(dst, `,"revision":`...)
		dst = rawjson.AppendString(dst, e.Revision)
		dst = appendTexts(dst, `,"initContainers":`, e.InitContainers)
		dst = appendTexts(dst, `,"containers":`, e.Containers)
		dst = appendTexts(dst, `,"volumes":`, e.Volumes)
		dst = appendTexts(dst, `,"reusedVolumes":`, e.Reused)
		dst = appendTexts(dst, `,"mergedContainers":`, e.Merged)
		dst = appendTexts(dst, `,"replacedContainers":`, e.Replaced)
		dst = appendTexts(dst, `,"added":`, e.Added)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	slices.Sort(s.Created)
	dst = appendTexts(dst, `,"created":`, slices.Compact(s.Created))
	for i, trail := range slices.Sorted(maps.Keys(s.Originals)) {
		if i == 0 {
			dst = append(dst, `,"originals":{`...)
		} else {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, trail)
		dst = append(append(dst, ':'), s.Originals[trail]...)
	}
	if len(s.Originals) > 0 {
		dst = append(dst, '}')
	}
	return string(append(dst, '}'))
}

func appendTexts(dst []byte, key string, texts []string) []byte {
	if len(texts) == 0 {
		return dst
	}
	dst = append(append(dst, key...), '[')
	for i, text := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, text)
	}
	return append(dst, ']')
}
