package sidecar

import (
	"errors"
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Reason says what became of one profile for one pod.
type Reason string

// The reasons, in the order in which they are looked for. The first that holds
// is given.
const (
	// NamespaceNotSelected: the profile's namespaceSelector does not match.
	NamespaceNotSelected Reason = "namespace-not-selected"
	// ObjectNotSelected: the profile's objectSelector does not match.
	ObjectNotSelected Reason = "object-not-selected"
	// NotAsked: the profile is OptIn and the pod says nothing.
	NotAsked Reason = "not-asked"
	// StaticPod: the kubelet runs it whatever the API server says.
	StaticPod Reason = "static-pod"
	// Declined: the pod says "false".
	Declined Reason = "declined"
	// HostNetwork: a sidecar's ports would be the node's.
	HostNetwork Reason = "host-network"
	// HostProcess: a container of a Windows host process pod is no container.
	HostProcess Reason = "host-process"
	// MustEnd: a container of the profile would keep the pod from ending.
	MustEnd Reason = "must-end"
	// NamespaceUnknown: nothing but the labels of a namespace that is not known
	// could tell. The decision has an error.
	NamespaceUnknown Reason = "namespace-unknown"
	// Refused: the profile would be applied, but the pod is refused. The
	// decision says why.
	Refused Reason = "refused"
	// AlreadyThere: an earlier call applied the profile.
	AlreadyThere Reason = "already-there"
	// Applied: the patch adds what the profile adds, or what was missing of it.
	Applied Reason = "applied"
)

// Verdict is what became of one profile.
type Verdict struct {
	// Profile is its name.
	Profile string
	// Revision is a hash of its template, in hexadecimal. The status annotation
	// of a pod has it too.
	Revision string
	Reason   Reason
}

// Decision is everything there is to say about one pod. It shares no memory with
// the text of the pod.
type Decision struct {
	// Err is not nil if it could not be told what the pod should become. Then
	// there are neither refusals nor patches, and verdicts may be incomplete.
	Err error
	// Refusals say why the pod must not be created as it is. Then there are no
	// patches.
	Refusals finding.List
	// Verdicts are there for every profile, by name.
	Verdicts []Verdict
	// Warnings are for whoever creates the pod.
	Warnings []string
	// Patches make the pod what it should become. It is nil if there is nothing
	// to do. The values are json.RawMessage, are shared between decisions and
	// must not be changed.
	Patches []jsonpatch.Operation
	// Again says that the pod came with a status annotation: it has been here
	// before, or is a copy of one that has.
	Again bool
}

// wish is the pod's word on injection.
type wish uint8

const (
	silent wish = iota
	asks
	declines
)

const statusField = "metadata.annotations[" + v1alpha1.StatusAnnotation + "]"

// Decide decides about a pod that is to be created in a namespace. The object is
// the JSON text of the pod, and is not referred to afterwards.
func (s *Set) Decide(namespace string, object []byte) Decision {
	sc, _ := s.scratch.Get().(*scratch)
	// Nothing of the request may be kept.
	defer func() {
		sc.clear()
		s.scratch.Put(sc)
	}()
	p := &sc.pod
	if err := p.read(sc.members[:0], object); err != nil {
		return Decision{Err: err}
	}
	d := Decision{
		Verdicts: make([]Verdict, len(s.profiles)),
		Again:    p.status != nil,
	}
	for i, profile := range s.profiles {
		d.Verdicts[i] = Verdict{Profile: profile.name, Revision: profile.revision}
	}
	word, ok := p.wish()
	if !ok && !p.mirror {
		d.refuse("metadata.annotations["+v1alpha1.InjectAnnotation+"]", "",
			`%.64q is not known: allowed are "true" and "false"`, p.inject.Text())
		d.rest(Refused)
		return d
	}
	if !s.selectProfiles(&d, p, namespace, word) {
		if word == asks {
			d.warn("%s has no effect: %s", asked, d.notSelected())
		}
		return d
	}
	if d.leaveAlone(p, word) {
		return d
	}
	if d.Err = p.readLists(); d.Err != nil {
		return d
	}
	if p.hostProcess {
		d.rest(HostProcess)
		if word == asks {
			d.warn("%s has no effect: the pod is a Windows host process pod", asked)
		}
		return d
	}
	s.apply(&d, p, namespace)
	return d
}

const asked = v1alpha1.InjectAnnotation + `: "true"`

// wish is the pod's word on injection, and false if it cannot be understood.
func (p *pod) wish() (wish, bool) {
	switch {
	case p.inject == nil:
		return silent, true
	case p.inject.Is("true"):
		return asks, true
	case p.inject.Is("false"):
		return declines, true
	default:
		return silent, false
	}
}

// selectProfiles gives a reason to the profiles that do not select the pod, and
// tells whether any is left.
func (s *Set) selectProfiles(d *Decision, p *pod, name string, word wish) bool {
	var (
		selected bool
		ns       *namespace
		own      *podLabels
	)
	for i, profile := range s.profiles {
		verdict := &d.Verdicts[i]
		unknown := false
		if profile.namespaces != nil {
			if ns == nil {
				ns = s.lookUp(name)
			}
			switch ns.matches(profile) {
			case no:
				verdict.Reason = NamespaceNotSelected
				continue
			case couldNotTell:
				unknown = true
			case yes:
			}
		}
		if profile.objects != nil {
			if own == nil {
				own = &podLabels{p.labels}
			}
			if !profile.objects.Matches(own) {
				verdict.Reason = ObjectNotSelected
				continue
			}
		}
		if word == silent && !profile.optOut {
			verdict.Reason = NotAsked
			continue
		}
		if unknown {
			verdict.Reason = NamespaceUnknown
		}
		selected = true
	}
	return selected
}

// leaveAlone gives a reason to the profiles that select a pod which is left
// alone for what can be seen without a look at its containers, and tells
// whether it is one.
func (d *Decision) leaveAlone(p *pod, word wish) bool {
	switch {
	case p.mirror:
		d.rest(StaticPod)
		if word == asks {
			d.warn("%s has no effect: the pod mirrors a static pod, which the kubelet runs as it is", asked)
		}
	case word == declines:
		d.rest(Declined)
	case p.hostNetwork.IsTrue():
		d.rest(HostNetwork)
		if word == asks {
			d.warn("%s has no effect: the pod has hostNetwork: true, so that the ports of a sidecar would be the node's", asked)
		}
	default:
		return false
	}
	return true
}

// apply decides about the profiles that select the pod, and builds the patch.
func (s *Set) apply(d *Decision, p *pod, namespace string) {
	ends := p.restartPolicy.Is(string(corev1.RestartPolicyNever)) || p.restartPolicy.Is(string(corev1.RestartPolicyOnFailure))
	var entries []entry
	if p.status != nil {
		var err error
		if entries, err = parseStatus(p.status.Text()); err != nil {
			d.warn("%s cannot be read and is ignored: only Gatehouse writes it", statusField)
		}
	}
	var (
		few     [4]plan
		plans   = few[:0]
		unknown []error
	)
	for i, profile := range s.profiles {
		verdict := &d.Verdicts[i]
		known := verdict.Reason != NamespaceUnknown
		switch {
		case known && verdict.Reason != "":
			continue
		case ends && profile.plain != "":
			verdict.Reason = MustEnd
			if known {
				d.warn("sidecar profile %q is not applied: its container %q would keep the pod from ending (restartPolicy: %s); a native sidecar would not",
					profile.name, profile.plain, p.restartPolicy.Text())
			}
			continue
		case !known:
			unknown = append(unknown, fmt.Errorf("namespace %q is not known, and sidecar profile %q selects namespaces by their labels", namespace, profile.name))
			continue
		}
		var earlier *entry
		for k := range entries {
			if entries[k].Name == profile.name {
				earlier = &entries[k]
			}
		}
		made, err := d.plan(p, profile, earlier)
		if err != nil {
			unknown = append(unknown, err)
		}
		verdict.Reason = made.reason
		plans = append(plans, made)
	}
	switch {
	case len(d.Refusals) > 0:
		// They hold, whatever else could not be told.
		for i := range d.Verdicts {
			if d.Verdicts[i].Reason == Applied {
				d.Verdicts[i].Reason = Refused
			}
		}
		d.rest(Refused)
	case len(unknown) > 0:
		d.Err = errors.Join(unknown...)
	default:
		d.Patches = buildPatch(p, plans, entries)
	}
}

// rest gives a reason to the profiles that none keeps from being applied so far.
func (d *Decision) rest(reason Reason) {
	for i := range d.Verdicts {
		if r := &d.Verdicts[i].Reason; *r == "" || *r == NamespaceUnknown {
			*r = reason
		}
	}
}

func (d *Decision) refuse(path, hint, format string, args ...any) {
	d.Refusals = append(d.Refusals, finding.Finding{
		Severity: finding.Error, Field: path, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (d *Decision) warn(format string, args ...any) {
	d.Warnings = append(d.Warnings, fmt.Sprintf(format, args...))
}

// notSelected says why no profile selects the pod.
func (d *Decision) notSelected() string {
	const shown = 3 // A warning is one line.
	if len(d.Verdicts) == 0 {
		return "there is no sidecar profile"
	}
	var b strings.Builder
	b.WriteString("no sidecar profile selects the pod")
	before := ": "
	for _, v := range d.Verdicts[:min(shown, len(d.Verdicts))] {
		fmt.Fprintf(&b, "%s%s=%s", before, v.Profile, v.Reason)
		before = ", "
	}
	if more := len(d.Verdicts) - shown; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// answer is one of three.
type answer uint8

const (
	no answer = iota
	yes
	couldNotTell
)

// namespace is a namespace as labels.Labels.
type namespace struct {
	name   string
	labels map[string]string
	known  bool
}

func (s *Set) lookUp(name string) *namespace {
	ns := &namespace{name: name}
	if s.namespaces != nil {
		ns.labels, ns.known = s.namespaces.NamespaceLabels(name)
	}
	return ns
}

// matches tells whether the profile selects the namespace. Of a namespace that
// is not known only the name is.
func (n *namespace) matches(p *profile) answer {
	switch {
	case n.known:
		if p.namespaces.Matches(n) {
			return yes
		}
		return no
	case n.name == "" || p.byName == nil:
		return couldNotTell
	case !p.byName.Matches(n):
		return no
	case p.nameOnly:
		return yes
	default:
		return couldNotTell
	}
}

// Lookup returns a label. The API server keeps the label with the name equal to
// the name, so a document that lacks it is no reason to doubt it.
func (n *namespace) Lookup(key string) (string, bool) {
	if key == corev1.LabelMetadataName {
		return n.name, true
	}
	value, ok := n.labels[key]
	return value, ok
}

// Has tells whether there is such a label.
func (n *namespace) Has(key string) bool {
	_, ok := n.Lookup(key)
	return ok
}

// Get returns a label or nothing.
func (n *namespace) Get(key string) string {
	value, _ := n.Lookup(key)
	return value
}

// podLabels are the labels of a pod as labels.Labels, looked up in its text.
type podLabels struct{ object rawjson.Value }

// Lookup returns a label.
func (l *podLabels) Lookup(key string) (string, bool) {
	for name, value := range l.object.Members() {
		if name.Is(key) {
			return value.Text(), true
		}
	}
	return "", false
}

// Has tells whether there is such a label.
func (l *podLabels) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

// Get returns a label or nothing.
func (l *podLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}
