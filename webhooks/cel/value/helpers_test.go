package value_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// failing is the group of expressions that fail.
const failing = "failing"

// documents are what expressions look at, and expressions are by what they try.
var documents, expressions = readArchive("testdata/expressions.txtar")

func readArchive(name string) (documents map[string]string, expressions map[string][]string) {
	archive, err := txtar.ParseFile(name)
	if err != nil {
		panic(err)
	}
	documents, expressions = map[string]string{}, map[string][]string{}
	for _, file := range archive.Files {
		if group, ok := strings.CutPrefix(file.Name, "expressions/"); ok {
			expressions[group] = strings.Split(strings.TrimSuffix(string(file.Data), "\n"), "\n")
		} else {
			documents[strings.TrimPrefix(file.Name, "document/")] = string(file.Data)
		}
	}
	return documents, expressions
}

func parse(t testing.TB, text string) rawjson.Value {
	t.Helper()
	v, err := rawjson.Parse([]byte(text))
	must(t, err)
	return v
}

// decode returns what Value is held against.
func decode(t testing.TB, v rawjson.Value) any {
	t.Helper()
	tree, err := v.Decode()
	must(t, err)
	return tree
}

func native(t testing.TB, v rawjson.Value) ref.Val {
	t.Helper()
	return types.DefaultTypeAdapter.NativeToValue(decode(t, v))
}

// environment136 has all libraries of Kubernetes 1.36, its cost limit and its
// cost estimator.
var environment136 = sync.OnceValue(func() *cel.Env {
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("object", cel.DynType), cel.Variable("other", cel.DynType)},
	})
	if err != nil {
		panic(err)
	}
	return set.StoredExpressionsEnv()
})

func program(t testing.TB, expression string) cel.Program {
	t.Helper()
	compiled, issues := environment136().Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	p, err := environment136().Program(compiled)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return p
}

// programs are compiled once for all tests.
var programs sync.Map

func programOf(t testing.TB, expression string) cel.Program {
	t.Helper()
	if p, ok := programs.Load(expression); ok {
		return p.(cel.Program)
	}
	p := program(t, expression)
	programs.Store(expression, p)
	return p
}

// outcome returns all that an evaluation shows: the result or the error, and the cost.
func outcome(p cel.Program, object, other any) string {
	result, details, err := p.Eval(map[string]any{"object": object, "other": other})
	cost := "no cost"
	if details != nil && details.ActualCost() != nil {
		cost = fmt.Sprintf("cost %d", *details.ActualCost())
	}
	if err != nil {
		return fmt.Sprintf("error %q, %s", err, cost)
	}
	return show(result) + ", " + cost
}

// show writes a value with the types of all that is in it. Members are sorted,
// since a Go map has no order.
func show(v ref.Val) string {
	switch v := v.(type) {
	case traits.Lister:
		var parts []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			parts = append(parts, show(it.Next()))
		}
		return v.Type().TypeName() + "[" + strings.Join(parts, ", ") + "]"
	case traits.Mapper:
		var parts []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			parts = append(parts, show(key)+": "+show(v.Get(key)))
		}
		slices.Sort(parts)
		return v.Type().TypeName() + "{" + strings.Join(parts, ", ") + "}"
	case *types.Optional:
		if !v.HasValue() {
			return "none"
		}
		return "optional(" + show(v.GetValue()) + ")"
	default:
		return fmt.Sprintf("%s %#v", v.Type().TypeName(), v.Value())
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
