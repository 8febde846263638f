package registration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

// ruleSets are the rules of the validating webhook that fails closed, and of the one that
// fails open.
type ruleSets struct {
	fail, ignore []admissionregistrationv1.RuleWithOperations
	// The match conditions of the policies are nil where Gatehouse decides them.
	failCondition, ignoreCondition *admissionregistrationv1.MatchCondition
}

// defaultRules returns the rules for an unknown configuration: pods and workloads. They
// fail closed, which is the default of policies.
func defaultRules() []admissionregistrationv1.RuleWithOperations {
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
	return atoms.rules()
}

// rules returns the rules of the validating webhooks, and remarks on them.
func (o *Options) rules() (ruleSets, []string, error) {
	var (
		sets  ruleSets
		notes []string
		err   error
	)
	if o.Spec != nil {
		if sets, notes, err = o.policyRules(); err != nil {
			return ruleSets{}, nil, err
		}
	}
	more := slices.Clone(o.Validate)
	if o.Spec == nil || o.CustomResources {
		more = append(more, defaultRules()...)
	}
	if len(more)+len(o.ValidateOpen) == 0 {
		return sets, notes, nil
	}
	var fail, ignore atomSet
	for _, to := range []struct {
		set   *atomSet
		rules [][]admissionregistrationv1.RuleWithOperations
	}{{&fail, [][]admissionregistrationv1.RuleWithOperations{sets.fail, more}}, {&ignore, [][]admissionregistrationv1.RuleWithOperations{sets.ignore, o.ValidateOpen}}} {
		for _, rule := range slices.Concat(to.rules...) {
			for _, resource := range to.set.add(rule) {
				notes = append(notes, fmt.Sprintf("%q is never sent to Gatehouse", resource))
			}
		}
	}
	if fail.full || ignore.full {
		return ruleSets{}, nil, errTooManyAtoms()
	}
	if sets.failCondition == nil {
		ignore.removeCovered(&fail)
	}
	sets.fail, sets.ignore = fail.rules(), ignore.rules()
	return sets, notes, nil
}

func errTooManyAtoms() error {
	return fmt.Errorf("the policies name more than %d combinations of group, version, resource and operation (hint: write \"*\" for groups, versions or resources)", maxAtoms)
}

// registeredForAny reports whether more is registered than what the configuration
// acts on, so that its match conditions do not speak for everything that is sent.
func (o *Options) registeredForAny() bool {
	return o.CustomResources || len(o.Validate)+len(o.ValidateOpen) > 0
}

// activePolicy is a policy with a binding or with actions of its own, and what it matches.
type activePolicy struct {
	name string // kind and name
	// atoms are those of its resource rules, and templates those of the workloads whose pod
	// templates it checks. Requests that are never sent are in neither.
	atoms, templates atomSet
	conditions       []admissionregistrationv1.MatchCondition
}

// policySet is the set of active policies by their failurePolicy.
type policySet struct {
	fail, ignore []*activePolicy
	notes        []string
	versions     versionSets
	workloads    []workload.Kind
}

// policyRules match exactly what the active policies match: every request
// that a policy's resource rules match, and the workloads whose pod templates it
// checks, but for what is never sent. What a rule of a webhook cannot say, such as
// names of objects, is left to the policy.
func (o *Options) policyRules() (ruleSets, []string, error) {
	set, err := activePolicies(&o.Spec.Policy)
	if err != nil {
		return ruleSets{}, nil, err
	}
	var sets ruleSets
	if !o.NoMatchConditions && !o.registeredForAny() {
		sets.failCondition = set.matchCondition("closed", set.fail)
		sets.ignoreCondition = set.matchCondition("open", set.ignore)
	}
	fail, ignore := union(set.fail), union(set.ignore)
	if fail.full || ignore.full {
		return ruleSets{}, nil, errTooManyAtoms()
	}
	// Gatehouse evaluates all of its policies for every request, so that what goes
	// to the webhook that fails closed need not go to the other. With a condition
	// not everything goes there.
	if sets.failCondition == nil {
		ignore.removeCovered(&fail)
	}
	sets.fail, sets.ignore = fail.rules(), ignore.rules()
	notes := slices.Concat(set.notes, set.versions.notes())
	slices.Sort(notes)
	return sets, slices.Compact(notes), nil
}

// matchCondition returns the match condition of the webhook of the policies that fail
// closed, or of those that fail open, if there is one.
func (s *policySet) matchCondition(how string, policies []*activePolicy) *admissionregistrationv1.MatchCondition {
	condition, why := combineConditions(policies)
	switch {
	case condition != nil:
		s.notes = append(s.notes, fmt.Sprintf("the API server evaluates the match conditions of the policies that fail %s: register again whenever one changes (hint: --no-match-conditions leaves them to Gatehouse)", how))
	case why != "":
		s.notes = append(s.notes, fmt.Sprintf("Gatehouse evaluates the match conditions of the policies that fail %s: %s", how, why))
	}
	return condition
}

// activePolicies returns the policies with a binding or with validationActions.
func activePolicies(spec *policy.Spec) (*policySet, error) {
	s := &policySet{versions: versionSets{}}
	var custom []v1alpha1.WorkloadKind
	if spec.Configuration != nil {
		custom = spec.Configuration.Workloads
	}
	kinds, err := workload.New(workload.FromAPI(custom))
	if err != nil {
		return nil, fmt.Errorf("the workloads of the PolicyConfiguration are invalid:\n%w", err)
	}
	s.workloads = kinds.All()
	bound := map[string]bool{}
	for i := range spec.Bindings {
		bound[spec.Bindings[i].Spec.PolicyName] = true
	}
	for i := range spec.Policies {
		if p := &spec.Policies[i]; bound[p.Name] {
			s.add("ValidatingAdmissionPolicy/"+p.Name, &p.Spec, p.Annotations[v1alpha1.WorkloadTemplatesAnnotation] == string(v1alpha1.CheckTemplates))
		}
	}
	clear(bound)
	for i := range spec.AdmissionPolicyBindings {
		bound[spec.AdmissionPolicyBindings[i].Spec.PolicyName] = true
	}
	for i := range spec.AdmissionPolicies {
		if p := &spec.AdmissionPolicies[i]; bound[p.Name] || len(p.Spec.ValidationActions) > 0 {
			s.add("AdmissionPolicy/"+p.Name, p.Spec.Upstream(), p.Spec.WorkloadTemplates != v1alpha1.IgnoreTemplates)
		}
	}
	return s, nil
}

// add adds a policy.
func (s *policySet) add(name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, checksTemplates bool) {
	if spec.MatchConstraints == nil {
		return
	}
	p := &activePolicy{name: name, conditions: spec.MatchConditions}
	exact := spec.MatchConstraints.MatchPolicy != nil && *spec.MatchConstraints.MatchPolicy == admissionregistrationv1.Exact
	for _, rule := range spec.MatchConstraints.ResourceRules {
		for _, resource := range p.atoms.add(rule.RuleWithOperations) {
			s.notes = append(s.notes, fmt.Sprintf("%s matches %q, which is never sent to Gatehouse", name, resource))
		}
		if p.atoms.full {
			break
		}
		s.versions.add(name, rule.Rule, exact)
	}
	if checksTemplates && p.atoms.coverPodCreation() {
		s.addTemplates(p)
	}
	switch {
	case len(p.atoms.atoms) == 0 && !p.atoms.full:
	case spec.FailurePolicy != nil && *spec.FailurePolicy == admissionregistrationv1.Ignore:
		s.ignore = append(s.ignore, p)
	default: // a policy that does not say fails closed
		s.fail = append(s.fail, p)
	}
}

// addTemplates adds the workloads whose pod templates a policy about pods checks.
// Those of a custom kind are sent in whatever version they come.
func (s *policySet) addTemplates(p *activePolicy) {
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
		p.templates.add(admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{k.Group}, APIVersions: []string{version}, Resources: []string{k.Resource}},
		})
	}
}

// union returns the atoms of all policies.
func union(policies []*activePolicy) atomSet {
	u := atomSet{atoms: map[atom]bool{}}
	for _, p := range policies {
		maps.Copy(u.atoms, p.atoms.atoms)
		maps.Copy(u.atoms, p.templates.atoms)
		if p.atoms.full || len(u.atoms) > maxAtoms {
			u.full = true
			break
		}
	}
	return u
}

// maxAtoms is how many atoms a rule and a union of rules may have. It is far
// above what policies say, and keeps the comparison of each with each short.
const maxAtoms = 5000

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

// removeCovered removes the atoms that one of other covers.
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
