package sidecar

import (
	"bytes"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
	"gomodules.xyz/jsonpatch/v2"
)

// mergeInput is what mergeProfile needs.
type mergeInput struct {
	// pod is the pod as the profiles before this one have left it, and first as its
	// author made it.
	pod   podState
	first *podtext.Pod

	profile  *profile.Profile
	rendered *profile.Rendered
	// rank is the place of the profile in the order of all.
	rank int
	// earlier is what the status annotation lists of the profile, or nil, and found
	// what of the annotation is in the pod.
	earlier *status.Entry
	found   *status.Undo

	owners containerOwners
	report reporter
	reader *podtext.Reader
}

// containerOwners finds the profiles that have added containers.
type containerOwners interface {
	// IsApp reports whether a container is the pod's own: none that a profile adds,
	// merges with or replaces, now or in an earlier call.
	IsApp(l podtext.List, name string) bool
	// Owner returns the profile that has added a container, and its place in the order
	// of all. It is nil if there is none.
	Owner(l podtext.List, name string) (p *profile.Profile, rank int)
	// IsEmpty reports whether no profile has added anything.
	IsEmpty() bool
}

// reporter takes messages for the author of the pod and steps of the explanation.
type reporter interface {
	Step(name, result, detail string)
	Warn(format string, args ...any)
	Refuse(path, hint, format string, args ...any)
}

// mergeOutcome is the outcome of a merge.
type mergeOutcome uint8

const (
	// isMerged: the pod has changed.
	isMerged mergeOutcome = iota
	// isUnchanged: the pod has everything already.
	isUnchanged
	// isOutdated: the pod has another revision of the profile, and keeps it.
	isOutdated
	// isConflict: the conflicts keep the profile from being applied.
	isConflict
	// isRefused: the pod is refused, whatever the profile says about conflicts.
	isRefused
)

// mergeResult is what has become of the pod. All but the outcome, the detail and the
// conflicts is valid for isMerged alone.
type mergeResult struct {
	outcome   mergeOutcome
	detail    string
	conflicts []conflict
	pod       podState
	// entry and record are what the status annotation lists.
	entry  status.Entry
	record merge.Record
}

// conflict is something in the pod that excludes what the profile adds.
type conflict struct{ path, hint, message string }

// podState is a pod as profiles have changed it so far.
type podState struct {
	pod *podtext.Pod
	// text is that of pod. The changes of the editor are not in it yet.
	text   []byte
	editor merge.Editor
}

// flush makes the changes of the editor part of the text and reads the pod again. The
// operations of the editor stay.
func (s *podState) flush(reader *podtext.Reader) error {
	if len(s.editor.Splices) == 0 {
		return nil
	}
	s.text = s.editor.Result()
	s.editor.Text, s.editor.Splices = s.text, s.editor.Splices[:0]
	next := new(podtext.Pod)
	err := next.Read(reader, s.text)
	if err == nil {
		// The status is that of the pod as it came, whatever has been done since.
		next.StatusAnnotation = s.pod.StatusAnnotation
		s.pod = next
		err = next.SpecError()
	}
	if err != nil {
		return fmt.Errorf("what sidecar profiles have made of the pod: %w", err)
	}
	return nil
}

// mergeBuffer is the memory of a merge. It can be used again.
type mergeBuffer struct {
	injection injection
	splices   [8]merge.Splice
}

// injection is one profile that is being merged into the pod.
type injection struct {
	in mergeInput
	// now is the pod as this profile has changed it so far.
	now    podState
	merger merge.Merger
	// earlierPaths are the field paths of what an earlier call added.
	earlierPaths map[string]bool
	// actions are those of the elements of each list. They are nil if all elements are
	// added as they are.
	actions   [podtext.NumLists][]action
	record    merge.Record
	conflicts []conflict
	refused   bool
	detail    string
}

// mergeProfile merges what a profile adds into a pod.
//
// A container or volume that has a name of the profile belongs to the profile only if
// the status annotation lists it. Then it stays as it is, because others may have
// changed it since. The annotation alone is not enough, since a pod can come with any:
// what it lists and is absent is added. Two revisions of one profile in one pod are
// refused: nobody knows how they work together.
func mergeProfile(in mergeInput, buffer *mergeBuffer) (mergeResult, error) {
	inj := &buffer.injection
	*inj = injection{in: in, now: in.pod}
	inj.now.editor = merge.Editor{Text: in.pod.text, Splices: buffer.splices[:0], Operations: make([]jsonpatch.Operation, 0, len(buffer.splices))}
	inj.merger = merge.Merger{Editor: &inj.now.editor, OnConflict: inj.keep, Record: &inj.record}
	if in.earlier != nil {
		inj.earlierPaths = make(map[string]bool, len(in.earlier.Added))
		for _, path := range in.earlier.Added {
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
				return mergeResult{detail: inj.detail}, err
			}
		}
	}
	switch { // Only now all that is wrong with the pod is known.
	case inj.refused:
		return mergeResult{outcome: isRefused, detail: inj.detail, conflicts: inj.conflicts}, nil
	case len(inj.conflicts) > 0:
		return mergeResult{outcome: isConflict, detail: inj.detail, conflicts: inj.conflicts}, nil
	case !current:
		return mergeResult{outcome: isOutdated, detail: inj.detail}, nil
	}
	for l := range podtext.NumLists {
		if err := inj.insertAll(l); err != nil {
			return mergeResult{}, err
		}
	}
	if len(inj.now.editor.Operations) == 0 {
		return mergeResult{outcome: isUnchanged}, nil
	}
	return mergeResult{pod: inj.now, entry: inj.entry(), record: inj.record}, nil
}

// checkRevision compares the revision in the pod with the profile's. It returns false
// if the pod has another one, which is left as it is.
func (inj *injection) checkRevision(missing int, held bool) bool {
	in := &inj.in
	switch {
	case !held && in.earlier != nil && inj.actions[podtext.Volumes] == nil:
		in.report.Warn("%s claims that sidecar profile %q was applied, but nothing of it is there: it is applied now", status.Field, in.profile.Name)
	case held && in.earlier.Revision != in.rendered.Revision && missing > 0:
		inj.refused = true
		in.report.Refuse(status.Field, "remove the annotation and what it lists from the pod",
			"revision %.64q of sidecar profile %q is in the pod, and lacks something of revision %q, which is in force", in.earlier.Revision, in.profile.Name, in.rendered.Revision)
		return false
	case held && in.earlier.Revision != in.rendered.Revision:
		inj.detail = fmt.Sprintf("the pod has revision %.64q of sidecar profile %q and is left as it is; revision %q is in force",
			in.earlier.Revision, in.profile.Name, in.rendered.Revision)
		in.report.Warn("%s", inj.detail)
		return false
	}
	return true
}

// keep is called where the pod has something else than the profile adds.
func (inj *injection) keep(path, message string) {
	inj.conflict(path, inj.in.profile.DeclineHint(), fmt.Sprintf("sidecar profile %q: %s", inj.in.profile.Name, message))
}

// conflict notes a conflict. It reports whether the pod keeps what it has.
func (inj *injection) conflict(path, hint, message string) bool {
	if inj.in.profile.OnConflict == v1alpha1.KeepConflict {
		text := withPath(path, message)
		inj.in.report.Step("conflict", "kept", text)
		inj.in.report.Warn("%s, and what is there is kept", text)
		return true
	}
	inj.conflicts = append(inj.conflicts, conflict{path, hint, message})
	return false
}

// withPath puts a path, if there is one, in front of a message.
func withPath(path, message string) string {
	if path == "" {
		return message
	}
	return path + ": " + message
}

// mergeFields merges what the template says about the pod itself.
func (inj *injection) mergeFields() error {
	if inj.in.rendered.Metadata != nil {
		root := rawjson.Value(bytes.TrimSpace(inj.now.text))
		if err := inj.merger.Member(merge.Path{}.Member("metadata"), root, "metadata", inj.in.rendered.Metadata, nil); err != nil {
			return err
		}
	}
	if inj.in.rendered.Spec == nil {
		return nil
	}
	return inj.merger.Object(merge.Path{}.Member("spec"), inj.now.pod.Spec, inj.in.rendered.Spec, merge.PodRules)
}
