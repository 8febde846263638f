package offline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	static "k8s.io/apiserver/pkg/admission/plugin/manifest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	schemas "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// requestFlags are the flags that say what the API server is asked to do with the objects of manifests, and by whom.
type requestFlags struct {
	operation string
	old       []string
	as        string
	groups    []string
	pods      string
}

func (f *requestFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.operation, "operation", "", "operation to check: CREATE, UPDATE or DELETE (default UPDATE for objects that are in --old, and CREATE for others)")
	flags.StringArrayVar(&f.old, "old", nil, "file or directory with the objects as they are before an update, or - for standard input; repeatable")
	f.addUser(cmd)
	flags.StringVar(&f.pods, "pods", string(admit.WarnPods), "what to do if policies will refuse all pods of a workload that they admit: warn, refuse or ignore")
}

// addUser adds the flags that say who asks.
func (f *requestFlags) addUser(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.as, "as", "gatehouse-check", "name of the user who sends the request")
	flags.StringArrayVar(&f.groups, "as-group", nil, "group of the user who sends the request; repeatable")
}

// operations returns those that manifests can be about. A CONNECT has options in place of an object.
func operations() []string {
	return []string{string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete)}
}

// podsValues returns the values of --pods.
func podsValues() []string {
	return []string{string(admit.WarnPods), string(admit.RefusePods), string(admit.IgnorePods)}
}

// check returns everything that is wrong with the flags.
func (f *requestFlags) check(manifests *manifestFlags) error {
	var errs cli.Problems
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
	errs.Add(slices.Contains(f.old, "-") && manifests.readsStdin(), "--old - and the manifests cannot both be standard input")
	errs.Add(f.as == "", `--as "": must be the name of a user`)
	if !slices.Contains(podsValues(), f.pods) {
		errs = append(errs, fmt.Errorf("--pods %q: must be warn, refuse or ignore", f.pods))
	}
	return errs.Err()
}

// evaluatorFlags are the flags of a command that decides about manifests as the API server does.
type evaluatorFlags struct {
	manifestFlags
	requestFlags
}

func (f *evaluatorFlags) add(cmd *cobra.Command) {
	f.manifestFlags.add(cmd)
	f.cluster.AddBeside(cmd, &f.config)
	f.addDeciding(cmd)
	f.requestFlags.add(cmd)
}

// check returns everything that is wrong with the flags.
func (f *evaluatorFlags) check() error {
	return errors.Join(f.requestFlags.check(&f.manifestFlags), f.cluster.Check(f.config))
}

// evaluator reads the configuration and the manifests, and says what it leaves out. If it is silent, it writes no warnings about a
// configuration that decides something.
func (f *evaluatorFlags) evaluator(ctx context.Context, s cli.Streams, silent bool) (*evaluator, error) {
	f.lenient = true
	in, err := f.openActive(ctx, s.In, s.Err, silent)
	if err != nil {
		return nil, err
	}
	e, err := in.evaluator(&f.requestFlags, s.In)
	if err != nil {
		in.close()
	}
	return e, err
}

// evaluator evaluates what becomes of the objects of manifests: mutating policies first, then injection, then policies.
type evaluator struct {
	*input
	user      authenticationv1.UserInfo
	operation admissionv1.Operation
	resources *request.Resources
	// old are the objects before an UPDATE.
	old map[objectKey]*manifest.Object
	// matchers are the resource rules of all policies.
	matchers []*admissionregistrationv1.MatchResources
	decider  admit.Decider
	// schemas are those of the kinds, nil if they are not to be checked.
	schemas *schemas.Schemas
	// unchecked are the kinds of evaluated objects that were not checked, and why.
	unchecked map[schema.GroupVersionKind]error
	// defined are the kinds whose definitions are among the manifests, each with its definition until that was found valid.
	defined map[schema.GroupVersionKind]map[string]any
}

// objectKey identifies an object, whatever version it is written in.
type objectKey struct{ group, kind, namespace, name string }

func (in *input) evaluator(f *requestFlags, stdin io.Reader) (*evaluator, error) {
	e := &evaluator{
		input: in, user: request.WithGroups(authenticationv1.UserInfo{Username: f.as, Groups: f.groups}),
		operation: admissionv1.Operation(f.operation), decider: admit.Decider{Snapshot: in.snapshot, Documents: newDocumentReviewer(in.config), NamespaceHint: in.namespaceHint},
		defined: map[schema.GroupVersionKind]map[string]any{},
	}
	crds := slices.Clone(in.definitions)
	known := map[string]*unstructured.Unstructured{}
	for _, u := range in.definitions {
		known[u.GetName()] = u
	}
	for object := range objectsIn(in.sources) {
		if object.GroupVersionKind() == crdKind() {
			if content := contentOf(object); content != nil { // evaluate reports what is wrong with it
				request.Versions(content, func(kind schema.GroupVersionKind, _ string, _ map[string]any) { e.defined[kind] = content })
				switch before := known[object.Name]; {
				case before == nil:
				case in.source != nil: // the manifest updates it
					crds = slices.DeleteFunc(crds, func(u *unstructured.Unstructured) bool { return u == before })
				default:
					in.addDefinedTwice(before.Object, content, "--config", object.Place())
				}
				crds = append(crds, &unstructured.Unstructured{Object: content})
			}
		}
	}
	e.resources = schemas.Resources(append(crdadmission.Definitions(), crds...))
	e.decider.Snapshot, e.decider.Pods = in.withDefinitions(crds), admit.Pods(f.pods)
	e.decider.Resources = e.resources
	if e.decider.Order = true; in.source != nil {
		e.decider.IsUnordered = in.isOfAPIServer
	}
	readable := slices.DeleteFunc(slices.Clone(crds), func(u *unstructured.Unstructured) bool {
		opaque := false
		request.Versions(u.Object, func(kind schema.GroupVersionKind, _ string, _ map[string]any) { opaque = opaque || in.opaque[kind] })
		return opaque
	})
	e.schemas, e.unchecked = schemas.New(readable), map[schema.GroupVersionKind]error{}
	for _, p := range in.config.Policy.All() {
		e.matchers = append(e.matchers, p.Spec.MatchConstraints)
	}
	for i := range in.config.Mutation.Policies {
		e.matchers = append(e.matchers, in.config.Mutation.Policies[i].Spec.MatchConstraints)
	}
	if len(f.old) == 0 {
		e.operation = cmp.Or(e.operation, admissionv1.Create)
		return e, nil
	}
	e.operation = admissionv1.Update
	before := *in.manifestFlags
	before.files, before.kustomizations, before.rendered = f.old, nil, ""
	before.lenient = false // an object that cannot be read would be taken for one that is created
	sources, err := before.read(stdin)
	if err != nil {
		return nil, err
	}
	e.old = make(map[objectKey]*manifest.Object)
	var twice diagnostic.List
	for object := range objectsIn(sources) {
		if before := e.old[e.key(object)]; before != nil && !bytes.Equal(before.JSON(), object.JSON()) {
			twice = append(twice, diagnostic.Diagnostic{
				Severity: diagnostic.Error, Source: object.Source, Object: object.Title(),
				Message: "is given twice among the objects of --old, with different content, first in " + before.Place(), Hint: "remove one of the two",
			})
		}
		e.old[e.key(object)] = object
	}
	return e, twice.Err()
}

// withDefinitions returns the compiled configuration with mutating policies that know these CustomResourceDefinitions.
func (in *input) withDefinitions(crds []*unstructured.Unstructured) *webhooks.Snapshot {
	with, lookups := *in.snapshot, in.snapshot.Mutation.Lookups()
	lookups.Schemas = mutation.NewCustomKinds(crds)
	with.Mutation = in.snapshot.Mutation.With(lookups)
	return &with
}

// isOfAPIServer reports whether the API server of the cluster runs a mutating policy itself, from the cluster or from its files.
func (in *input) isOfAPIServer(policy string) bool {
	return strings.HasSuffix(policy, static.StaticConfigSuffix) || slices.ContainsFunc(in.config.Mutation.Policies, func(p mutation.Policy) bool { return p.Name == policy && p.Source == config.ClusterSource })
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

// evaluation is what the API server and both endpoints decide about an object.
type evaluation struct {
	admit.Decision

	operation admissionv1.Operation
	// note says what was assumed that may be wrong.
	note string
	// invalid is what the API server rejects of the object by its name and the schema of its kind.
	invalid diagnostic.List
	// undecodable reports that a value has another type than its field, so that the request does not get to injection and policies.
	undecodable bool
}

// evaluate decides about an object. What could not be read for it, or for all objects, makes the decision unknown.
func (e *evaluator) evaluate(ctx context.Context, o *manifest.Object, explain bool) *evaluation {
	before := e.problems()
	out := e.decide(ctx, o, explain)
	out.Err = errors.Join(out.Err, e.unread, e.problemsSince(before))
	return out
}

// decide decides about an object by what is known.
func (e *evaluator) decide(ctx context.Context, o *manifest.Object, explain bool) *evaluation {
	out := &evaluation{}
	if out.Err = cmp.Or(unreadableError(o), e.resources.Served(o.GroupVersionKind())); out.Err != nil {
		return out
	}
	if out.Err = e.definedTwice[o.GroupVersionKind()]; out.Err != nil {
		return out
	}
	if e.operation != admissionv1.Delete {
		out.invalid, out.undecodable = e.checkSchema(ctx, o)
	}
	if definition := e.defined[o.GroupVersionKind()]; definition != nil {
		if out.Err = schemas.DefinitionError(ctx, definition); out.Err != nil {
			return out // the API server does not serve the kind
		}
		delete(e.defined, o.GroupVersionKind())
	}
	for _, d := range e.resources.CheckName(o.JSON()) {
		if !slices.ContainsFunc(out.invalid, func(other diagnostic.Diagnostic) bool { return other.Field == d.Field }) {
			out.invalid = append(out.invalid, d)
		}
	}
	for i := range out.invalid {
		if d := &out.invalid[i]; d.Hint == "" && strings.Contains(d.Message, "${") {
			d.Hint = e.variableHint()
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
		out.Err = errors.Join(out.Err, err)
		return out
	}
	out.operation = req.Operation
	out.note = e.guessNote(o.GroupVersionKind())
	var template *admit.Template
	if o.Workload != "" && o.NoPod == "" {
		template = &admit.Template{Path: o.Template, Workload: o.Workload, Pod: e.sidecarInput(o).Request.Object.Raw}
	}
	out.Decision = e.decider.Decide(ctx, &req, template, explain)
	if out.Changed { // policies may have mended what the API server refuses once they are done
		out.invalid = slices.DeleteFunc(out.invalid, func(d diagnostic.Diagnostic) bool {
			return d.Message != strict.UnknownField && !admit.Has(out.Invalid, &d)
		})
	}
	if !explain && out.Err == nil { // explain shows the results
		for _, text := range orderNotes(out.Mutated) {
			out.note = strings.TrimPrefix(out.note+"; "+text, "; ")
		}
	}
	if req.Operation != admissionv1.Delete {
		if misplaced := misplacedWarnings(o); len(misplaced) > 0 {
			out.Warnings, out.Warned = slices.Concat(misplaced, out.Warnings), true
		}
	}
	return out
}

// contentOf returns the fields of an object, nil if they cannot be read.
func contentOf(o *manifest.Object) map[string]any {
	tree, _ := rawjson.Value(o.JSON()).Decode()
	content, _ := tree.(map[string]any)
	return content
}

// checkSchema returns what the API server rejects of an object by the schema of its kind, and whether it cannot even decode the
// object. It notes a kind that is not checked.
func (e *evaluator) checkSchema(ctx context.Context, o *manifest.Object) (found diagnostic.List, undecodable bool) {
	if o.GroupVersionKind().Group == v1alpha1.GroupVersion.Group { // ours are reviewed below
		return nil, false
	}
	content := contentOf(o)
	if content == nil {
		return nil, false // evaluate reports it
	}
	var old map[string]any
	if before := e.old[e.key(o)]; before != nil {
		old = contentOf(before)
	}
	found, undecodable, err := e.schemas.Check(ctx, o.GroupVersionKind(), content, old)
	if err != nil {
		e.unchecked[o.GroupVersionKind()] = err
	}
	return found, undecodable
}

// verdict returns what becomes of the object. A refusal is certain, whatever else is unknown.
func (out *evaluation) verdict() checkVerdict {
	switch {
	case out.Refused, len(out.invalid) > 0:
		return checkRefused
	case out.Err != nil:
		return checkUnknown
	case out.Warned:
		return checkWarned
	default:
		return checkAdmitted
	}
}

// problem returns what is unknown, on one line.
func (out *evaluation) problem() string {
	if out.Err == nil {
		return ""
	}
	return strings.ReplaceAll(out.Err.Error(), "\n", "; ")
}

// labelsHint says how a namespace becomes known that is not given.
const labelsHint = "put the Namespace into the --config directory, or among the manifests, or set its labels with --namespace-labels"

// newDocumentReviewer returns what reviews custom resources of our own as the server does, with this configuration as the
// cluster's.
func newDocumentReviewer(c *config.Config) *crdadmission.Reviewer {
	return crdadmission.New(func() *config.Config { return c })
}

// orderNotes says which mutating policies give different results in different orders.
func orderNotes(all []admit.Mutated) (notes []string) {
	for i := range all {
		for k := range all[i].Conflicts {
			notes = append(notes, "order matters: "+admit.ConflictText(&all[i].Conflicts[k])+" (hint: make one policy of them, or have them change different fields)")
		}
	}
	return notes
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
	return fmt.Sprintf("kind %q of %s is not known: Gatehouse assumes the resource %q, in namespaces (hint: put its CustomResourceDefinition into the --config directory, or among the manifests)",
		kind.Kind, kind.GroupVersion(), as.Name)
}
