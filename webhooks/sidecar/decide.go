package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// Input is an admission request on which the endpoint decides.
type Input struct {
	// Request is the request. Its objects may be unchecked bytes, and are not referred to
	// after the decision.
	Request admission.Request
	// Checked says that the objects are known to be JSON without space around them, as
	// webhooks/review decodes them. They are not checked again then.
	Checked bool
	// Index is that of the AdmissionReview that the objects are a part of, nil for none.
	Index *rawjson.Index
	// Workload is the kind and name of the workload that will own the pod, as
	// "Deployment/checkout". It is for pods that no controller has created yet.
	Workload string
	// Explain fills in the explanations, for every profile.
	Explain bool
	// Apply requests Decision.Patched.
	Apply bool
}

// ForPod returns the Input for the creation of a pod, which is JSON, in a namespace.
func ForPod(namespace string, pod []byte) Input {
	var in Input
	in.Request.Operation, in.Request.Namespace, in.Request.Object.Raw = admissionv1.Create, namespace, pod
	in.Request.Kind = metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	in.Request.Resource = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return in
}

// IsNewPod reports whether a request creates a pod: the endpoint allows all others unchanged.
func IsNewPod(r *admission.Request) bool {
	return createsObject(r) && isPodKind(r) && isPodResource(r)
}

func createsObject(r *admission.Request) bool {
	return r.Operation == admissionv1.Create && r.SubResource == ""
}

func isPodKind(r *admission.Request) bool {
	return r.Kind == metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
}

func isPodResource(r *admission.Request) bool {
	return r.Resource == metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// Verdict is the outcome for one profile.
type Verdict struct {
	// Profile is its name.
	Profile string
	// Revision is a hash of what it adds to this pod, in hexadecimal. The status
	// annotation has it too. It is empty if it depends on the pod and the profile was not
	// rendered.
	Revision string
	Reason   Reason
	// Detail says more about the reason, for people, and may be empty.
	Detail string
	// Explanation is there if it was asked for.
	Explanation *Explanation

	// warned says that a warning gives the reason already.
	warned bool
}

// Explanation explains the verdict about a profile.
type Explanation struct {
	// Steps are the checks that led to the verdict, in order.
	Steps []Step `json:"steps,omitempty"`
	// Parameters are the profile's parameters, in the order of the profile.
	Parameters []Parameter `json:"parameters,omitempty"`
	// Adds are the field paths of what is added: JSON pointers in which elements of lists
	// go by their keys.
	Adds []string `json:"adds,omitempty"`
}

// Step is one check.
type Step struct {
	// Name is the name of the check: "namespaceSelector".
	Name string `json:"name"`
	// Result is one word: "yes", "no", "unknown".
	Result string `json:"result"`
	// Detail says more, and may be empty.
	Detail string `json:"detail,omitempty"`
}

// Parameter is the value of a parameter, and where it comes from: "pod",
// "namespace" or "default".
type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// Decision is the decision about one request. It shares no memory with the text of the pod.
// It is the zero Decision for a request that does not create a pod.
type Decision struct {
	// Err is not nil if it cannot be decided what the pod should become. Then there are
	// neither refusals nor patches, and verdicts may be incomplete.
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
	// Warnings are for the author of the pod.
	Warnings []string
	// Patches make the pod what it should become. It is nil if there is nothing
	// to do. The values are json.RawMessage, may be shared between decisions and
	// must not be changed.
	Patches []jsonpatch.Operation
	// Patched is the text of the pod with the patch applied, if Input.Apply requests it. It is nil
	// without a patch.
	Patched []byte
	// Again says that the pod came with a status annotation: it has been here
	// before, or is a copy of one that has.
	Again bool

	// had is the status annotation of the pod, nil without one.
	had *status.Status
}

const (
	// maxName bounds a name in a message, in characters.
	maxName = 128
	asked   = v1alpha1.InjectAnnotation + `: "true"`
)

// Decide decides on an admission request. It adds sidecars to pods that are being created
// and allows everything else unchanged. It refuses a pod that conflicts with what is
// added, or whose inject annotation is invalid. The context ends expressions that take too
// long. Decide is safe for concurrent use.
func (s *Set) Decide(ctx context.Context, in Input) Decision {
	request := &in.Request
	switch {
	case !createsObject(request):
		return Decision{}
	case isPodKind(request) != isPodResource(request):
		return Decision{Err: fmt.Errorf("the request's kind %s and resource %s do not match", request.Kind.String(), request.Resource.String())}
	case !isPodKind(request):
		return Decision{}
	case len(request.Object.Raw) == 0:
		return Decision{Err: errors.New("the request to create a pod has no object")}
	}
	sc, _ := s.scratch.Get().(*scratch)
	// Nothing of the request may be kept.
	defer func() {
		sc.clear()
		s.scratch.Put(sc)
	}()
	d := sc.decide(ctx, s, &in)
	d.had = sc.request.status
	if in.Apply && d.Patches != nil {
		d.Patched, d.Err = sc.injector.patched(d.Patches[len(d.Patches)-1])
	}
	return d
}

// decide runs the stages of a request: select, then render, merge and verify for each
// profile, then encode.
func (sc *scratch) decide(ctx context.Context, set *Set, in *Input) Decision {
	r, messages := &sc.request, &sc.messages
	r.set, r.context = set, ctx
	r.text, r.checked, r.index = podtext.Trim(in.Request.Object.Raw), in.Checked, in.Index
	r.namespaceName, r.workload, r.explain = in.Request.Namespace, in.Workload, in.Explain
	if err := r.read(&sc.pod, messages); err != nil {
		return Decision{Err: err, Warnings: messages.warnings, Again: r.isAgain()}
	}
	sc.selection = r.candidates(sc.about[:0])
	if !r.readAnnotations(messages) {
		sc.selection.setRest(Refused, "the pod's inject annotation is invalid")
		return sc.conclude(nil, nil)
	}
	selector := selector{request: r, messages: messages, selection: &sc.selection}
	if err := selector.selectProfiles(); err != nil {
		return sc.conclude(nil, err)
	}
	sc.injector.start(r, &sc.selection, messages)
	if err := sc.injector.injectProfiles(); err != nil {
		return sc.conclude(nil, err)
	}
	return sc.conclude(sc.injector.encode(), nil)
}

// conclude returns the decision: the patch, unless the pod is refused or it cannot be
// decided what it should become.
func (sc *scratch) conclude(patch []jsonpatch.Operation, err error) Decision {
	sel, messages := &sc.selection, &sc.messages
	if len(messages.refusals) == 0 && err == nil {
		sc.warnNotApplied()
	}
	if messages.moreRefusals > 0 {
		messages.refusals = append(messages.refusals, diagnostic.Diagnostic{Severity: diagnostic.Error, Message: fmt.Sprintf("and %d more", messages.moreRefusals)})
	}
	if messages.moreWarnings > 0 {
		messages.warnings = append(messages.warnings, fmt.Sprintf("and %d more warnings", messages.moreWarnings))
	}
	d := Decision{
		Refusals: messages.refusals, Verdicts: sel.verdicts, NotSelected: sel.notSelected, Warnings: messages.warnings, Again: sc.request.isAgain(),
	}
	switch {
	case len(d.Refusals) > 0:
		// They hold, whatever else cannot be decided.
		for i := range d.Verdicts {
			if v := &d.Verdicts[i]; v.Reason == Applied {
				v.Reason, v.Detail = Refused, otherRefuses
				if v.Explanation != nil {
					v.Explanation.Adds = nil
				}
			}
		}
		sel.setRest(Refused, otherRefuses)
	case err != nil:
		d.Err = err
	case len(messages.unknown) > 0:
		d.Err = errors.Join(messages.unknown...)
	default:
		d.Patches = patch
	}
	return d
}

// otherRefuses is the detail of a profile that could be applied to a pod which
// another one refuses.
const otherRefuses = "another profile refuses the pod"

func (sc *scratch) warnNotApplied() {
	value, messages := &sc.request.podValue, &sc.messages
	for _, name := range value.asked {
		v := sc.verdict(name)
		if v.warned || v.Reason == Applied || v.Reason == AlreadyThere || v.Reason == Replaced {
			continue
		}
		messages.warn("%s requests sidecar profile %q, which is not applied: %s", v1alpha1.InjectAnnotation, name, cmp.Or(v.Detail, v.Reason.Text()))
	}
	if value.all != asks {
		return
	}
	selected := false
	var left Reason
	for i := range sc.selection.verdicts {
		switch r := sc.selection.verdicts[i].Reason; r { //nolint:exhaustive // others have their own warning
		case NamespaceNotSelected, ObjectNotSelected, ConditionFalse, NotInRollout:
		case StaticPod, HostNetwork, HostProcess, OtherSystem:
			left = r
		default:
			selected = true
		}
	}
	switch {
	case selected:
	case left != "":
		messages.warn("%s has no effect: %s", asked, left.Text())
	default:
		messages.warn("%s has no effect: %s", asked, sc.whyNotSelected())
	}
}

// verdict returns the verdict about a profile, even if that is left out.
func (sc *scratch) verdict(profile string) *Verdict {
	v := sc.selection.find(profile)
	if v == nil {
		v = &Verdict{Profile: profile}
		set := sc.request.set
		v.Reason = (&selector{request: &sc.request, messages: &sc.messages, selection: &sc.selection}).selects(v, set.profiles[set.byName[profile]])
	}
	return v
}

func (sc *scratch) whyNotSelected() string {
	const shown = 3 // A warning is one line.
	all := sc.request.set.profiles
	if len(all) == 0 {
		return "there are no sidecar profiles"
	}
	var b strings.Builder
	b.WriteString("no sidecar profile selects the pod")
	before := ": "
	for _, p := range all[:min(shown, len(all))] {
		fmt.Fprintf(&b, "%s%s=%s", before, p.Name, sc.verdict(p.Name).Reason)
		before = ", "
	}
	if more := len(all) - shown; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

func (v *Verdict) step(name, result, detail string) {
	if v.Explanation != nil {
		v.Explanation.Steps = append(v.Explanation.Steps, Step{name, result, detail})
	}
}

// scratch is the memory that one decision needs. It is used again for the next.
type scratch struct {
	pod       podtext.Pod
	request   request
	messages  messages
	selection selection
	injector  injector
	// about is a buffer for the profiles that are looked at.
	about [fewProfiles]int
}

func (sc *scratch) clear() {
	sc.pod.Clear()
	*sc = scratch{pod: sc.pod}
}
