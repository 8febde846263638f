package testrunner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
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
	// Evaluations are those of the policies. They are empty if injection has
	// refused the pod.
	Evaluations []policy.Evaluation `json:"-"`
	// Mutations are the evaluations of mutating policies.
	Mutations []mutation.Evaluation `json:"-"`

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

// compareLists returns the longest common subsequence of two lists, with the elements of one of them alone in between.
func compareLists(expected, got []string) []Line {
	// common[i][j] is the length of that of expected[i:] and got[j:].
	common := make([][]int, len(expected)+1)
	for i := range common {
		common[i] = make([]int, len(got)+1)
	}
	for i, want := range slices.Backward(expected) {
		for j, came := range slices.Backward(got) {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); want == came {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var lines []Line
	for i, j := 0, 0; i < len(expected) || j < len(got); {
		switch {
		case i < len(expected) && j < len(got) && expected[i] == got[j]:
			lines = append(lines, Line{Expected: &expected[i], Got: &got[j]})
			i, j = i+1, j+1
		case j == len(got) || i < len(expected) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, Line{Expected: &expected[i]})
			i++
		default:
			lines = append(lines, Line{Got: &got[j]})
			j++
		}
	}
	return lines
}

// audited returns the violations that are warned about or audited.
func (o *Outcome) audited() []policy.Violation {
	return slices.DeleteFunc(slices.Clone(o.Others), func(v policy.Violation) bool { return v.Outcome != policy.Violated && v.Outcome != policy.Failed })
}

// judgeViolations pairs the expected violations of a field with those of the outcome. Of the rest, those that are most alike are one
// difference.
func judgeViolations(field string, expected []v1alpha1.TestViolation, got []policy.Violation) []Difference {
	pair := matchViolations(expected, got)
	var missing, over []int
	for i := range expected {
		if pair[i] < 0 {
			missing = append(missing, i)
		}
	}
	for j := range got {
		if !slices.Contains(pair, j) {
			over = append(over, j)
		}
	}
	near := pairNearMisses(expected, got, missing, over)
	var found []Difference
	for _, i := range missing {
		d := Difference{Field: fmt.Sprintf("%s[%d]", field, i), Problem: Missing, Lines: compareViolation(&expected[i], nil)}
		if j, ok := near[i]; ok {
			d.Problem, d.Lines = Different, compareViolation(&expected[i], &got[j])
			over = slices.DeleteFunc(over, func(k int) bool { return k == j })
		}
		found = append(found, d)
	}
	for _, j := range over {
		found = append(found, Difference{Field: field, Problem: Unexpected, Lines: compareViolation(nil, &got[j])})
	}
	return found
}

// matchViolations returns a maximum matching of expected violations with those of the outcome: an entry that says little must not take the only
// one that fits another entry. It returns the index of the other violation, or -1.
func matchViolations(expected []v1alpha1.TestViolation, got []policy.Violation) []int {
	pair, taken := make([]int, len(expected)), make([]int, len(got))
	for i := range pair {
		pair[i] = -1
	}
	for j := range taken {
		taken[j] = -1
	}
	// find searches an augmenting path.
	var find func(i int, tried []bool) bool
	find = func(i int, tried []bool) bool {
		for j := range got {
			if tried[j] || !isMatch(&expected[i], &got[j]) {
				continue
			}
			tried[j] = true
			if taken[j] < 0 || find(taken[j], tried) {
				pair[i], taken[j] = j, i
				return true
			}
		}
		return false
	}
	for i := range expected {
		find(i, make([]bool, len(got)))
	}
	return pair
}

// isMatch reports whether a violation is as expected in everything that is given.
func isMatch(expected *v1alpha1.TestViolation, got *policy.Violation) bool {
	return !slices.ContainsFunc(compareViolation(expected, got), func(line Line) bool { return line.Expected != nil && !line.Same() })
}

// pairNearMisses pairs expected violations with those of the outcome that are alike in something, the most alike first. It returns
// the index of the one by that of the other.
func pairNearMisses(expected []v1alpha1.TestViolation, got []policy.Violation, missing, over []int) map[int]int {
	type candidate struct{ i, j, alike int }
	var all []candidate
	for _, i := range missing {
		for _, j := range over {
			if alike := likeness(&expected[i], &got[j]); alike > 0 {
				all = append(all, candidate{i, j, alike})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return b.alike - a.alike })
	near, taken := map[int]int{}, map[int]bool{}
	for _, c := range all {
		if _, paired := near[c.i]; !paired && !taken[c.j] {
			near[c.i], taken[c.j] = c.j, true
		}
	}
	return near
}

// likeness returns how many fields of a violation are as expected, where those of a message are some of its words. A rule of
// another policy is not alike, and neither are fields that are expected to be empty.
func likeness(expected *v1alpha1.TestViolation, got *policy.Violation) int {
	other := expected.Policy != nil && *expected.Policy != got.Policy
	alike := 0
	for _, line := range compareViolation(expected, got) {
		switch {
		case line.Expected == nil || line.Got == nil || *line.Expected == "" || other && line.Name != message:
		case line.Same():
			alike += 2
		case line.Name == message && sharesWords(*line.Expected, *line.Got):
			alike++
		}
	}
	return alike
}

// sharesWords reports whether at least half of the words of two texts are in both.
func sharesWords(a, b string) bool {
	x, y := sets.New(strings.Fields(a)...), sets.New(strings.Fields(b)...)
	return 2*x.Intersection(y).Len() >= max(x.Union(y).Len(), 1)
}

// message is the name of that line of a comparison.
const message = "message"

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
		{Name: message, Expected: expected.Message},
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
