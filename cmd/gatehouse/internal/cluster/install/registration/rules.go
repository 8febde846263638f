package registration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// sentRequests are those that policies of one failurePolicy match: every request that the resource rules of a policy match, and
// the workloads whose pod templates it checks, except for what is never sent. Names of objects, match conditions and bindings are left
// to the policies, and so is a selector that not all of them have.
type sentRequests struct {
	atomSet

	// namespaces and objects are the selectors that all policies of the webhook have, nil without such.
	namespaces, objects *metav1.LabelSelector
}

// defaultRules returns the rules for policies that are not known yet: pods and workloads.
func defaultRules() []admissionregistrationv1.RuleWithOperations {
	rule := func(group string, resources ...string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources},
		}
	}
	containers := rule("", "pods/ephemeralcontainers")
	containers.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update} // they are created by updates
	return []admissionregistrationv1.RuleWithOperations{
		rule("", "pods", "podtemplates", "replicationcontrollers"), containers,
		rule("apps", "daemonsets", "deployments", "replicasets", "statefulsets"), rule("batch", "cronjobs", "jobs"),
	}
}

// policySet are the requests that active policies match, by their failurePolicy.
type policySet struct {
	fail, ignore sentRequests
	notes        []string
	workloads    []workload.Kind
}

// newPolicySet returns the policies with a binding or with validationActions.
func newPolicySet(spec *policy.Spec) (*policySet, error) {
	s := &policySet{}
	var custom []v1alpha1.WorkloadKind
	if spec.Configuration != nil {
		custom = spec.Configuration.Workloads
	}
	kinds, err := workload.New(workload.FromAPI(custom))
	if err != nil {
		return nil, fmt.Errorf("the workloads of the PolicyConfiguration are invalid:\n%w", err)
	}
	s.workloads = kinds.All()
	for _, p := range spec.All() {
		if len(p.Bindings) > 0 {
			s.add(p.Kind+"/"+p.Name, p.Spec, p.ChecksTemplates)
		}
	}
	return s, nil
}

// newMutatingSet returns the policies that change objects and have a binding.
func newMutatingSet(spec *mutation.Spec) *policySet {
	s := &policySet{}
	bound := map[string]bool{}
	for i := range spec.Bindings {
		bound[spec.Bindings[i].Spec.PolicyName] = true
	}
	for i := range spec.Policies {
		if p := &spec.Policies[i]; bound[p.Name] {
			s.add("MutatingAdmissionPolicy/"+p.Name, &admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: p.Spec.MatchConstraints, FailurePolicy: p.Spec.FailurePolicy,
			}, false)
		}
	}
	return s
}

// removeSentTwice removes what the webhook that fails closed sends from what the other does, because every request is
// answered by all policies. With selectors, it may not send it.
func (s *policySet) removeSentTwice() {
	if s.fail.namespaces == nil && s.fail.objects == nil {
		s.ignore.removeCovered(&s.fail.atomSet)
	}
}

// add adds a policy, and returns what it names that is never sent.
func (s *policySet) add(name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, checksTemplates bool) (excluded []string) {
	if spec.MatchConstraints == nil {
		return nil
	}
	var atoms, templates atomSet
	for _, rule := range spec.MatchConstraints.ResourceRules {
		excluded = append(excluded, atoms.add(rule.RuleWithOperations)...)
	}
	for _, resource := range excluded {
		s.notes = append(s.notes, fmt.Sprintf("%s matches %q, which is never sent to Gatehouse", name, resource))
	}
	namespaces, objects := selects(spec.MatchConstraints.NamespaceSelector), selects(spec.MatchConstraints.ObjectSelector)
	if checksTemplates && atoms.coverPodCreation() {
		templates = s.templates()
		objects = nil // the labels of the templates count, which the API server does not select by
	}
	if len(atoms.atoms) == 0 && !atoms.full {
		return excluded
	}
	to := &s.fail // a policy that does not say fails closed
	if spec.FailurePolicy != nil && *spec.FailurePolicy == admissionregistrationv1.Ignore {
		to = &s.ignore
	}
	if to.atoms == nil {
		to.atoms, to.namespaces, to.objects = map[atom]bool{}, namespaces, objects
	}
	if !equality.Semantic.DeepEqual(to.namespaces, namespaces) {
		to.namespaces = nil
	}
	if !equality.Semantic.DeepEqual(to.objects, objects) {
		to.objects = nil
	}
	if to.full = to.full || atoms.full; !to.full {
		maps.Copy(to.atoms, atoms.atoms)
		maps.Copy(to.atoms, templates.atoms)
		to.full = len(to.atoms) > maxAtoms
	}
	return excluded
}

// selects returns a selector, nil for one that selects everything.
func selects(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil
	}
	return s
}

// templates are the workloads whose pod templates a policy about pods checks.
// Those of a custom kind are sent in whatever version they come.
func (s *policySet) templates() atomSet {
	var atoms atomSet
	for _, k := range s.workloads {
		version := all
		switch k.Group {
		case "", "apps", "batch":
			version = "v1"
		case "extensions":
			continue // gone since Kubernetes 1.22
		}
		if k.Resource == "" {
			s.notes = append(s.notes, fmt.Sprintf("the pod templates of %q are not checked, because their resource is not known (hint: name it in the PolicyConfiguration)", k.Kind+"."+k.Group))
			continue
		}
		atoms.add(admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{k.Group}, APIVersions: []string{version}, Resources: []string{k.Resource}},
		})
	}
	return atoms
}

// maxAtoms is how many atoms a rule and a union of rules may have. It is far
// above what policies say, and keeps the comparison of each with each short.
const maxAtoms = 2000

const all = "*"

// atom is the smallest part of a rule.
type atom struct {
	group, version, resource, scope, operation string
}

// covers reports whether a matches every request that b matches.
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

// coverPodCreation reports whether an atom matches the creation of pods.
func (s *atomSet) coverPodCreation() bool {
	pods := atom{group: "", version: "v1", resource: "pods", operation: string(admissionregistrationv1.Create)}
	for a := range s.atoms {
		// A scope that leaves out what is in namespaces leaves out pods.
		if pods.scope = a.scope; a.scope != string(admissionregistrationv1.ClusterScope) && a.covers(pods) {
			return true
		}
	}
	return false
}

// isExcluded reports whether the atom matches only requests that are never sent.
func (a atom) isExcluded() bool {
	resource, _, _ := strings.Cut(a.resource, "/")
	return slices.ContainsFunc(excluded, func(s excludedResource) bool {
		return slices.Contains(s.groups, a.group) && (s.resource == "" || s.resource == resource)
	})
}

// atomSet is a union of rules, taken apart. Its zero value is empty.
type atomSet struct {
	atoms map[atom]bool
	full  bool // there were too many
}

// add adds a rule, and returns what of it is never sent.
func (s *atomSet) add(rule admissionregistrationv1.RuleWithOperations) (excluded []string) {
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
					if a.isExcluded() {
						excluded = append(excluded, resource)
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
	return slices.Compact(excluded)
}

// covers reports whether an atom of the set covers this one. Other leaves out the atom itself.
func (s *atomSet) covers(a atom, other bool) bool {
	for b := range s.atoms {
		if b.covers(a) && (!other || b != a) {
			return true
		}
	}
	return false
}

// removeCovered removes the atoms that one of other covers.
func (s *atomSet) removeCovered(other *atomSet) {
	maps.DeleteFunc(s.atoms, func(a atom, _ bool) bool { return other.covers(a, false) })
}

// rules are as few rules as show plainly what the atoms are about: one for each
// combination of group, version, scope and operations, in a fixed order.
func (s *atomSet) rules() []admissionregistrationv1.RuleWithOperations {
	maps.DeleteFunc(s.atoms, func(a atom, _ bool) bool { return s.covers(a, true) })
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
