// Package inject merges what one profile adds into one pod.
package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// Input is what mergeProfile needs.
type Input struct {
	// Pod is the pod as the profiles before this one have left it, and first as its
	// author made it.
	Pod   State
	First *podtext.Pod

	Profile  *profile.Profile
	Rendered *profile.Rendered
	// Rank is the place of the profile in the order of all.
	Rank int
	// Earlier is what the status annotation lists of the profile, or nil, and found
	// what of the annotation is in the pod.
	Earlier *status.Entry
	Found   *status.Undo

	Owners Owners
	Report Reporter
}

// Owners finds the profiles that have added containers.
type Owners interface {
	// IsApp reports whether a container is the pod's own: none that a profile adds,
	// merges with or replaces, now or in an earlier call.
	IsApp(l podtext.List, name string) bool
	// Owner returns the profile that has added a container, and its place in the order
	// of all. It is nil if there is none.
	Owner(l podtext.List, name string) (p *profile.Profile, rank int)
	// IsEmpty reports whether no profile has added anything.
	IsEmpty() bool
}

// Reporter takes messages for the author of the pod and steps of the explanation.
type Reporter interface {
	Step(name, result, detail string)
	Warn(format string, args ...any)
	Refuse(path, hint, format string, args ...any)
}

// Outcome is the outcome of a merge.
type Outcome uint8

const (
	// Merged is for a pod that has changed.
	Merged Outcome = iota
	// Unchanged is for a pod that has everything already.
	Unchanged
	// Outdated is for a pod that has another revision of the profile, and keeps it.
	Outdated
	// Conflicting is for a pod whose conflicts keep the profile from being applied.
	Conflicting
	// Refused is for a pod that is refused, whatever the profile says about conflicts.
	Refused
)

// Result is what has become of the pod. All but the outcome, the detail and the
// conflicts is valid for Merged alone.
type Result struct {
	Outcome   Outcome
	Detail    string
	Conflicts []Conflict
	Pod       State
	// Entry and record are what the status annotation lists.
	Entry  status.Entry
	Record merge.Record
}

// Conflict is something in the pod that excludes what the profile adds.
type Conflict struct{ Path, Hint, Message string }

// State is a pod as profiles have changed it so far.
type State struct {
	Pod *podtext.Pod
	// Text is that of pod. The changes of the editor are not in it yet.
	Text   []byte
	Editor merge.Editor
}

// Flush makes the changes of the editor part of the text and reads the pod again. The
// operations of the editor stay.
func (s *State) Flush() error {
	if len(s.Editor.Splices) == 0 {
		return nil
	}
	s.Text = s.Editor.Result()
	s.Editor.Text, s.Editor.Splices = s.Text, s.Editor.Splices[:0]
	next := new(podtext.Pod)
	err := next.ReadAgain(s.Text)
	if err == nil {
		// The status is that of the pod as it came, whatever has been done since.
		next.StatusAnnotation = s.Pod.StatusAnnotation
		s.Pod = next
		err = next.SpecError()
	}
	if err != nil {
		return fmt.Errorf("the pod after sidecar injection: %w", err)
	}
	return nil
}

// Buffer is the memory of a merge. It can be used again.
type Buffer struct {
	injection injection
	splices   [8]merge.Splice
}

// injection is one profile that is being merged into the pod.
type injection struct {
	in Input
	// now is the pod as this profile has changed it so far.
	now    State
	merger merge.Merger
	// earlierPaths are the field paths of what an earlier call added.
	earlierPaths map[string]bool
	// actions are those of the elements of each list. They are nil if all elements are
	// added as they are.
	actions   [podtext.NumLists][]action
	record    merge.Record
	conflicts []Conflict
	refused   bool
	// adopted is true if a container is there that no annotation lists.
	adopted bool
	detail  string
}

// Merge merges what a profile adds into a pod.
//
// A container or volume that has a name of the profile belongs to the profile only if
// the status annotation lists it. Then it stays as it is, because others may have
// changed it since. The annotation alone is not enough, since a pod can come with any:
// what it lists and is absent is added. Two revisions of one profile in one pod are
// refused: nobody knows how they work together. Without an annotation, a container that
// equals the profile's is the profile's.
func Merge(in Input, buffer *Buffer) (Result, error) {
	inj := &buffer.injection
	*inj = injection{in: in, now: in.Pod}
	inj.now.Editor = merge.Editor{Text: in.Pod.Text, Splices: buffer.splices[:0], Operations: make([]jsonpatch.Operation, 0, len(buffer.splices))}
	inj.merger = merge.Merger{Editor: &inj.now.Editor, OnConflict: inj.keep, Record: &inj.record}
	if in.Earlier != nil {
		inj.earlierPaths = make(map[string]bool, len(in.Earlier.Added))
		for _, path := range in.Earlier.Added {
			inj.earlierPaths[path] = true
		}
		inj.merger.Earlier = inj.earlierPaths
	}
	current := inj.checkRevision(inj.compare())
	if current {
		for _, step := range [...]func(*injection) error{
			(*injection).checkPorts, (*injection).checkUsers,
			(*injection).mergeFields, (*injection).shareMounts, (*injection).mergeContainers, (*injection).addToApp,
		} {
			if err := step(inj); err != nil {
				return Result{Detail: inj.detail}, err
			}
		}
	}
	switch { // Only now all that is wrong with the pod is known.
	case inj.refused:
		return Result{Outcome: Refused, Detail: inj.detail, Conflicts: inj.conflicts}, nil
	case len(inj.conflicts) > 0:
		return Result{Outcome: Conflicting, Detail: inj.detail, Conflicts: inj.conflicts}, nil
	case !current:
		return Result{Outcome: Outdated, Detail: inj.detail}, nil
	}
	for l := range podtext.NumLists {
		if err := inj.insertAll(l); err != nil {
			return Result{}, err
		}
	}
	if len(inj.now.Editor.Operations) == 0 && !inj.adopted {
		return Result{Outcome: Unchanged}, nil
	}
	return Result{Pod: inj.now, Entry: inj.entry(), Record: inj.record}, nil
}

// checkRevision compares the revision in the pod with the profile's. It returns false
// if the pod has another one, which is left as it is.
func (inj *injection) checkRevision(missing int, held bool) bool {
	in := &inj.in
	switch {
	case !held && in.Earlier != nil && inj.actions[podtext.Volumes] == nil:
		in.Report.Warn("%s lists sidecar profile %q, but the pod has none of its additions: the profile is applied now", status.Field, in.Profile.Name)
	case held && in.Earlier.Revision != in.Rendered.Revision && missing > 0:
		inj.refused = true
		in.Report.Refuse(status.Field, "remove the annotation and everything that it lists from the pod",
			"the pod has revision %.64q of sidecar profile %q, but a part of the active revision %q is missing", in.Earlier.Revision, in.Profile.Name, in.Rendered.Revision)
		return false
	case held && in.Earlier.Revision != in.Rendered.Revision:
		inj.detail = fmt.Sprintf("the pod keeps revision %.64q of sidecar profile %q: the active revision is %q",
			in.Earlier.Revision, in.Profile.Name, in.Rendered.Revision)
		in.Report.Warn("%s", inj.detail)
		return false
	}
	return true
}

// keep is called where the pod has something else than the profile adds.
func (inj *injection) keep(path, message string) {
	inj.conflict(path, inj.in.Profile.DeclineHint(), fmt.Sprintf("sidecar profile %q: %s", inj.in.Profile.Name, message))
}

// conflict notes a conflict. It reports whether the pod keeps what it has.
func (inj *injection) conflict(path, hint, message string) bool {
	if inj.in.Profile.OnConflict == v1alpha1.KeepConflict {
		text := WithPath(path, message)
		inj.in.Report.Step("conflict", "kept", text)
		inj.in.Report.Warn("%s; the pod keeps its value", text)
		return true
	}
	inj.conflicts = append(inj.conflicts, Conflict{path, hint, message})
	return false
}

// WithPath puts a path, if there is one, in front of a message.
func WithPath(path, message string) string {
	if path == "" {
		return message
	}
	return path + ": " + message
}

func (inj *injection) mergeFields() error {
	if inj.in.Rendered.Metadata != nil {
		root := rawjson.Value(bytes.TrimSpace(inj.now.Text))
		if err := inj.merger.Member(merge.Path{}.Member("metadata"), root, "metadata", inj.in.Rendered.Metadata, nil); err != nil {
			return err
		}
	}
	if inj.in.Rendered.Spec == nil {
		return nil
	}
	return inj.merger.Object(merge.Path{}.Member("spec"), inj.now.Pod.Spec, inj.in.Rendered.Spec, merge.PodRules)
}

// entry returns what the status annotation lists: what the profile has added, now and
// before.
func (inj *injection) entry() status.Entry {
	e := status.Entry{Name: inj.in.Profile.Name, Revision: inj.in.Rendered.Revision, Added: inj.merger.Added}
	for l := range podtext.NumLists {
		if inj.actions[l] == nil {
			*e.List(l) = inj.in.Profile.Names[l]
			continue
		}
		for i, name := range inj.in.Profile.Names[l] {
			switch f := inj.action(l, i); {
			case f.kind == reuse:
				e.Reused = append(e.Reused, name)
			case f.kind == mergeInto || f.kind == present && slices.Contains(inj.in.Earlier.Merged, name):
				e.Merged = append(e.Merged, name)
			case f.kind == replace || f.kind == present && slices.Contains(inj.in.Earlier.Replaced, name):
				e.Replaced = append(e.Replaced, name)
			default:
				*e.List(l) = append(*e.List(l), name)
			}
		}
	}
	if inj.in.Earlier != nil {
		now := make(map[string]bool, len(e.Added))
		for _, fieldPath := range e.Added {
			now[fieldPath] = true
		}
		for _, fieldPath := range inj.in.Earlier.Added {
			if !now[fieldPath] && inj.in.Found.Found(fieldPath) {
				e.Added = append(e.Added, fieldPath)
			}
		}
		// The claims of the annotation decide which containers are the pod's own: without
		// one of them the next decision would be another.
		there := inj.in.Earlier.Prune(inj.in.Found, inj.now.Pod.Names())
		for l := range podtext.NumLists {
			earlier := *there.List(l)
			if len(earlier) == 0 {
				continue
			}
			claimed := e.Names(l)
			*e.List(l) = slices.Clone(*e.List(l)) // it may be the profile's own
			for _, name := range earlier {
				if !claimed[name] {
					claimed[name] = true
					*e.List(l) = append(*e.List(l), name)
				}
			}
		}
	}
	return e
}

func (inj *injection) insertAll(l podtext.List) error {
	elements := inj.in.Profile.Elements[l]
	if len(elements) == 0 {
		return nil
	}
	own := inj.now.Pod.Lists[l].Text
	if own.Kind() != rawjson.Array {
		value := inj.in.Rendered.Arrays[l]
		if inj.actions[l] != nil {
			value = inj.array(l)
		}
		inj.record.NoteCreated(l.Pointer(), own)
		if own.Kind() == rawjson.Null {
			return inj.now.Editor.Replace(l.Pointer(), own, value)
		}
		return inj.now.Editor.Add(l.Pointer(), inj.now.Pod.Spec, l.String(), value)
	}
	length := inj.now.Pod.Lists[l].To - inj.now.Pod.Lists[l].From
	next, added := inj.position(l, length), 0
	for i := range elements {
		f := inj.action(l, i)
		if f.kind != add {
			if inj.in.Profile.First[l] {
				next = max(next, f.index+1)
			}
			continue
		}
		value := inj.in.Rendered.Elements[l][i].Value
		if f.raw != nil {
			value = json.RawMessage(f.raw)
		}
		var err error
		if next >= length {
			err = inj.now.Editor.Push(l.EndPointer(), own, value)
		} else {
			err = inj.now.Editor.Insert(l.Pointer(), next+added, inj.now.Pod.Element(inj.now.Pod.Lists[l].From+next).Text, value)
		}
		if err != nil {
			return err
		}
		added++
	}
	return nil
}

func (inj *injection) array(l podtext.List) json.RawMessage {
	parts := slices.Clone(inj.in.Rendered.Elements[l])
	for i := range parts {
		if raw := inj.actions[l][i].raw; raw != nil {
			parts[i].Raw = raw
		}
	}
	return profile.Array(parts)
}

// position returns the index at which the profile's elements begin: in front of the
// pod's own or behind them, and among those of other profiles in their order.
func (inj *injection) position(l podtext.List, length int) int {
	first := inj.in.Profile.First[l]
	at := length
	if first {
		at = 0
	}
	if l == podtext.Volumes || inj.in.Owners.IsEmpty() {
		return at
	}
	for i := range length {
		owner, rank := inj.in.Owners.Owner(l, inj.now.Pod.Element(inj.now.Pod.Lists[l].From+i).Name.Text())
		switch {
		case owner == nil || owner.First[l] != first:
		case first && rank < inj.in.Rank:
			at = i + 1
		case !first && rank > inj.in.Rank:
			return i
		}
	}
	return at
}
