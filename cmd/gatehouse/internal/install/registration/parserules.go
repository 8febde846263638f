package registration

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/equivalent"
)

// apiVersion is how Kubernetes writes versions of an API.
var apiVersion = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// ParseRules reads what is to be sent for validation: resources as kubectl names
// them, RESOURCE, RESOURCE.GROUP or RESOURCE.VERSION.GROUP, each perhaps with
// "/SUBRESOURCE" and then ":OPERATION", and with commas between several resources
// and between several operations. Without operations they are CREATE and UPDATE, or
// CONNECT for a subresource that is nothing but a connection. Without a version it
// is v1 where there is no other, and else any.
//
// The error has everything that is wrong with the text.
func ParseRules(text string) ([]admissionregistrationv1.RuleWithOperations, error) {
	var (
		rules    []admissionregistrationv1.RuleWithOperations
		problems []error
		explicit bool // the last rule names its operations
	)
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if operation := admissionregistrationv1.OperationType(word); isOperation(operation) && explicit {
			last := &rules[len(rules)-1]
			last.Operations = append(last.Operations, operation)
			continue
		}
		name, operation, withOperation := strings.Cut(word, ":")
		rule, err := parseResource(name)
		if err != nil {
			problems = append(problems, err)
		}
		if explicit = withOperation; withOperation {
			if !isOperation(admissionregistrationv1.OperationType(operation)) {
				problems = append(problems, fmt.Errorf("%.100q: the operation %.100q must be one of %s (hint: services:CREATE,UPDATE)", word, operation, strings.Join(operations(), ", ")))
			}
			rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationType(operation)}
		}
		rules = append(rules, rule)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return rules, nil
}

func operations() []string {
	return []string{
		string(admissionregistrationv1.Create), string(admissionregistrationv1.Update), string(admissionregistrationv1.Delete),
		string(admissionregistrationv1.Connect), all,
	}
}

func isOperation(o admissionregistrationv1.OperationType) bool {
	return slices.Contains(operations(), string(o))
}

// parseResource reads one resource.
func parseResource(text string) (admissionregistrationv1.RuleWithOperations, error) {
	name, sub, hasSub := strings.Cut(text, "/")
	resource, rest, _ := strings.Cut(name, ".")
	version, group, _ := strings.Cut(rest, ".")
	switch {
	case apiVersion.MatchString(version):
	case equivalent.InV1Alone(rest):
		version, group = "v1", rest
	default:
		version, group = all, rest
	}
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource},
			Scope: new(admissionregistrationv1.AllScopes),
		},
	}
	if hasSub {
		rule.Resources[0] += "/" + sub
		if isConnection(sub) {
			rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Connect}
		}
	}
	isPart := func(s string) bool { return s == all || len(validation.IsDNS1123Label(s)) == 0 }
	switch {
	case hasSub && isGroup(name):
		return rule, fmt.Errorf("%.100q: the group follows the resource, as for kubectl (hint: %s.%s)", text, sub, name)
	case !isPart(resource), hasSub && !isPart(sub), group != "" && group != all && len(validation.IsDNS1123Subdomain(group)) > 0, strings.HasSuffix(name, "."):
		return rule, fmt.Errorf("%.100q: must be RESOURCE[.GROUP][/SUBRESOURCE], with the plural in lower case (hint: services, deployments.apps, pods/exec)", text)
	}
	return rule, nil
}

// isConnection reports whether there is nothing but CONNECT for a subresource.
func isConnection(sub string) bool {
	return slices.Contains([]string{"attach", "exec", "portforward", "proxy"}, sub)
}

// isGroup reports whether what stands before a slash is the group of a resource and
// not a resource with a subresource.
func isGroup(name string) bool {
	return slices.Contains([]string{"apps", "autoscaling", "batch", "extensions", "policy"}, name) || strings.HasSuffix(name, ".k8s.io")
}
