package main

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/registration"
)

// validateText is what --validate takes.
const validateText = "RESOURCE[.GROUP][/SUBRESOURCE][:OPERATION,…],… such as services,deployments.apps,pods/exec:CONNECT"

// validated are the rules of --validate and --validate-open.
func (f *manifestsFlags) validated() (closed, open []admissionregistrationv1.RuleWithOperations, err error) {
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
	problems = append(problems, registration.CheckClosed(closed))
	return closed, open, errors.Join(problems...)
}
