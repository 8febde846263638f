package validation

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
)

// namedVersions are the versions of a resource that policies name, each with the
// first policy that names it.
type namedVersions map[schema.GroupResource]map[string]string

// maxNamed bounds how many combinations of group, resource and version are looked
// at, of all policies together: what a rule says is the product of its lists, and
// these are warnings only. Policies say far less.
const maxNamed = 10_000

// Policy is a policy whose spec has its defaults, and the reporter of its document.
type Policy struct {
	Reporter
	Kind, Name string
	Spec       *admissionregistrationv1.ValidatingAdmissionPolicySpec
}

// CheckVersions warns about policies that name a resource in other versions than
// another policy does: a webhook is sent an object in one version, and not every
// object can be converted here. What cannot be judged then is a matter of the
// failurePolicy, and skipped if that is Ignore.
func CheckVersions(policies []*Policy) {
	named, left := namedVersions{}, maxNamed
	for _, p := range policies {
		named.add(p, &left)
	}
	sorted := map[schema.GroupResource][]string{}
	for resource, versions := range named {
		sorted[resource] = slices.Sorted(maps.Keys(versions))
	}
	left = maxNamed
	for _, p := range policies {
		if p.Spec.MatchConstraints == nil || *p.Spec.MatchConstraints.MatchPolicy == admissionregistrationv1.Exact {
			continue
		}
		own := namedVersions{}
		own.add(p, &left)
		for resource, versions := range own {
			for _, other := range sorted[resource] {
				if versions["*"] != "" || versions[other] != "" || own.convertible(resource, other) {
					continue
				}
				p.Warnf(field.NewPath("spec", "matchConstraints", "resourceRules"), "name the same versions in all policies",
					"%s names version %q of %q, and objects that are sent in it cannot be converted for this policy: failurePolicy decides",
					named[resource][other], other, resource.String())
				break
			}
		}
	}
}

// add adds what a policy names, but for wildcards and what no API server serves,
// while there is some left.
func (n namedVersions) add(p *Policy, left *int) {
	if p.Spec.MatchConstraints == nil {
		return
	}
	for i := range p.Spec.MatchConstraints.ResourceRules {
		rule := &p.Spec.MatchConstraints.ResourceRules[i]
		for _, group := range rule.APIGroups {
			for _, name := range rule.Resources {
				if *left -= 1 + len(rule.APIVersions); *left < 0 {
					return
				}
				name, _, _ = strings.Cut(name, "/")
				if group == "*" || name == "*" {
					continue
				}
				key := schema.GroupResource{Group: group, Resource: name}
				if n[key] == nil {
					n[key] = map[string]string{}
				}
				known := kindversions.Versions(group, name)
				for _, version := range rule.APIVersions {
					if n[key][version] == "" && (known == nil || version == "*" || slices.Contains(known, version)) {
						n[key][version] = p.Kind + "/" + p.Name
					}
				}
			}
		}
	}
}

// convertible reports whether an object in a version can be converted to one that is
// named.
func (n namedVersions) convertible(resource schema.GroupResource, version string) bool {
	known := kindversions.Versions(resource.Group, resource.Resource)
	if known == nil {
		return false
	}
	possible := []string{version}
	if version == "*" {
		possible = known
	}
	for _, sent := range possible {
		ok := false
		for to := range n[resource] {
			ok = ok || kindversions.Convertible(resource.WithVersion(sent), resource.WithVersion(to))
		}
		if !ok {
			return false
		}
	}
	return true
}
