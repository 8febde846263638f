package differential_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

var (
	differentialN    = flag.Int("differential.n", race.Cases(200), "how many random sets of policies are held against the API server's own code")
	differentialSeed = flag.Int64("differential.seed", 1, "the seed of the first set; the next one has the next seed")
)

// compiled compiles a world. What of its expressions does not compile is replaced.
func (w *world) compiled(t testing.TB) *policy.Set {
	t.Helper()
	for range 40 {
		set, err := policy.Compile(w.spec())
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

// TestRandomSameAsUpstream holds the answers to random requests under random
// policies against the API server's own dispatcher: verdict, code, reason, violations,
// warnings and audit annotations. `make differential N=…` tries more.
func TestRandomSameAsUpstream(t *testing.T) {
	t.Parallel()
	cases, denied, told := 0, 0, 0
	for seed := *differentialSeed; seed < *differentialSeed+int64(*differentialN); seed++ {
		w := newGenerator(seed).world()
		set := w.compiled(t)
		u := newUpstream(t, w.spec())
		for i, a := range w.requests {
			d := set.Decide(t.Context(), policy.Input{Request: a.Sent, Violations: true})
			cases++
			if !d.Response().Allowed {
				denied++
			}
			if len(d.Violations) > 0 {
				told++
			}
			// Whether the API server serves a version only where somebody asks for it is not known.
			if slices.ContainsFunc(d.Violations, func(v policy.Violation) bool {
				return strings.Contains(v.Message, "of which it is not known whether the API server has it")
			}) {
				continue
			}
			if found := difference(t, set, u, a); found != "" {
				t.Errorf("seed %d, request %d (again: -differential.seed=%d -differential.n=1)\n%s\npolicies %s\nbindings %s\nrequest %s",
					seed, i, seed, found, toJSON(t, w.policies), toJSON(t, w.bindings), toJSON(t, a.Sent.AdmissionRequest))
			}
		}
	}
	t.Logf("%d cases, %d of them denied, %d with violations; seeds %d to %d", cases, denied, told, *differentialSeed, *differentialSeed+int64(*differentialN)-1)
	if *differentialN >= 25 && (told < cases/5 || denied < cases/10) {
		t.Errorf("of %d cases only %d have violations, and %d are denied", cases, told, denied)
	}
}
