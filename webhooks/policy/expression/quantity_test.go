package expression_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

const tooHuge = "error: a quantity must not have more than 100 digits, or an exponent of more than 2"

// TestHugeQuantities holds that no quantity takes long to read or to compare,
// wherever its text comes from, and that others are what they are upstream.
func TestHugeQuantities(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	for name, test := range map[string]struct {
		expression, object string
		want               string
	}{
		"exponent":             {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1e9999999"}`, tooHuge},
		"upper case":           {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1E9999999"}`, tooHuge},
		"three digits":         {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1e100"}`, tooHuge},
		"two digits":           {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1e99"}`, "bool false"},
		"zeros":                {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1e0099"}`, tooHuge},
		"with a plus":          {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1e+9999999"}`, tooHuge},
		"tiny":                 {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1e-9999999"}`, tooHuge},
		"negative":             {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "-1.e9999999"}`, tooHuge},
		"without digits":       {"quantity(object.q).isLessThan(quantity('1'))", `{"q": ".e9999999"}`, tooHuge},
		"more than 64 bits":    {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1e99999999999999999999"}`, tooHuge},
		"escaped":              {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1\u0065999999999"}`, tooHuge},
		"escaped digits":       {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1e\u0039\u0039\u0039\u0039\u0039\u0039\u0039"}`, tooHuge},
		"put together":         {"quantity(object.a + object.b).isLessThan(quantity('1'))", `{"a": "1e99", "b": "99999"}`, tooHuge},
		"with a number":        {"quantity('1e' + string(object.n)).isLessThan(quantity('1'))", `{"n": 9999999}`, tooHuge},
		"a name":               {"object.all(k, quantity(k).isLessThan(quantity('1')))", `{"1e9999999": 1}`, tooHuge},
		"in a variable":        {"variables.q.isLessThan(quantity('1'))", `{"q": "1e9999999"}`, `error: composited variable "q" fails to evaluate: ` + strings.TrimPrefix(tooHuge, "error: ")},
		"isQuantity":           {"isQuantity(object.q)", `{"q": "1e-9999999"}`, tooHuge},
		"many digits":          {"isQuantity(object.q)", `{"q": "` + strings.Repeat("9", 1_000_000) + `"}`, tooHuge},
		"many decimals":        {"isQuantity(object.q)", `{"q": "0.` + strings.Repeat("9", 1_000_000) + `"}`, tooHuge},
		"as many as there may": {"isQuantity(object.q)", `{"q": "` + strings.Repeat("9", 100) + `"}`, "bool true"},
		"long text":            {"isQuantity(object.q)", `{"q": "` + strings.Repeat("x", 1_000_000) + `"}`, "bool false"},
		"hash":                 {"isQuantity(object.q)", `{"q": "4e9124f1e"}`, "bool false"},
		"hash with letters":    {"isQuantity(object.q)", `{"q": "a4e9124f1e"}`, "bool false"},
		"of the policy":        {"quantity('1e9999999').isLessThan(quantity('1'))", `{}`, tooHuge},
		"not asked":            {"object.q == '1e9999999'", `{"q": "1e9999999"}`, "bool true"},
		"usual":                {"quantity(object.q).isLessThan(quantity('2Gi'))", `{"q": "1Gi"}`, "bool true"},
		"exa":                  {"quantity(object.q).isLessThan(quantity('2Gi'))", `{"q": "1E"}`, "bool false"},
		"no quantity":          {"quantity(object.q).isLessThan(quantity('1'))", `{"q": "1x"}`, "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"},
		"a number":             {"quantity(object.q).isLessThan(quantity('1'))", `{"q": 1e99}`, "error: no such overload: quantity(double)"},
		"fails before":         {"quantity(object.nothing).isLessThan(quantity('1'))", `{}`, "error: no such key: nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variables := declare(t, compiler, pair{"q", "quantity(object.q)"})
			defer timely(t, 5*time.Second)()
			if got := evaluate(compile(t, compiler, variables, test.expression), variables, withObject(t, test.object)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// FuzzHugeQuantity holds that what is not refused is read and compared at once,
// and means the same.
func FuzzHugeQuantity(f *testing.F) {
	for _, text := range []string{"1", "1e9999999", "1Gi", "-1.5e-10", "1E", "1e+99", "0.000000000001", "+1e3", "é", "1e1e1000", "1.1.1"} {
		f.Add(text)
	}
	compiler := sharedCompiler()
	quantity := compile(f, compiler, nil, "quantity(object.q)")
	compared := compile(f, compiler, nil, "quantity(object.q).isLessThan(quantity('1'))")
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.Marshal(map[string]string{"q": text})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &struct{ Q *string }{&text}); err != nil {
			t.Fatal(err) // what is not UTF-8 is another text now
		}
		object := withObject(t, string(raw))
		done := timely(t, time.Second)
		got, less := evaluate(quantity, nil, object), evaluate(compared, nil, object)
		done()
		if got == tooHuge {
			return
		}
		parsed, err := resource.ParseQuantity(text)
		if err != nil {
			if got != "error: "+err.Error() {
				t.Errorf("%q is %s, want %v", text, got, err)
			}
			return
		}
		if want := fmt.Sprintf("bool %v", parsed.Cmp(resource.MustParse("1")) < 0); less != want {
			t.Errorf("%q is less than one: %s, want %s", text, less, want)
		}
	})
}
