package policy

import (
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// index finds the policies that may match a request without looking at the others. It may
// return policies that do not match, and never omits one that does.
type index struct {
	byRequest map[indexKey]*candidates
	// all are the numbers of all policies.
	all []int
}

// indexKey is a group, resource and operation of a rule, wildcards included. A resource may have a subresource: "pods/status".
type indexKey struct{ group, resource, operation string }

// candidates are the numbers of policies, in ascending order: those that match everything,
// those that require one of some values of a label of the namespace, and those that
// require it of the object.
type candidates struct {
	everything            []int
	byNamespace, byObject labelIndex
}

// labelIndex has the numbers of policies by the key and value of a label.
type labelIndex map[string]map[string][]int

func (l labelIndex) add(n int, required []matching.RequiredLabel) {
	for _, label := range required {
		if l[label.Key] == nil {
			l[label.Key] = map[string][]int{}
		}
		for _, value := range label.Values {
			l[label.Key][value] = appendUnique(l[label.Key][value], n)
		}
	}
}

// newIndex indexes the policies that are in force.
func newIndex(policies []*compiledPolicy, objects Objects) index {
	x := index{byRequest: map[indexKey]*candidates{}}
	for n, p := range policies {
		x.all = append(x.all, n)
		if len(p.bindings) == 0 {
			continue
		}
		// A policy whose paramKind is not served refuses whatever its bindings match.
		byBinding := p.spec.ParamKind == nil
		if !byBinding {
			_, err := objects.Namespaced(schema.FromAPIVersionAndKind(p.spec.ParamKind.APIVersion, p.spec.ParamKind.Kind))
			byBinding = err == nil
		}
		namespaces := p.requiredLabels(byBinding, func(c *matching.Constraints) *matching.Selector { return c.Namespaces })
		var ofObjects []matching.RequiredLabel
		if len(namespaces) == 0 {
			ofObjects = p.requiredLabels(byBinding, func(c *matching.Constraints) *matching.Selector { return c.Objects })
		}
		for _, rule := range p.match.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, operation := range rule.Operations {
						x.add(n, indexKey{group, resource, string(operation)}, namespaces, ofObjects)
					}
				}
			}
		}
	}
	return x
}

// requiredLabels returns labels of which a namespace, or an object, must have one for
// the policy to be evaluated. None means that any may do. The labels of the bindings count
// if byBinding is true.
func (p *compiledPolicy) requiredLabels(byBinding bool, of func(*matching.Constraints) *matching.Selector) []matching.RequiredLabel {
	if s := of(p.match); s != nil && s.Label != nil {
		return []matching.RequiredLabel{*s.Label}
	}
	if !byBinding {
		return nil
	}
	var out []matching.RequiredLabel
	for i := range p.bindings {
		match := p.bindings[i].match
		if match == nil || of(match) == nil || of(match).Label == nil {
			return nil
		}
		out = append(out, *of(match).Label)
	}
	return out
}

func (x index) add(n int, key indexKey, namespaces, objects []matching.RequiredLabel) {
	operations := []string{key.operation}
	if key.operation == string(admissionregistrationv1.OperationAll) {
		operations = []string{string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete), string(admissionv1.Connect)}
	}
	for _, key.operation = range operations {
		c := x.byRequest[key]
		if c == nil {
			c = &candidates{byNamespace: labelIndex{}, byObject: labelIndex{}}
			x.byRequest[key] = c
		}
		if len(namespaces) == 0 && len(objects) == 0 {
			c.everything = appendUnique(c.everything, n)
		}
		c.byNamespace.add(n, namespaces)
		c.byObject.add(n, objects)
	}
}

// appendUnique appends a number to numbers that ascend.
func appendUnique(numbers []int, n int) []int {
	if len(numbers) > 0 && numbers[len(numbers)-1] == n {
		return numbers
	}
	return append(numbers, n)
}

// candidates returns the numbers of the policies whose rules name the request's
// resource, in ascending order.
func (x index) candidates(r *request) []int {
	out := x.appendNamed(nil, r, r.Requested.Group, r.Requested.Resource)
	if sent := r.SentResource(); sent.Group != r.Requested.Group || sent.Resource != r.Requested.Resource {
		out = x.appendNamed(out, r, sent.Group, sent.Resource)
	}
	if group, ok := kindversions.OtherGroup(r.Requested.GroupResource()); ok {
		out = x.appendNamed(out, r, group, r.Requested.Resource)
	}
	if len(out) > 1 {
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out
}

func (x index) appendNamed(to []int, r *request, group, resource string) []int {
	// As in k8s.io/apiserver's rules.Matcher: "x/*" includes x itself, "*" no
	// subresource.
	named := [4]string{resource, "*", resource + "/*", "*/*"}
	if r.SubResource != "" {
		named = [4]string{resource + "/" + r.SubResource, "*/" + r.SubResource, resource + "/*", "*/*"}
	}
	for _, group := range [2]string{group, "*"} {
		for _, resource := range named {
			if c := x.byRequest[indexKey{group, resource, string(r.Operation)}]; c != nil {
				to = c.appendTo(to, r)
			}
		}
	}
	return to
}

// appendTo appends the policies that may match the request's namespace and object.
func (c *candidates) appendTo(to []int, r *request) []int {
	to = append(to, c.everything...)
	if len(c.byNamespace) > 0 {
		set, known := r.SelectionLabels()
		for key, values := range c.byNamespace {
			if value, has := set[key]; has {
				to = append(to, values[value]...)
			} else if !known {
				// The label may be there: each of them has to see.
				for _, numbers := range values {
					to = append(to, numbers...)
				}
			}
		}
	}
	// The options of a CONNECT have no labels: no selector selects them.
	if len(c.byObject) > 0 && r.Operation != admissionv1.Connect {
		for _, object := range [...]*payload{&r.object, &r.oldObject} {
			if !object.present() {
				continue
			}
			for key, value := range r.objectLabels(object) {
				to = append(to, c.byObject[key][value]...)
			}
		}
	}
	return to
}

// isExempt reports whether no policy is ever evaluated for the request.
func isExempt(r *request) bool { return IsExempt(r.Requested.GroupResource()) }

// IsExempt reports whether no policy is ever evaluated for requests of a resource.
func IsExempt(resource schema.GroupResource) bool { return matching.IsExempt(resource) }
