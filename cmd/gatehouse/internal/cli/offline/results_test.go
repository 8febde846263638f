package offline

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestHelpURIsLeadToHeadings checks that every page and anchor of a result exists.
func TestHelpURIsLeadToHeadings(t *testing.T) {
	t.Parallel()
	c := &checked{Error: "why", Warnings: []string{"look"}, Note: "guess"}
	for _, kind := range []string{"AdmissionPolicy", "ValidatingAdmissionPolicy", admit.InjectionKind, schemaKind, "PolicyException"} {
		c.Violations = append(c.Violations, checkedViolation{Violation: policy.Violation{Kind: kind}})
	}
	found := (&checkReport{objects: []*checked{c}}).results()
	r := lintReport{findings: []finding{{Diagnostic: diagnostic.Diagnostic{Severity: diagnostic.Error}}, {Diagnostic: diagnostic.Diagnostic{Severity: diagnostic.Warning}}}}
	for _, code := range lint.Codes() {
		r.findings = append(r.findings, finding{Diagnostic: diagnostic.Diagnostic{Severity: diagnostic.Warning, Code: string(code)}})
	}
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for _, result := range append(found, r.results()...) {
		path, anchor, _ := strings.Cut(strings.TrimPrefix(result.HelpURI, build.ProjectURL+"/blob/main/"), "#")
		page, err := os.ReadFile("../../../../../" + path)
		if err != nil {
			t.Errorf("%s: %v", result.Rule, err)
			continue
		}
		anchors := map[string]bool{}
		for _, match := range heading.FindAllStringSubmatch(string(page), -1) {
			anchors[strings.NewReplacer(" ", "-", ".", "").Replace(strings.ToLower(match[1]))] = true
		}
		if !anchors[anchor] {
			t.Errorf("%s: %s has no heading %q", result.Rule, path, anchor)
		}
	}
}
