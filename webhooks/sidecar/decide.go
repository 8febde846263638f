package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// Input is a pod that is to be created.
type Input struct {
	// Context ends expressions that take too long. Nil stands for one that
	// never ends.
	Context context.Context //nolint:containedctx // it belongs to one call, like everything here
	// Namespace is the name of the namespace.
	Namespace string
	// Pod is the JSON text of the pod. It may be unchecked bytes, and is not
	// referred to after the decision.
	Pod []byte
	// Checked says that Pod is known to be JSON without space around it, as the
	// objects are that webhooks/review decodes. It is not checked again then.
	Checked bool
	// Workload is the kind and name, as "Deployment/checkout", of what the pod
	// will belong to, where the pod does not say so itself because its
	// controller has not made it yet.
	Workload string
	// Explain fills in the explanations, for every profile.
	Explain bool
}

// Verdict is what became of one profile.
type Verdict struct {
	// Profile is its name.
	Profile string
	// Revision is a hash of what it adds to this pod, in hexadecimal. The status
	// annotation has it too. It is empty if that depends on the pod and was not
	// found out.
	Revision string
	Reason   Reason
	// Detail says more about the reason, for people, and may be empty.
	Detail string
	// Explanation is there if it was asked for.
	Explanation *Explanation

	// warned says that a warning gives the reason already.
	warned bool
}

// Explanation tells how the verdict about a profile came about.
type Explanation struct {
	// Steps are what was looked at, in order.
	Steps []Step
	// Parameters are the profile's parameters, in the order of the profile.
	Parameters []Parameter
	// Adds are the places in the pod to which something is added, as JSON
	// pointers in which elements of lists go by their keys.
	Adds []string
}

// Step is one thing that was looked at.
type Step struct {
	// Name says what: "namespaceSelector".
	Name string
	// Result is one word: "yes", "no", "unknown".
	Result string
	// Detail says more, and may be empty.
	Detail string
}

// Parameter is the value of a parameter, and where it comes from: "pod",
// "namespace" or "default".
type Parameter struct {
	Name, Value, From string
}

// Decision is everything there is to say about one pod. It shares no memory with
// the text of the pod.
type Decision struct {
	// Err is not nil if it could not be told what the pod should become. Then
	// there are neither refusals nor patches, and verdicts may be incomplete.
	Err error
	// Refusals say why the pod must not be created as it is. Then there are no
	// patches.
	Refusals diagnostic.List
	// Verdicts are those about the profiles, by name. Of a set of more than 16,
	// profiles that the labels of the pod and its namespace exclude are left
	// out, unless an explanation is asked for.
	Verdicts []Verdict
	// NotSelected is how many profiles are left out.
	NotSelected int
	// Warnings are for whoever creates the pod.
	Warnings []string
	// Patches make the pod what it should become. It is nil if there is nothing
	// to do. The values are json.RawMessage, may be shared between decisions and
	// must not be changed.
	Patches []jsonpatch.Operation
	// Again says that the pod came with a status annotation: it has been here
	// before, or is a copy of one that has.
	Again bool

	// moreRefusals and moreWarnings are how many are not said.
	moreRefusals, moreWarnings int
}

const (
	// maxName bounds a name in a message, in characters.
	maxName = 128
	asked   = v1alpha1.InjectAnnotation + `: "true"`
)

// maker is one decision while it is made.
type maker struct {
	Decision
	set *Set
	in  *Input

	// pod is the pod as it is, with what profiles have done so far; first is the
	// pod without what its status lists, as the first call saw it.
	pod, first *podtext.Pod
	text       []byte
	firstText  []byte
	namespace  namespace
	looked     bool
	// about are the profiles of the verdicts, by index in the set.
	about []int

	podWord, namespaceWord word

	status  *status.Status // of the pod as it came, nil without one
	found   *status.Undo   // what of it is in the pod
	claimed claims
	now     status.Status // as it will be
	pending merge.Editor
	// operations are those of all profiles so far.
	operations []jsonpatch.Operation
	unknown    []error
	expression template.Input
	ready      bool // expression is
	security   securityCheck
	plan       plan
	reader     *podtext.Reader
	// room is that of the splices of one profile.
	room [8]merge.Splice
}

// Decide decides about a pod that is to be created. It is safe for concurrent
// use.
func (s *Set) Decide(in Input) Decision {
	d, _ := s.decide(in)
	return d
}

// decide is Decide, and what the pod's status annotation says, nil without one.
func (s *Set) decide(in Input) (Decision, *status.Status) {
	sc, _ := s.scratch.Get().(*scratch)
	// Nothing of the request may be kept.
	defer func() {
		sc.clear()
		s.scratch.Put(sc)
	}()
	in.Pod = podtext.Trim(in.Pod)
	m := &sc.maker
	m.set, m.in, m.pod, m.text, m.reader = s, &in, &sc.Pod, in.Pod, &sc.Reader
	m.decide(sc)
	return m.Decision, m.status
}

func (m *maker) decide(sc *scratch) {
	if m.in.Checked {
		m.Err = m.pod.Read(&sc.Reader, m.text)
	} else {
		m.Err = m.pod.Parse(&sc.Reader, m.text)
	}
	if m.Err != nil {
		return
	}
	m.first, m.firstText = m.pod, m.text
	if m.pod.StatusAnnotation != nil {
		m.Again = true
		if m.Err = m.again(); m.Err != nil {
			return
		}
	}
	m.candidates(sc)
	if !m.words() {
		return
	}
	m.selectProfiles()
	if m.Err == nil {
		m.applyAll()
	}
	m.finish()
}

// again reads the status of a pod that has been here before, and the pod without
// what that lists: whatever is decided must not depend on what was added.
func (m *maker) again() error {
	st, err := status.Parse(m.pod.StatusAnnotation.Text())
	if err != nil {
		m.warn("%s cannot be read and is ignored: only Gatehouse writes it", status.Field)
		return nil //nolint:nilerr // whoever wrote it, the pod is none of a second call
	}
	m.status = st
	m.now.Originals = maps.Clone(st.Originals) // what was noted first holds
	if len(st.Profiles) == 0 {
		return nil
	}
	m.found = st.Undo()
	m.firstText, _ = m.found.Revert(make([]byte, 0, len(m.text)), m.text, "", nil)
	m.first = new(podtext.Pod)
	if err := m.first.Read(m.reader, m.firstText); err != nil {
		return fmt.Errorf("without what %s lists: %w", status.Field, err)
	}
	return nil
}

// ns is the pod's namespace.
func (m *maker) ns() *namespace {
	if !m.looked {
		m.looked = true
		m.namespace = m.set.lookUp(m.in.Namespace)
	}
	return &m.namespace
}

// candidates makes a verdict for every profile that is looked at.
func (m *maker) candidates(sc *scratch) {
	s := m.set
	if s.index == nil || m.in.Explain {
		m.Verdicts = make([]Verdict, len(s.profiles))
		m.about = slices.Grow(sc.about[:0], len(s.profiles))
		for i, p := range s.profiles {
			m.Verdicts[i].Profile, m.Verdicts[i].Revision = p.Name, p.FixedRevision()
			m.about = append(m.about, i)
			if m.in.Explain {
				m.Verdicts[i].Explanation = new(Explanation)
			}
		}
		return
	}
	const bits = 64
	var few [8]uint64
	room := few[:]
	if words := (s.index.count + bits - 1) / bits; words > len(few) {
		room = make([]uint64, words)
	}
	s.index.candidates(room, m.first, m.ns())
	m.about = sc.about[:0]
	for i, p := range s.profiles {
		if room[i/bits]&(1<<(i%bits)) != 0 {
			m.about = append(m.about, i)
			m.Verdicts = append(m.Verdicts, Verdict{Profile: p.Name, Revision: p.FixedRevision()})
		}
	}
	m.NotSelected = len(s.profiles) - len(m.about)
}

// words reads what the pod and its namespace want. It returns false if the pod
// is refused for it.
func (m *maker) words() bool {
	if inject := m.first.InjectAnnotation; inject != nil {
		var bad *wrong
		// Nobody can change the word of a mirror any more.
		if m.podWord, bad = m.set.parseWord(inject.Text()); bad != nil && !m.first.IsMirror {
			m.refuse(injectField, bad.hint, "%s", bad.message)
			m.rest(Refused, "the pod's word cannot be understood")
			return false
		}
	}
	if m.first.HasGatehouseNames {
		m.strangers()
	}
	if m.set.namespaces == nil || len(m.set.profiles) == 0 {
		return true
	}
	if text, ok := m.ns().annotations[v1alpha1.InjectAnnotation]; ok {
		var bad *wrong
		if m.namespaceWord, bad = m.set.parseWord(text); bad != nil {
			m.warn("the annotation %s of namespace %q is ignored: %s", v1alpha1.InjectAnnotation, m.in.Namespace, bad.message)
		}
	}
	return true
}

// strangers warns about annotations that are meant for Gatehouse and say nothing
// to it, and about labels that should be annotations.
func (m *maker) strangers() {
	for _, name := range marked(m.first.Annotations) {
		if because, hint := m.set.strange(name); because != "" {
			m.warn("metadata.annotations[%s] has no effect: %s%s", strict.Cut(name, maxName), because, hint)
		}
	}
	for _, name := range marked(m.first.Labels) {
		if name == v1alpha1.InjectAnnotation || strings.Contains(name, "."+v1alpha1.ParameterDomain+"/") {
			m.warn("metadata.labels[%s] has no effect: it is a label (hint: make it an annotation)", strict.Cut(name, maxName))
		}
	}
}

// marked are the names that are meant for Gatehouse, in one order whatever the
// order of the pod.
func marked(object rawjson.Value) []string {
	var names []string
	for nameText := range object.Members() {
		if name := nameText.Text(); strings.Contains(name, podtext.Domain) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// strange says why an annotation has no effect, if it looks as if it should have
// one.
func (s *Set) strange(name string) (because, hint string) {
	domain, rest, _ := strings.Cut(name, "/")
	profile, ofParameter := strings.CutSuffix(domain, "."+v1alpha1.ParameterDomain)
	switch {
	case name == v1alpha1.InjectAnnotation || name == v1alpha1.StatusAnnotation:
		return "", ""
	case domain == v1alpha1.ParameterDomain || domain == "gatehouse.dev" && rest == "inject":
		hint = fmt.Sprintf(" (hint: did you mean %s?)", v1alpha1.InjectAnnotation)
		if _, near := diagnostic.Nearest(rest, "inject"); !near {
			hint = ""
		}
		return "it is not known", hint
	case !ofParameter:
		return "", ""
	}
	i, known := s.byName[profile]
	switch {
	case !known:
		return "there is no sidecar profile " + podtext.Quote(profile), ""
	case s.profiles[i].Replaces != "":
		return fmt.Sprintf("sidecar profile %q takes the place of %q, and reads the annotations that are for that", profile, s.profiles[i].Replaces), ""
	}
	return "", ""
}

// finish says what has not been said, and puts the patch together.
func (m *maker) finish() {
	m.unmet()
	if m.moreRefusals > 0 {
		m.Refusals = append(m.Refusals, diagnostic.Diagnostic{Severity: diagnostic.Error, Message: fmt.Sprintf("and %d more", m.moreRefusals)})
	}
	if m.moreWarnings > 0 {
		m.Warnings = append(m.Warnings, fmt.Sprintf("and %d more warnings", m.moreWarnings))
	}
	switch {
	case len(m.Refusals) > 0:
		// They hold, whatever else could not be told.
		m.Err = nil
		for i := range m.Verdicts {
			if v := &m.Verdicts[i]; v.Reason == Applied {
				v.Reason, v.Detail = Refused, otherRefuses
				if v.Explanation != nil {
					v.Explanation.Adds = nil
				}
			}
		}
		m.rest(Refused, otherRefuses)
	case m.Err != nil:
	case len(m.unknown) > 0:
		m.Err = errors.Join(m.unknown...)
	case len(m.operations) > 0:
		m.Patches = m.operations
	}
}

// unmet warns about what the pod has asked for and does not get.
func (m *maker) unmet() {
	if len(m.Refusals) > 0 || m.Err != nil {
		return
	}
	for _, name := range m.podWord.asked {
		v := m.sure(name)
		if v.warned || v.Reason == Applied || v.Reason == AlreadyThere || v.Reason == Replaced {
			continue
		}
		m.warn("%s asks for sidecar profile %q, which is not applied: %s", v1alpha1.InjectAnnotation, name, cmp.Or(v.Detail, v.Reason.Text()))
	}
	if m.podWord.all != asks {
		return
	}
	selected := false
	var left Reason
	for i := range m.Verdicts {
		switch r := m.Verdicts[i].Reason; {
		case slices.Contains([]Reason{NamespaceNotSelected, ObjectNotSelected, ConditionFalse, NotInRollout}, r):
		case slices.Contains([]Reason{StaticPod, HostNetwork, HostProcess, OtherSystem}, r):
			left = r
		default: // Others have their own warning.
			selected = true
		}
	}
	switch {
	case selected:
	case left != "":
		m.warn("%s has no effect: %s", asked, left.Text())
	default:
		m.warn("%s has no effect: %s", asked, m.notSelected())
	}
}

func (m *maker) verdict(profile string) *Verdict {
	for i := range m.Verdicts {
		if m.Verdicts[i].Profile == profile {
			return &m.Verdicts[i]
		}
	}
	return nil
}

// sure is the verdict about a profile, of one that is left out too.
func (m *maker) sure(profile string) *Verdict {
	v := m.verdict(profile)
	if v == nil {
		v = &Verdict{Profile: profile}
		v.Reason = m.selects(v, m.set.profiles[m.set.byName[profile]])
	}
	return v
}

// otherRefuses is the detail of a profile that could be applied to a pod which
// another one refuses.
const otherRefuses = "the pod is refused for another profile"

// rest gives a reason to the profiles that none keeps from being applied so far.
func (d *Decision) rest(reason Reason, detail string) {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Reason == "" || v.Reason == NamespaceUnknown || v.Reason == Unknown {
			v.Reason, v.Detail = reason, detail
		}
	}
}

// mostSaid is how many refusals, and how many warnings, are said about one pod.
// Nobody reads more, and a pod can have thousands.
const mostSaid = 32

func (d *Decision) refuse(path, hint, format string, args ...any) {
	if len(d.Refusals) == mostSaid {
		d.moreRefusals++
		return
	}
	d.Refusals = append(d.Refusals, diagnostic.Diagnostic{
		Severity: diagnostic.Error, Field: path, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (d *Decision) warn(format string, args ...any) {
	if len(d.Warnings) == mostSaid {
		d.moreWarnings++
		return
	}
	d.Warnings = append(d.Warnings, fmt.Sprintf(format, args...))
}

// notSelected says why no profile selects the pod.
func (m *maker) notSelected() string {
	const shown = 3 // A warning is one line.
	all := m.set.profiles
	if len(all) == 0 {
		return "there is no sidecar profile"
	}
	var b strings.Builder
	b.WriteString("no sidecar profile selects the pod")
	before := ": "
	for _, p := range all[:min(shown, len(all))] {
		fmt.Fprintf(&b, "%s%s=%s", before, p.Name, m.sure(p.Name).Reason)
		before = ", "
	}
	if more := len(all) - shown; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// step notes a step for the explanation.
func (v *Verdict) step(name, result, detail string) {
	if v.Explanation != nil {
		v.Explanation.Steps = append(v.Explanation.Steps, Step{name, result, detail})
	}
}
