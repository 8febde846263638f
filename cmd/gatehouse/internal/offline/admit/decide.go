package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Decider decides about requests as both endpoints do: injection first, then policies. It is safe for concurrent use.
type Decider struct {
	Snapshot *webhooks.Snapshot
	// Documents reviews custom resources of Gatehouse. With nil they are not reviewed.
	Documents *crdadmission.Reviewer
	// NamespaceHint says how a namespace becomes known that is not.
	NamespaceHint string
}

// Template is a pod template in an object.
type Template struct {
	// Path is where it is, as "spec.template".
	Path string
	// Workload is the kind and name of the object, as "Deployment/checkout".
	Workload string
	// Pod is the JSON of the pod that the template makes.
	Pod []byte
}

// Decision is what both endpoints decide about an object.
type Decision struct {
	// Injection is the decision about the pod or the pod template, nil for an object without one.
	Injection *sidecar.Decision
	// Violations are those of injection, then those of Documents, and then those of policies.
	Violations []policy.Violation
	// Warnings are those that say more than violations. Warned reports whether the user gets any.
	Warnings []string
	Warned   bool
	// Policies are recorded if they are asked for.
	Policies []policy.Evaluation
	// Refused reports whether the request is refused, and Err is why something is unknown. Both can be set.
	Refused bool
	Err     error
	// SkippedPolicies reports that no policy is evaluated, because injection refuses the pod.
	SkippedPolicies bool
	// UnknownSidecars reports that the sidecars of a workload's pods are unknown, so that violations of its template do not
	// refuse it.
	UnknownSidecars bool

	// refusals are the messages of those of injection.
	refusals []string
}

// Decide decides about a request. The object of one for a new pod becomes the injected pod. The template is nil for an object without one.
func (d *Decider) Decide(ctx context.Context, req *admission.Request, template *Template, explain bool) Decision {
	var out Decision
	switch {
	case sidecar.IsNewPod(req):
		injection := Inject(ctx, d.Snapshot.Sidecar, req)
		if d.addInjection(&out, &injection, req.Namespace, ""); injection.Err != nil || len(injection.Refusals) > 0 {
			out.SkippedPolicies = len(injection.Refusals) > 0
			return out
		}
	case template != nil && req.Operation != admissionv1.Delete && req.SubResource == "":
		pod, err := Defaulted(template.Pod)
		if err != nil {
			out.Err = fmt.Errorf("%s: %w", template.Path, err)
			return out
		}
		in := sidecar.ForPod(req.Namespace, pod)
		in.Workload = template.Workload
		injection := d.Snapshot.Sidecar.Decide(ctx, in)
		d.addInjection(&out, &injection, req.Namespace, template.Path)
	}
	if d.Documents != nil && crdadmission.Concerns(req) {
		response := d.Documents.Review(ctx, *req, true)
		out.addDocument(&response)
	}
	_, known := d.Snapshot.Policy.Lookups().Objects.Namespace(req.Namespace)
	decision := d.Snapshot.Policy.Decide(ctx, policy.Input{Request: *req, Violations: true, Explain: explain || !known && req.Namespace != ""})
	if !known {
		d.addUnknownNamespace(&out, &decision, req.Namespace)
	}
	if explain {
		out.Policies = decision.Evaluations
	}
	out.Violations = append(out.Violations, decision.Violations...)
	out.addWarnings(&decision)
	out.Err = errors.Join(out.Err, cmp.Or(decision.Err, decision.Undecided))
	out.Refused = out.Refused || slices.ContainsFunc(decision.Violations, func(v policy.Violation) bool {
		return v.Refuses() && (v.Template == "" || !out.UnknownSidecars)
	})
	return out
}

// addInjection adds what injection decides about a pod, or about the pod template at a path.
func (d *Decider) addInjection(out *Decision, injection *sidecar.Decision, namespace, template string) {
	out.Injection = injection
	out.Warnings = append(out.Warnings, injection.Warnings...)
	for _, f := range injection.Refusals {
		out.refusals = append(out.refusals, f.Message)
	}
	for _, v := range Refusals(injection) {
		v.Template = template
		out.Violations = append(out.Violations, v)
		out.Refused = true
	}
	if injection.Err != nil {
		f := Undecided(namespace, injection, d.NamespaceHint)
		f.Field = template
		out.Err = errors.Join(out.Err, errors.New(f.String()))
		out.UnknownSidecars = template != ""
	}
}

// Undecided returns why it cannot be decided what becomes of a pod, on one line. The hint says how a namespace becomes known.
func Undecided(namespace string, d *sidecar.Decision, hint string) diagnostic.Diagnostic {
	f := diagnostic.Diagnostic{Severity: diagnostic.Error}
	var profiles, messages []string
	unknown := fmt.Sprintf("namespace %q is unknown, and sidecar profile", namespace)
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Reason == sidecar.NamespaceUnknown {
			profiles = append(profiles, strconv.Quote(v.Profile))
		}
	}
	switch len(profiles) {
	case 0:
	case 1:
		messages = append(messages, unknown+" "+profiles[0]+" selects namespaces by label")
	default:
		messages = append(messages, unknown+"s "+strings.Join(profiles, ", ")+" select namespaces by label")
	}
	if len(profiles) > 0 {
		f.Hint = hint
	}
	for line := range strings.Lines(d.Err.Error()) {
		// The message about all of these profiles stands for that about each.
		if line = strings.TrimSpace(line); len(profiles) == 0 || !strings.HasPrefix(line, unknown) {
			messages = append(messages, line)
		}
	}
	f.Message = strings.Join(messages, "; ")
	return f
}

// addUnknownNamespace makes it an error that policies depend on a namespace that is not known. In the cluster it is known, so
// that what failurePolicy says would be a guess.
func (d *Decider) addUnknownNamespace(out *Decision, decision *policy.Decision, namespace string) {
	because := fmt.Sprintf("namespace %q is not known", namespace)
	var policies []string
	for i := range decision.Evaluations {
		e := &decision.Evaluations[i]
		if name := strconv.Quote(e.Policy); e.Why == policy.Misconfigured && strings.Contains(e.Detail, because) && !slices.Contains(policies, name) {
			policies = append(policies, name)
		}
	}
	if len(policies) == 0 {
		return
	}
	decision.Violations = slices.DeleteFunc(slices.Clone(decision.Violations), func(v policy.Violation) bool {
		return v.Outcome == policy.Failed && v.Rule == "" && strings.Contains(v.Message, because)
	})
	what := "policy " + policies[0] + " depends on it"
	if len(policies) > 1 {
		what = "policies " + strings.Join(policies, ", ") + " depend on it"
	}
	message := because + ", and " + what
	if d.NamespaceHint != "" {
		message += " (hint: " + d.NamespaceHint + ")"
	}
	out.Err = errors.Join(out.Err, errors.New(message))
}

// addWarnings adds the warnings of policies that say more than violations and refusals do.
func (out *Decision) addWarnings(d *policy.Decision) {
	told := slices.Clone(out.refusals)
	for i := range d.Violations {
		told = append(told, d.Violations[i].Message)
	}
	const enough = 80 // bytes of a message, which may be cut in a warning
	warnings := d.Response().Warnings
	for _, text := range warnings {
		if !slices.ContainsFunc(told, func(message string) bool {
			message = strings.ReplaceAll(message, "\n", " ")
			return strings.Contains(text, message[:min(len(message), enough)])
		}) {
			out.Warnings = append(out.Warnings, text)
		}
	}
	out.Warned = len(out.Warnings)+len(warnings) > 0
}

// addDocument adds the review of a custom resource of our own. Its violations have the object in place of a policy, and a field
// in place of a rule.
func (out *Decision) addDocument(response *admission.Response) {
	if response.Result != nil && response.Result.Code >= http.StatusInternalServerError {
		out.Err = errors.Join(out.Err, errors.New(response.Result.Message))
		return
	}
	for _, text := range response.Warnings {
		_, text, _ = strings.Cut(text, ": ") // without the object, which is named above
		out.Warnings, out.Warned = append(out.Warnings, text), true
	}
	if response.Allowed {
		return
	}
	out.Refused = true
	details := response.Result.Details
	for _, cause := range details.Causes {
		out.Violations = append(out.Violations, policy.Violation{
			Kind: details.Kind, Policy: details.Name, Rule: cause.Field, Message: cause.Message,
			Reason: response.Result.Reason, Outcome: policy.Violated,
			Actions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		})
	}
}
