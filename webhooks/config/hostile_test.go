package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// bomb is a document in which each of levels lists refers to the one before it
// ten times.
func bomb(levels int, leaf string) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: z}\nl0: &l0 " + leaf + "\n")
	for i := range levels {
		fmt.Fprintf(&b, "l%d: &l%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*l%d,", i), 10))
	}
	return b.String()
}

// Whatever a file holds, reading it ends with a diagnostic, in bounded memory.
func TestLoadHostile(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: z}\n"
	for name, c := range map[string]struct {
		content string
		want    string // contained in the one finding; "" is no finding
	}{
		"aliases of aliases":                  {bomb(9, "[a]"), "excessive aliasing"},
		"aliases of a long text":              {bomb(3, `"`+strings.Repeat("x", 1<<20)+`"`), "when YAML aliases are expanded"},
		"a few aliases":                       {bomb(2, "[a]"), ""},
		"an alias of itself":                  {head + "data: &a {b: *a}", "contains itself"},
		"merged keys":                         {head + "a: &a {k: v}\ndata: {<<: *a, w: x}", ""},
		"merged keys that are overridden":     {head + "a: &a {k: v}\ndata: {<<: *a, k: x}", "given twice"},
		"merges of merges":                    {head + merges(18) + "data: {<<: *a18, k: x}", "excessive aliasing"},
		"brackets":                            {strings.Repeat("[", 1<<20), "exceeded max depth"},
		"braces":                              {strings.Repeat("{a: ", 1<<18), "exceeded max depth"},
		"deep but closed":                     {head + "data: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), ""},
		"deep JSON":                           {`{"apiVersion":"v1","kind":"X","metadata":{"name":"x"},"spec":` + strings.Repeat(`[`, 20000) + strings.Repeat(`]`, 20000) + "}", "exceeded max depth"},
		"many values":                         {head + "data: [" + strings.Repeat("a,", 1<<18) + "]", ""},
		"a long line":                         {head + "data: {x: '" + strings.Repeat("x ", 1<<18) + "'}", ""},
		"only comments":                       {strings.Repeat("# x\n", 1<<20), "the directory has no documents"},
		"only markers":                        {strings.Repeat("---\n", 1<<20), "the directory has no documents"},
		"only dots":                           {strings.Repeat("...\n", 1<<20), "the directory has no documents"},
		"a control character":                 {head + "data: {x: \x00}", "control characters are not allowed"},
		"not UTF-8":                           {head + "data:\n  x: \xff\xfe", "line 5: the file is not UTF-8"},
		"UTF-16":                              {"\xff\xfea\x00", "line 1: the file is not UTF-8"},
		"a byte order mark":                   {"\ufeff" + head, ""},
		"a number that is none":               {head + "data: {x: .nan}", `data.x: "NaN" is not a JSON number`},
		"binary data":                         {head + "data: {x: !!binary /////w==}", "data.x: the binary data is not UTF-8"},
		"a list as a key":                     {head + "data: {[a]: b}", "from line 1 on: a key must be text, and this one is a list or a mapping"},
		"nothing as a key":                    {head + "data: {~: b}", "data: a key must be text, got <nil>"},
		"a terminal's escape in a field":      {"apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: x}\nspec: {template: {spec: {}}, \"\\e[2J\": 1}", `spec["\x1b[2J"]: unknown field`},
		"a terminal's escape in a name":       {"apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: \"\\e[2J\"}\nspec: {template: {spec: {}}, x: 1}", `SidecarProfile/"\x1b[2J": spec.x`},
		"a field with a very long name":       {"apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: x}\nspec: {template: {spec: {}}, " + strings.Repeat("y", 1000) + ": 1}", "spec." + strings.Repeat("y", 100) + "…: unknown field"},
		"YAML 1.2 is refused, not misread":    {"%YAML 1.2\n---\n" + head, "incompatible YAML document"},
		"a directive in the middle":           {head + "%YAML 1.1\n", "more text behind the end"},
		"a list of lists of lists":            {strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 3000) + strings.Repeat("]}", 3000), "the directory has no documents"},
		"a text that ends in an escape":       {head + "data: {x: \"\\", "found unknown escape character"},
		"an unknown tag means what kubectl's": {head + "data: {x: !foo bar}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := loadSmall(directory(t, map[string]string{"a.yaml": c.content}))
			runtime.ReadMemStats(&after)
			// Two readings and every garbage included: 64 bytes for a byte of
			// the budget is far from any explosion.
			if got := int(after.TotalAlloc-before.TotalAlloc) >> 20; got > 64*small().cost()>>20 {
				t.Errorf("%d MiB were allocated", got)
			}
			got := findings(t, err)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("got %.300q, want no finding", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("got %.300q, want one finding with %q", got, c.want)
			}
		})
	}
}

// Many bombs, each small enough for the parser, are no way round the budget, and
// neither are many that are not.
func TestLoadManyBombs(t *testing.T) {
	for name, document := range map[string]string{
		"just small enough": bomb(4, "[a,a,a,a,a]"),
		"too large":         bomb(5, "[a,a,a]"),
	} {
		err := loadSmall(directory(t, map[string]string{"a.yaml": strings.Repeat("---\n"+strings.ReplaceAll(document, "name: x", "generateName: x"), 1000)}))
		got := findings(t, err)
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "when YAML aliases are expanded") }) {
			t.Errorf("%s: no finding is about the aliases", name)
		}
		if len(got) > 200 {
			t.Errorf("%s: %d documents were read", name, len(got))
		}
	}
}

func TestLoadManyDocuments(t *testing.T) {
	for name, content := range map[string]string{
		"a.yaml": strings.Repeat("---\na\n", 1250),
		"a.json": strings.Repeat("3\n", 1250),
	} {
		err := loadSmall(directory(t, map[string]string{name: content, "b.yaml": strings.Repeat("---\n"+bomb(3, "[a]"), 100)}))
		got := findings(t, err)
		if want := name + "#1001: there are more than 1000 documents"; len(got) != 1001 || !slices.Contains(got, want) {
			t.Errorf("%s: %d findings, the last is %q; want %d with %q", name, len(got), got[len(got)-1], 1001, want)
		}
	}
}

func TestLoadManyProblems(t *testing.T) {
	for name, content := range map[string]string{
		"duplicate keys": "a: {" + strings.Repeat("b: 1,", 1000) + "}",
		"unknown fields": "apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: x}\nspec: {" + func() string {
			var b strings.Builder
			for i := range 1000 {
				fmt.Fprintf(&b, "x%d: 1,", i)
			}
			return b.String()
		}() + "}",
	} {
		err := loadSmall(directory(t, map[string]string{"a.yaml": content}))
		got := findings(t, err)
		if len(got) != maxProblems+1 || !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "more problems") }) {
			t.Errorf("%s: %d findings, the last is %q", name, len(got), got[len(got)-1])
		}
	}
}

// agree holds the checker against the decoder: it has something to say about
// exactly what the decoder does not take.
func agree[T any](t *testing.T, text string) {
	t.Helper()
	var value any
	if _, err := sigsjson.UnmarshalStrict([]byte(text), &value); err != nil {
		return
	}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var into T
	strictErrs, err := sigsjson.UnmarshalStrict(raw, &into)
	problems := new(strict.Checker).Compare(reflect.TypeFor[T](), value, "", strict.Options{})
	if taken := err == nil && len(strictErrs) == 0; taken != (len(problems) == 0) {
		t.Errorf("%s into %T: the decoder says %v %v, the checker %v", text, into, strictErrs, err, problems)
	}
}

// merges returns mappings each of which merges the one before it twice.
func merges(n int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 {k: v}\n")
	for i := range n {
		fmt.Fprintf(&b, "a%d: &a%d {<<: [*a%d, *a%d], k: w}\n", i+1, i+1, i, i)
	}
	return b.String()
}

// FuzzDocuments: no text brings the parser down, what it gives is JSON, and the
// checker agrees with the decoder about it.
func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{
		profile, ours, token, upstream, binding, namespace, configMap, ourBinding, exception, configuration, testDocument, clusterRules, clusterGrant, bomb(2, "[a]"), "{}", "---\n...\n---", "%YAML 1.1\n---\na: b", `{"a":"\ud83d"}`,
		"a: !!binary /////w==", "? a\n: b", "{[a]: b}", "- a\n- b: c", "a: |\n  x", "\ufeffa: b", "a: .nan", "<<: {a: b}", "x: &x {a: b}\ny: {<<: *x, a: c}", "a: b\r<<: {a: c}\ra: d", "1: a\ntrue: b\n1.5: c",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, isJSON bool) {
		name := "a.yaml"
		if isJSON {
			name = "a.json"
		}
		p := parser{limits: small(), budget: 1 << 20}
		for _, doc := range p.documents(file{path: name, data: []byte(text)}) {
			if doc.value == nil {
				if len(doc.problems) == 0 {
					t.Fatal("a document without value and without problem")
				}
				continue
			}
			raw, err := json.Marshal(doc.value)
			if err != nil {
				t.Fatalf("not JSON: %v", err)
			}
			agree[v1alpha1.SidecarProfile](t, string(raw))
			agree[v1alpha1.AdmissionPolicy](t, string(raw))
			agree[v1alpha1.PolicyException](t, string(raw))
			agree[v1alpha1.PolicyConfiguration](t, string(raw))
			agree[rbacv1.ClusterRole](t, string(raw))
			agree[metav1.ObjectMeta](t, string(raw))
		}
		d := newDecoder(&tree{limits: small()})
		d.file(file{path: name, data: []byte(text)})
	})
}
