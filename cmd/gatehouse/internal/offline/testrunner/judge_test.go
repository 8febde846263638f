package testrunner

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// want is an expected violation, of fields written "policy=p".
func want(fields ...string) v1alpha1.TestViolation {
	var v v1alpha1.TestViolation
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		*map[string]**string{
			"policy": &v.Policy, "binding": &v.Binding, "rule": &v.Rule, "template": &v.Template, "message": &v.Message, "contains": &v.MessageContains,
		}[name] = &value
	}
	return v
}

// text shows differences in a form that a table can hold.
func text(found []Difference) string {
	var b strings.Builder
	for _, d := range found {
		fmt.Fprintf(&b, "%s %s:", d.Field, d.Problem)
		for i := range d.Lines {
			l := &d.Lines[i]
			b.WriteString(" " + l.Name)
			switch {
			case l.Same():
				b.WriteString("=" + *l.Got)
			case l.Expected != nil && l.Got != nil:
				b.WriteString("-" + *l.Expected + "+" + *l.Got)
			case l.Expected != nil:
				b.WriteString("-" + *l.Expected)
			default:
				b.WriteString("+" + *l.Got)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestJudge compares the expectations and outcomes in testdata/judge.txtar.
func TestJudge(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/judge.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(archive.Files); i += 2 {
		var c struct {
			Expect v1alpha1.TestExpectation
			Got    Outcome
		}
		name, isCase := strings.CutSuffix(archive.Files[i].Name, ".yaml")
		if err := yaml.UnmarshalStrict(archive.Files[i].Data, &c); err != nil || !isCase || archive.Files[i+1].Name != name+".txt" {
			t.Fatalf("%s: %v", archive.Files[i].Name, err)
		}
		if got, want := text(Judge(&c.Expect, &c.Got)), string(archive.Files[i+1].Data); got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
	}
}

// TestJudgeLooksAtEveryField has every field of what came matter.
func TestJudgeLooksAtEveryField(t *testing.T) {
	t.Parallel()
	v := policy.Violation{Policy: "p", Binding: "b", Rule: "r", Template: "t", Message: "m"}
	expect := v1alpha1.TestExpectation{
		Verdict: v1alpha1.TestDenied, Violations: []v1alpha1.TestViolation{want("policy=p", "binding=b", "rule=r", "template=t", "message=m")},
		Warnings: []string{"w"}, AuditAnnotations: map[string]string{"a": "b"}, Exceptions: []string{"n/e"},
		Audited: []v1alpha1.TestViolation{want("rule=audited")},
		Object:  &runtime.RawExtension{Raw: []byte(`{"a":[{"name":"x","b":1}],"gone":null}`)},
		Patch:   []v1alpha1.TestOperation{{Op: "add", Path: "/a", Value: &runtime.RawExtension{Raw: []byte(`[{"name":"w"},{"name":"x","b":1}]`)}}},
	}
	got := func() Outcome {
		return Outcome{
			Verdict: v1alpha1.TestDenied, Violations: []policy.Violation{v}, Warnings: []string{"w"},
			AuditAnnotations: map[string]string{"a": "b"}, Exceptions: []string{"n/e"},
			Others: []policy.Violation{{Rule: "audited", Outcome: policy.Violated}, {Rule: "other", Outcome: policy.Excepted}},
			sent:   []byte(`{}`), object: []byte(`{"a":[{"name":"w"},{"name":"x","b":1}]}`),
		}
	}
	same := got()
	if found := Judge(&expect, &same); len(found) > 0 {
		t.Fatalf("what is expected differs: %s", text(found))
	}
	for field := range reflect.TypeFor[v1alpha1.TestExpectation]().Fields() {
		other := got()
		switch field.Name {
		case "Verdict":
			other.Verdict = v1alpha1.TestAllowed
		case "Violations":
			for inner := range reflect.TypeFor[v1alpha1.TestViolation]().Fields() {
				if inner.Name == "MessageContains" {
					continue
				}
				other := got()
				reflect.ValueOf(&other.Violations[0]).Elem().FieldByName(inner.Name).SetString("other")
				if found := Judge(&expect, &other); len(found) != 1 {
					t.Errorf("another %s: %s", inner.Name, text(found))
				}
			}
			other.Violations = nil
		case "Audited":
			other.Others = nil
		case "ObjectFile":
			continue // it is Object once the test is loaded
		case "Object", "Patch":
			other.object = []byte(`{"a":[{"name":"x","b":2}]}`)
			only := v1alpha1.TestExpectation{Verdict: v1alpha1.TestDenied, Violations: expect.Violations}
			reflect.ValueOf(&only).Elem().FieldByName(field.Name).Set(reflect.ValueOf(expect).FieldByName(field.Name))
			if found := Judge(&only, &other); len(found) != 1 {
				t.Errorf("another %s: %s", field.Name, text(found))
			}
		default:
			reflect.ValueOf(&other).Elem().FieldByName(field.Name).SetZero()
		}
		if found := Judge(&expect, &other); len(found) == 0 {
			t.Errorf("another %s makes no difference", field.Name)
		}
	}
}
