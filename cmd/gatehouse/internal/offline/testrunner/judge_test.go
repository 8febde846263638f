package testrunner

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

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

func TestJudge(t *testing.T) {
	t.Parallel()
	const allowed, denied, unknown = v1alpha1.TestAllowed, v1alpha1.TestDenied, v1alpha1.TestCouldNotTell
	images := policy.Violation{Policy: "images", Rule: "validations[0]", Message: "image nginx must come from our registry"}
	limits := policy.Violation{Policy: "limits", Binding: "prod", Rule: "validations[1]", Template: "spec.template", Message: "every container needs a limit"}
	for name, c := range map[string]struct {
		expect v1alpha1.TestExpectation
		got    Outcome
		want   string
	}{
		"allowed": {v1alpha1.TestExpectation{Verdict: allowed}, Outcome{Verdict: allowed}, ""},
		"what is left out is not looked at": {
			v1alpha1.TestExpectation{Verdict: denied},
			Outcome{Verdict: denied, Violations: []policy.Violation{images}, Warnings: []string{"w"}, AuditAnnotations: map[string]string{"a": "b"}, Exceptions: []string{"a/b"}},
			"",
		},
		"refused": {
			v1alpha1.TestExpectation{Verdict: allowed},
			Outcome{Verdict: denied, Violations: []policy.Violation{images}},
			"verdict different: verdict-Allowed+Denied\nviolations unexpected: policy+images rule+validations[0] message+image nginx must come from our registry\n",
		},
		"not refused": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=images")}},
			Outcome{Verdict: allowed},
			"verdict different: verdict-Denied+Allowed\nviolations[0] missing: policy-images\n",
		},
		"no answer": {
			v1alpha1.TestExpectation{Verdict: allowed},
			Outcome{Verdict: unknown, Error: "too expensive"},
			"verdict different: verdict-Allowed+CouldNotTell error+too expensive\n",
		},
		"no answer, as expected": {v1alpha1.TestExpectation{Verdict: unknown}, Outcome{Verdict: unknown, Error: "too expensive"}, ""},
		"in any order": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{
				want("policy=limits", "binding=prod", "template=spec.template", "contains=needs a"), want("policy=images", "binding=", "template=", "message="+images.Message),
			}},
			Outcome{Verdict: denied, Violations: []policy.Violation{images, limits}},
			"",
		},
		"one that says little leaves the other to one that says more": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("contains=e"), want("policy=images")}},
			Outcome{Verdict: denied, Violations: []policy.Violation{images, limits}},
			"",
		},
		"one violation does not do for two": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=images"), want("rule=validations[0]")}},
			Outcome{Verdict: denied, Violations: []policy.Violation{images}},
			"violations[1] missing: rule-validations[0]\n",
		},
		"one more than expected": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=images")}},
			Outcome{Verdict: denied, Violations: []policy.Violation{images, limits}},
			"violations unexpected: policy+limits binding+prod rule+validations[1] template+spec.template message+every container needs a limit\n",
		},
		"near miss of a message": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=images", "message=image nginx must come from your registry")}},
			Outcome{Verdict: denied, Violations: []policy.Violation{images}},
			"violations[0] different: policy=images rule+validations[0] message-image nginx must come from your registry+image nginx must come from our registry\n",
		},
		"near miss of a part": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=images", "contains=your")}},
			Outcome{Verdict: denied, Violations: []policy.Violation{images}},
			"violations[0] different: policy=images rule+validations[0] message-your+image nginx must come from our registry\n",
		},
		"near miss of a policy by its message": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=image", "message="+images.Message)}},
			Outcome{Verdict: denied, Violations: []policy.Violation{images}},
			"violations[0] different: policy-image+images rule+validations[0] message=image nginx must come from our registry\n",
		},
		"the most alike is the near miss": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=limits", "message=every container needs limits")}},
			Outcome{Verdict: denied, Violations: []policy.Violation{{Policy: "limits", Message: "other"}, limits}},
			"violations[0] different: policy=limits binding+prod rule+validations[1] template+spec.template message-every container needs limits+every container needs a limit\n" +
				"violations unexpected: policy+limits message+other\n",
		},
		"nothing alike": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=hosts", "rule=validations[0]", "binding=", "message=no host path")}},
			Outcome{Verdict: denied, Violations: []policy.Violation{images}},
			"violations[0] missing: policy-hosts binding- rule-validations[0] message-no host path\n" +
				"violations unexpected: policy+images rule+validations[0] message+image nginx must come from our registry\n",
		},
		"a binding where none is": {
			v1alpha1.TestExpectation{Verdict: denied, Violations: []v1alpha1.TestViolation{want("policy=limits", "binding=")}},
			Outcome{Verdict: denied, Violations: []policy.Violation{limits}},
			"violations[0] different: policy=limits binding-+prod rule+validations[1] template+spec.template message+every container needs a limit\n",
		},
		"warnings": {
			v1alpha1.TestExpectation{Verdict: allowed, Warnings: []string{"a", "b", "c"}},
			Outcome{Verdict: allowed, Warnings: []string{"a", "x", "c", "d"}},
			"warnings different: =a -b +x =c +d\n",
		},
		"warnings in another order": {
			v1alpha1.TestExpectation{Verdict: allowed, Warnings: []string{"a", "b"}},
			Outcome{Verdict: allowed, Warnings: []string{"b", "a"}},
			"warnings different: -a =b +a\n",
		},
		"no warning": {
			v1alpha1.TestExpectation{Verdict: allowed, Warnings: []string{}},
			Outcome{Verdict: allowed, Warnings: []string{"a"}},
			"warnings different: +a\n",
		},
		"audit annotations are a subset": {
			v1alpha1.TestExpectation{Verdict: allowed, AuditAnnotations: map[string]string{"a": "1", "b": "2", "c": "3"}},
			Outcome{Verdict: allowed, AuditAnnotations: map[string]string{"a": "1", "b": "3", "d": "4"}},
			"auditAnnotations different: b-2+3\nauditAnnotations missing: c-3\n",
		},
		"exceptions in any order": {
			v1alpha1.TestExpectation{Verdict: allowed, Exceptions: []string{"b/b", "a/a"}}, Outcome{Verdict: allowed, Exceptions: []string{"a/a", "b/b"}}, "",
		},
		"exceptions": {
			v1alpha1.TestExpectation{Verdict: allowed, Exceptions: []string{"b/b"}},
			Outcome{Verdict: allowed, Exceptions: []string{"a/a"}},
			"exceptions different: -b/b +a/a\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := text(Judge(&c.expect, &c.got)); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// TestPairsAreAsManyAsPossible compares the pairs with those of trying every
// order, which nobody could get wrong.
func TestPairsAreAsManyAsPossible(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- a test
	var most func(expected []v1alpha1.TestViolation, got []policy.Violation) int
	most = func(expected []v1alpha1.TestViolation, got []policy.Violation) int {
		if len(expected) == 0 {
			return 0
		}
		best := most(expected[1:], got)
		for j := range got {
			if fits(&expected[0], &got[j]) {
				best = max(best, 1+most(expected[1:], slices.Delete(slices.Clone(got), j, j+1)))
			}
		}
		return best
	}
	complete := 0
	for range 2000 {
		got := make([]policy.Violation, random.IntN(6))
		for i := range got {
			got[i] = policy.Violation{Policy: string(rune('a' + random.IntN(2))), Rule: string(rune('a' + random.IntN(3)))}
		}
		expected := make([]v1alpha1.TestViolation, random.IntN(6))
		for i := range expected {
			if random.IntN(3) > 0 {
				expected[i] = want("policy=" + string(rune('a'+random.IntN(2))))
			}
			if random.IntN(3) > 0 {
				rule := string(rune('a' + random.IntN(3)))
				expected[i].Rule = &rule
			}
		}
		pair := pairs(expected, got)
		n := 0
		for i, j := range pair {
			if j < 0 {
				continue
			}
			n++
			if !fits(&expected[i], &got[j]) || slices.Index(pair, j) != i {
				t.Fatalf("pairs(%v, %v) = %v", text([]Difference{{Lines: compared(&expected[i], nil)}}), got, pair)
			}
		}
		if n != most(expected, got) {
			t.Fatalf("pairs of %d and %d violations: %v, and %d are possible", len(expected), len(got), pair, most(expected, got))
		}
		if n == len(expected) && n == len(got) && n > 2 {
			complete++
		}
	}
	if complete < 20 {
		t.Errorf("only %d were complete", complete)
	}
}

// TestJudgeLooksAtEveryField has every field of what came matter.
func TestJudgeLooksAtEveryField(t *testing.T) {
	t.Parallel()
	v := policy.Violation{Policy: "p", Binding: "b", Rule: "r", Template: "t", Message: "m"}
	expect := v1alpha1.TestExpectation{
		Verdict: v1alpha1.TestDenied, Violations: []v1alpha1.TestViolation{want("policy=p", "binding=b", "rule=r", "template=t", "message=m")},
		Warnings: []string{"w"}, AuditAnnotations: map[string]string{"a": "b"}, Exceptions: []string{"n/e"},
	}
	got := func() Outcome {
		return Outcome{
			Verdict: v1alpha1.TestDenied, Violations: []policy.Violation{v}, Warnings: []string{"w"},
			AuditAnnotations: map[string]string{"a": "b"}, Exceptions: []string{"n/e"},
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
		default:
			reflect.ValueOf(&other).Elem().FieldByName(field.Name).SetZero()
		}
		if found := Judge(&expect, &other); len(found) == 0 {
			t.Errorf("another %s makes no difference", field.Name)
		}
	}
}
