package policy

import (
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// index finds the policies that may be about a request without a look at the
// others. It errs only on the side of those that are not.
type index map[indexKey][]int

// indexKey is what a rule says of group, resource and operation, wildcards
// included. A resource may have a subresource: "pods/status".
type indexKey struct{ group, resource, operation string }

// add enters policy number n. Numbers are added in ascending order.
func (x index) add(n int, list []rule) {
	for _, rule := range list {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, operation := range rule.Operations {
					x.enter(n, indexKey{group, resource, string(operation)})
				}
			}
		}
	}
}

func (x index) enter(n int, key indexKey) {
	operations := []string{key.operation}
	if key.operation == string(admissionregistrationv1.OperationAll) {
		operations = []string{string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete), string(admissionv1.Connect)}
	}
	for _, key.operation = range operations {
		if numbers := x[key]; len(numbers) == 0 || numbers[len(numbers)-1] != n {
			x[key] = append(numbers, n)
		}
	}
}

// candidates are the numbers of the policies whose rules name the request's
// resource, in ascending order.
func (x index) candidates(r *request) []int {
	out := x.of(nil, r.requested.Group, r.requested.Resource, r.SubResource, string(r.Operation))
	if sent := r.sent(); sent.Group != r.requested.Group || sent.Resource != r.requested.Resource {
		out = x.of(out, sent.Group, sent.Resource, r.SubResource, string(r.Operation))
	}
	if len(out) > 1 {
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out
}

func (x index) of(to []int, group, resource, subresource, operation string) []int {
	// As in k8s.io/apiserver's rules.Matcher: "x/*" includes x itself, "*" no
	// subresource.
	named := [4]string{resource, "*", resource + "/*", "*/*"}
	if subresource != "" {
		named = [4]string{resource + "/" + subresource, "*/" + subresource, resource + "/*", "*/*"}
	}
	for _, group := range [2]string{group, "*"} {
		for _, resource := range named {
			to = append(to, x[indexKey{group, resource, operation}]...)
		}
	}
	return to
}

// exempt tells whether no policy is ever evaluated for the request. Upstream
// exempts the configuration of admission itself, so that a policy cannot lock
// out its own repair, and reviews, without which nobody could log in,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/pkg/kubeapiserver/admission/exclusion/resources.go.
func exempt(r *request) bool {
	switch r.requested.Group {
	case admissionregistrationv1.GroupName:
		switch r.requested.Resource {
		case "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings",
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
			return true
		}
	case "authentication.k8s.io":
		return r.requested.Resource == "tokenreviews" || r.requested.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		switch r.requested.Resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	}
	return false
}
