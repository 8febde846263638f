package mutation

import (
	"fmt"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Decision is what becomes of one request.
type Decision struct {
	// Err is why the request cannot be decided. Nothing else is set then but Evaluations.
	Err error
	// Refusal is the answer to a request that a policy refuses because it cannot be evaluated, nil for any other.
	Refusal *metav1.Status
	// Object is the object as the policies change it, as JSON, and Patch is how it differs from the object of the request.
	// They are nil if nothing has changed, and for a request that is refused.
	Object []byte
	Patch  []jsonpatch.Operation
	// Applied are the policies whose mutations were evaluated, in order.
	Applied []Application
	// Failures are those of policies and bindings that could not be evaluated, in the order in which they occurred.
	Failures []Failure
	// Evaluations are what was evaluated, in order, and what of it was not and why. They are recorded only if they were asked for.
	Evaluations []Evaluation
}

// Response returns the answer to the API server. It has code 500 if the request cannot be decided. A refusal has not, although some of
// the API server's own have: it would count as a failure of the webhook, and nobody would see its message.
func (d *Decision) Response() admission.Response {
	switch {
	case d.Err != nil:
		return admission.Errored(500, d.Err)
	case d.Refusal != nil:
		response := admission.Denied("")
		response.Result = d.Refusal
		if d.Refusal.Code >= 500 {
			status := *d.Refusal
			status.Code, status.Reason = 422, metav1.StatusReasonInvalid
			response.Result = &status
		}
		return response
	case len(d.Patch) == 0:
		return admission.Allowed("")
	default:
		return admission.Patched("", d.Patch...)
	}
}

// Application is a policy, as a binding applies it, whose mutations were evaluated.
type Application struct {
	Policy, Binding string
	// Changed reports whether the object was changed.
	Changed bool
	// Cost is in units of CEL cost.
	Cost int64
}

// Failure is a policy, as a binding applies it, that could not be evaluated.
type Failure struct {
	Policy string `json:"policy"`
	// Binding is "" if the failure is that of the policy with any binding.
	Binding string `json:"binding,omitempty"`
	Message string `json:"message"`
	// Ignored is true under failurePolicy Ignore.
	Ignored bool `json:"ignored,omitempty"`
	// reason is upstream's.
	reason metav1.StatusReason
}

// describe returns the message of the API server.
func (f *Failure) describe() string {
	if f.Binding != "" {
		return fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", f.Policy, f.Binding, f.Message)
	}
	return fmt.Sprintf("policy %q denied request: %s", f.Policy, f.Message)
}

// Why says what became of a policy or binding.
type Why string

const (
	// Evaluated is a policy whose mutations were evaluated.
	Evaluated Why = "Evaluated"
	// Exempt is a request that no policy is about.
	Exempt Why = "Exempt"
	// NotInForce is a policy without a binding.
	NotInForce Why = "NotInForce"
	// OtherRequest is a request that the rules do not name.
	OtherRequest Why = "OtherRequest"
	// NamespaceNotSelected is by the namespaceSelector of the policy or binding.
	NamespaceNotSelected Why = "NamespaceNotSelected"
	// ObjectNotSelected is by the objectSelector of the policy or binding.
	ObjectNotSelected Why = "ObjectNotSelected"
	// ConditionNotMet is a match condition that is false.
	ConditionNotMet Why = "ConditionNotMet"
	// NoParams is a binding whose params do not exist, which it allows.
	NoParams Why = "NoParams"
	// Failed is a policy or binding that could not be evaluated: its failurePolicy decides.
	Failed Why = "Failed"
)

// Evaluation is the result of one policy for one binding and param.
type Evaluation struct {
	Policy string `json:"policy"`
	// Binding is "" for a policy that does not match.
	Binding string `json:"binding,omitempty"`
	// Param is the param, as namespace/name or name, and "" without.
	Param string `json:"param,omitempty"`
	Why   Why    `json:"why"`
	// Detail says more, for people, and may be empty.
	Detail string `json:"detail,omitempty"`
	// Again is true for an evaluation because of reinvocationPolicy IfNeeded.
	Again     bool       `json:"again,omitempty"`
	Mutations []Mutation `json:"mutations,omitempty"`
}

// Mutation is what one mutation did.
type Mutation struct {
	// Index is its place in the policy.
	Index int                               `json:"index"`
	Kind  admissionregistrationv1.PatchType `json:"patchType"`
	Text  string                            `json:"expression"`
	Error string                            `json:"error,omitempty"`
	// Changes are what it changed, defaults included, in the order of the paths.
	Changes []Change `json:"changes,omitempty"`
	// Cost is in units of CEL cost, without that of variables.
	Cost int64 `json:"cost"`
}

// Change is a value of the object that a mutation changed.
type Change struct {
	// Path is a JSON pointer.
	Path string `json:"path"`
	// Before and After are JSON, Before is absent for a value that was added, and After for one that was removed.
	Before Value `json:"before,omitempty"`
	After  Value `json:"after,omitempty"`
}

// Value is a JSON value, cut to a length that a person reads.
type Value string

// LastChange is who changed a value of the result last.
type LastChange struct {
	Path, Policy, Binding string
	// Mutation is its index in the policy.
	Mutation int
}

// LastChanges returns for each path that was changed who changed it last, in the order of those changes. They are known if
// evaluations were asked for.
func (d *Decision) LastChanges() []LastChange {
	var out []LastChange
	for i := range d.Evaluations {
		e := &d.Evaluations[i]
		for k := range e.Mutations {
			for _, change := range e.Mutations[k].Changes {
				out = slices.DeleteFunc(out, func(earlier LastChange) bool { return isBelow(earlier.Path, change.Path) })
				out = append(out, LastChange{change.Path, e.Policy, e.Binding, e.Mutations[k].Index})
			}
		}
	}
	return out
}

// isBelow reports whether a path is another one, or below it.
func isBelow(path, of string) bool {
	rest, found := strings.CutPrefix(path, of)
	return found && (rest == "" || rest[0] == '/')
}

// refuse returns the answer to a request that is refused by failures, which is upstream's, and nil if none refuses.
func refuse(r *decider) *metav1.Status {
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden,
		Details: &metav1.StatusDetails{Name: r.Name, Group: r.Requested.Group, Kind: r.Requested.Resource},
	}
	const most = 32
	for i := range r.failures {
		f := &r.failures[i]
		if f.Ignored {
			continue
		}
		message := truncate.Bytes(f.describe(), maxMessage)
		if status.Message == "" {
			status.Message = message
			if f.reason != "" {
				status.Reason = f.reason
			}
		}
		if len(status.Details.Causes) < most {
			status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Message: message})
		}
	}
	if status.Message == "" {
		return nil
	}
	return status
}

// maxMessage is how many bytes of a message are shown.
const maxMessage = 4 << 10
