package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// neverClosed is what a cluster needs while Gatehouse is down: start,
// move and stop pods, find them, elect leaders, finish the deletion of namespaces,
// and repair what keeps it from that. An empty resource stands for all of the group.
// The chart has the same list in templates/checks.yaml.
func neverClosed() []admissionregistrationv1.Rule {
	return []admissionregistrationv1.Rule{
		{APIGroups: []string{""}, Resources: []string{
			"bindings", "endpoints", "events", "namespaces/finalize", "nodes", "pods/binding", "pods/eviction", "serviceaccounts/token",
		}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}},
		{APIGroups: []string{
			"admissionregistration.k8s.io", "apiregistration.k8s.io", "coordination.k8s.io", "events.k8s.io",
		}, Resources: []string{""}},
	}
}

// CheckClosed returns an error about rules of --validate that must not be in a webhook that fails closed, because
// a cluster could not recover without Gatehouse: those with wildcards
// for groups or resources, which take in whatever there is, and those about what a
// cluster cannot do without. The error has all of them. What the policies of a
// configuration are about is registered without this check: who writes such a policy
// has said so in as many words.
func CheckClosed(rules []admissionregistrationv1.RuleWithOperations) error {
	var problems []error
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				problems = append(problems, atom{group: group, resource: resource}.checkClosed())
			}
		}
	}
	return errors.Join(problems...)
}

// checkClosed returns why the resource must not be in a webhook that fails closed.
func (a atom) checkClosed() error {
	_, sub, _ := strings.Cut(a.resource, "/")
	switch {
	case strings.Contains(a.group+a.resource, all):
		return fmt.Errorf("--validate: %.100q: a wildcard must not fail closed: it includes resources that a cluster needs to recover while Gatehouse is down (hint: name the resources, or use --validate-open)", a.kubectlName())
	case sub == "status", slices.ContainsFunc(neverClosed(), a.isOf):
		return fmt.Errorf("--validate: %.100q: must not fail closed: a cluster needs it to recover while Gatehouse is down (hint: --validate-open, and failurePolicy Ignore in the policy)", a.kubectlName())
	default:
		return nil
	}
}

// isOf reports whether a rule has the resource, or that of which it is a subresource.
func (a atom) isOf(rule admissionregistrationv1.Rule) bool {
	name, _, _ := strings.Cut(a.resource, "/")
	return slices.Contains(rule.APIGroups, a.group) && slices.ContainsFunc(rule.Resources, func(resource string) bool {
		return resource == "" || resource == a.resource || resource == name
	})
}
