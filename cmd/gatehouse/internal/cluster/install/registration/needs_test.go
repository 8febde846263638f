package registration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// mutatingPolicy is a bound policy that changes objects.
func mutatingPolicy(spec *webhooks.Spec, failurePolicy admissionregistrationv1.FailurePolicyType, rules ...testRule) {
	of := specWith(failurePolicy, rules...)
	var p mutation.Policy
	p.Name, p.Spec.MatchConstraints, p.Spec.FailurePolicy = "m", of.MatchConstraints, of.FailurePolicy
	var bound mutation.Binding
	bound.Spec.PolicyName = "m"
	spec.Mutation.Policies, spec.Mutation.Bindings = append(spec.Mutation.Policies, p), append(spec.Mutation.Bindings, bound)
}

// needsText is needs on lines: webhook: rules, and selectors in brackets.
func needsText(n Needs) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		text := strings.TrimSuffix(name, ".gatehouse.dev") + ": " + strings.Join(short(n[name].Rules), "; ")
		for _, s := range []*metav1.LabelSelector{n[name].Namespaces, n[name].Objects} {
			if s != nil {
				text += fmt.Sprint(" ", s.MatchLabels)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

func TestNeeds(t *testing.T) {
	profile := func(s *webhooks.Spec) { s.Sidecar.Profiles = []sidecar.Profile{{}} }
	validates := func(policies ...policy.AdmissionPolicy) func(*webhooks.Spec) {
		return func(s *webhooks.Spec) { s.Policy.AdmissionPolicies = policies }
	}
	const podsCreated = "/v1 Namespaced pods CREATE"
	for name, c := range map[string]struct {
		change []func(*webhooks.Spec)
		want   []string
	}{
		"nothing":                     {},
		"a profile":                   {[]func(*webhooks.Spec){profile}, []string{"asked.mutate: " + podsCreated, "default.mutate: " + podsCreated}},
		"a policy without validation": {[]func(*webhooks.Spec){validates(ours("none", admissionregistrationv1.ValidatingAdmissionPolicySpec{}))}, nil},
		"by failurePolicy": {
			[]func(*webhooks.Spec){validates(ours("a", specWith("", named("", "v1", "configmaps", create))), ours("b", specWith("Ignore", named("", "v1", "configmaps,secrets", create))))},
			[]string{"fail.validate: /v1 * configmaps CREATE", "ignore.validate: /v1 * secrets CREATE"},
		},
		"a selector of all": {
			[]func(*webhooks.Spec){validates(selecting("a", "Fail", "x", "", named("", "v1", "secrets", create)), selecting("b", "Fail", "x", "", named("", "v1", "configmaps", create)))},
			[]string{"fail.validate: /v1 * configmaps,secrets CREATE map[x:true]"},
		},
		"everything": {
			[]func(*webhooks.Spec){validates(ours("a", specWith("", named("*", "*", "*/*", "*"))), ours("b", specWith("Ignore", named("", "v1", "secrets", create))))},
			[]string{"fail.validate: */* * */* *"},
		},
		"what is never sent": {
			[]func(*webhooks.Spec){validates(ours("a", specWith("", named("", "v1", "nodes,nodes/status,events", create), named("coordination.k8s.io", "*", "*", "*"),
				named("gatehouse.dev", "*", "*", "*"), named("authorization.k8s.io", "*", "*/*", "*"), named("certificates.k8s.io", "v1", "certificatesigningrequests/approval", update))))},
			nil,
		},
		"pods that change, open": {
			[]func(*webhooks.Spec){func(s *webhooks.Spec) { mutatingPolicy(s, "Ignore", named("", "v1", "pods,services", create)) }},
			[]string{"asked.mutate: " + podsCreated, "default.mutate: " + podsCreated, "ignore.mutate: /v1 * services CREATE"},
		},
		"pods that change, closed": {
			[]func(*webhooks.Spec){func(s *webhooks.Spec) { mutatingPolicy(s, "Fail", named("", "v1", "pods", create)) }},
			[]string{"asked.mutate: " + podsCreated, "fail.mutate: /v1 * pods CREATE"},
		},
		"pods that change, closed, and a profile": {
			[]func(*webhooks.Spec){profile, func(s *webhooks.Spec) { mutatingPolicy(s, "Fail", named("", "v1", "pods", create)) }},
			[]string{"asked.mutate: " + podsCreated, "fail.mutate: /v1 * pods CREATE"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var spec webhooks.Spec
			for _, change := range c.change {
				change(&spec)
			}
			needs, _, err := NeedsOf(&spec, []string{"*"})
			if got := needsText(needs); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got  %q, %v\nwant %q", got, err, c.want)
			}
		})
	}
}

// What does not fit is merged into wider rules, and nothing is dropped.
func TestNeedsAreBounded(t *testing.T) {
	t.Parallel()
	many := func(n int, rule func(i int) testRule) []testRule {
		var list []testRule
		for i := range n {
			list = append(list, rule(i))
		}
		return list
	}
	operations := []admissionregistrationv1.OperationType{create, update, remove, connect}
	for name, c := range map[string]struct {
		rules []testRule
		want  string // the first rule
		count int
	}{
		"as many as fit": {many(MaxRules, func(i int) testRule { return named(fmt.Sprintf("g%02d", i), "v1", "things", create) }), "g00/v1 * things CREATE", MaxRules},
		"versions":       {many(100, func(i int) testRule { return named(fmt.Sprintf("g%d", i%50), fmt.Sprintf("v%d", i), "things", create) }), "g0/* * things *", 50},
		"operations": {
			many(120, func(i int) testRule {
				return named(fmt.Sprintf("g%02d", i%30), "v1", fmt.Sprintf("things%d", i), operations[i/30])
			}), "g00/* * things0,things30,things60,things90 *", 30,
		},
		"resources": {many(600, func(i int) testRule { return named("g", "v1", fmt.Sprintf("things%d", i), create) }), "*/* * */* *", 1},
		"groups":    {many(100, func(i int) testRule { return named(fmt.Sprintf("g%d", i), "v1", "things", create) }), "*/* * */* *", 1},
		"all":       {many(6000, func(i int) testRule { return named(fmt.Sprintf("g%d", i), "v1", "things", create) }), "*/* * */* *", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := webhooks.Spec{}
			spec.Policy.AdmissionPolicies = []policy.AdmissionPolicy{ours("a", specWith("", c.rules...))}
			needs, _, err := NeedsOf(&spec, []string{"*"})
			if err != nil {
				t.Fatal(err)
			}
			rules := needs[FailValidate].Rules
			if got := short(rules); len(got) != c.count || got[0] != c.want {
				t.Errorf("%d rules, first %q", len(got), got[0])
			}
			sent := atomsOf(rules)
			for _, r := range c.rules {
				for a := range atomsOf([]admissionregistrationv1.RuleWithOperations{r.RuleWithOperations}).atoms {
					if !sent.covers(a, false) {
						t.Fatalf("%+v is not sent", a)
					}
				}
			}
		})
	}
}

// atomsOf returns the atoms of rules.
func atomsOf(rules []admissionregistrationv1.RuleWithOperations) *atomSet {
	s := &atomSet{atoms: map[atom]bool{}}
	for _, rule := range rules {
		s.add(rule)
	}
	if s.full {
		return everyRequest()
	}
	return s
}

// Selectors of a managed webhook are what is needed, and the exclusion of namespaces.
func TestSelectors(t *testing.T) {
	t.Parallel()
	excluded := []string{"gatehouse-system", "kube-system"}
	for name, r := range map[string]Requests{
		"none": {},
		"namespaces, by their names too": {Namespaces: &metav1.LabelSelector{
			MatchLabels:      map[string]string{"a": "b"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: namespaceName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}}},
		}},
		"objects": {Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
	} {
		namespaces, objects := r.Selectors(excluded)
		if e := namespaces.MatchExpressions[0]; e.Key != namespaceName || e.Operator != metav1.LabelSelectorOpNotIn || !slices.Equal(e.Values, excluded) {
			t.Errorf("%s: the exclusion is %+v", name, e)
		}
		namespaces.MatchExpressions = namespaces.MatchExpressions[1:]
		for _, pair := range [][2]*metav1.LabelSelector{{namespaces, r.Namespaces}, {objects, r.Objects}} {
			if pair[1] == nil {
				pair[1] = &metav1.LabelSelector{}
			}
			if !equality.Semantic.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s: got %+v, want %+v", name, pair[0], pair[1])
			}
		}
	}
}

// BenchmarkNeeds decides what a thousand policies need.
func BenchmarkNeeds(b *testing.B) {
	var spec webhooks.Spec
	for i := range 1000 {
		spec.Policy.AdmissionPolicies = append(spec.Policy.AdmissionPolicies, ours(fmt.Sprintf("p%d", i), specWith([]admissionregistrationv1.FailurePolicyType{"Fail", "Ignore"}[i%2],
			named(fmt.Sprintf("g%d.example.org", i%200), "v1,v1beta1", fmt.Sprintf("things%d,others%d", i, i), create, update), named("", "v1", "pods", create))))
	}
	for b.Loop() {
		if _, _, err := NeedsOf(&spec, []string{"*"}); err != nil {
			b.Fatal(err)
		}
	}
}
