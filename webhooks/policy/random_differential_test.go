package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/equivalent"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

var (
	differentialN    = flag.Int("differential.n", race.Cases(100), "how many random sets of policies are held against the API server's own code")
	differentialSeed = flag.Int64("differential.seed", 1, "the seed of the first set; the next one has the next seed")
)

// randomAuthorizer answers every question in a way that depends on all of it and
// on nothing else.
type randomAuthorizer struct{}

func (randomAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, a.GetUser().GetName(), a.GetUser().GetGroups(), a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName(), a.GetPath(), a.IsResourceRequest())
	switch {
	case a.GetVerb() == "fail":
		return authorizer.DecisionNoOpinion, "", errors.New("backend away")
	case h.Sum32()%3 == 0:
		return authorizer.DecisionDeny, "no", nil
	case h.Sum32()%3 == 1:
		return authorizer.DecisionNoOpinion, "", nil
	default:
		return authorizer.DecisionAllow, "yes", nil
	}
}

// servedKinds returns what the API server of the test serves: the resources that
// requests are about, each in all versions that are known of it.
func servedKinds() runtime.EquivalentResourceRegistry {
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(resource schema.GroupResource) string {
		if resource.Resource == "events" {
			return "events"
		}
		return ""
	})
	done := map[schema.GroupVersionResource]map[string]bool{}
	register := func(resource schema.GroupVersionResource, subresource string, kind schema.GroupVersionKind) {
		if done[resource] == nil {
			done[resource] = map[string]bool{}
		}
		if !done[resource][subresource] {
			done[resource][subresource] = true
			registry.RegisterKindFor(resource, subresource, kind)
		}
	}
	for _, t := range targets() {
		others := equivalent.Of(t.resource)
		if others == nil {
			register(t.resource, t.subresource, t.kind)
		}
		for _, e := range others {
			kind := t.kind
			if t.kind.GroupVersion() == t.resource.GroupVersion() {
				kind = e.GroupVersion().WithKind(t.kind.Kind)
			}
			register(e.GroupVersionResource, t.subresource, kind)
		}
	}
	return registry
}

// interfaces are what the API server tells its plug-ins about its objects. Objects
// are converted by webhooks/equivalent, which is held against the API server's
// conversions by its own test.
type interfaces struct {
	apiserveradmission.ObjectInterfaces
	registry runtime.EquivalentResourceRegistry
}

func (i interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return i.registry }

func (i interfaces) GetObjectConvertor() runtime.ObjectConvertor {
	return converter{clientgoscheme.Scheme}
}

type converter struct{ runtime.ObjectConvertor }

func (converter) Convert(in, out, _ any) error {
	from := in.(runtime.Object).GetObjectKind().GroupVersionKind()
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	text, err := rawjson.Parse(raw)
	if err != nil {
		return err
	}
	var target schema.GroupVersionKind
	if kinds, _, err := clientgoscheme.Scheme.ObjectKinds(out.(runtime.Object)); err == nil {
		target = kinds[0]
	}
	converted, err := equivalent.Convert(text, resourceNamed(from), resourceNamed(target))
	if err != nil {
		return err
	}
	return json.Unmarshal(converted, out)
}

// resourceNamed returns the resource of a kind that has several versions.
func resourceNamed(kind schema.GroupVersionKind) schema.GroupVersionResource {
	return kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
}

// validator keeps what upstream's evaluation comes to.
type validator struct {
	validating.Validator
	results *[]validating.ValidateResult
}

func (v validator) Validate(ctx context.Context, resource schema.GroupVersionResource, attr *apiserveradmission.VersionedAttributes, params runtime.Object, namespace *corev1.Namespace, budget int64, authz authorizer.UnconditionalAuthorizer) validating.ValidateResult {
	out := v.Validator.Validate(ctx, resource, attr, params, namespace, budget, authz)
	*v.results = append(*v.results, out)
	return out
}

// denials returns the messages with which upstream refuses for a policy and a binding.
func (u *upstream) denials(t testing.TB, a asked, policyName string, b *policy.Binding, o apiserveradmission.ObjectInterfaces) []string {
	t.Helper()
	i := slices.IndexFunc(u.hooks, func(h validating.PolicyHook) bool { return h.Policy.Name == policyName })
	if i < 0 {
		return nil // the policy is not there
	}
	hook := u.hooks[i]
	var results []validating.ValidateResult
	hook.Evaluator = validator{hook.Evaluator, &results}
	hook.Bindings = slices.DeleteFunc(slices.Clone(hook.Bindings), func(other *validating.PolicyBinding) bool { return other.Name != b.Name })
	out := u.dispatch(t, a, o, []validating.PolicyHook{hook})
	var messages []string
	for _, result := range results {
		for _, d := range result.Decisions {
			if d.Action == validating.ActionDeny && slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) {
				messages = append(messages, d.Message+" "+string(d.Reason))
			}
		}
		for _, n := range result.AuditAnnotations {
			if n.Action == validating.AuditAnnotationActionError {
				messages = append(messages, n.Error+" ")
			}
		}
	}
	if len(results) == 0 && !out.Allowed {
		_, message, _ := strings.Cut(out.First, " denied request: ")
		messages = append(messages, message+" ")
	}
	return messages
}

// documented returns the differences from upstream that docs/policy.md names and that
// random policies meet, each with what recognises it in our answer.
func documented() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"excluded in a version that is served only where somebody asks for it": regexp.MustCompile(`of which it is not known whether the API server has it`),
	}
}

// normalized returns a message without what is different for a reason: why an object cannot be converted here.
func normalized(message string) string {
	if before, _, found := strings.Cut(message, "failed to convert object version: "); found {
		return before + "failed to convert object version"
	}
	return message
}

func (o outcome) normalized() outcome {
	o.First = normalized(o.First)
	return o
}

// difference returns how our answer to a request differs from upstream's, and "" if it
// does not.
func difference(t testing.TB, w *world, set *policy.Set, u *upstream, o apiserveradmission.ObjectInterfaces, a asked) string {
	t.Helper()
	decision := set.Decide(t.Context(), policy.Input{Request: a.sent, Violations: true})
	got, err := ours(decision.Response())
	if err != nil {
		return err.Error()
	}
	for _, v := range decision.Violations {
		for _, known := range documented() {
			if known.MatchString(v.Message) {
				return ""
			}
		}
	}
	// What upstream says can depend on the order of a map's members, which it has at
	// random.
	differs := func(run func() string) string {
		found := run()
		for range 12 {
			if found == "" {
				break
			}
			found = run()
		}
		return found
	}
	if found := differs(func() string {
		want := u.dispatch(t, a, o, u.hooks)
		if got.normalized().bounded(want.normalized()) {
			return ""
		}
		return fmt.Sprintf("     got %s\nupstream %s", toJSON(t, got), toJSON(t, want))
	}); found != "" {
		return found
	}
	for i := range w.bindings {
		b := &w.bindings[i]
		var ours []string
		for _, v := range decision.Violations {
			if v.Refuses() && v.Policy == b.Spec.PolicyName && (v.Binding == b.Name || v.Binding == "") {
				reason := string(v.Reason)
				message := v.Message
				if v.Actions == nil {
					message = "failed to configure " + strings.TrimPrefix(message, "failed to configure ")
				}
				ours = append(ours, message+" "+reason)
			}
		}
		if found := differs(func() string {
			want := u.denials(t, a, b.Spec.PolicyName, b, o)
			same := len(want) == len(ours)
			for i := range ours {
				same = same && boundedText(normalized(strings.TrimSpace(ours[i])), normalized(strings.TrimSpace(want[i])))
			}
			if same {
				return ""
			}
			return fmt.Sprintf("binding %s: denials\n     got %q\nupstream %q", b.Name, ours, want)
		}); found != "" {
			return found
		}
	}
	return ""
}

// compiled compiles a world. What of its expressions does not compile is replaced.
func (w *world) compiled(t testing.TB, base *policy.Set) *policy.Set {
	t.Helper()
	for range 40 {
		spec := w.spec()
		spec.Previous = base
		set, err := policy.Compile(spec)
		var list diagnostic.List
		if err == nil {
			return set
		}
		if !errors.As(err, &list) {
			t.Fatal(err)
		}
		for _, f := range list {
			if f.Severity == diagnostic.Error && !w.replace(f) {
				t.Fatalf("%s: %s", f.Field, f)
			}
		}
	}
	t.Fatal("the policies do not compile")
	return nil
}

// replace replaces the expression that a diagnostic is about.
func (w *world) replace(f diagnostic.Diagnostic) bool {
	i := slices.IndexFunc(w.policies, func(p policy.Policy) bool { return p.Source == f.Source })
	var list, name string
	var k int
	if n, _ := fmt.Sscanf(strings.NewReplacer("[", " ", "].", " ").Replace(f.Field), "spec.%s %d %s", &list, &k, &name); i < 0 || n != 3 {
		return false
	}
	spec := &w.policies[i].Spec
	switch list + "." + name {
	case "matchConditions.expression":
		spec.MatchConditions[k].Expression = "true"
	case "variables.expression":
		spec.Variables[k].Expression = "dyn(1)"
	case "validations.expression":
		spec.Validations[k].Expression = "object == oldObject"
	case "validations.messageExpression":
		spec.Validations[k].MessageExpression = "'replaced'"
	case "auditAnnotations.valueExpression":
		spec.AuditAnnotations[k].ValueExpression = "'replaced'"
	default:
		return false
	}
	return true
}

// worldDocuments are the policies and bindings of a world.
type worldDocuments struct {
	Policies []policy.Policy
	Bindings []policy.Binding
}

// smaller returns worlds that lack one field or element of a policy or binding each.
func (w *world) smaller(t testing.TB) []*world {
	t.Helper()
	var tree any
	must(t, json.Unmarshal([]byte(toJSON(t, worldDocuments{w.policies, w.bindings})), &tree))
	var out []*world
	for _, less := range without(tree) {
		var d worldDocuments
		if json.Unmarshal([]byte(toJSON(t, less)), &d) == nil {
			out = append(out, &world{policies: d.Policies, bindings: d.Bindings, objects: w.objects, requests: w.requests})
		}
	}
	return out
}

// without returns copies of a JSON tree that lack one member or element each.
func without(v any) []any {
	var out []any
	switch v := v.(type) {
	case []any:
		for i := range v {
			out = append(out, slices.Delete(slices.Clone(v), i, i+1))
			for _, less := range without(v[i]) {
				out = append(out, slices.Concat(v[:i], []any{less}, v[i+1:]))
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			lacking := maps.Clone(v)
			delete(lacking, key)
			out = append(out, lacking)
			for _, less := range without(v[key]) {
				changed := maps.Clone(v)
				changed[key] = less
				out = append(out, changed)
			}
		}
	}
	return out
}

// shrunk returns a world in which a request still makes a difference, without what does
// not matter.
func (w *world) shrunk(t testing.TB, base *policy.Set, o apiserveradmission.ObjectInterfaces, a asked) (*world, string) {
	t.Helper()
	found := ""
	try := func(c *world) string {
		spec := c.spec()
		spec.Previous = base
		set, err := policy.Compile(spec)
		if err != nil {
			return ""
		}
		return difference(t, c, set, newUpstream(t, spec), o, a)
	}
	found = try(w)
	for again := true; again; {
		again = false
		for _, c := range w.smaller(t) {
			if d := try(c); d != "" {
				w, found, again = c, d, true
				break
			}
		}
	}
	return w, found
}

// text returns the world as documents, and the request.
func (w *world) text(t testing.TB, a asked) string {
	t.Helper()
	var out strings.Builder
	write := func(apiVersion, kind string, object any) {
		raw, err := json.Marshal(object)
		must(t, err)
		var fields map[string]any
		must(t, json.Unmarshal(raw, &fields))
		if kind != "" {
			fields["apiVersion"], fields["kind"] = apiVersion, kind
		}
		delete(fields, "Source")
		delete(fields, "status")
		text, err := yaml.Marshal(fields)
		must(t, err)
		out.WriteString("---\n" + string(text))
	}
	for i := range w.policies {
		write("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", w.policies[i].ValidatingAdmissionPolicy)
	}
	for i := range w.bindings {
		write("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", w.bindings[i].ValidatingAdmissionPolicyBinding)
	}
	for _, object := range w.objects {
		write("", "", object.Object)
	}
	return out.String() + "\nrequest: " + toJSON(t, a.sent.AdmissionRequest) + "\nrequested object: " + toJSON(t, a.object) + "\n"
}

// TestRandomSameAsUpstream holds the answers to random requests under random
// policies against the API server's own dispatcher: verdict, code, reason, every
// violation, warnings and audit annotations. `make differential N=…` tries more.
func TestRandomSameAsUpstream(t *testing.T) {
	t.Parallel()
	o := interfaces{apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme), servedKinds()}
	base, err := policy.Compile(policy.Spec{})
	must(t, err)
	cases, denied, evaluated := 0, 0, 0
	for seed := *differentialSeed; seed < *differentialSeed+int64(*differentialN); seed++ {
		w := newGenerator(seed).world()
		set := w.compiled(t, base)
		u := newUpstream(t, w.spec())
		for i, a := range w.requests {
			cases++
			if d := set.Decide(t.Context(), policy.Input{Request: a.sent, Explain: true}); !d.Response().Allowed || slices.ContainsFunc(d.Evaluations, func(e policy.Evaluation) bool { return e.Why == policy.Evaluated }) {
				evaluated++
				if !d.Response().Allowed {
					denied++
				}
			}
			if difference(t, w, set, u, o, a) == "" {
				continue
			}
			small, found := w.shrunk(t, base, o, a)
			t.Errorf("seed %d, request %d (again: -differential.seed=%d -differential.n=1)\n%s\n%s", seed, i, seed, found, small.text(t, a))
		}
	}
	t.Logf("%d cases, %d of them evaluated, %d denied; seeds %d to %d", cases, evaluated, denied, *differentialSeed, *differentialSeed+int64(*differentialN)-1)
	if *differentialN >= 25 && (evaluated < cases/4 || denied < cases/10) {
		t.Errorf("of %d cases only %d were evaluated, and %d denied", cases, evaluated, denied)
	}
}
