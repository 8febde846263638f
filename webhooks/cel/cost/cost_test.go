package cost_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
)

// sharedEnv is Kubernetes' own environment, with the names that the tests need.
var sharedEnv = sync.OnceValue(func() *cel.Env {
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("object", cel.DynType), cel.Variable("params", cel.DynType), cel.Variable("authorizer", library.AuthorizerType),
			cel.Variable("variables", cel.MapType(cel.StringType, cel.DynType)),
		},
	})
	if err != nil {
		panic(err)
	}
	return set.StoredExpressionsEnv()
})

// of returns the bound of an expression. The value of variables.list is that of another one.
func of(t *testing.T, text string) celcost.Bound {
	t.Helper()
	compile := func(text string) *cel.Ast {
		checked, issues := sharedEnv().Compile(text)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		return checked
	}
	_, list := celcost.Of(compile("object.spec.a + object.spec.b").NativeRep(), nil)
	bound, _ := celcost.Of(compile(text).NativeRep(), func(name string) (celcost.Value, bool) { return list, name == "list" })
	return bound
}

// TestOf has what expressions cost at most, of an object with 60 KB and 3,000 values and params with 100 bytes and 10 values.
// What they cost in the interpreter is held against their bounds by the tests of webhooks/policy/expression.
func TestOf(t *testing.T) {
	t.Parallel()
	sizes := celcost.Sizes{ObjectBytes: 60_000, ObjectValues: 3_000, OtherBytes: 100, OtherValues: 10}
	for _, tc := range []struct {
		name, text string
		most       float64
	}{
		{"constant", "1 + 1 == 2", 10},
		{"fields", "has(object.metadata.labels) && object.metadata.labels.team == 'a'", 30},
		{"loop", "object.spec.containers.all(c, c.image.startsWith('registry.example/'))", 100_000},
		{"loop in a loop", "object.spec.containers.all(c, c.ports.all(p, p.hostPort == 0))", 100_000},
		{"loop in a loop in a loop", "object.a.all(c, c.b.all(p, p.exists(x, x.n == 'a')))", 100_000},
		{"map", "object.spec.containers.map(c, c.name).join(', ').size() > 3", 150_000},
		{"filter", "object.spec.containers.filter(c, has(c.resources.limits)).all(c, 'memory' in c.resources.limits)", 150_000},
		{"entries", "object.metadata.labels.all(k, v, k.startsWith('a') || v.matches('^[a-z]+$'))", 200_000},
		{"params", "object.spec.containers.all(c, params.allowed.exists(a, c.image.startsWith(a)))", 1_000_000},
		{"variable", "variables.list.all(c, c.image.contains(':'))", 200_000},
		{"authorizer", "authorizer.group('').resource('pods').check('get').allowed()", 360_000},
		{"each with each", "object.a.all(a, object.a.exists_one(b, a == b))", 5e8},
		{"pattern in the object", "object.a.matches(object.b)", 1e9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bound := of(t, tc.text)
			if got := bound.At(&sizes); got > tc.most || got < tc.most/50 || !bound.IsFinite() {
				t.Errorf("the bound is %.0f, want at most %.0f", got, tc.most)
			}
		})
	}
}

// TestUnbounded has expressions whose cost has no bound, or none that is worth it.
func TestUnbounded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text string }{
		{"elements of variables", "dyn(variables).all(x, true)"},
		{"any variable", "variables[object.a] == 1"},
		{"a variable that is not declared", "'a'.contains(variables.other)"},
		{"range", "lists.range(object.a).all(x, true)"},
		{"sort", "object.a.sort() == []"},
		{"sort by", "[1, 2].sortBy(x, object.a) == []"},
		{"distinct", "object.a.distinct() == []"},
		{"depth", "object.a.flatten(object.b) == []"},
		{"precision", "'%.1000000f'.format([object.a]).contains('a')"},
		{"template", "object.a.format([1]).contains('a')"},
		{"reason", "authorizer.path('/').check('get').reason().contains('a')"},
		{"many loops", strings.Repeat("object.a.all(x, ", 90) + "true" + strings.Repeat(")", 90)},
		{"many dimensions", "object.a.all(a, object.a.all(b, object.a.all(c, object.a.all(d, object.a.all(e, true)))))"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if bound := of(t, tc.text); bound.IsFinite() {
				t.Errorf("the bound is %v", bound)
			}
		})
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	sizes := celcost.Sizes{ObjectBytes: 1000, ObjectValues: 100, OtherBytes: 10, OtherValues: 1}
	loop, params := of(t, "object.a.all(x, x == 'a')"), of(t, "params.b.all(x, x > 0)")
	if got, want := loop.Add(params).At(&sizes), loop.At(&sizes)+params.At(&sizes); got != want || got == 0 {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (celcost.Bound{}).Add(loop).At(&sizes); got != loop.At(&sizes) {
		t.Errorf("with nothing, the bound is %v", got)
	}
	if loop.Add(celcost.Unbounded()).IsFinite() || celcost.Unbounded().Add(loop).IsFinite() {
		t.Error("with what has no bound, there is one")
	}
}
