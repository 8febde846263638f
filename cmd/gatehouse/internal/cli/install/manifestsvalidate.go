package install

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// validateText is the syntax of --validate.
const validateText = "RESOURCE[.GROUP][/SUBRESOURCE][:OPERATION,…],… such as services,deployments.apps,pods/exec:CONNECT"

// validated returns the rules of --validate, --validate-open and --record-only.
func (f *manifestsFlags) validated() (closed, open, record []admissionregistrationv1.RuleWithOperations, err error) {
	var problems []error
	read := func(flag string, values []string) (rules []admissionregistrationv1.RuleWithOperations) {
		for _, value := range values {
			more, err := registration.ParseRules(value)
			if err != nil {
				problems = append(problems, fmt.Errorf("--%s: %w", flag, err))
			}
			rules = append(rules, more...)
		}
		return rules
	}
	closed, open = read("validate", f.validate), read("validate-open", f.validateOpen)
	record = read("record-only", f.recordOnly)
	problems = append(problems, registration.CheckClosed(closed))
	return closed, open, record, errors.Join(problems...)
}

// unknownResources returns notes about resources that do not exist in Kubernetes' own API
// groups. The resources of other groups are not known.
func unknownResources(rules []admissionregistrationv1.RuleWithOperations) []string {
	schemas := typecheck.New(nil)
	kubectlName := func(resource, group string) string { return strings.TrimSuffix(resource+"."+group, ".") }
	var notes []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			known := schemas.Resources(group)
			for _, resource := range rule.Resources {
				name, _, _ := strings.Cut(resource, "/")
				if len(known) == 0 || name == "*" || slices.Contains(known, name) {
					continue
				}
				note, meant := fmt.Sprintf("%.100q is no resource of Kubernetes", kubectlName(name, group)), ""
				if near, ok := diagnostic.Nearest(name, known...); ok {
					meant = kubectlName(near, group)
				}
				if others := schemas.Groups(name); len(others) > 0 {
					meant = kubectlName(name, others[0])
				}
				if meant != "" {
					note += fmt.Sprintf(" (hint: did you mean %q?)", meant)
				}
				if !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
			}
		}
	}
	return notes
}
