package template

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	expr := func(text string) part { return part{text: text, placeholder: true} }
	lit := func(text string) part { return part{text: text} }
	for name, tc := range map[string]struct {
		text string
		want []part // nil for a text without an end
	}{
		"empty":                    {"", []part{}},
		"plain":                    {"a}b{c$d", []part{lit("a}b{c$d")}},
		"whole":                    {"${a}", []part{expr("a")}},
		"several":                  {"x${a}y${b}${c}", []part{lit("x"), expr("a"), lit("y"), expr("b"), expr("c")}},
		"escape":                   {"$${a}", []part{lit("${a}")}},
		"a dollar and an escape":   {"$$${a}", []part{lit("$${a}")}},
		"an escape and more":       {"$${a}${b}", []part{lit("${a}"), expr("b")}},
		"a dollar at the end":      {"${a}$", []part{expr("a"), lit("$")}},
		"shell and Kubernetes":     {"$HOME $(POD) $$(X)", []part{lit("$HOME $(POD) $$(X)")}},
		"empty placeholder":        {"${}", []part{expr("")}},
		"map":                      {"${{'a': {'b': 1}}['a']['b']}c", []part{expr("{'a': {'b': 1}}['a']['b']"), lit("c")}},
		"strings":                  {`${"}" + '}' + "\"}" + '\'}'}x`, []part{expr(`"}" + '}' + "\"}" + '\'}'`), lit("x")}},
		"a quote in other quotes":  {`${"'}" + '"}'}x`, []part{expr(`"'}" + '"}'`), lit("x")}},
		"triple quotes":            {`${"""}"}""" + '''}'}'''}x`, []part{expr(`"""}"}""" + '''}'}'''`), lit("x")}},
		"raw strings":              {`${r"\" + R'}\' + r"""\"}"""}x`, []part{expr(`r"\" + R'}\' + r"""\"}"""`), lit("x")}},
		"bytes":                    {`${b"\"}" == bR'\'}x`, []part{expr(`b"\"}" == bR'\'`), lit("x")}},
		"a name that ends in r":    {`${bar"\"}"}x`, []part{expr(`bar"\"}"`), lit("x")}},
		"a number in front of raw": {`${1r"\"}x`, []part{expr(`1r"\"`), lit("x")}},
		"comment":                  {"${a // }\n}x", []part{expr("a // }\n"), lit("x")}},
		"no comment":               {`${"http://}"}x`, []part{expr(`"http://}"`), lit("x")}},
		"escaped name":             {"${a.`b//c`}x", []part{expr("a.`b//c`"), lit("x")}},
		"a placeholder inside":     {"${'${a}'}x", []part{expr("'${a}'"), lit("x")}},
		"dollar inside":            {"${'$${'}x", []part{expr("'$${'"), lit("x")}},
		"no end":                   {"a${b", nil},
		"no end, at all":           {"${", nil},
		"no end of a map":          {"${{}", nil},
		"no end of a string":       {`${"}`, nil},
		"no end of a triple":       {`${"""}""}`, nil},
		"no end behind an escape":  {`${"\`, nil},
		"the end in a comment":     {"${a // }", nil},
		"a lone backquote":         {"${a`}x", []part{expr("a`"), lit("x")}},
	} {
		got, err := split(tc.text)
		if (err != nil) != (tc.want == nil) || err == nil && !slices.Equal(got, tc.want) {
			t.Errorf("%s: split(%q) = %+v, %v; want %+v", name, tc.text, got, err, tc.want)
		}
	}
}

func TestRename(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`namespace.metadata.name`:           `namespac_.metadata.name`,
		`pod.metadata.namespace`:            `pod.metadata.namespace`,
		`pod.metadata . namespace`:          `pod.metadata . namespace`,
		`pod.metadata.?namespace`:           `pod.metadata.?namespace`,
		`a?namespace:b`:                     `a?namespac_:b`,
		`'namespace' + r"namespace"`:        `'namespace' + r"namespace"`,
		`{"a":namespace}`:                   `{"a":namespac_}`,
		`namespaces.namespace // namespace`: `namespaces.namespace // namespace`,
		"a. // x\nnamespace":                "a. // x\nnamespace",
	} {
		if got, ok := rename(text); got != want || !ok {
			t.Errorf("rename(%q) = %q, want %q", text, got, want)
		}
	}
	if _, ok := rename("namespac_.metadata"); ok {
		t.Error("the name behind the scenes can be used")
	}
}

// FuzzSplit: an expression that CEL can read is found whole, wherever it stands,
// and nothing else is read into a text.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{
		`a`, `"}"`, `'\'}'`, `r"\"`, `"""a"}"""`, `{"a": {}}`, "a // }\n", `b'\x7d}'`, "a.`b/c`", `bR'''\'''`, `x.map(y, {"k": y}).size()`, `[{}]`,
		`'''\''''''`, `""`, `"" + ""`, `namespace.x`, `a.?b[?c]`,
	} {
		f.Add(seed, "before ", " after")
	}
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.EnableIdentifierEscapeSyntax())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expression, before, after string) {
		if parts, err := split(expression); err == nil {
			whole := 0
			for _, p := range parts {
				whole += len(p.text)
				if !p.placeholder && p.text == "" {
					t.Fatalf("split(%q) has an empty part", expression)
				}
			}
			if whole > len(expression) {
				t.Fatalf("split(%q) = %+v", expression, parts)
			}
		}
		if _, issues := env.Parse(expression); issues.Err() != nil {
			return
		}
		// A comment at its end hides what follows on its line.
		expression += "\n"
		if strings.Contains(before, "$") || strings.Contains(after, "${") {
			return
		}
		parts, err := split(before + "${" + expression + "}" + after)
		if err != nil {
			t.Fatalf("%q: %v", expression, err)
		}
		want := []part{{text: before}, {text: expression, placeholder: true}, {text: after}}
		want = slices.DeleteFunc(want, func(p part) bool { return p.text == "" })
		if !slices.Equal(parts, want) {
			t.Fatalf("got %+v, want %+v", parts, want)
		}
	})
}
