package registration

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
)

// IncludedResources is an annotation of webhook configurations whose rules Gatehouse writes: the resources that it may have sent
// although they are restricted, with commas and named as by kubectl: "secrets", "roles.rbac.authorization.k8s.io", "*.apps" for a group,
// and "*" for everything. Gatehouse's ServiceAccount cannot change it.
//
// Restricted are wildcards; Secrets; and for mutation the groups of restrictedGroups. The guard ensures it: code in a Gatehouse pod
// would otherwise read every Secret as it is written, and change RBAC as an administrator writes it.
const IncludedResources = "gatehouse.dev/included-resources"

// ParseIncluded returns the resources of the annotation IncludedResources.
func ParseIncluded(annotations map[string]string) []string {
	return strings.FieldsFunc(annotations[IncludedResources], func(r rune) bool { return r == ',' })
}

// includedName is a resource of the annotation.
var includedName = regexp.MustCompile(`^(\*|[a-z][-a-z0-9]*|(\*|[a-z][-a-z0-9]*)\.[a-z0-9]([-.a-z0-9]*[a-z0-9])?)$`)

const secrets = "secrets"

// restrictedGroups returns the groups with which a request is given more rights, or sent elsewhere.
func restrictedGroups() []string {
	return []string{"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", v1alpha1.GroupVersion.Group, "rbac.authorization.k8s.io"}
}

// mayInclude reports whether the guard admits the atom in a rule for mutation or validation.
func (a atom) mayInclude(mutates bool, included []string) bool {
	resource, _, _ := strings.Cut(a.resource, "/")
	switch {
	case slices.Contains(included, all):
		return true
	case a.group == all:
		return false
	case slices.Contains(included, all+"."+a.group):
		return true
	case resource == all:
		return false
	case a.group == corev1.GroupName && resource == secrets || mutates && slices.Contains(restrictedGroups(), a.group):
		return slices.Contains(included, schema.GroupResource{Group: a.group, Resource: resource}.String())
	}
	return true
}

// restrict removes what the guard does not admit, and returns the names of that. Of a wildcard, Kubernetes' own resources are left.
func (s *atomSet) restrict(mutates bool, included []string) (leftOut []string) {
	var wildcards []atom
	for a := range s.atoms {
		if a.mayInclude(mutates, included) {
			continue
		}
		delete(s.atoms, a)
		leftOut = append(leftOut, schema.GroupResource{Group: a.group, Resource: strings.TrimSuffix(a.resource, "/"+all)}.String())
		if a.group == all || strings.Contains(a.resource, all) {
			wildcards = append(wildcards, a)
		}
	}
	for _, a := range wildcards {
		name, sub, hasSub := strings.Cut(a.resource, "/")
		for _, r := range kindversions.Resources() {
			if (a.group != all && a.group != r.Group) || (name != all && name != r.Resource) || len(s.atoms) >= maxAtoms {
				continue
			}
			b := a
			if b.group, b.resource = r.Group, r.Resource; hasSub {
				b.resource += "/" + sub
			}
			if b.mayInclude(mutates, included) && !b.isExcluded() {
				s.atoms[b] = true
			}
		}
	}
	return leftOut
}
