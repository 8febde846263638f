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
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// askFlags say what the API server is asked to do with the objects of manifests,
// and by whom.
type askFlags struct {
	operation string
	old       []string
	as        string
	groups    []string
}

// someone asks where the command line does not say who.
const someone = "gatehouse-check"

// add adds the flags to a command.
func (f *askFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.operation, "operation", "", "what is asked for: CREATE, UPDATE or DELETE (default CREATE, and UPDATE with --old)")
	flags.StringArrayVar(&f.old, "old", nil, "file or directory of manifests with the objects before an UPDATE, or - for standard input; repeatable")
	flags.StringVar(&f.as, "as", someone, "name of the user who asks")
	flags.StringArrayVar(&f.groups, "as-group", nil, "group of the user who asks; repeatable")
	_ = cmd.RegisterFlagCompletionFunc("operation", cobra.FixedCompletions(operations(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists, here and below
	_ = cmd.MarkFlagFilename("old", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("as-group", cobra.NoFileCompletions)
}

// operations are those that manifests can be about. A CONNECT has options in
// place of an object, which nobody writes into a file.
func operations() []string {
	return []string{string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete)}
}

// check reports everything that is wrong with the flags at once.
func (f *askFlags) check(files []string) error {
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

// user is who asks, in the groups that the API server adds.
func (f *askFlags) user() authenticationv1.UserInfo {
	groups := slices.Clone(f.groups)
	if namespace, name, err := serviceaccount.SplitUsername(f.as); err == nil && name != "" {
		groups = append(groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	all := user.AllAuthenticated
	if f.as == user.Anonymous {
		all = user.AllUnauthenticated
	}
	groups = append(groups, all)
	var once []string
	for _, group := range groups {
		if !slices.Contains(once, group) {
			once = append(once, group)
		}
	}
	return authenticationv1.UserInfo{Username: f.as, Groups: once}
}

// asker asks both endpoints about the objects of manifests.
type asker struct {
	*offline
	user      authenticationv1.UserInfo
	operation admissionv1.Operation
	resources *request.Resources
	// old are the objects before an UPDATE.
	old map[objectKey]*manifest.Object
	// matchers are the resource rules of all policies.
	matchers []*admissionregistrationv1.MatchResources
	// documents answers for custom resources of our own.
	documents *crdadmission.Reviewer
}

// objectKey is what only one object has, whatever version it is written in.
type objectKey struct{ group, kind, namespace, name string }

// asker reads what there is to read besides.
func (o *offline) asker(f *askFlags, stdin io.Reader) (*asker, error) {
	a := &asker{offline: o, user: f.user(), operation: admissionv1.Operation(f.operation), documents: offlineDocuments(o.config)}
	given, err := o.config.Policy.Objects.List(crdKind(), "", labels.Everything())
	if err != nil {
		return nil, err
	}
	crds := append(crdadmission.Definitions(), given...)
	for _, s := range o.sources {
		for _, object := range s.Objects {
			if object.GroupVersionKind() == crdKind() {
				if tree, err := rawjson.Value(object.JSON()).Decode(); err == nil { // what is wrong with it is told below
					content, _ := tree.(map[string]any)
					crds = append(crds, &unstructured.Unstructured{Object: content})
				}
			}
		}
	}
	a.resources = request.NewResources(crds)
	for i := range o.config.Policy.Policies {
		a.matchers = append(a.matchers, o.config.Policy.Policies[i].Spec.MatchConstraints)
	}
	for i := range o.config.Policy.AdmissionPolicies {
		a.matchers = append(a.matchers, o.config.Policy.AdmissionPolicies[i].Spec.MatchConstraints)
	}
	if len(f.old) == 0 {
		a.operation = cmp.Or(a.operation, admissionv1.Create)
		return a, nil
	}
	a.operation = admissionv1.Update
	before := *o.offlineFlags
	before.files, before.each = f.old, false // an object that cannot be read would be taken for one that is created
	sources, err := before.read(stdin)
	if err != nil {
		return nil, err
	}
	a.old = make(map[objectKey]*manifest.Object)
	for _, s := range sources {
		for _, object := range s.Objects {
			a.old[a.key(object)] = object
		}
	}
	return a, nil
}

func crdKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
}

func (a *asker) key(o *manifest.Object) objectKey {
	return objectKey{o.GroupVersionKind().Group, o.Kind, a.namespaceOf(o), o.Name}
}

// namespaceOf is the namespace that an object will be in, and empty for one that
// will be in none.
func (a *asker) namespaceOf(o *manifest.Object) string {
	if a.resources.Of(o.GroupVersionKind()).ClusterScoped {
		return ""
	}
	return a.offline.namespaceOf(o)
}

// answer is what both endpoints have to say about an object.
type answer struct {
	operation admissionv1.Operation
	// violations are those of injection, and then those of policies.
	violations []policy.Violation
	// warnings are those that say more than violations, and warned reports whether
	// whoever asks gets any.
	warnings []string
	warned   bool
	// refusals are the messages of those of injection.
	refusals    []string
	evaluations []policy.Evaluation
	// note says what was assumed that may be wrong.
	note string
	// refused says that the request is refused, and err why something could not
	// be told. Both can be.
	refused bool
	err     error
	// injection says that injection refuses the pod, so that no policy is asked.
	injection bool
	// unequipped says that it could not be told what sidecars a workload's pods
	// get. What policies say of them is no more than a guess then.
	unequipped bool
}

// ask asks about an object.
func (a *asker) ask(ctx context.Context, o *manifest.Object, explain bool) *answer {
	out := &answer{}
	if out.err = unreadable(o); out.err != nil {
		return out
	}
	if out.err = a.resources.Served(o.GroupVersionKind()); out.err != nil {
		return out
	}
	out.err = a.resources.Named(o.JSON())
	spec := request.Spec{Object: o.JSON(), Namespace: a.namespace, User: a.user}
	switch a.operation {
	case admissionv1.Update:
		if before := a.old[a.key(o)]; before != nil { // one that was not there before is created
			spec.OldObject = before.JSON()
		}
	case admissionv1.Delete:
		spec.Object, spec.OldObject = nil, spec.Object
	case admissionv1.Create, admissionv1.Connect:
	}
	req, err := admit.Request(a.resources, spec)
	if err != nil {
		out.err = errors.Join(out.err, err)
		return out
	}
	out.operation = req.Operation
	out.note = a.guessed(o.GroupVersionKind())
	switch {
	case admit.IsNewPod(&req):
		d := admit.Inject(ctx, a.snapshot.Sidecar, &req)
		if out.injected(&d, req.Namespace, ""); d.Err != nil || len(d.Refusals) > 0 {
			out.injection = len(d.Refusals) > 0
			return out
		}
	case o.Workload != "" && o.NoPod == "" && req.Operation != admissionv1.Delete && req.SubResource == "":
		in := a.input(o)
		if in.Pod, err = admit.Defaulted(in.Pod); err != nil {
			out.err = errors.Join(out.err, fmt.Errorf("%s: %w", o.Template, err))
			return out
		}
		in.Context = ctx
		d := a.snapshot.Sidecar.Decide(in)
		out.injected(&d, in.Namespace, o.Template)
	}
	if req.Operation != admissionv1.Delete {
		out.warnings = slices.Concat(misplaced(o), out.warnings)
	}
	if crdadmission.Concerns(&req) {
		response := a.documents.Review(ctx, req)
		out.documented(&response)
	}
	_, known := a.config.Policy.Objects.Namespace(req.Namespace)
	d := a.snapshot.Policy.Decide(ctx, req, explain || !known && req.Namespace != "")
	if !known {
		out.unknownNamespace(&d, req.Namespace)
	}
	if explain {
		out.evaluations = d.Evaluations
	}
	out.violations = append(out.violations, d.Violations...)
	out.warn(&d)
	out.err = errors.Join(out.err, d.Err)
	out.refused = out.refused || slices.ContainsFunc(d.Violations, func(v policy.Violation) bool {
		return v.Refuses() && (v.Template == "" || !out.unequipped)
	})
	return out
}

// verdict is what becomes of the object. A refusal is certain, whatever else
// could not be told.
func (out *answer) verdict() checkVerdict {
	switch {
	case out.refused:
		return checkRefused
	case out.err != nil:
		return checkUnknown
	case out.warned:
		return checkWarned
	default:
		return checkAdmitted
	}
}

// untold is what could not be told, on one line.
func (out *answer) untold() string {
	if out.err == nil {
		return ""
	}
	return strings.Join(strings.Split(out.err.Error(), "\n"), "; ")
}

// unknownNamespace makes what policies cannot tell without the namespace
// something that could not be told. In the cluster the namespace is known: to
// refuse the object there, or to let it pass, as failurePolicy says, would be
// a guess.
func (out *answer) unknownNamespace(d *policy.Decision, namespace string) {
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

// namespaceHint is how a namespace becomes known.
const namespaceHint = "put the Namespace into the --config directory, or among the manifests"

// labelsHint is another, where there is a flag for it.
const labelsHint = namespaceHint + ", or say its labels with --namespace-labels"

// warn adds those warnings of policies that say more than their violations, and
// than refusals of injection, do.
func (out *answer) warn(d *policy.Decision) {
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

// injected adds what injection has to say about a pod, or about the pod template
// at a path.
func (out *answer) injected(d *sidecar.Decision, namespace, template string) {
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
		f := couldNotTell(&sidecar.Input{Namespace: namespace}, d)
		if f.Hint == namespaceHint {
			f.Hint = labelsHint
		}
		f.Field = template
		out.err = errors.Join(out.err, errors.New(f.String()))
		out.unequipped = template != ""
	}
}

// documented adds what there is to say about a custom resource of our own, which is
// about no policy: the object itself stands in its place, and the field in that of
// the rule.
func (out *answer) documented(response *admission.Response) {
	if response.Result != nil && response.Result.Code >= http.StatusInternalServerError {
		out.err = errors.Join(out.err, errors.New(response.Result.Message))
		return
	}
	for _, text := range response.Warnings {
		// The object is named above all that is said about it.
		_, text, _ = strings.Cut(text, ": ")
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

// offlineDocuments answers for custom resources of our own as the server does, with
// the configuration of a directory in the place of the cluster's.
func offlineDocuments(c *config.Config) *crdadmission.Reviewer {
	return crdadmission.New(crdadmission.Options{Current: func() *config.Config { return c }, Offline: true})
}

// guessed says what was assumed of a kind that is not known, where a policy may
// be about it: where one names its group and resources of it.
func (a *asker) guessed(kind schema.GroupVersionKind) string {
	as := a.resources.Of(kind)
	if !as.Guessed || !slices.ContainsFunc(a.matchers, func(m *admissionregistrationv1.MatchResources) bool {
		return m != nil && slices.ContainsFunc(m.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.APIGroups, kind.Group) && !slices.Contains(r.Resources, "*") && !slices.Contains(r.Resources, "*/*")
		})
	}) {
		return ""
	}
	return fmt.Sprintf("kind %q of %s is not known: its resource is taken to be %q, in namespaces (hint: put its CustomResourceDefinition into the --config directory, or among the manifests)",
		kind.Kind, kind.GroupVersion(), as.Name)
}
