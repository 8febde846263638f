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

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Decider decides about requests as a cluster does: mutating policies first, then injection, then policies about the result. It is
// safe for concurrent use.
type Decider struct {
	Snapshot *webhooks.Snapshot
	// Order finds mutating policies whose order matters. IsUnordered, if set, reports whether it is the API server that runs a policy,
	// in no particular order.
	Order       bool
	IsUnordered func(policy string) bool
	// Documents reviews custom resources of Gatehouse. With nil they are not reviewed.
	Documents *crdadmission.Reviewer
	// NamespaceHint says how a namespace becomes known that is not.
	NamespaceHint func(namespace string) string
	// Resources say what the API server refuses of an object that was changed. With nil such an object is not checked.
	Resources *request.Resources
	// Entries requests Violation.Entry.
	Entries bool
	// Pods says what it is if policies refuse the pods of a template: "" is not asked.
	Pods Pods
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

// Mutated is what mutating policies decide about an object, or about the pods of its template.
type Mutated struct {
	// Template is the path of the template, "" for the object itself.
	Template string
	mutation.Decision
	// Conflicts are the policies whose order matters, if they were asked for.
	Conflicts []mutation.Conflict
}

// Decision is what both endpoints decide about an object.
type Decision struct {
	// Mutated are the decisions of mutating policies, if any policy is there: about the object, and about the pods of its template.
	Mutated []Mutated
	// Pod is the pod about which injection decides, if mutating policies have changed it.
	Pod []byte
	// Injection is the decision about the pod or the pod template, nil for an object without one.
	Injection *sidecar.Decision
	// GeneratedName is the name that the object has for policies, "" for one that has a name of its own.
	GeneratedName string
	// Violations are those of mutating policies, of injection, of Documents, and then those of policies. Beside are the ones of these
	// that no evaluation of a policy has: of what the API server refuses of a changed object, and of pods that nobody will admit.
	Violations, Beside []policy.Violation
	// Changed reports whether the object was changed, and Invalid is what the API server then refuses of it, whoever wrote that.
	Changed bool
	Invalid diagnostic.List
	// Warnings are those that say more than violations. Warned reports whether the user gets any.
	Warnings []string
	Warned   bool
	// Policies are recorded if they are asked for.
	Policies []policy.Evaluation
	// Refused reports whether the request is refused, and Err is why something is unknown. Both can be set.
	Refused bool
	Err     error
	// SkippedPolicies reports that no policy is evaluated, because a mutating policy or injection refuses the object.
	SkippedPolicies bool
	// UnknownSidecars reports that the sidecars of a workload's pods are unknown, so that violations of its template do not
	// refuse it.
	UnknownSidecars bool

	// refusals are the messages of those of injection.
	refusals []string
}

// generatedSuffix stands for what the API server puts behind generateName: five of these letters and others.
const generatedSuffix = "xxxxx"

// GenerateName gives a new object a name, as the API server does between mutation and validation. It returns the name, "" for an object that
// has one of its own.
func GenerateName(req *admission.Request) (string, error) {
	metadata := rawjson.Value(req.Object.Raw).Get("metadata")
	prefix := metadata.Get("generateName").Text()
	if req.Operation != admissionv1.Create || req.SubResource != "" || prefix == "" || metadata.Get("name").Text() != "" {
		return "", nil
	}
	name := prefix[:min(len(prefix), names.MaxGeneratedNameLength)] + generatedSuffix
	text, err := Patched(req.Object.Raw, []jsonpatch.Operation{{Operation: "add", Path: "/metadata/name", Value: name}})
	if err != nil {
		return "", err
	}
	req.Object.Raw, req.Name = text, name
	return name, nil
}

// Decide decides about a request. Its object becomes what mutating policies and, of a new pod, injection make of it. The template is nil
// for an object without one.
func (d *Decider) Decide(ctx context.Context, req *admission.Request, template *Template, explain bool) Decision {
	var out Decision
	sent, pods := *req, (*admission.Request)(nil)
	if d.mutate(ctx, &out, req, "", explain); out.Refused || out.Err != nil {
		return out
	}
	switch {
	case sidecar.IsNewPod(req):
		out.setPod(req.Object.Raw)
		injection := Inject(ctx, d.Snapshot.Sidecar, req)
		if d.addInjection(&out, &injection, req.Namespace, ""); injection.Err != nil || len(injection.Refusals) > 0 {
			out.SkippedPolicies = len(injection.Refusals) > 0
			return out
		}
		d.addResult(ctx, &out, &sent, req, "")
	case template != nil && req.Operation != admissionv1.Delete && req.SubResource == "":
		d.addResult(ctx, &out, &sent, req, "")
		var err error
		if pods, err = d.decidePods(ctx, &out, req, template, explain); err != nil {
			out.Err = fmt.Errorf("%s: %w", template.Path, err)
			return out
		}
	default:
		d.addResult(ctx, &out, &sent, req, "")
	}
	if d.Documents != nil && crdadmission.Concerns(req) {
		response := d.Documents.Review(ctx, *req, true)
		out.addDocument(&response)
	}
	var err error
	if out.GeneratedName, err = GenerateName(req); err != nil {
		out.Err = err
		return out
	}
	_, known := d.Snapshot.Policy.Lookups().Objects.Namespace(req.Namespace)
	decision := d.Snapshot.Policy.Decide(ctx, policy.Input{Request: *req, Violations: true, Entries: d.Entries, Explain: explain || !known && req.Namespace != ""})
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
	if pods != nil && d.Pods != "" && d.Pods != IgnorePods {
		d.admitPods(ctx, &out, pods, template, explain)
	}
	return out
}

// setPod sets Pod if mutating policies have changed anything.
func (out *Decision) setPod(pod []byte) {
	if slices.ContainsFunc(out.Mutated, func(m Mutated) bool { return m.Object != nil }) {
		out.Pod = pod
	}
}

// decidePods decides about the pods that the template of a request's object makes, without policies. It returns the request for one, as
// mutating policies and injection change it, nil if one is refused or that is not known.
func (d *Decider) decidePods(ctx context.Context, out *Decision, req *admission.Request, template *Template, explain bool) (*admission.Request, error) {
	pod := template.Pod
	if len(out.Mutated) > 0 && out.Mutated[0].Object != nil {
		if changed, ok := manifest.PodOfTemplate(rawjson.Value(req.Object.Raw).Get(strict.Steps(template.Path)...), req.Namespace); ok {
			pod = changed
		}
	}
	pod, err := Defaulted(pod)
	if err != nil {
		return nil, err
	}
	created := webhooks.ForTemplate(req.Namespace, template.Workload, pod).Request
	sent, before := created, len(out.Violations)
	d.mutate(ctx, out, &created, template.Path, explain)
	out.setPod(created.Object.Raw)
	in := sidecar.ForPod(req.Namespace, created.Object.Raw)
	in.Workload = template.Workload
	injection := d.Snapshot.Sidecar.Decide(ctx, in)
	apply(&created, &injection)
	d.addInjection(out, &injection, req.Namespace, template.Path)
	if out.UnknownSidecars || len(out.Violations) > before {
		return nil, nil //nolint:nilnil // there is no pod to go on with
	}
	d.addResult(ctx, out, &sent, &created, template.Path)
	return &created, nil
}

// Mutate decides by mutating policies alone about a request, or about one for the pod of the template at a path. Its object becomes what
// they make of it.
func (d *Decider) Mutate(ctx context.Context, req *admission.Request, template string, explain bool) (out Decision) {
	sent := *req
	if d.mutate(ctx, &out, req, template, explain); !out.Refused && out.Err == nil {
		d.addResult(ctx, &out, &sent, req, template)
	}
	return out
}

// mutate is Mutate, which adds to a decision.
func (d *Decider) mutate(ctx context.Context, out *Decision, req *admission.Request, template string, explain bool) {
	if d.Snapshot.Mutation == nil {
		return
	}
	sent := *req
	one := Mutated{Template: template, Decision: Mutate(ctx, d.Snapshot.Mutation, req, explain)}
	if err := d.undecidedMutation(&sent, &one.Decision); err != nil {
		out.Err, out.UnknownSidecars = errors.Join(out.Err, err), template != ""
	} else if one.Refusal != nil {
		violations := MutationViolations(&one.Decision)
		if len(one.Failures) == 0 {
			d.setRefusing(ctx, &violations[0], &sent, one.Evaluations)
		}
		for i := range violations {
			violations[i].Template = template
		}
		out.Violations, out.Refused, out.SkippedPolicies = append(out.Violations, violations...), true, template == ""
	}
	if d.Order && (one.Object != nil || len(one.Failures) > 0) {
		var complete bool
		one.Conflicts, complete = d.Snapshot.Mutation.Conflicts(ctx, mutation.Input{Request: sent})
		if !complete && d.IsUnordered != nil {
			out.Err = errors.Join(out.Err, errors.New("whether the order of mutating policies matters is not known: too many match"))
		}
	}
	for i := range one.Conflicts {
		if c := &one.Conflicts[i]; d.IsUnordered != nil && d.IsUnordered(c.First) && d.IsUnordered(c.Second) {
			out.Err = errors.Join(out.Err, errors.New("it depends on the order, which the API server does not define: "+ConflictText(c)))
		}
	}
	out.Mutated = append(out.Mutated, one)
}

// setRefusing sets the policy and the binding of a violation that failurePolicy does not decide on, by the evaluations of the request,
// which may be nil.
func (d *Decider) setRefusing(ctx context.Context, v *policy.Violation, sent *admission.Request, evaluations []mutation.Evaluation) {
	if evaluations == nil {
		evaluations = d.Snapshot.Mutation.Decide(ctx, mutation.Input{Request: *sent, Explain: true}).Evaluations
	}
	for i := range evaluations {
		e := &evaluations[i]
		if n := len(e.Mutations); n > 0 && e.Mutations[n-1].Error != "" {
			v.Policy, v.Binding = e.Policy, e.Binding
		}
	}
}

// MutationKind is the kind of mutating policies.
const MutationKind = "MutatingAdmissionPolicy"

// ConflictText says which policies make different objects in different orders, and where these differ.
func ConflictText(c *mutation.Conflict) string {
	text := fmt.Sprintf("%s %q and %q ", MutationKind, c.First, c.Second)
	if len(c.Paths) == 0 {
		return text + "refuse the object in one order and not in the other"
	}
	const most = 3
	paths, more := c.Paths, ""
	if len(paths) > most {
		paths, more = paths[:most], fmt.Sprintf(" and %d more", len(paths)-most)
	}
	return text + "give different results in different orders at " + strings.Join(paths, ", ") + more
}

// MutationViolations returns the failures by which mutating policies refuse a request, as violations.
func MutationViolations(d *mutation.Decision) (out []policy.Violation) {
	violation := policy.Violation{
		Kind: MutationKind, Message: d.Refusal.Message, Reason: d.Refusal.Reason, Outcome: policy.Failed,
		Actions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	for i := range d.Failures {
		if f := &d.Failures[i]; !f.Ignored {
			violation.Policy, violation.Binding, violation.Message = f.Policy, f.Binding, f.Message
			out = append(out, violation)
		}
	}
	if len(out) == 0 {
		out = append(out, violation)
	}
	return out
}

// undecidedMutation returns why it is not known what mutating policies make of an object, nil if it is known. In the cluster its
// namespace is known, so that what failurePolicy says would be a guess.
func (d *Decider) undecidedMutation(sent *admission.Request, decision *mutation.Decision) error {
	if decision.Err != nil {
		return decision.Err
	}
	if _, known := d.Snapshot.Mutation.Lookups().Objects.Namespace(sent.Namespace); known {
		return nil
	}
	var policies []string
	for i := range decision.Failures {
		f := &decision.Failures[i]
		if name := strconv.Quote(f.Policy); strings.Contains(f.Message, unknownNamespace(sent.Namespace)) && !slices.Contains(policies, name) {
			policies = append(policies, name)
		}
	}
	return d.dependsOnNamespace(sent.Namespace, policies)
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
		f := Undecided(namespace, injection, d.namespaceHint(namespace))
		f.Field = template
		out.Err = errors.Join(out.Err, errors.New(f.String()))
		out.UnknownSidecars = template != ""
	}
}

// Undecided returns why it cannot be decided what becomes of a pod, on one line. The hint says how a namespace becomes known.
func Undecided(namespace string, d *sidecar.Decision, hint string) diagnostic.Diagnostic {
	f := diagnostic.Diagnostic{Severity: diagnostic.Error}
	var profiles, messages []string
	unknown := fmt.Sprintf("namespace %q is not known, and sidecar profile", namespace)
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
	because := unknownNamespace(namespace)
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
	out.Err = errors.Join(out.Err, d.dependsOnNamespace(namespace, policies))
}

// unknownNamespace is what policies say of a namespace that is not known.
func unknownNamespace(name string) string { return fmt.Sprintf("namespace %q is not known", name) }

// dependsOnNamespace returns the error for policies that depend on an unknown namespace, nil for none.
func (d *Decider) dependsOnNamespace(namespace string, policies []string) error {
	if len(policies) == 0 {
		return nil
	}
	what := "policy " + policies[0] + " depends on it"
	if len(policies) > 1 {
		what = "policies " + strings.Join(policies, ", ") + " depend on it"
	}
	message := unknownNamespace(namespace) + ", and " + what
	if hint := d.namespaceHint(namespace); hint != "" {
		message += " (hint: " + hint + ")"
	}
	return errors.New(message)
}

func (d *Decider) namespaceHint(namespace string) string {
	if d.NamespaceHint == nil {
		return ""
	}
	return d.NamespaceHint(namespace)
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
