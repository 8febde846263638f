package matching

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
)

// WhyNever returns why no request can match the constraints of a policy, and of a binding if
// that is not nil, and "" if one may. Both are checked and have their defaults.
func WhyNever(policy, binding *admissionregistrationv1.MatchResources) string {
	const most = 10_000 // combinations: nobody writes more
	common, exact := points(policy.ResourceRules), *policy.MatchPolicy == admissionregistrationv1.Exact
	all, excluded := []*admissionregistrationv1.MatchResources{policy}, points(policy.ExcludeResourceRules)
	and := ""
	if binding != nil {
		all, exact = append(all, binding), exact && *binding.MatchPolicy == admissionregistrationv1.Exact
		excluded = append(excluded, points(binding.ExcludeResourceRules)...)
		others := points(binding.ResourceRules)
		if len(common)*len(others) > most {
			return ""
		}
		if len(others) > 0 {
			var both []point
			for i := range common {
				for k := range others {
					if p, ok := common[i].intersect(&others[k], exact); ok {
						both = append(both, p)
					}
				}
			}
			if len(both) == 0 {
				return "no request matches both its resourceRules and the policy's"
			}
			common = both
		}
		and = " and the policy's"
	}
	if len(common)*len(excluded) > most {
		return ""
	}
	common = slices.DeleteFunc(common, func(p point) bool {
		return slices.ContainsFunc(excluded, func(e point) bool { return e.covers(&p) })
	})
	if len(common) == 0 {
		return "excludeResourceRules exclude every request that matches its resourceRules" + and
	}
	namespaces, objects := make([]*metav1.LabelSelector, len(all)), make([]*metav1.LabelSelector, len(all))
	for i, one := range all {
		namespaces[i], objects[i] = one.NamespaceSelector, one.ObjectSelector
	}
	if key := Contradiction(true, namespaces...); key != "" && !slices.ContainsFunc(common, func(p point) bool { return !p.isNamespaced() }) {
		return fmt.Sprintf("no namespace can meet its namespaceSelector%s, because of the label %q", and, key)
	}
	if slices.ContainsFunc(common, func(p point) bool { return p.operation == admissionregistrationv1.Update }) {
		// One selector may select the old object, and another one the new.
		objects = slices.DeleteFunc(objects, func(s *metav1.LabelSelector) bool { return Contradiction(false, s) == "" })
	}
	if key := Contradiction(false, objects...); key != "" {
		return fmt.Sprintf("no object can meet its objectSelector%s, because of the label %q", and, key)
	}
	return ""
}

// point is what a resource rule matches, for one of each of its values. "*" is any.
type point struct {
	operation                     admissionregistrationv1.OperationType
	group, version, resource, sub string
	scope                         admissionregistrationv1.ScopeType
	names                         sets.Set[string] // none is any
}

func points(rules []admissionregistrationv1.NamedRuleWithOperations) (all []point) {
	for i := range rules {
		r := &rules[i]
		operations := r.Operations
		if slices.Contains(operations, admissionregistrationv1.OperationAll) {
			operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect}
		}
		for _, operation := range operations {
			for _, group := range r.APIGroups {
				for _, version := range r.APIVersions {
					for _, resource := range r.Resources {
						p := point{operation: operation, group: group, version: version, scope: *r.Scope, names: sets.New(r.ResourceNames...)}
						p.resource, p.sub, _ = strings.Cut(resource, "/")
						all = append(all, p)
					}
				}
			}
		}
	}
	return all
}

// intersect returns what both match. Versions count if they are exact: else a request in
// another version is converted, and Events to those of another group.
func (p point) intersect(q *point, exact bool) (point, bool) {
	same := p.operation == q.operation
	meet := func(a *string, b string) {
		same = same && (*a == b || *a == "*" || b == "*")
		if *a == "*" {
			*a = b
		}
	}
	if exact || p.resource != "events" || q.resource != "events" {
		meet(&p.group, q.group)
	}
	if exact {
		meet(&p.version, q.version)
	}
	meet(&p.resource, q.resource)
	meet(&p.sub, q.sub)
	meet((*string)(&p.scope), string(q.scope))
	if len(p.names) == 0 {
		p.names = q.names
	} else if len(q.names) > 0 {
		p.names = p.names.Intersection(q.names)
		same = same && len(p.names) > 0
	}
	return p, same
}

// covers reports whether it matches all that another one does.
func (p *point) covers(q *point) bool {
	is := func(a, b string) bool { return a == "*" || a == b }
	return p.operation == q.operation && is(p.group, q.group) && is(p.version, q.version) && is(p.resource, q.resource) && is(p.sub, q.sub) &&
		is(string(p.scope), string(q.scope)) && (len(p.names) == 0 || len(q.names) > 0 && p.names.IsSuperset(q.names))
}

// Creates reports whether rules match the creation of some of what they match the update of, and of all. The rules have their
// defaults. A policy that matches no creation is about changes.
func Creates(rules []admissionregistrationv1.NamedRuleWithOperations) (some, all bool) {
	every := points(rules)
	all = true
	for i := range every {
		p := every[i]
		some = some || p.operation == admissionregistrationv1.Create
		if p.operation == admissionregistrationv1.Update {
			p.operation, p.sub = admissionregistrationv1.Create, ""
			all = all && slices.ContainsFunc(every, func(q point) bool { return q.covers(&p) })
		}
	}
	return some, all
}

// isNamespaced reports whether namespaceSelectors surely count for what it matches: what is in
// namespaces, and namespaces.
func (p *point) isNamespaced() bool {
	return p.scope == admissionregistrationv1.NamespacedScope || namespacedResources()[schema.GroupResource{Group: p.group, Resource: p.resource}]
}

// namespacedResources are those of Kubernetes.
var namespacedResources = sync.OnceValue(func() map[schema.GroupResource]bool { //nolint:gochecknoglobals // a constant table
	all := map[schema.GroupResource]bool{{Resource: "namespaces"}: true}
	for kind := range builtin.Scheme().AllKnownTypes() {
		if !builtin.IsClusterScoped(kind.GroupKind()) {
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			all[resource.GroupResource()] = true
		}
	}
	return all
})

// Contradiction returns a label about which the selectors together require what cannot be, and
// "" if there is none. Every namespace has a label with its name.
func Contradiction(ofNamespaces bool, selectors ...*metav1.LabelSelector) string {
	type values struct {
		allowed       sets.Set[string] // nil is any
		excluded      sets.Set[string]
		exists, lacks bool
	}
	byKey := map[string]*values{}
	for _, selector := range selectors {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return "" // It is reported.
		}
		requirements, _ := parsed.Requirements()
		for _, r := range requirements {
			v := byKey[r.Key()]
			if v == nil {
				v = &values{excluded: sets.Set[string]{}, exists: ofNamespaces && r.Key() == corev1.LabelMetadataName}
				byKey[r.Key()] = v
			}
			switch r.Operator() { //nolint:exhaustive // of those that a LabelSelector has
			case selection.In, selection.Equals, selection.DoubleEquals:
				allowed := sets.New(r.ValuesUnsorted()...)
				if v.exists = true; v.allowed != nil {
					allowed = allowed.Intersection(v.allowed)
				}
				v.allowed = allowed
			case selection.NotIn:
				v.excluded.Insert(r.ValuesUnsorted()...)
			case selection.Exists:
				v.exists = true
			case selection.DoesNotExist:
				v.lacks = true
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		v := byKey[key]
		possible := v.allowed.Difference(v.excluded)
		if ofNamespaces && key == corev1.LabelMetadataName {
			maps.DeleteFunc(possible, func(name string, _ sets.Empty) bool { return !CanBeNamespace(name) })
		}
		if v.exists && v.lacks || v.allowed != nil && len(possible) == 0 {
			return key
		}
	}
	return ""
}

// CanBeNamespace reports whether a namespace can have the name.
func CanBeNamespace(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

// CanBeName reports whether an object that a rule names can have the name, or one that begins
// so if it ends in a "*". It is certain for kinds of which the names are those of DNS, as nearly all are.
func CanBeName(name string, rules []admissionregistrationv1.NamedRuleWithOperations) bool {
	prefix, isPrefix := strings.CutSuffix(name, "*")
	if prefix = strings.TrimRight(prefix, "-."); isPrefix && prefix == "" {
		return true
	}
	return len(validation.IsDNS1123Subdomain(prefix)) == 0 || slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(r.APIGroups, func(group string) bool { return group == "*" || group == "rbac.authorization.k8s.io" }) ||
			slices.ContainsFunc(r.Resources, func(resource string) bool { return strings.HasPrefix(resource, "*") || resource == "ipaddresses" })
	})
}
