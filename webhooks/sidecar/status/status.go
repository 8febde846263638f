// Package status reads and writes the status annotation of a pod, which lists what profiles have added, and removes from a
// pod what the annotation lists.
package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// Field is the field path of the annotation.
const Field = "metadata.annotations[" + v1alpha1.StatusAnnotation + "]"

// Status is what the status annotation of a pod says.
type Status struct {
	Profiles []Entry `json:"profiles"`
	merge.Record
}

// Entry is what the status annotation says about one profile.
type Entry struct {
	Name           string   `json:"name"`
	Revision       string   `json:"revision"`
	InitContainers []string `json:"initContainers,omitempty"`
	Containers     []string `json:"containers,omitempty"`
	Volumes        []string `json:"volumes,omitempty"`
	// Reused are volumes that the profile uses and the pod already had.
	Reused []string `json:"reusedVolumes,omitempty"`
	// Merged and Replaced are containers of the pod's own that have the name of
	// one of the template's.
	Merged   []string `json:"mergedContainers,omitempty"`
	Replaced []string `json:"replacedContainers,omitempty"`
	// Added are the field paths of everything else.
	Added []string `json:"added,omitempty"`
}

// IsEmpty reports whether the entry lists nothing.
func (e *Entry) IsEmpty() bool {
	return len(e.InitContainers)+len(e.Containers)+len(e.Volumes)+len(e.Reused)+len(e.Merged)+len(e.Replaced)+len(e.Added) == 0
}

// List returns the names of what was added to a list.
func (e *Entry) List(l podtext.List) *[]string {
	return [...]*[]string{podtext.InitContainers: &e.InitContainers, podtext.Containers: &e.Containers, podtext.Volumes: &e.Volumes}[l]
}

// AddsContainer reports whether the entry lists a container that the profile has added.
func (e *Entry) AddsContainer(l podtext.List, name string) bool {
	return l <= podtext.Containers && slices.Contains(*e.List(l), name)
}

// Lists reports whether the entry lists an element in any way.
func (e *Entry) Lists(l podtext.List, name string) bool {
	switch {
	case e == nil:
		return false
	case l == podtext.Volumes:
		return slices.Contains(e.Volumes, name) || slices.Contains(e.Reused, name)
	default:
		return e.AddsContainer(l, name) || slices.Contains(e.Merged, name) || slices.Contains(e.Replaced, name)
	}
}

// Names returns the names for which Lists is true.
func (e *Entry) Names(l podtext.List) map[string]bool {
	out := map[string]bool{}
	others := [...][]string{e.Merged, e.Replaced}
	if l == podtext.Volumes {
		others = [...][]string{e.Reused, nil}
	}
	for _, names := range [...][]string{*e.List(l), others[0], others[1]} {
		for _, name := range names {
			out[name] = true
		}
	}
	return out
}

// Prune returns the entry without what the pod does not have.
func (e *Entry) Prune(found *Undo, there [podtext.NumLists]map[string]bool) Entry {
	in := func(names []string, ls ...podtext.List) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return !slices.ContainsFunc(ls, func(l podtext.List) bool { return there[l][name] })
		})
	}
	return Entry{
		Name:           e.Name,
		Revision:       e.Revision,
		InitContainers: in(e.InitContainers, podtext.InitContainers),
		Containers:     in(e.Containers, podtext.Containers),
		Volumes:        in(e.Volumes, podtext.Volumes),
		Reused:         in(e.Reused, podtext.Volumes),
		Merged:         in(e.Merged, podtext.InitContainers, podtext.Containers),
		Replaced:       in(e.Replaced, podtext.InitContainers, podtext.Containers),
		Added:          slices.DeleteFunc(slices.Clone(e.Added), func(fieldPath string) bool { return !found.Found(fieldPath) }),
	}
}

// maxLength is the length of the longest status annotation that is read, in
// bytes: what the API server allows for all annotations together
// (k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB), so that
// whatever was written can be read.
const maxLength = 256 << 10

// Parse reads a status annotation. Members that it does not know are
// ignored: a newer Gatehouse may have written them.
func Parse(text string) (*Status, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("not a status: longer than %d bytes", maxLength)
	}
	s := new(Status)
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
	s.dropImpossible()
	return s, nil
}

// dropImpossible drops what no decision can have written: a pod can come with any
// annotation.
func (s *Status) dropImpossible() {
	known := make(map[string]bool)
	for i := range s.Profiles {
		e := &s.Profiles[i]
		e.Added = slices.DeleteFunc(e.Added, func(fieldPath string) bool { return !isAddable(fieldPath) })
		for _, fieldPath := range e.Added {
			known[fieldPath] = true
		}
		for _, name := range e.Replaced {
			known["/spec/initContainers/"+merge.NameKey(name)] = true
			known["/spec/containers/"+merge.NameKey(name)] = true
		}
	}
	s.Created = slices.DeleteFunc(s.Created, func(fieldPath string) bool {
		return strings.Count(fieldPath, "/") > maxDepth || fieldPath != "/metadata" && !strings.HasPrefix(fieldPath, "/metadata/") && !strings.HasPrefix(fieldPath, "/spec/")
	})
	for _, fieldPath := range s.Created {
		known[fieldPath] = true
	}
	maps.DeleteFunc(s.Originals, func(fieldPath string, _ json.RawMessage) bool { return !known[fieldPath] })
}

// maxDepth is how many steps a field path may have: no field of a pod is as deep.
const maxDepth = 64

// isAddable reports whether a decision can have added what stands at the end of a
// field path: a label or annotation that a profile may set, or something in the spec
// that is no container and no volume, which go by their names.
func isAddable(fieldPath string) bool {
	if strings.Count(fieldPath, "/") > maxDepth {
		return false
	}
	tokens := strings.Split(fieldPath, "/")
	const (
		field   = 3 // /spec/tolerations
		element = 4 // /spec/containers/name=app
	)
	switch {
	case len(tokens) < field:
		return false
	case tokens[1] == "metadata":
		return len(tokens) == element && (tokens[2] == "labels" || tokens[2] == "annotations" && !podtext.IsReservedAnnotation(merge.Unescape(tokens[3])))
	case tokens[1] != "spec", tokens[2] == podtext.Volumes.String(), tokens[2] == podtext.EphemeralContainers.String():
		return false
	case tokens[2] == podtext.InitContainers.String(), tokens[2] == podtext.Containers.String():
		return len(tokens) > element
	default:
		return true
	}
}

// Find returns the entry of a profile, or nil.
func (s *Status) Find(profile string) *Entry {
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

// Undo returns the tree that removes from a pod what the status lists.
func (s *Status) Undo() *Undo {
	root := new(Undo)
	for i := range s.Profiles {
		e := &s.Profiles[i]
		for l := range podtext.NumLists {
			for _, name := range *e.List(l) {
				root.at(l.Pointer() + "/" + merge.NameKey(name)).remove = true
			}
		}
		for _, fieldPath := range e.Added {
			root.at(fieldPath).remove = true
		}
	}
	for _, fieldPath := range s.Created {
		root.at(fieldPath).created = true
	}
	for _, fieldPath := range slices.Sorted(maps.Keys(s.Originals)) {
		root.at(fieldPath).original = s.Originals[fieldPath]
	}
	root.at("/metadata/annotations/" + merge.Escape(v1alpha1.StatusAnnotation)).remove = true
	return root
}

// Marshal writes a status annotation: one line of JSON, the profiles by name, and
// no list that is empty.
func (s *Status) Marshal() string {
	slices.SortFunc(s.Profiles, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(s.Created)
	s.Created = slices.Compact(s.Created)
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // field paths have &
	_ = encoder.Encode(s)        //nolint:errchkjson // texts, and JSON that was read, can be encoded
	return strings.TrimSuffix(text.String(), "\n")
}
