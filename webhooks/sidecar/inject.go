package sidecar

import (
	"fmt"
	"maps"
	"slices"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/inject"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// injector applies profiles to one pod, each to what the one before it has made of it.
type injector struct {
	request   *request
	selection *selection
	messages  *messages
	report    verdictReport
	owners    owners
	security  securityCheck
	buffer    inject.Buffer

	// pod is the pod so far, operations are those of all profiles, and status is the
	// status annotation that the pod gets.
	pod        inject.State
	operations []jsonpatch.Operation
	status     status.Status
}

func (i *injector) start(r *request, sel *selection, messages *messages) {
	i.request, i.selection, i.messages = r, sel, messages
	i.pod = inject.State{Pod: r.pod, Text: r.text}
	if r.status != nil {
		i.status.Originals = maps.Clone(r.status.Originals) // what was noted first holds
	}
	i.owners = owners{set: r.set, selection: sel, came: r.status, next: &i.status}
	i.report.messages = messages
}

// injectProfiles applies the selected profiles in their order. The error says why
// nothing can be decided any more.
func (i *injector) injectProfiles() error {
	set, next := i.request.set, 0
	for {
		k := -1
		for n, index := range i.selection.profiles {
			if rank := set.ranks[index]; i.selection.verdicts[n].Reason == "" && rank >= next && (k < 0 || rank < set.ranks[i.selection.profiles[k]]) {
				k = n
			}
		}
		if k < 0 {
			return nil
		}
		index := i.selection.profiles[k]
		next = set.ranks[index] + 1
		v := &i.selection.verdicts[k]
		if err := i.inject(v, index); err != nil {
			return err
		}
		if err := i.fallBack(v, set.profiles[index]); err != nil {
			return err
		}
	}
}

// fallBack applies the profile that another one replaces in its rollout, if that one
// does not fit the pod.
func (i *injector) fallBack(v *Verdict, p *profile.Profile) error {
	if p.Replaces == "" || v.Reason != InvalidParameter && v.Reason != Conflict && v.Reason != PodSecurity {
		return nil
	}
	other := i.selection.find(p.Replaces)
	if other == nil || other.Reason != Replaced || i.request.has(p.Name) {
		return nil
	}
	other.Reason, other.Detail = "", ""
	other.step("rollout", "yes", fmt.Sprintf("sidecar profile %q, which replaces it, is not applied", p.Name))
	return i.inject(other, i.request.set.byName[p.Replaces])
}

// inject renders a profile, merges it into the pod and verifies the pod. The error says
// why nothing can be decided any more.
func (i *injector) inject(v *Verdict, index int) error {
	r, p := i.request, i.request.set.profiles[index]
	if err := i.pod.Flush(); err != nil {
		return err
	}
	i.report.verdict = v
	rendering := (&renderer{request: r, profile: p, report: &i.report}).render()
	switch {
	case len(rendering.conflicts) > 0:
		v.Reason = i.resolveConflicts(p, rendering.conflicts, p.OnConflict == v1alpha1.SkipConflict)
		return nil
	case rendering.reason != "":
		v.Reason = rendering.reason
		return nil
	}
	v.Revision = rendering.rendered.Revision
	result, err := inject.Merge(inject.Input{
		Pod: i.pod, First: r.first, Profile: p, Rendered: rendering.rendered, Rank: r.set.ranks[index],
		Earlier: r.status.Find(p.Name), Found: r.found, Owners: &i.owners, Report: &i.report,
	}, &i.buffer)
	v.Detail = result.Detail
	if err != nil {
		i.messages.cannotDecide(fmt.Errorf("sidecar profile %q: %w", p.Name, err))
		v.Reason = Unknown
		return nil
	}
	switch result.Outcome {
	case inject.Refused:
		if v.Reason = Refused; p.OnConflict == v1alpha1.RefuseConflict {
			i.resolveConflicts(p, result.Conflicts, false)
		}
	case inject.Conflicting:
		v.Reason = i.resolveConflicts(p, result.Conflicts, p.OnConflict == v1alpha1.SkipConflict)
	case inject.Unchanged, inject.Outdated:
		v.Reason = AlreadyThere
	case inject.Merged:
		if v.Reason = i.verify(p, &result.Pod); v.Reason == Applied {
			i.accept(v, &result)
		}
	}
	return nil
}

// accept makes the result of a merge the pod for the next profile.
func (i *injector) accept(v *Verdict, result *inject.Result) {
	if i.operations == nil {
		i.operations = result.Pod.Editor.Operations
	} else {
		i.operations = append(i.operations, result.Pod.Editor.Operations...)
	}
	i.pod = result.Pod
	i.pod.Editor.Operations = nil
	i.status.Profiles = append(i.status.Profiles, result.Entry)
	i.status.Created = append(i.status.Created, result.Record.Created...)
	for path, original := range result.Record.Originals {
		i.status.NoteOriginal(path, original)
	}
	if v.Explanation != nil {
		v.Explanation.Adds = additions(&result.Entry)
	}
}

func additions(e *status.Entry) []string {
	var all []string
	for l, names := range [...][]string{podtext.InitContainers: e.InitContainers, podtext.Containers: e.Containers, podtext.Volumes: e.Volumes} {
		for _, name := range names {
			all = append(all, "/spec/"+podtext.List(l).String()+"/"+merge.NameKey(name))
		}
	}
	slices.Sort(all)
	return append(all, e.Added...)
}

// resolveConflicts does what the profile says about its conflicts: it leaves out the
// profile, or refuses the pod.
func (i *injector) resolveConflicts(p *profile.Profile, conflicts []inject.Conflict, skip bool) Reason {
	v := i.report.verdict
	for _, c := range conflicts {
		text := inject.WithPath(c.Path, c.Message)
		v.step("conflict", string(p.OnConflict), text)
		if v.Detail == "" {
			v.Detail = c.Message
		}
		if skip {
			i.report.notApplied(p.Name, text)
		} else {
			i.messages.refuse(c.Path, c.Hint, "%s", c.Message)
		}
	}
	if skip {
		return Conflict
	}
	return Refused
}
