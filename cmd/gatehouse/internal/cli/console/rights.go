package console

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// forbidden matches what API servers answer to a user who lacks a right.
var forbidden = regexp.MustCompile(`cannot ([a-z]+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// explain says for people why something could not be read, as "the right to list pods in namespace gatehouse-system is missing".
func explain(err error) string {
	if found := forbidden.FindStringSubmatch(err.Error()); found != nil {
		right := found[1] + " " + found[2]
		if group := found[3]; group != "" {
			right += "." + group
		}
		if namespace := found[4]; namespace != "" {
			right += " in namespace " + namespace
		}
		hint := ""
		switch resource, _, _ := strings.Cut(found[2], "/"); {
		case found[4] != "" && slices.Contains([]string{"pods", "leases"}, resource):
			hint = " (hint: bind the ClusterRole " + apierr.RoleConsole + " in this namespace)"
		case slices.Contains([]string{v1alpha1.GroupVersion.Group, admissionregistrationv1.GroupName}, found[3]):
			hint = " (hint: bind the ClusterRole " + apierr.RoleAuditor + ")"
		}
		return "the right to " + right + " is missing" + hint
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "there was no answer in " + partTimeout.String()
	}
	return err.Error()
}

// explainAll explains errors, each text once, sorted.
func explainAll(errs []error) []string {
	var out []string
	for _, err := range errs {
		if err != nil {
			out = append(out, strings.TrimSpace(explain(err)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
