package testrunner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Outcome is what became of a case.
type Outcome struct {
	Verdict v1alpha1.TestVerdict `json:"verdict"`
	// Error says why the verdict is unknown.
	Error string `json:"error,omitempty"`
	// Violations are those that refuse the request, and Others those that do not:
	// they are warned about, audited, excepted or were there before.
	Violations []policy.Violation `json:"violations,omitempty"`
	Others     []policy.Violation `json:"others,omitempty"`
	// Warnings are for the client: those of injection, and then those of policies.
	Warnings         []string          `json:"warnings,omitempty"`
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
	// Exceptions are those that let a violation pass, sorted.
	Exceptions []string `json:"exceptions,omitempty"`
	// Profiles are those of which Gatehouse has added something.
	Profiles []string `json:"-"`
	// sent and object are the object before and after mutating policies and injection.
	sent, object []byte
}

// Problem says in what an outcome differs from what was expected.
type Problem string

// The problems.
const (
	// Different is something else than was expected.
	Different Problem = "different"
	// Missing was expected and did not come.
	Missing Problem = "missing"
	// Unexpected came and was not expected.
	Unexpected Problem = "unexpected"
)

// Difference is one thing in which an outcome is not what was expected.
type Difference struct {
	// Field is the field of the expectation: "violations[1]", "verdict". What is
	// unexpected has no place in a list.
	Field   string  `json:"field"`
	Problem Problem `json:"problem"`
	// Lines compare the two.
	Lines []Line `json:"lines"`
}

// Line is a part of a comparison. Expected or Got is nil where there is none.
type Line struct {
	// Name is what is compared, and empty for an element of a list.
	Name     string  `json:"name,omitempty"`
	Expected *string `json:"expected,omitempty"`
	Got      *string `json:"got,omitempty"`
	// Part says that a part of Got was expected, and not all of it.
	Part bool `json:"part,omitempty"`
}

// Same reports whether the value is as expected.
func (l *Line) Same() bool {
	switch {
	case l.Expected == nil || l.Got == nil:
		return false
	case l.Part:
		return strings.Contains(*l.Got, *l.Expected)
	default:
		return *l.Expected == *l.Got
	}
}

// Judge returns in what an outcome differs from an expectation whose verdict is filled in, in the order of the fields.
func Judge(expect *v1alpha1.TestExpectation, got *Outcome) []Difference {
	var found []Difference
	if expect.Verdict != got.Verdict {
		want, came := string(expect.Verdict), string(got.Verdict)
		d := Difference{Field: "verdict", Problem: Different, Lines: []Line{{Name: "verdict", Expected: &want, Got: &came}}}
		if got.Error != "" {
			d.Lines = append(d.Lines, Line{Name: "error", Got: &got.Error})
		}
		found = append(found, d)
	}
	if expect.Violations != nil || expect.Verdict != got.Verdict { // they show why the verdict differs
		found = append(found, judgeViolations("violations", expect.Violations, got.Violations)...)
	}
	if expect.Audited != nil {
		found = append(found, judgeViolations("audited", expect.Audited, got.audited())...)
	}
	if expect.Warnings != nil {
		found = appendList(found, "warnings", expect.Warnings, got.Warnings)
	}
	for _, key := range slices.Sorted(maps.Keys(expect.AuditAnnotations)) {
		want := expect.AuditAnnotations[key]
		line := Line{Name: key, Expected: &want}
		problem := Missing
		if came, ok := got.AuditAnnotations[key]; ok {
			line.Got, problem = &came, Different
		}
		if !line.Same() {
			found = append(found, Difference{Field: "auditAnnotations", Problem: problem, Lines: []Line{line}})
		}
	}
	if expect.Exceptions != nil {
		found = appendList(found, "exceptions", slices.Sorted(slices.Values(expect.Exceptions)), got.Exceptions)
	}
	return append(found, judgeObject(expect, got)...)
}

// appendList appends the difference of two lists, if any.
func appendList(found []Difference, field string, expected, got []string) []Difference {
	if slices.Equal(expected, got) {
		return found
	}
	return append(found, Difference{Field: field, Problem: Different, Lines: compareLists(expected, got)})
}

// compareLists compares two lists element by element.
func compareLists(expected, got []string) []Line {
	lines := make([]Line, max(len(expected), len(got)))
	for i := range expected {
		lines[i].Expected = &expected[i]
	}
	for i := range got {
		lines[i].Got = &got[i]
	}
	return lines
}

// audited returns the violations that are warned about or audited.
func (o *Outcome) audited() []policy.Violation {
	return slices.DeleteFunc(slices.Clone(o.Others), func(v policy.Violation) bool { return v.Outcome != policy.Violated && v.Outcome != policy.Failed })
}

// judgeViolations takes for each expected violation of a field the first one left of the outcome that is as expected, those that say most
// first. Of the rest, those that have something in common, in their order, are one difference.
func judgeViolations(field string, expected []v1alpha1.TestViolation, got []policy.Violation) []Difference {
	taken := make([]bool, len(got))
	take := func(is func(*policy.Violation) bool) *policy.Violation {
		for j := range got {
			if !taken[j] && is(&got[j]) {
				taken[j] = true
				return &got[j]
			}
		}
		return nil
	}
	var order, missing []int
	said := make([]int, len(expected))
	for i := range expected {
		order, said[i] = append(order, i), len(compareViolation(&expected[i], nil))
	}
	slices.SortStableFunc(order, func(a, b int) int { return said[b] - said[a] })
	for _, i := range order {
		if take(func(v *policy.Violation) bool { return isMatch(&expected[i], v) }) == nil {
			missing = append(missing, i)
		}
	}
	slices.Sort(missing)
	var found []Difference
	for _, i := range missing {
		d := Difference{Field: fmt.Sprintf("%s[%d]", field, i), Problem: Missing}
		near := take(func(v *policy.Violation) bool {
			return slices.ContainsFunc(compareViolation(&expected[i], v), func(l Line) bool { return l.Same() && (l.Name == "policy" || l.Name == "message") })
		})
		if near != nil {
			d.Problem = Different
		}
		d.Lines = compareViolation(&expected[i], near)
		found = append(found, d)
	}
	for j := range got {
		if !taken[j] {
			found = append(found, Difference{Field: field, Problem: Unexpected, Lines: compareViolation(nil, &got[j])})
		}
	}
	return found
}

// isMatch reports whether a violation is as expected in everything that is given.
func isMatch(expected *v1alpha1.TestViolation, got *policy.Violation) bool {
	return !slices.ContainsFunc(compareViolation(expected, got), func(line Line) bool { return line.Expected != nil && !line.Same() })
}

// compareViolation returns the fields of a violation, expected and got. Either may be nil. A field that is not expected is there for
// information, if it is not empty.
func compareViolation(expected *v1alpha1.TestViolation, got *policy.Violation) []Line {
	if expected == nil {
		expected = &v1alpha1.TestViolation{}
	}
	lines := []Line{
		{Name: "policy", Expected: expected.Policy},
		{Name: "binding", Expected: expected.Binding},
		{Name: "rule", Expected: expected.Rule},
		{Name: "template", Expected: expected.Template},
		{Name: "message", Expected: expected.Message},
	}
	if expected.MessageContains != nil {
		lines[4].Expected, lines[4].Part = expected.MessageContains, true
	}
	if got != nil {
		for i, value := range []*string{&got.Policy, &got.Binding, &got.Rule, &got.Template, &got.Message} {
			lines[i].Got = value
		}
		if expected.Rule != nil && got.HasRule(*expected.Rule) {
			lines[2].Expected = &got.Rule // a rule with a name may be expected by its index
		}
	}
	return slices.DeleteFunc(lines, func(l Line) bool {
		return l.Expected == nil && (l.Got == nil || *l.Got == "")
	})
}
