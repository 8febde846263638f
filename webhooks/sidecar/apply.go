package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// plan is what one profile does to the pod.
type plan struct {
	*maker
	verdict *Verdict
	profile *profile.Profile
	*profile.Rendered
	earlier *status.Entry
	mine    map[string]bool // the trails of earlier
	merger  merge.Merger

	// fates are those of the elements of each list. They are nil if all are to
	// be added as they are.
	fates [podtext.NumLists][]fate
	// conflicts keep the profile from being applied; pod.Refusals are made of
	// them if the profile says so.
	// made is what the status has to say about what is made.
	made      merge.Record
	conflicts []conflict
	// refused are clashes that always refuse the pod.
	refused bool
}

type conflict struct{ path, hint, message string }

// fate is what becomes of one element of a template.
type fate struct {
	what what
	// index is where an element that is there stands in the pod's list.
	index int
	// raw is what is added, if it is not what was rendered.
	raw []byte
	// dropped are the indexes of the ports that are left out of it.
	dropped []int
}

type what uint8

const (
	toAdd what = iota
	// present: an earlier call added it.
	present
	// reused: the pod has an equal volume of its own.
	reused
	// merged: the pod has a container of this name, which gets what it lacks.
	merged
	// replaced: the pod has a container of this name, in whose place this comes.
	replaced
)

func (pl *plan) fate(l podtext.List, i int) *fate {
	if pl.fates[l] == nil {
		return &fate{}
	}
	return &pl.fates[l][i]
}

// applyAll carries out the profiles that are to be applied, in their order, each
// on what the one before it has made of the pod.
func (m *maker) applyAll() {
	next := 0
	for {
		k := -1
		for i, about := range m.about {
			if rank := m.set.ranks[about]; m.Verdicts[i].Reason == "" && rank >= next && (k < 0 || rank < m.set.ranks[m.about[k]]) {
				k = i
			}
		}
		if k < 0 {
			break
		}
		next = m.set.ranks[m.about[k]] + 1
		v, p := &m.Verdicts[k], m.set.profiles[m.about[k]]
		if m.Err = m.apply(v, p); m.Err != nil {
			return
		}
		if m.Err = m.fallBack(v, p); m.Err != nil {
			return
		}
	}
	if len(m.operations) > 0 {
		m.writeStatus()
	}
}

// fallBack applies the profile whose place another one was to take that does not
// fit the pod.
func (m *maker) fallBack(v *Verdict, p *profile.Profile) error {
	if p.Replaces == "" || v.Reason != InvalidParameter && v.Reason != Conflict && v.Reason != PodSecurity {
		return nil
	}
	other := m.verdict(p.Replaces)
	if other == nil || other.Reason != Replaced || m.has(p.Name) {
		return nil
	}
	other.Reason, other.Detail = "", ""
	other.step("rollout", "yes", fmt.Sprintf("sidecar profile %q does not take its place", p.Name))
	return m.apply(other, m.set.profiles[m.set.byName[p.Replaces]])
}

// advance makes what has been done the pod that is looked at next.
func (m *maker) advance() error {
	if len(m.pending.Splices) == 0 {
		return nil
	}
	m.text = m.pending.Result()
	m.pending.Text, m.pending.Splices = m.text, m.room[:0]
	next := new(podtext.Pod)
	if err := next.Read(m.reader, m.text); err != nil {
		return fmt.Errorf("what sidecar profiles have made of the pod: %w", err)
	}
	// The status is that of the pod as it came, whatever has been done since.
	next.StatusAnnotation = m.pod.StatusAnnotation
	m.pod = next
	if err := m.pod.SpecError(); err != nil {
		return fmt.Errorf("what sidecar profiles have made of the pod: %w", err)
	}
	return nil
}

// apply applies one profile. The error says that nothing can be told any more.
func (m *maker) apply(v *Verdict, p *profile.Profile) error {
	if err := m.advance(); err != nil {
		return err
	}
	pl := &m.plan
	*pl = plan{maker: m, verdict: v, profile: p, earlier: m.status.Find(p.Name)}
	if v.Reason = pl.render(); v.Reason != "" {
		return nil
	}
	v.Revision = pl.Revision
	text, pod := m.text, m.pod
	m.pending = merge.Editor{Text: text, Splices: m.room[:0], Operations: make([]jsonpatch.Operation, 0, len(m.room))}
	pl.merger = merge.Merger{Editor: &m.pending, OnConflict: pl.keeps, Record: &pl.made}
	if pl.earlier != nil {
		pl.mine = make(map[string]bool, len(pl.earlier.Added))
		for _, trail := range pl.earlier.Added {
			pl.mine[trail] = true
		}
		pl.merger.Earlier = pl.mine
	}
	reason, err := pl.make()
	switch {
	case err != nil:
		m.unknown = append(m.unknown, fmt.Errorf("sidecar profile %q: %w", p.Name, err))
		reason = Unknown
	case pl.refused:
		if reason = Refused; p.OnConflict == v1alpha1.RefuseConflict {
			pl.settle()
		}
	case len(pl.conflicts) > 0:
		reason = pl.settle()
	case reason == Applied && len(m.pending.Operations) == 0:
		reason = AlreadyThere
	case reason == Applied:
		if path, message := pl.unfit(); message != "" {
			reason = pl.refuseUnfit(path, message)
			break
		}
		var harms bool
		if harms, err = m.security.harms(m, p, text); err != nil {
			m.unknown = append(m.unknown, fmt.Errorf("sidecar profile %q: %w", p.Name, err))
			reason = Unknown
		} else if harms {
			reason = pl.insecure()
		}
	}
	v.Reason = reason
	if reason != Applied {
		m.text, m.pod, m.pending = text, pod, merge.Editor{}
		return nil
	}
	if m.operations == nil {
		m.operations = m.pending.Operations
	} else {
		m.operations = append(m.operations, m.pending.Operations...)
	}
	m.pending.Operations = nil
	pl.record()
	return nil
}

// render finds the values of the parameters and renders the template. It returns
// a reason if that is not possible.
func (pl *plan) render() Reason {
	p := pl.profile
	pl.strayInNamespace()
	if p.Fixed != nil && !p.Scope.HasParameters() && !pl.first.HasGatehouseNames {
		pl.Rendered = p.Fixed
		return ""
	}
	params, invalid := p.Scope.Resolve(
		func(name string) (string, bool) {
			if !pl.first.HasGatehouseNames {
				return "", false
			}
			value := pl.first.Annotations.Get(p.AnnotationPrefix + name)
			return value.Text(), value.Kind() == rawjson.String
		},
		func(name string) (string, bool) {
			text, ok := pl.ns().annotations[p.AnnotationPrefix+name]
			return text, ok
		},
	)
	if x := pl.verdict.Explanation; x != nil {
		for _, value := range params.All() {
			x.Parameters = append(x.Parameters, Parameter{value.Name, value.Text, string(value.From)})
		}
	}
	if reason := pl.invalid(invalid); reason != "" {
		return reason
	}
	if p.Fixed != nil {
		pl.Rendered = p.Fixed
		return ""
	}
	in := pl.input(p)
	in.Params = params
	made, err := p.Render(func(t *template.Tree) ([]byte, error) { return t.Append(nil, in) })
	if err != nil {
		return pl.unrendered(in, err)
	}
	pl.Rendered = made
	if invalid := pl.checkLabels(); len(invalid) > 0 {
		pl.conflicts = invalid
		return pl.settle()
	}
	return ""
}

// unrendered says why the profile cannot be rendered for the pod. What fails on
// this pod every time is a conflict, and all of it is named.
func (pl *plan) unrendered(in *template.Input, err error) Reason {
	p := pl.profile
	const most = 5
	for _, t := range p.Trees() {
		_, err := t.Append(nil, in)
		for _, e := range template.EvaluationErrors(err) {
			if len(pl.conflicts) < most {
				pl.conflicts = append(pl.conflicts, conflict{message: fmt.Sprintf("sidecar profile %q cannot be rendered for this pod: %v", p.Name, e)})
			}
		}
	}
	if len(pl.conflicts) > 0 {
		return pl.settle()
	}
	if unknown, ok := errors.AsType[*template.UnknownPresetError](err); ok {
		ref := p.Presets[unknown.Preset]
		err = fmt.Errorf("preset %q: there is no ConfigMap %q in namespace %q", unknown.Preset, ref.Name, ref.Namespace)
	}
	pl.verdict.Detail = err.Error()
	pl.unknown = append(pl.unknown, fmt.Errorf("sidecar profile %q: %w", p.Name, err))
	return Unknown
}

// checkLabels finds labels that no object can have, which only a pod's values
// can have made so.
func (pl *plan) checkLabels() []conflict {
	var found []conflict
	for name, value := range pl.Metadata.Get("labels").Members() {
		for _, message := range validation.IsValidLabelValue(value.Text()) {
			found = append(found, conflict{message: fmt.Sprintf("sidecar profile %q would set the label %s to %s: %s", pl.profile.Name, name.Text(), podtext.Quote(value.Text()), message)})
		}
	}
	return found
}

// invalid handles parameters that are not what is allowed, and annotations that
// set none.
func (pl *plan) invalid(invalid []template.Invalid) Reason {
	p := pl.profile
	var reason Reason
	for _, bad := range invalid {
		annotation := p.AnnotationPrefix + bad.Parameter
		path, message := "metadata.annotations["+annotation+"]", podtext.Quote(bad.Text)+" is not allowed"
		if x := pl.verdict.Explanation; x != nil {
			x.Parameters = append(x.Parameters, Parameter{bad.Parameter, bad.Text, strings.TrimPrefix(string(bad.From)+", not allowed", ", ")})
		}
		switch bad.From {
		case template.FromNamespace:
			path = fmt.Sprintf("namespace %q: %s", pl.in.Namespace, path)
		case template.FromPod:
		case "", template.FromDefault:
			message = "the parameter is required"
		}
		message += ": allowed is " + bad.Allowed
		if bad.Skip {
			reason = InvalidParameter
			pl.verdict.Detail = message
			pl.verdict.warned = true
			pl.warn("sidecar profile %q is not applied: %s: %s", p.Name, path, message)
			continue
		}
		pl.refuse(path, "", "%s", message)
		pl.refused = true
	}
	if pl.first.HasGatehouseNames {
		for _, annotation := range marked(pl.first.Annotations) {
			name, ok := strings.CutPrefix(annotation, p.AnnotationPrefix)
			if ok && !pl.set.hasParameter(p, name) {
				pl.refuse("metadata.annotations["+strict.Cut(p.AnnotationPrefix+name, maxName)+"]", diagnostic.DidYouMean(name, p.Scope.ParameterNames()...),
					"%s is not a parameter of sidecar profile %q", podtext.Quote(name), p.Name)
				pl.refused = true
			}
		}
	}
	if pl.refused {
		pl.verdict.Detail = InvalidParameter.Text()
		return Refused
	}
	return reason
}

// strayInNamespace warns about annotations of the namespace that set no parameter
// of the profile. Refusing would stop every pod in it.
func (pl *plan) strayInNamespace() {
	p := pl.profile
	var stray []string
	for key := range pl.ns().annotations {
		if name, ok := strings.CutPrefix(key, p.AnnotationPrefix); ok && !pl.set.hasParameter(p, name) {
			stray = append(stray, name)
		}
	}
	slices.Sort(stray)
	for _, name := range stray {
		pl.warn("the annotation %s of namespace %q has no effect: %s is not a parameter of sidecar profile %q",
			strict.Cut(p.AnnotationPrefix+name, maxName), pl.in.Namespace, podtext.Quote(name), p.Name)
	}
}

// hasParameter tells whether a profile has a parameter, or the other one of its
// rollout: a pod's annotations must suit both.
func (s *Set) hasParameter(p *profile.Profile, name string) bool {
	other := p.ReplacedBy
	if i, known := s.byName[p.Replaces]; known {
		other = i
	}
	return p.Scope.HasParameter(name) || other >= 0 && s.profiles[other].Scope.HasParameter(name)
}

// keeps is called where the pod has something else than the profile adds.
func (pl *plan) keeps(path, message string) {
	pl.conflict(path, pl.profile.DeclineHint(), fmt.Sprintf("sidecar profile %q: %s", pl.profile.Name, message))
}

// conflict notes a conflict. It returns true if the pod's own is to be kept.
func (pl *plan) conflict(path, hint, message string) bool {
	if pl.profile.OnConflict == v1alpha1.KeepConflict {
		text := at(path, message)
		pl.verdict.step("conflict", "kept", text)
		pl.warn("%s, and what is there is kept", text)
		return true
	}
	pl.conflicts = append(pl.conflicts, conflict{path, hint, message})
	return false
}

// at puts a path, if there is one, in front of a message.
func at(path, message string) string {
	if path == "" {
		return message
	}
	return path + ": " + message
}

// settle does what the profile says about its conflicts.
func (pl *plan) settle() Reason {
	skip := pl.profile.OnConflict == v1alpha1.SkipConflict
	for _, c := range pl.conflicts {
		pl.verdict.step("conflict", string(pl.profile.OnConflict), at(c.path, c.message))
		if pl.verdict.Detail == "" {
			pl.verdict.Detail = c.message
		}
		if !skip {
			pl.refuse(c.path, c.hint, "%s", c.message)
			continue
		}
		pl.verdict.warned = true
		pl.warn("sidecar profile %q is not applied: %s", pl.profile.Name, at(c.path, c.message))
	}
	if skip {
		return Conflict
	}
	return Refused
}

// insecure handles a profile with which the namespace's Pod Security level would
// not admit the pod.
func (pl *plan) insecure() Reason {
	message := fmt.Sprintf("with what sidecar profile %q adds, the pod %s, which namespace %q enforces",
		pl.profile.Name, podsecurity.Describe(pl.security.level, pl.security.violations...), pl.in.Namespace)
	pl.verdict.step("Pod Security", "no", message)
	pl.verdict.Detail = message
	if pl.profile.OnConflict == v1alpha1.RefuseConflict {
		pl.refuse("spec", pl.profile.DeclineHint(), "%s", message)
		return Refused
	}
	pl.verdict.warned = true
	pl.warn("sidecar profile %q is not applied: %s", pl.profile.Name, message)
	return PodSecurity
}

// writeStatus adds the status annotation to the patch.
func (m *maker) writeStatus() {
	if m.status != nil {
		there, ours := m.pod.Names(), len(m.now.Profiles)
		for i := range m.status.Profiles {
			if kept := m.status.Profiles[i].Prune(m.found, there); !kept.IsEmpty() && !slices.ContainsFunc(m.now.Profiles[:ours], func(e status.Entry) bool { return e.Name == kept.Name }) {
				m.now.Profiles = append(m.now.Profiles, kept)
			}
		}
		m.now.Created = append(m.now.Created, m.status.Created...)
	}
	metadata, annotations := m.hasMetadata()
	switch {
	case !metadata:
		m.now.NoteCreated("/metadata", m.pod.Metadata)
		m.now.NoteCreated("/metadata/annotations", nil)
		m.operate("add", "/metadata", `{"annotations":{"`+v1alpha1.StatusAnnotation+`":`, `}}`)
	case !annotations:
		m.now.NoteCreated("/metadata/annotations", m.pod.Annotations)
		m.operate("add", "/metadata/annotations", `{"`+v1alpha1.StatusAnnotation+`":`, `}`)
	case m.pod.StatusAnnotation != nil:
		m.operate("replace", statusPath, "", "")
	default:
		m.operate("add", statusPath, "", "")
	}
}

const statusPath = "/metadata/annotations/sidecar.gatehouse.dev~1status"

// refuseLong refuses a pod whose annotations would be longer than the API server
// allows, which would refuse it for a reason that nobody could find in it.
func (m *maker) refuseLong(status string) {
	const most = 256 << 10 // k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB
	size := len(m.text) + len(status)
	for i := range m.pending.Splices {
		size += len(m.pending.Splices[i].Insert)
	}
	if size <= most {
		return
	}
	text := m.text
	if len(m.pending.Splices) > 0 {
		text = m.pending.Result()
	}
	size = len(v1alpha1.StatusAnnotation) + len(status)
	for name, value := range rawjson.Value(text).Get("metadata", "annotations").Members() {
		if !name.Is(v1alpha1.StatusAnnotation) {
			size += len(name.Text()) + len(value.Text())
		}
	}
	if size > most {
		m.refuse("metadata.annotations", "shorten them, or decline profiles with the annotation "+v1alpha1.InjectAnnotation,
			"with what sidecar profiles add they would have %d bytes, and the API server allows %d", size, most)
	}
}

// operate puts the status somewhere, with what is around it.
func (m *maker) operate(operation, path, before, after string) {
	text := m.now.Marshal()
	m.refuseLong(text)
	const quotes = 64 // and the escapes of those inside
	value := append(make([]byte, 0, len(before)+len(text)+len(after)+quotes), before...)
	value = append(rawjson.AppendString(value, text), after...)
	m.operations = append(m.operations, jsonpatch.Operation{Operation: operation, Path: path, Value: json.RawMessage(value)})
}

// hasMetadata tells whether the pod has metadata and annotations once all
// operations are carried out.
func (m *maker) hasMetadata() (metadata, annotations bool) {
	metadata, annotations = m.pod.Metadata.Kind() == rawjson.Object, m.pod.Annotations.Kind() == rawjson.Object
	for i := range m.operations {
		switch m.operations[i].Path {
		case "/metadata":
			metadata = true
			text, _ := m.operations[i].Value.(json.RawMessage)
			annotations = annotations || rawjson.Value(text).Get("annotations").Kind() == rawjson.Object
		case "/metadata/annotations":
			annotations = true
		}
	}
	return metadata, annotations
}
