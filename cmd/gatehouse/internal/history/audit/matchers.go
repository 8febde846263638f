package audit

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

const all = "*"

// matchers say which resources a configuration is about.
type matchers struct {
	// policies are the active ones that match the creation of objects.
	policies []matcher
	// profiles reports whether there is a profile.
	profiles bool
	// templates are the kinds whose pod templates are decided about, and workloads their resources as far as
	// these are known.
	templates []schema.GroupKind
	workloads []schema.GroupResource
}

// matcher says which resources a policy is about.
type matcher struct {
	kind, name string
	exact      bool
	rules      []admissionregistrationv1.NamedRuleWithOperations
	exclude    []admissionregistrationv1.NamedRuleWithOperations
	// bindings are the rules of the bindings that have some. They are nil if one has none.
	bindings [][]admissionregistrationv1.NamedRuleWithOperations
}

func newMatchers(c *config.Config) *matchers {
	m := &matchers{profiles: len(c.Sidecar.Profiles) > 0}
	checks := m.profiles
	for _, one := range c.Policy.All() {
		match := one.Spec.MatchConstraints
		if match == nil || len(one.Bindings) == 0 {
			continue
		}
		bindings := make([]*admissionregistrationv1.MatchResources, len(one.Bindings))
		for i, b := range one.Bindings {
			bindings[i] = b.MatchResources
		}
		p := newMatcher(one.Kind, one.Name, match, bindings)
		checks = checks || one.ChecksTemplates && p.matches(podResource())
		m.policies = append(m.policies, p)
	}
	for i := range c.Mutation.Policies {
		p := &c.Mutation.Policies[i]
		var bindings []*admissionregistrationv1.MatchResources
		for k := range c.Mutation.Bindings {
			if b := &c.Mutation.Bindings[k].Spec; b.PolicyName == p.Name {
				bindings = append(bindings, b.MatchResources)
			}
		}
		if p.Spec.MatchConstraints != nil && len(bindings) > 0 {
			m.policies = append(m.policies, newMatcher(admit.MutationKind, p.Name, p.Spec.MatchConstraints, bindings))
		}
	}
	if checks {
		m.addWorkloads(workload.FromAPI(c.Workloads()))
	}
	return m
}

// newMatcher returns what a policy matches with its bindings, nil for one that matches all that the policy does.
func newMatcher(kind, name string, match *admissionregistrationv1.MatchResources, bindings []*admissionregistrationv1.MatchResources) matcher {
	p := matcher{
		kind: kind, name: name, rules: creations(match.ResourceRules), exclude: creations(match.ExcludeResourceRules),
		exact: match.MatchPolicy != nil && *match.MatchPolicy == admissionregistrationv1.Exact,
	}
	for _, b := range bindings {
		if b == nil || len(b.ResourceRules) == 0 {
			p.bindings = nil
			break
		}
		p.bindings = append(p.bindings, creations(b.ResourceRules))
	}
	return p
}

// addWorkloads adds the kinds that have a pod template.
func (m *matchers) addWorkloads(configured []workload.Kind) {
	kinds, err := workload.New(configured)
	if err != nil {
		kinds, _ = workload.New(nil) // as a Snapshot does not compile with them
	}
	for _, k := range kinds.All() {
		if k.Group == "extensions" {
			continue // no API server serves it any more
		}
		m.templates = append(m.templates, schema.GroupKind{Group: k.Group, Kind: k.Kind})
		if k.Resource != "" {
			m.workloads = append(m.workloads, schema.GroupResource{Group: k.Group, Resource: k.Resource})
		}
	}
}

// creations returns the rules that match the creation of objects.
func creations(rules []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	var out []admissionregistrationv1.NamedRuleWithOperations
	for _, r := range rules {
		if slices.Contains(r.Operations, admissionregistrationv1.Create) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
			out = append(out, r)
		}
	}
	return out
}

// matches reports whether the creation of some object of a resource is matched, in one of its versions.
func (p *matcher) matches(r *resource) bool {
	some := func(rules []admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(r.versions, func(version string) bool { return ruleNames(rules, r, version) })
	}
	switch {
	case !some(p.rules), needsName(r.GroupResource) && !p.namesLiterally(r.GroupResource), p.excludes(r):
		return false
	case p.bindings == nil:
		return true
	default:
		return slices.ContainsFunc(p.bindings, some)
	}
}

// excludes reports whether the policy excludes all objects of a resource.
func (p *matcher) excludes(r *resource) bool {
	return slices.ContainsFunc(r.versions, func(version string) bool {
		whole := slices.DeleteFunc(slices.Clone(p.exclude), func(e admissionregistrationv1.NamedRuleWithOperations) bool {
			return len(e.ResourceNames) > 0 || p.exact && !slices.Contains(e.APIVersions, all)
		})
		return ruleNames(whole, r, version)
	})
}

// names reports whether the policy matches a resource in that very version.
func (p *matcher) names(r *resource, version string) bool { return ruleNames(p.rules, r, version) }

// namesLiterally reports whether a rule has the name of a resource.
func (p *matcher) namesLiterally(r schema.GroupResource) bool {
	return slices.ContainsFunc(p.rules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		return hasOrAll(rule.APIGroups, r.Group) && slices.Contains(rule.Resources, r.Resource)
	})
}

// literals returns the resources that the rules name without wildcards, with their versions.
func (p *matcher) literals() map[schema.GroupResource][]string {
	out := map[schema.GroupResource][]string{}
	for _, rule := range p.rules {
		for _, group := range rule.APIGroups {
			for _, name := range rule.Resources {
				if name = strings.TrimSuffix(name, "/*"); group == all || strings.Contains(name, "/") || name == all {
					continue
				}
				key := schema.GroupResource{Group: group, Resource: name}
				for _, version := range rule.APIVersions {
					if !slices.Contains(out[key], version) {
						out[key] = append(out[key], version)
					}
				}
			}
		}
	}
	return out
}

// ruleNames reports whether one of the rules matches objects of a resource in a version.
func ruleNames(rules []admissionregistrationv1.NamedRuleWithOperations, r *resource, version string) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		if scope := rule.Scope; scope != nil && *scope != admissionregistrationv1.AllScopes && (*scope == admissionregistrationv1.NamespacedScope) != r.namespaced {
			return false
		}
		// As in k8s.io/apiserver's rules.Matcher: "x/*" includes x itself.
		return hasOrAll(rule.APIGroups, r.Group) && hasOrAll(rule.APIVersions, version) &&
			slices.ContainsFunc(rule.Resources, func(name string) bool {
				return name == all || name == "*/*" || name == r.Resource || name == r.Resource+"/*"
			})
	})
}

func hasOrAll(list []string, value string) bool {
	return slices.Contains(list, all) || slices.Contains(list, value)
}

// mayMatchUnnamed reports whether policies match resources of a group that they do not name.
func (m *matchers) mayMatchUnnamed(group string) bool {
	return slices.ContainsFunc(m.policies, func(p matcher) bool {
		return slices.ContainsFunc(p.rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return hasOrAll(r.APIGroups, group) && (slices.Contains(r.Resources, all) || slices.Contains(r.Resources, "*/*"))
		})
	})
}

// mayMatch reports whether policies match resources of a group by wildcards or by name, and returns the AdmissionPolicies among them.
func (m *matchers) mayMatch(group string) (admissionPolicies []string, may bool) {
	return m.named(func(p *matcher) bool {
		return slices.ContainsFunc(p.rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool { return hasOrAll(r.APIGroups, group) })
	})
}

// about returns the AdmissionPolicies that match a resource, itself or by the pod template in it.
func (m *matchers) about(r *resource) []string {
	hasTemplate := slices.Contains(m.templates, schema.GroupKind{Group: r.Group, Kind: r.kind})
	names, _ := m.named(func(p *matcher) bool { return p.matches(r) || hasTemplate && p.matches(podResource()) })
	return names
}

// named returns the names of the AdmissionPolicies of which something is true, and reports whether it is of any policy.
func (m *matchers) named(is func(*matcher) bool) (admissionPolicies []string, some bool) {
	for i := range m.policies {
		if p := &m.policies[i]; is(p) {
			if some = true; p.kind == "AdmissionPolicy" {
				admissionPolicies = append(admissionPolicies, p.name)
			}
		}
	}
	return admissionPolicies, some
}

func podResource() *resource {
	return &resource{GroupResource: schema.GroupResource{Resource: "pods"}, namespaced: true, versions: []string{"v1"}}
}
