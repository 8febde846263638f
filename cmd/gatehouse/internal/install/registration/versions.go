package registration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/equivalent"
)

// versionSets are the versions of each resource that policies name.
type versionSets map[groupResource]map[string]*policyVersions

// groupResource is a group and a resource as a rule names them.
type groupResource struct{ group, resource string }

// policyVersions are the versions that one policy names.
type policyVersions struct {
	versions map[string]bool
	// exact reports whether the policy matches no other versions: it lets them pass.
	exact bool
}

func (v versionSets) add(policy string, rule admissionregistrationv1.Rule, exact bool) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if (atom{group: group, resource: resource}).isExcluded() {
				continue
			}
			key := groupResource{group, resource}
			if v[key] == nil {
				v[key] = map[string]*policyVersions{}
			}
			p := v[key][policy]
			if p == nil {
				p = &policyVersions{versions: map[string]bool{}, exact: exact}
				v[key][policy] = p
			}
			for _, version := range rule.APIVersions {
				p.versions[version] = true
			}
		}
	}
}

// covers reports whether a rule that names k matches everything that is named by
// other.
func (k groupResource) covers(other groupResource) bool {
	return (k.group == all || k.group == other.group) && resourceCovers(k.resource, other.resource)
}

// of are the versions of a resource that each policy matches, in whatever way it
// names the resource, each in one text.
func (v versionSets) of(key groupResource) map[string]*policyVersions {
	out := map[string]*policyVersions{}
	for other, policies := range v {
		if !other.covers(key) {
			continue
		}
		for name, p := range policies {
			if out[name] == nil {
				out[name] = &policyVersions{versions: map[string]bool{}, exact: p.exact}
			}
			maps.Copy(out[name].versions, p.versions)
		}
	}
	for _, p := range out {
		if !p.versions[all] {
			continue
		}
		clear(p.versions)
		if equivalent.InV1Alone(key.group) {
			p.versions["v1"] = true
		} else {
			p.versions[all] = true
		}
	}
	return out
}

func (p *policyVersions) text() string {
	return strings.Join(slices.Sorted(maps.Keys(p.versions)), ", ")
}

// canJudge reports whether a policy that names these versions of a resource can
// judge an object that is sent in another one: Gatehouse converts what Kubernetes
// itself serves in several versions.
func (p *policyVersions) canJudge(key groupResource, sent string) bool {
	resource, _, _ := strings.Cut(key.resource, "/")
	in := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: key.group, Version: version, Resource: resource}
	}
	possible := []string{sent}
	if known := equivalent.Versions(key.group, resource); sent == all && known != nil {
		possible = known
	}
	return !slices.ContainsFunc(possible, func(sent string) bool {
		for version := range p.versions {
			if version == sent || equivalent.Convertible(in(sent), in(version)) {
				return false
			}
		}
		return true
	})
}

// notes are about resources of which policies name different versions. A
// webhook is sent an object in a version that any of them names: a policy that is
// about equivalent objects cannot judge it if it does not name that version, unless
// Gatehouse can convert the object.
func (v versionSets) notes() []string {
	var notes []string
	for key := range v {
		policies := v.of(key)
		sent, texts := map[string]bool{}, map[string]bool{}
		for _, p := range policies {
			maps.Copy(sent, p.versions)
			texts[p.text()] = true
		}
		var lacking []string
		for name, p := range policies {
			if p.exact || p.versions[all] {
				continue
			}
			for version := range sent {
				if !p.canJudge(key, version) {
					lacking = append(lacking, name)
					break
				}
			}
		}
		if len(lacking) == 0 {
			continue
		}
		slices.Sort(lacking)
		first := lacking[0]
		if more := len(lacking) - 1; more > 0 {
			first = fmt.Sprintf("%s and %d more", first, more)
		}
		notes = append(notes, fmt.Sprintf("policies name different versions of %q (%s): an object is sent in one version, and %s cannot judge it in one that is not named there, so that failurePolicy decides (hint: name the same versions everywhere)",
			strings.TrimSuffix(key.resource+"."+key.group, "."), strings.Join(slices.Sorted(maps.Keys(texts)), "; "), first))
	}
	return notes
}
