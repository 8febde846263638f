package authz

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// checker collects what is wrong with scopes.
type checker struct{ found diagnostic.List }

func (c *checker) report(field, message, hint string) {
	c.found = append(c.found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: field, Message: message, Hint: hint})
}

// CheckScope returns all that is wrong with the scope of a token, with fields below the one that it is in.
func (s *Set) CheckScope(field string, scope *v1alpha1.TokenScope) diagnostic.List {
	c := &checker{}
	switch hasName, hasRules := scope.Name != "", len(scope.Rules) > 0; {
	case hasName && hasRules:
		c.report(field, "has both a name and rules", "a scope of your own with a name belongs to the AuthenticationConfiguration")
	case !hasName && !hasRules:
		c.report(field, "has neither a name nor rules", "for example {name: "+v1alpha1.ScopeView+"}")
	case hasName:
		if message, hint := s.unknown(scope.Name); message != "" {
			c.report(field+".name", message, hint)
		}
	default:
		c.rules(field+".rules", scope.Rules)
	}
	c.names(field+".namespaces", scope.Namespaces, maxNamespaces, validation.IsDNS1123Label)
	size := 0
	for _, value := range Values(scope) {
		size += len(value)
	}
	if size > maxBytes {
		c.report(field, fmt.Sprintf("has %d bytes as JSON, at most %d are allowed", size, maxBytes), "define a named scope in the AuthenticationConfiguration")
	}
	return c.found
}

// unknown returns what is wrong with the name of a scope that does not exist.
func (s *Set) unknown(name string) (message, hint string) {
	if _, known := s.Rules(name); known {
		return "", ""
	}
	names := s.Names()
	hint = diagnostic.DidYouMean(name, names...)
	if hint == "" {
		hint = "the scopes are " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%.100q is not the name of a scope", name), hint
}

// Names returns the names of all scopes, Gatehouse's own first.
func (s *Set) Names() []string {
	names := []string{v1alpha1.ScopeView, v1alpha1.ScopeEdit}
	if s == nil {
		return names
	}
	var configured []string
	for name := range s.named {
		configured = append(configured, name)
	}
	slices.Sort(configured)
	return append(names, configured...)
}

// CheckNamed returns all that is wrong with the named scopes of a configuration.
func CheckNamed(source string, scopes []v1alpha1.NamedScope) diagnostic.List {
	c := &checker{}
	for i := range scopes {
		scope, field := &scopes[i], fmt.Sprintf("scopes[%d]", i)
		switch _, own := builtin()[scope.Name]; {
		case own:
			c.report(field+".name", fmt.Sprintf("%q is a scope of Gatehouse itself", scope.Name), "give the scope another name")
		case !isLabel(scope.Name):
			c.report(field+".name", fmt.Sprintf(`%.100q is not a DNS-1123 label: 1 to 63 lower-case letters, digits and "-"`, scope.Name), "")
		case slices.ContainsFunc(scopes[:i], func(s v1alpha1.NamedScope) bool { return s.Name == scope.Name }):
			c.report(field+".name", fmt.Sprintf("%q is already the name of another scope", scope.Name), "")
		}
		if len(scope.Rules) == 0 {
			c.report(field+".rules", "is empty, so that the scope includes nothing", `for example [{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}]`)
		}
		c.rules(field+".rules", scope.Rules)
	}
	for i := range c.found {
		c.found[i].Source, c.found[i].Object = source, "AuthenticationConfiguration"
	}
	return c.found
}

func (c *checker) rules(field string, rules []v1alpha1.ScopeRule) {
	if len(rules) > maxRules {
		c.report(field, fmt.Sprintf("has %d rules, at most %d are allowed", len(rules), maxRules), "")
		return
	}
	for i := range rules {
		c.rule(fmt.Sprintf("%s[%d]", field, i), &rules[i])
	}
}

// rule checks a rule. Whatever it has that cannot be part of a request would be a typing error.
func (c *checker) rule(field string, rule *v1alpha1.ScopeRule) {
	const most = 64
	if len(rule.Verbs) == 0 {
		c.report(field+".verbs", "is empty, so that the rule includes nothing", "for example [get, list, watch]")
	}
	c.names(field+".verbs", rule.Verbs, most, func(verb string) []string {
		if verb != all && strings.Trim(verb, "abcdefghijklmnopqrstuvwxyz-:") != "" {
			return []string{"a verb has lower-case letters"}
		}
		return nil
	})
	if len(rule.NonResourceURLs) > 0 {
		if len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames)+len(rule.Namespaces) > 0 {
			c.report(field+".nonResourceURLs", "excludes apiGroups, resources, resourceNames and namespaces", "make two rules")
		}
		c.names(field+".nonResourceURLs", rule.NonResourceURLs, most, func(url string) []string {
			if beginning := strings.TrimSuffix(url, all); url != all && !strings.HasPrefix(url, "/") || strings.ContainsAny(beginning, "* ?#") {
				return []string{`a path begins with "/", and "*" may be its end`}
			}
			return nil
		})
		return
	}
	if len(rule.APIGroups) == 0 {
		c.report(field+".apiGroups", "is empty, so that the rule includes nothing", `the core group is "": ["", apps]`)
	}
	if len(rule.Resources) == 0 {
		c.report(field+".resources", "is empty, so that the rule includes nothing", "for example [pods, pods/log]")
	}
	c.names(field+".apiGroups", rule.APIGroups, most, func(group string) []string {
		if group == "" || group == all {
			return nil
		}
		return validation.IsDNS1123Subdomain(group)
	})
	c.names(field+".resources", rule.Resources, most, checkResource)
	c.names(field+".resourceNames", rule.ResourceNames, most, func(name string) []string {
		if name == all {
			return []string{"it is not a name; without resourceNames, the rule is about all objects"}
		}
		return nil
	})
	c.names(field+".namespaces", rule.Namespaces, most, validation.IsDNS1123Label)
}

// checkResource returns why a resource of a rule is in no request.
func checkResource(resource string) []string {
	name, sub, hasSub := strings.Cut(resource, "/")
	switch {
	case resource == all, resource == all+"/status", resource == all+"/scale":
		return nil
	case strings.Contains(resource, all):
		return []string{`"*" stands alone, or before /status or /scale: name the resource, as in pods/exec`}
	case name == "", hasSub && sub == "", strings.Trim(resource, "abcdefghijklmnopqrstuvwxyz0123456789-./") != "":
		return []string{`it must be the plural name in lower case, as in "deployments" or "pods/log"`}
	default:
		return nil
	}
}

// names checks the elements of a list.
func (c *checker) names(field string, list []string, most int, check func(string) []string) {
	if len(list) > most {
		c.report(field, fmt.Sprintf("has %d elements, at most %d are allowed", len(list), most), "")
		return
	}
	for i, one := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		const longest = 253
		switch wrong := check(one); {
		case len(wrong) > 0:
			c.report(at, fmt.Sprintf("%.100q: %s", one, wrong[0]), "")
		case one == "" && !strings.HasSuffix(field, "apiGroups"):
			c.report(at, `"" must not be empty`, "")
		case len(one) > longest:
			c.report(at, fmt.Sprintf("has %d bytes, at most %d are allowed", len(one), longest), "")
		case slices.Contains(list[:i], one):
			c.report(at, fmt.Sprintf("%.100q is listed twice", one), "")
		}
	}
}

// isLabel reports whether a name is a DNS-1123 label. It is called for each request.
func isLabel(name string) bool {
	if name == "" || len(name) > validation.DNS1123LabelMaxLength || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
