package registration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// ruleSets are what is sent for validation: by the webhook that fails closed,
// and by the one that fails open.
type ruleSets struct {
	fail, ignore []admissionregistrationv1.RuleWithOperations
}

// defaultRules are for a configuration that is not known: pods and what makes
// pods. They fail closed, as a policy does that does not say otherwise.
func defaultRules() ruleSets {
	var atoms atomSet
	createUpdate := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	for _, r := range []struct {
		group      string
		operations []admissionregistrationv1.OperationType
		resources  []string
	}{
		{"", createUpdate, []string{"pods", "podtemplates", "replicationcontrollers"}},
		{"", []admissionregistrationv1.OperationType{admissionregistrationv1.Update}, []string{"pods/ephemeralcontainers"}},
		{"apps", createUpdate, []string{"daemonsets", "deployments", "replicasets", "statefulsets"}},
		{"batch", createUpdate, []string{"cronjobs", "jobs"}},
	} {
		atoms.add(admissionregistrationv1.RuleWithOperations{
			Operations: r.operations,
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{r.group}, APIVersions: []string{"v1"}, Resources: r.resources,
				Scope: new(admissionregistrationv1.NamespacedScope),
			},
		})
	}
	return ruleSets{fail: atoms.rules()}
}

// policyRules are exactly what the policies in force are about: every request
// that a policy's resource rules match, but for what is never sent. What a rule
// of a webhook cannot say, such as names of objects, is left to the policy.
func policyRules(spec *policy.Spec) (ruleSets, []string, error) {
	var (
		fail, ignore atomSet
		notes        []string
		versions     = versionSets{}
	)
	add := func(object string, s *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
		if s.MatchConstraints == nil {
			return
		}
		// A policy that does not say fails closed.
		to := &fail
		if s.FailurePolicy != nil && *s.FailurePolicy == admissionregistrationv1.Ignore {
			to = &ignore
		}
		for _, rule := range s.MatchConstraints.ResourceRules {
			for _, resource := range to.add(rule.RuleWithOperations) {
				notes = append(notes, fmt.Sprintf("%s matches %q, which is never sent to Gatehouse", object, resource))
			}
			if to.full {
				return
			}
			versions.add(rule.Rule)
		}
	}
	bound := map[string]bool{}
	for i := range spec.Bindings {
		bound[spec.Bindings[i].Spec.PolicyName] = true
	}
	for i := range spec.Policies {
		if p := &spec.Policies[i]; bound[p.Name] {
			add("ValidatingAdmissionPolicy/"+p.Name, &p.Spec)
		}
	}
	for i := range spec.AdmissionPolicies {
		p := &spec.AdmissionPolicies[i]
		add("AdmissionPolicy/"+p.Name, &p.Spec.ValidatingAdmissionPolicySpec)
	}
	if fail.full || ignore.full {
		return ruleSets{}, nil, fmt.Errorf("the policies name more than %d combinations of group, version, resource and operation (hint: write \"*\" for groups, versions or resources)", maxAtoms)
	}
	notes = append(notes, versions.notes()...)
	slices.Sort(notes)
	ignore.removeCovered(&fail)
	return ruleSets{fail: fail.rules(), ignore: ignore.rules()}, slices.Compact(notes), nil
}

// maxAtoms is how many atoms a rule and a union of rules may have. It is far
// above what policies say, and keeps the comparison of each with each short.
const maxAtoms = 5000

const all = "*"

// atom is the smallest part of a rule.
type atom struct {
	group, version, resource, scope, operation string
}

// covers tells whether a is about everything that b is about.
func (a atom) covers(b atom) bool {
	same := func(a, b string) bool { return a == all || a == b }
	return same(a.group, b.group) && same(a.version, b.version) && same(a.scope, b.scope) &&
		same(a.operation, b.operation) && resourceCovers(a.resource, b.resource)
}

// resourceCovers is covers for resources and subresources: "*" is every resource
// and no subresource, "pods/*" is pods and all of its subresources.
func resourceCovers(a, b string) bool {
	if a == b || a == "*/*" {
		return true
	}
	resource, sub, _ := strings.Cut(a, "/")
	otherResource, otherSub, _ := strings.Cut(b, "/")
	return (resource == all || resource == otherResource) && (sub == all || sub == otherSub)
}

// isSpared tells whether the atom is about nothing but what is never sent.
func (a atom) isSpared() bool {
	resource, _, _ := strings.Cut(a.resource, "/")
	return slices.ContainsFunc(spared, func(s sparedResource) bool {
		return slices.Contains(s.groups, a.group) && (s.resource == "" || s.resource == resource)
	})
}

// atomSet is a union of rules, taken apart. Its zero value is empty.
type atomSet struct {
	atoms map[atom]bool
	full  bool // there were too many
}

// add adds a rule, and returns what of it is never sent.
func (s *atomSet) add(rule admissionregistrationv1.RuleWithOperations) (spared []string) {
	if s.atoms == nil {
		s.atoms = map[atom]bool{}
	}
	// Each factor is checked by itself, so that the product cannot overflow.
	n := 1
	for _, factor := range []int{len(rule.APIGroups), len(rule.APIVersions), len(rule.Resources), len(rule.Operations)} {
		if n *= factor; n > maxAtoms {
			s.full = true
			return nil
		}
	}
	scope := string(admissionregistrationv1.AllScopes)
	if rule.Scope != nil {
		scope = string(*rule.Scope)
	}
	for _, group := range rule.APIGroups {
		for _, version := range rule.APIVersions {
			for _, resource := range rule.Resources {
				for _, operation := range rule.Operations {
					a := atom{group, version, resource, scope, string(operation)}
					if a.isSpared() {
						spared = append(spared, resource)
						continue
					}
					s.atoms[a] = true
					if len(s.atoms) > maxAtoms {
						s.full = true
						return nil
					}
				}
			}
		}
	}
	return slices.Compact(spared)
}

// removeCovered removes what an atom of other covers.
func (s *atomSet) removeCovered(other *atomSet) {
	maps.DeleteFunc(s.atoms, func(a atom, _ bool) bool {
		for b := range other.atoms {
			if b.covers(a) {
				return true
			}
		}
		return false
	})
}

// rules are as few rules as show plainly what the atoms are about: one for each
// combination of group, version, scope and operations, in a fixed order.
func (s *atomSet) rules() []admissionregistrationv1.RuleWithOperations {
	maps.DeleteFunc(s.atoms, func(a atom, _ bool) bool {
		for b := range s.atoms {
			if a != b && b.covers(a) {
				return true
			}
		}
		return false
	})
	// First the operations of each resource, then the resources with the same
	// operations.
	operations := map[atom][]string{}
	for a := range s.atoms {
		key := a
		key.operation = ""
		operations[key] = append(operations[key], a.operation)
	}
	resources := map[atom][]string{}
	for a, ops := range operations {
		slices.SortFunc(ops, func(a, b string) int { return cmp.Compare(operationOrder(a), operationOrder(b)) })
		key := a
		key.resource, key.operation = "", strings.Join(ops, ",")
		resources[key] = append(resources[key], a.resource)
	}
	var rules []admissionregistrationv1.RuleWithOperations
	for key, names := range resources {
		slices.Sort(names)
		var ops []admissionregistrationv1.OperationType
		for op := range strings.SplitSeq(key.operation, ",") {
			ops = append(ops, admissionregistrationv1.OperationType(op))
		}
		rules = append(rules, admissionregistrationv1.RuleWithOperations{
			Operations: ops,
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{key.group}, APIVersions: []string{key.version}, Resources: names,
				Scope: new(admissionregistrationv1.ScopeType(key.scope)),
			},
		})
	}
	slices.SortFunc(rules, func(a, b admissionregistrationv1.RuleWithOperations) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.APIVersions, b.APIVersions),
			cmp.Compare(*a.Scope, *b.Scope), slices.Compare(a.Resources, b.Resources))
	})
	return rules
}

// operationOrder puts operations into the order in which they are thought of.
func operationOrder(operation string) int {
	return slices.Index([]string{"CREATE", "UPDATE", "DELETE", "CONNECT"}, operation)
}

// versionSets are the versions that policies name of a resource.
type versionSets map[string]map[string]bool

func (v versionSets) add(rule admissionregistrationv1.Rule) {
	list := slices.Compact(slices.Sorted(slices.Values(rule.APIVersions)))
	text := strings.Join(list, ", ")
	for _, group := range rule.APIGroups {
		text := text
		if text == all && policy.ServedInV1Alone(group) {
			text = "v1"
		}
		for _, resource := range rule.Resources {
			if v[resource+"."+group] == nil {
				v[resource+"."+group] = map[string]bool{}
			}
			v[resource+"."+group][text] = true
		}
	}
}

// notes are about resources of which policies name different versions. A
// webhook is sent an object in one version, and cannot convert it.
func (v versionSets) notes() []string {
	var notes []string
	for name, sets := range v {
		if len(sets) > 1 {
			notes = append(notes, fmt.Sprintf("policies name different versions of %q (%s): an object is sent in one version, and a policy that does not name it cannot judge the object (hint: name the same versions everywhere)",
				strings.TrimSuffix(name, "."), strings.Join(slices.Sorted(maps.Keys(sets)), "; ")))
		}
	}
	return notes
}
