package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	schemas "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// requestFlags are the flags that say what the API server is asked to do with the objects of manifests, and by whom.
type requestFlags struct {
	operation string
	old       []string
	as        string
	groups    []string
	noSchema  bool
}

func (f *requestFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.operation, "operation", "", "what is asked for: CREATE, UPDATE or DELETE (default CREATE, and UPDATE with --old)")
	flags.StringArrayVar(&f.old, "old", nil, "file or directory of manifests with the objects before an UPDATE, or - for standard input; repeatable")
	flags.StringVar(&f.as, "as", "gatehouse-check", "name of the user who asks")
	flags.StringArrayVar(&f.groups, "as-group", nil, "group of the user who asks; repeatable")
	flags.BoolVar(&f.noSchema, "no-schema", false, "do not check objects against the schemas of their kinds")
	_ = cmd.RegisterFlagCompletionFunc("operation", cobra.FixedCompletions(operations(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists, here and below
	_ = cmd.MarkFlagFilename("old", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("as-group", cobra.NoFileCompletions)
}

// operations returns those that manifests can be about. A CONNECT has options in place of an object.
func operations() []string {
	return []string{string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete)}
}

// check returns everything that is wrong with the flags.
func (f *requestFlags) check(files []string) error {
	var errs []error
	switch {
	case f.operation != "" && !slices.Contains(operations(), f.operation):
		hint := diagnostic.DidYouMean(f.operation, operations()...)
		if hint != "" {
			hint = " (hint: " + hint + ")"
		}
		errs = append(errs, fmt.Errorf("--operation %q: must be %s%s", f.operation, strings.Join(operations(), " or "), hint))
	case f.operation == string(admissionv1.Update) && len(f.old) == 0:
		errs = append(errs, errors.New("--operation UPDATE needs the objects before it (hint: name them with --old)"))
	case f.operation != "" && f.operation != string(admissionv1.Update) && len(f.old) > 0:
		errs = append(errs, fmt.Errorf("--old is for an UPDATE, and --operation is %s", f.operation))
	}
	if slices.Contains(f.old, "-") && (len(files) == 0 || slices.Contains(files, "-")) {
		errs = append(errs, errors.New("--old - and the manifests cannot both be standard input"))
	}
	if f.as == "" {
		errs = append(errs, errors.New(`--as "": must be the name of a user`))
	}
	return errors.Join(errs...)
}

// evaluator evaluates what becomes of the objects of manifests: injection first, then policies.
type evaluator struct {
	*input
	user      authenticationv1.UserInfo
	operation admissionv1.Operation
	resources *request.Resources
	// old are the objects before an UPDATE.
	old map[objectKey]*manifest.Object
	// matchers are the resource rules of all policies.
	matchers []*admissionregistrationv1.MatchResources
	// documents reviews custom resources of our own.
	documents *crdadmission.Reviewer
	// schemas are those of the kinds, nil if they are not to be checked.
	schemas *schemas.Schemas
	// unchecked are the kinds of evaluated objects that were not checked, and why.
	unchecked map[schema.GroupVersionKind]error
}

// objectKey identifies an object, whatever version it is written in.
type objectKey struct{ group, kind, namespace, name string }

func (in *input) evaluator(f *requestFlags, stdin io.Reader) (*evaluator, error) {
	e := &evaluator{
		input: in, user: request.WithGroups(authenticationv1.UserInfo{Username: f.as, Groups: f.groups}),
		operation: admissionv1.Operation(f.operation), documents: newDocumentReviewer(in.config),
	}
	configured, err := in.config.Policy.Objects.List(crdKind(), "", labels.Everything())
	if err != nil {
		return nil, err
	}
	crds := slices.Clone(configured)
	for _, s := range in.sources {
		for _, object := range s.Objects {
			if object.GroupVersionKind() == crdKind() {
				if tree, err := rawjson.Value(object.JSON()).Decode(); err == nil { // evaluate reports what is wrong with it
					content, _ := tree.(map[string]any)
					crds = append(crds, &unstructured.Unstructured{Object: content})
				}
			}
		}
	}
	e.resources = request.NewResources(append(crdadmission.Definitions(), crds...))
	if !f.noSchema {
		e.schemas, e.unchecked = schemas.New(crds), map[schema.GroupVersionKind]error{}
	}
	for i := range in.config.Policy.Policies {
		e.matchers = append(e.matchers, in.config.Policy.Policies[i].Spec.MatchConstraints)
	}
	for i := range in.config.Policy.AdmissionPolicies {
		e.matchers = append(e.matchers, in.config.Policy.AdmissionPolicies[i].Spec.MatchConstraints)
	}
	if len(f.old) == 0 {
		e.operation = cmp.Or(e.operation, admissionv1.Create)
		return e, nil
	}
	e.operation = admissionv1.Update
	before := *in.manifestFlags
	before.files, before.lenient = f.old, false // an object that cannot be read would be taken for one that is created
	sources, err := before.read(stdin)
	if err != nil {
		return nil, err
	}
	e.old = make(map[objectKey]*manifest.Object)
	for _, s := range sources {
		for _, object := range s.Objects {
			e.old[e.key(object)] = object
		}
	}
	return e, nil
}

func crdKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
}

func (e *evaluator) key(o *manifest.Object) objectKey {
	return objectKey{o.GroupVersionKind().Group, o.Kind, e.namespaceOf(o), o.Name}
}

// namespaceOf returns the namespace that an object will be in, and "" for a cluster-scoped one.
func (e *evaluator) namespaceOf(o *manifest.Object) string {
	if e.resources.Of(o.GroupVersionKind()).ClusterScoped {
		return ""
	}
	return e.input.namespaceOf(o)
}

// evaluation is what both endpoints decide about an object.
type evaluation struct {
	operation admissionv1.Operation
	// violations are those of injection, and then those of policies.
	violations []policy.Violation
	// warnings are those that say more than violations. warned reports whether the user gets any.
	warnings []string
	warned   bool
	// refusals are the messages of those of injection.
	refusals []string
	policies []policy.Evaluation
	// note says what was assumed that may be wrong.
	note string
	// refused reports whether the request is refused, and err is why something is unknown. Both can be set.
	refused bool
	err     error
	// invalid is what the API server rejects of the object by its name and the schema of its kind.
	invalid diagnostic.List
	// undecodable reports that a value has another type than its field, so that the request does not get to injection and policies.
	undecodable bool
	// skippedPolicies reports that no policy is evaluated, because injection refuses the pod.
	skippedPolicies bool
	// unknownSidecars reports that the sidecars of a workload's pods are unknown, so that violations of its template do not
	// refuse it.
	unknownSidecars bool
}

// evaluate decides about an object.
func (e *evaluator) evaluate(ctx context.Context, o *manifest.Object, explain bool) *evaluation {
	out := &evaluation{}
	if out.err = cmp.Or(unreadableError(o), e.resources.Served(o.GroupVersionKind())); out.err != nil {
		return out
	}
	if e.operation != admissionv1.Delete {
		out.invalid, out.undecodable = e.checkSchema(ctx, o)
	}
	for _, d := range e.resources.CheckName(o.JSON()) {
		if !slices.ContainsFunc(out.invalid, func(other diagnostic.Diagnostic) bool { return other.Field == d.Field }) {
			out.invalid = append(out.invalid, d)
		}
	}
	out.invalid.Sort()
	if out.undecodable {
		return out
	}
	spec := request.Spec{Object: o.JSON(), Namespace: e.namespace, User: e.user}
	switch e.operation {
	case admissionv1.Update:
		if before := e.old[e.key(o)]; before != nil { // otherwise it is created
			spec.OldObject = before.JSON()
		}
	case admissionv1.Delete:
		spec.Object, spec.OldObject = nil, spec.Object
	case admissionv1.Create, admissionv1.Connect:
	}
	req, err := admit.Request(e.resources, spec)
	if err != nil && len(out.invalid) > 0 {
		return out // because a value of a wrong type has no defaults
	}
	if err != nil {
		out.err = errors.Join(out.err, err)
		return out
	}
	out.operation = req.Operation
	out.note = e.guessNote(o.GroupVersionKind())
	switch {
	case admit.IsNewPod(&req):
		d := admit.Inject(ctx, e.snapshot.Sidecar, &req)
		if out.addInjection(&d, req.Namespace, ""); d.Err != nil || len(d.Refusals) > 0 {
			out.skippedPolicies = len(d.Refusals) > 0
			return out
		}
	case o.Workload != "" && o.NoPod == "" && req.Operation != admissionv1.Delete && req.SubResource == "":
		in := e.sidecarInput(o)
		if in.Pod, err = admit.Defaulted(in.Pod); err != nil {
			out.err = errors.Join(out.err, fmt.Errorf("%s: %w", o.Template, err))
			return out
		}
		in.Context = ctx
		d := e.snapshot.Sidecar.Decide(in)
		out.addInjection(&d, in.Namespace, o.Template)
	}
	if req.Operation != admissionv1.Delete {
		out.warnings = slices.Concat(misplacedWarnings(o), out.warnings)
	}
	if crdadmission.Concerns(&req) {
		response := e.documents.Review(ctx, req)
		out.addDocument(&response)
	}
	_, known := e.config.Policy.Objects.Namespace(req.Namespace)
	d := e.snapshot.Policy.Decide(ctx, req, explain || !known && req.Namespace != "")
	if !known {
		out.addUnknownNamespace(&d, req.Namespace)
	}
	if explain {
		out.policies = d.Evaluations
	}
	out.violations = append(out.violations, d.Violations...)
	out.addWarnings(&d)
	out.err = errors.Join(out.err, d.Err)
	out.refused = out.refused || slices.ContainsFunc(d.Violations, func(v policy.Violation) bool {
		return v.Refuses() && (v.Template == "" || !out.unknownSidecars)
	})
	return out
}

// checkSchema returns what the API server rejects of an object by the schema of its kind, and whether it cannot even decode the
// object. It notes a kind that is not checked.
func (e *evaluator) checkSchema(ctx context.Context, o *manifest.Object) (found diagnostic.List, undecodable bool) {
	if e.schemas == nil || o.GroupVersionKind().Group == v1alpha1.GroupVersion.Group { // ours are reviewed below
		return nil, false
	}
	tree, err := rawjson.Value(o.JSON()).Decode()
	if err != nil {
		return nil, false //nolint:nilerr // evaluate reports it
	}
	content, _ := tree.(map[string]any)
	found, undecodable, err = e.schemas.Check(ctx, o.GroupVersionKind(), content)
	if err != nil {
		e.unchecked[o.GroupVersionKind()] = err
	}
	return found, undecodable
}

// verdict returns what becomes of the object. A refusal is certain, whatever else is unknown.
func (out *evaluation) verdict() checkVerdict {
	switch {
	case out.refused, len(out.invalid) > 0:
		return checkRefused
	case out.err != nil:
		return checkUnknown
	case out.warned:
		return checkWarned
	default:
		return checkAdmitted
	}
}

// problem returns what is unknown, on one line.
func (out *evaluation) problem() string {
	if out.err == nil {
		return ""
	}
	return strings.ReplaceAll(out.err.Error(), "\n", "; ")
}

// addUnknownNamespace makes it an error that policies depend on a namespace that is not known. In the cluster it is known, so
// that what failurePolicy says would be a guess.
func (out *evaluation) addUnknownNamespace(d *policy.Decision, namespace string) {
	because := fmt.Sprintf("namespace %q is not known", namespace)
	var policies []string
	for i := range d.Evaluations {
		e := &d.Evaluations[i]
		if name := strconv.Quote(e.Policy); e.Why == policy.Misconfigured && strings.Contains(e.Detail, because) && !slices.Contains(policies, name) {
			policies = append(policies, name)
		}
	}
	if len(policies) == 0 {
		return
	}
	d.Violations = slices.DeleteFunc(slices.Clone(d.Violations), func(v policy.Violation) bool {
		return v.Outcome == policy.Failed && v.Rule == "" && strings.Contains(v.Message, because)
	})
	what := "policy " + policies[0] + " depends on it"
	if len(policies) > 1 {
		what = "policies " + strings.Join(policies, ", ") + " depend on it"
	}
	out.err = errors.Join(out.err, fmt.Errorf("%s, and %s (hint: %s)", because, what, labelsHint))
}

// labelsHint says how a namespace becomes known.
const labelsHint = "put the Namespace into the --config directory, or among the manifests, or set its labels with --namespace-labels"

// addWarnings adds the warnings of policies that say more than violations and refusals do.
func (out *evaluation) addWarnings(d *policy.Decision) {
	told := slices.Clone(out.refusals)
	for i := range d.Violations {
		told = append(told, d.Violations[i].Message)
	}
	const enough = 80 // bytes of a message, which may be cut in a warning
	for _, text := range d.Response.Warnings {
		if !slices.ContainsFunc(told, func(message string) bool {
			message = strings.ReplaceAll(message, "\n", " ")
			return strings.Contains(text, message[:min(len(message), enough)])
		}) {
			out.warnings = append(out.warnings, text)
		}
	}
	out.warned = len(out.warnings)+len(d.Response.Warnings) > 0
}

// addInjection adds what injection decides about a pod, or about the pod template at a path.
func (out *evaluation) addInjection(d *sidecar.Decision, namespace, template string) {
	out.warnings = append(out.warnings, d.Warnings...)
	for _, f := range d.Refusals {
		out.refusals = append(out.refusals, f.Message)
	}
	for _, v := range admit.Refusals(d) {
		v.Template = template
		out.violations = append(out.violations, v)
		out.refused = true
	}
	if d.Err != nil {
		f := undecided(namespace, d)
		f.Field = template
		out.err = errors.Join(out.err, errors.New(f.String()))
		out.unknownSidecars = template != ""
	}
}

// addDocument adds the review of a custom resource of our own. Its violations have the object in place of a policy, and a field
// in place of a rule.
func (out *evaluation) addDocument(response *admission.Response) {
	if response.Result != nil && response.Result.Code >= http.StatusInternalServerError {
		out.err = errors.Join(out.err, errors.New(response.Result.Message))
		return
	}
	for _, text := range response.Warnings {
		_, text, _ = strings.Cut(text, ": ") // without the object, which is named above
		out.warnings, out.warned = append(out.warnings, text), true
	}
	if response.Allowed {
		return
	}
	out.refused = true
	details := response.Result.Details
	for _, cause := range details.Causes {
		out.violations = append(out.violations, policy.Violation{
			Kind: details.Kind, Policy: details.Name, Rule: cause.Field, Message: cause.Message,
			Reason: response.Result.Reason, Outcome: policy.Violated,
			Actions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		})
	}
}

// newDocumentReviewer returns what reviews custom resources of our own as the server does, with this configuration as the
// cluster's.
func newDocumentReviewer(c *config.Config) *crdadmission.Reviewer {
	return crdadmission.New(crdadmission.Options{Current: func() *config.Config { return c }, Offline: true})
}

// guessNote says what was assumed of a kind that is not known, if a policy names its group and resources.
func (e *evaluator) guessNote(kind schema.GroupVersionKind) string {
	as := e.resources.Of(kind)
	if !as.Guessed || !slices.ContainsFunc(e.matchers, func(m *admissionregistrationv1.MatchResources) bool {
		return m != nil && slices.ContainsFunc(m.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.APIGroups, kind.Group) && !slices.Contains(r.Resources, "*") && !slices.Contains(r.Resources, "*/*")
		})
	}) {
		return ""
	}
	return fmt.Sprintf("kind %q of %s is not known: its resource is taken to be %q, in namespaces (hint: put its CustomResourceDefinition into the --config directory, or among the manifests)",
		kind.Kind, kind.GroupVersion(), as.Name)
}
