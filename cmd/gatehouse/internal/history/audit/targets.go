package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Target is a resource whose objects are audited, in the version in which they are read.
type Target struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Targets returns the resources whose creation the active policies match, and, if there is a
// profile, pods and the workloads that have a pod template, in a fixed order. Unknown are those that
// a policy names literally and the API server does not serve, as "widgets.example.com".
//
// A resource that is served in several versions is read in the one that most policies name. Left out
// are resources without list or create, subresources, what is never sent to Gatehouse (events, leases,
// nodes, reviews, Gatehouse's own documents …), and Secrets and reports of audits unless a policy names
// them literally.
func Targets(c *config.Config, served *Served) (targets []Target, unknown []string) {
	m := newMatchers(c)
	for i := range served.resources {
		r := &served.resources[i]
		if version, ok := m.version(r); ok {
			targets = append(targets, Target{r.WithVersion(version), r.kind, r.namespaced})
		}
	}
	return targets, m.unknown(served)
}

// isLeftOut reports whether objects of a resource are never audited.
func isLeftOut(r schema.GroupResource) bool { return registration.IsNeverSent(r) || policy.IsExempt(r) }

// needsName reports whether objects of a resource are audited only if a policy names it literally: Secrets,
// and what audits write themselves.
func needsName(r schema.GroupResource) bool {
	switch r.Group {
	case "":
		return r.Resource == "secrets"
	case "openreports.io", "wgpolicyk8s.io":
		return true
	default:
		return false
	}
}

// version returns the version in which a resource is read, and false if it is not read.
func (m *matchers) version(r *resource) (string, bool) {
	if isLeftOut(r.GroupResource) {
		return "", false
	}
	matched := slices.ContainsFunc(m.templates, func(w schema.GroupKind) bool { return w == schema.GroupKind{Group: r.Group, Kind: r.kind} }) ||
		m.profiles && r.GroupResource == schema.GroupResource{Resource: "pods"}
	named := make([]int, len(r.versions))
	for i := range m.policies {
		p := &m.policies[i]
		if !p.matches(r) {
			continue
		}
		matched = true
		for n, version := range r.versions {
			if p.names(r, version) {
				named[n]++
			}
		}
	}
	if !matched {
		return "", false
	}
	best := 0
	for n := range named {
		if named[n] > named[best] {
			best = n
		}
	}
	return r.versions[best], true
}

// unknown returns the resources that policies name literally and that are not served, sorted.
func (m *matchers) unknown(served *Served) []string {
	found := sets.New[string]()
	for i := range m.policies {
		p := &m.policies[i]
		for name, versions := range p.literals() {
			if isLeftOut(name) {
				continue
			}
			if known := served.find(name); known != nil {
				// With matchPolicy Equivalent, one version that is served is enough.
				if !slices.ContainsFunc(versions, func(v string) bool { return v == "*" || served.known.Has(name.WithVersion(v)) }) {
					found.Insert(fmt.Sprintf("%s (%s)", name, strings.Join(versions, ", ")))
				}
				continue
			}
			if slices.ContainsFunc(versions, func(v string) bool { return v != "*" && served.known.Has(name.WithVersion(v)) }) {
				continue // such as bindings, which cannot be listed
			}
			text := name.String()
			for version, err := range served.failed {
				if version.Group == name.Group {
					text = fmt.Sprintf("%s: %s cannot be discovered: %v", name, version, err)
					break
				}
			}
			found.Insert(text)
		}
	}
	return sets.List(found)
}

func (s *Served) find(name schema.GroupResource) *resource {
	for i := range s.resources {
		if s.resources[i].GroupResource == name {
			return &s.resources[i]
		}
	}
	return nil
}

// Unknown returns why Rights may lack some: API groups that cannot be discovered, and of which policies match resources by
// wildcards.
func Unknown(c *config.Config, served *Served) []error {
	m := newMatchers(c)
	var errs []error
	for _, version := range served.undiscovered() {
		if m.mayMatchUnnamed(version.Group) {
			errs = append(errs, fmt.Errorf("a policy matches all resources of %s, which cannot be discovered: %s", version, problem(served.failed[version])))
		}
	}
	return errs
}

// Rights returns the rights that an audit needs beside those of decisions: list of the resources that the active policies
// and profiles match, and of namespaces. There is never a "*": what a policy matches by wildcards is
// added from what is served, and left out if served is nil.
func Rights(c *config.Config, served *Served) []rbacv1.PolicyRule {
	m := newMatchers(c)
	byGroup := map[string]sets.Set[string]{}
	add := func(r schema.GroupResource) {
		if isLeftOut(r) {
			return
		}
		if byGroup[r.Group] == nil {
			byGroup[r.Group] = sets.New[string]()
		}
		byGroup[r.Group].Insert(r.Resource)
	}
	add(schema.GroupResource{Resource: "namespaces"})
	for i := range m.policies {
		for name := range m.policies[i].literals() {
			add(name)
		}
	}
	if m.profiles {
		add(schema.GroupResource{Resource: "pods"})
	}
	for _, r := range m.workloads {
		add(r)
	}
	if served != nil {
		targets, _ := Targets(c, served)
		for _, t := range targets {
			add(t.GroupResource())
		}
	}
	rules := make([]rbacv1.PolicyRule, 0, len(byGroup))
	for group, resources := range byGroup {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: sets.List(resources), Verbs: []string{"list"}})
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int { return cmp.Compare(a.APIGroups[0], b.APIGroups[0]) })
	return rules
}
