package offline

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// resultsOf are the results of one object with every kind of remark.
func resultsOf() []report.Result {
	violation := func(rule string, effect checkEffect, template string) checkedViolation {
		return checkedViolation{Effect: effect, Line: 4, Violation: policy.Violation{
			Kind: "AdmissionPolicy", Policy: "p", Rule: rule, Template: template, Message: "is wrong", Exception: "ops/x",
		}}
	}
	c := &checked{
		place: place{File: "a.yaml", Kind: "Pod", Namespace: "shop", Name: "a"}, Line: 1, Verdict: checkRefused,
		Error: "why", Warnings: []string{"look"}, Note: "guess", source: "a.yaml", title: "Pod/a",
		Violations: []checkedViolation{
			violation("podSecurity.x", effectDenied, ""), violation("podSecurity.x", effectDenied, ""),
			violation("podSecurity.x", effectDenied, "spec.template"), violation("", effectWarned, ""),
			violation("validations[0]", effectAudited, ""), violation("validations[1]", effectExcepted, ""), violation("validations[2]", effectExisting, ""),
		},
	}
	return (&checkReport{objects: []*checked{c}}).results()
}

func TestCheckResults(t *testing.T) {
	t.Parallel()
	results := resultsOf()
	var got []string
	for i := range results {
		r := &results[i]
		line := string(r.Level) + " " + r.Rule + " " + r.Message
		if r.Suppressed != "" {
			line += " (" + r.Suppressed + ")"
		}
		got = append(got, line)
	}
	want := []string{
		"error cannot-decide Pod/a in namespace shop: cannot decide: why",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop: is wrong",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop: is wrong",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop, spec.template: is wrong",
		"warning AdmissionPolicy/p Pod/a in namespace shop: is wrong",
		"note AdmissionPolicy/p/validations[0] Pod/a in namespace shop: is wrong",
		"note AdmissionPolicy/p/validations[1] Pod/a in namespace shop: is wrong (PolicyException ops/x)",
		"note AdmissionPolicy/p/validations[2] Pod/a in namespace shop: is wrong (the object violated the rule before the update, which does not make it worse)",
		"warning warning Pod/a in namespace shop: look",
		"note assumption Pod/a in namespace shop: guess",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestGuideShowsCheck keeps the files and the output in the guide equal to what is tested.
func TestGuideShowsCheck(t *testing.T) {
	t.Parallel()
	script, files := readScript(t, "check-guide")
	guide := readText(t, "../../../../../docs/check.md")
	for name, content := range files {
		if !strings.HasSuffix(name, ".txt") && !strings.Contains(guide, "```yaml\n"+strings.TrimSpace(content)+"\n```") {
			t.Errorf("the guide does not show %s", name)
		}
	}
	// Each command is followed by the comparison of what it prints.
	lines := strings.Split(script, "\n")
	shown := 0
	for i, line := range lines {
		_, command, ok := strings.Cut(line, "exec gatehouse ")
		if !ok {
			continue
		}
		_, name, ok := strings.Cut(lines[i+1], "cmp stdout ")
		if !ok {
			t.Fatalf("nothing is compared behind %q", line)
		}
		if shown++; !strings.Contains(guide, "```console\n$ gatehouse "+command+"\n"+strings.TrimSpace(files[name])+"\n```") {
			t.Errorf("the guide does not show %q with its output", command)
		}
	}
	if blocks := strings.Count(guide, "```console\n"); shown != blocks {
		t.Errorf("the guide shows %d commands, of which %d are tested", blocks, shown)
	}
}
