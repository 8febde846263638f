package compile

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/test/support/arbitrary"
	"github.com/gatehouse-dev/gatehouse/test/support/dispatcher"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

var (
	differentialN    = flag.Int("differential.n", race.Cases(50), "how many random configurations are compiled, and held against Gatehouse by the API server's own dispatcher")
	differentialSeed = flag.Int64("differential.seed", 1, "the seed of the first configuration; the next one has the next seed")
)

// All implements dispatcher.Store.
func (namespaces) All() (out []*unstructured.Unstructured) {
	for _, namespace := range (arbitrary.Names{Shop: "shop", Lab: "lab"}).Namespaces() {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&namespace)
		if err != nil {
			panic(err)
		}
		one := &unstructured.Unstructured{Object: object}
		one.SetAPIVersion("v1")
		one.SetKind("Namespace")
		out = append(out, one)
	}
	return out
}

// registry knows what the API server of the tests serves.
var registry = sync.OnceValue(func() runtime.EquivalentResourceRegistry {
	out := runtime.NewEquivalentResourceRegistry()
	for resource, kind := range map[string]schema.GroupVersionKind{"pods": podKind, "deployments": deploymentKind, "cronjobs": cronJobKind} {
		out.RegisterKindFor(kind.GroupVersion().WithResource(resource), "", kind)
	}
	return out
})

// saidRule is a rule in a message.
var saidRule = regexp.MustCompile(`rule (\d) does not hold`)

// told is an answer: the rules, by their numbers, that refuse a request, and those that are warned of. A rule that cannot be evaluated has
// none.
type told struct {
	denied         bool
	denies, warned []string
	// nameless is how many warnings do not name their rule.
	nameless int
}

func rulesOf(texts []string) (out []string) {
	for _, text := range texts {
		if found := saidRule.FindStringSubmatch(text); found != nil {
			out = append(out, found[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// tells returns what Gatehouse says of a request, and whether a rule failed.
func (p *pair) tells(t testing.TB, req admission.Request) (out told, failed bool) {
	t.Helper()
	d := p.ours.Decide(t.Context(), policy.Input{Request: req, Violations: true})
	var denies, warned []string
	for i := range d.Violations {
		v := &d.Violations[i]
		if v.Outcome != policy.Violated && v.Outcome != policy.Failed {
			continue
		}
		failed = failed || v.Outcome == policy.Failed
		if slices.Contains(v.Actions, admissionregistrationv1.Deny) {
			out.denied, denies = true, append(denies, v.Message)
		} else {
			warned = append(warned, v.Message)
		}
	}
	out.denies, out.warned = rulesOf(denies), rulesOf(warned)
	return out, failed
}

// differs returns how the API server's answer differs from Gatehouse's where the report calls the rules native, "" for not at all.
func (p *pair) differs(own, native told, failed bool) string {
	isNative := func(number string) bool {
		return !slices.ContainsFunc(p.out.Items, func(i *Item) bool {
			return i.Status != Native && (number == "" || i.Rule == "validations["+number+"]" || i.Rule == "validations[rule-"+number+"]")
		})
	}
	one := func(of []string) bool { return slices.ContainsFunc(of, isNative) || len(of) == 0 && isNative("") }
	switch {
	case native.denied && !own.denied && one(native.denies):
		return "the API server alone refuses"
	case own.denied && !native.denied && one(own.denies):
		return "Gatehouse alone refuses"
	case own.denied && native.denied && len(own.denies) > 0 && !failed && slices.ContainsFunc(native.denies, func(rule string) bool { return isNative(rule) && !slices.Contains(own.denies, rule) }):
		return "the API server refuses by another rule"
	}
	for _, rule := range native.warned {
		if !slices.Contains(own.warned, rule) && isNative(rule) {
			return "the API server alone warns of rule " + rule
		}
	}
	// Where a condition of an exception cannot be evaluated, the API server says so in place of the message, see General.
	missing := slices.DeleteFunc(slices.Clone(own.warned), func(rule string) bool { return slices.Contains(native.warned, rule) || !isNative(rule) })
	if len(missing) > native.nameless {
		return "Gatehouse alone warns of rules " + strings.Join(missing, ", ")
	}
	return ""
}

// TestRandomSameAsUpstream has the API server's own dispatcher decide random requests by what random configurations with exceptions compile to:
// as Gatehouse decides by the configurations, or the report names the rule. `make differential N=…` tries more.
func TestRandomSameAsUpstream(t *testing.T) {
	t.Parallel()
	cases, denied, warned := 0, 0, 0
	for seed := *differentialSeed; seed < *differentialSeed+int64(*differentialN); seed++ {
		random := rand.New(rand.NewSource(seed))
		c := arbitrary.Configuration(random, arbitrary.Names{Policy: "p", Shop: "shop", Lab: "lab"}, now())
		c.Policy.Objects = namespaces{}
		c.Policy.Now = now
		p := &pair{}
		var err error
		if p.out, err = Compile(c, Options{Kubernetes: "1.36", Now: now()}); err != nil {
			t.Fatal(err)
		}
		if p.ours, err = policy.Compile(c.Policy); err != nil {
			t.Fatal(err)
		}
		spec := p.out.Spec("1.36")
		spec.Objects = c.Policy.Objects
		native := dispatcher.New(t, spec, nil, registry())
		for range 2 {
			pod := arbitrary.Pod(random)
			namespace := []string{"shop", "lab"}[random.Intn(2)]
			pod["metadata"].(map[string]any)["namespace"] = namespace
			req := ask(admissionv1.Create, podKind, "pods", pod, nil)
			req.Namespace, req.UserInfo.Username = namespace, []string{"jane", "root"}[random.Intn(2)]
			for _, variant := range variants(random, req, 1) {
				variant = asServer(t, variant)
				if bytes.Contains(variant.Object.Raw, []byte(`"containers":null`)) || bytes.Contains(variant.OldObject.Raw, []byte(`"containers":null`)) {
					continue // the API server refuses a pod without containers, whatever policies say
				}
				answer := native.Dispatch(t, dispatcher.Ask(t, variant))
				got := told{denied: !answer.Allowed, denies: rulesOf([]string{answer.First}), warned: rulesOf(answer.Warnings)}
				got.nameless = len(slices.DeleteFunc(slices.Clone(answer.Warnings), saidRule.MatchString))
				own, failed := p.tells(t, variant)
				if cases++; own.denied {
					denied++
				}
				if len(own.warned) > 0 {
					warned++
				}
				if failed && variant.Operation == admissionv1.Update {
					continue // of an update, Gatehouse compares why a rule could not be evaluated before, see General
				}
				if found := p.differs(own, got, failed); found != "" {
					t.Errorf("seed %d (again: -differential.seed=%d -differential.n=1): %s\nGatehouse %+v\nupstream %+v %s %q\nobject %s\nold %s", seed, seed, found, own, got, answer.First, answer.Warnings, variant.Object.Raw, variant.OldObject.Raw)
				}
			}
		}
	}
	t.Logf("%d cases, %d of them denied, %d with warnings; seeds %d to %d", cases, denied, warned, *differentialSeed, *differentialSeed+int64(*differentialN)-1)
	if *differentialN >= 25 && (denied < cases/20 || warned < cases/50) {
		t.Errorf("of %d cases only %d are denied, and %d have warnings", cases, denied, warned)
	}
}

// asServer returns a request as the API server sends it: its objects are written from typed ones.
func asServer(t testing.TB, req admission.Request) admission.Request {
	t.Helper()
	for _, object := range []*runtime.RawExtension{&req.Object, &req.OldObject} {
		if len(object.Raw) > 0 {
			text, err := runtime.Encode(unstructured.UnstructuredJSONScheme, asUnstructured(t, dispatcher.Typed(t, object.Raw)))
			if err != nil {
				t.Fatal(err)
			}
			object.Raw = []byte(strings.TrimSpace(string(text)))
		}
	}
	req.RequestKind, req.RequestResource = &req.Kind, &req.Resource
	return req
}

func asUnstructured(t testing.TB, object runtime.Object) *unstructured.Unstructured {
	t.Helper()
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(fmt.Errorf("%T: %w", object, err))
	}
	return &unstructured.Unstructured{Object: out}
}
