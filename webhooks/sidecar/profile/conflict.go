package profile

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// CheckNames reports profiles of the same name: the status annotation could not
// distinguish them.
func CheckNames(profiles []Document) diagnostic.List {
	var found diagnostic.List
	first := make(map[string]string, len(profiles))
	for i := range profiles {
		p := &profiles[i]
		source, dup := first[p.Name]
		if !dup {
			first[p.Name] = p.Source
			continue
		}
		found = append(found, errorAt(p, "metadata.name", fmt.Sprintf("%q is also the name of the profile %s", p.Name, origin(source))))
	}
	return found
}

// clusterSource is the Source of profiles that are custom resources.
const clusterSource = "cluster"

// origin describes where a profile is, for a diagnostic of another profile.
func origin(source string) string {
	if source == clusterSource {
		return "in the cluster"
	}
	return fmt.Sprintf("in %q", source)
}

// CheckConflicts reports profiles that can apply to one pod and then add something of the
// same name or declare the same port.
func CheckConflicts(profiles []*Profile) diagnostic.List {
	var (
		found  diagnostic.List
		names  = make(map[string][]*Profile)
		ports  podtext.PortIndex
		owners []*Profile // of ports
	)
	report := func(p, other *Profile, path, what string) {
		found = append(found, diagnostic.Diagnostic{
			Severity: diagnostic.Error, Source: p.source, Object: "SidecarProfile/" + p.Name, Field: path,
			Message: fmt.Sprintf("%s, and so does profile %q %s; both can apply to one pod", what, other.Name, origin(other.source)),
			Hint:    "change one, or give the profiles selectors that exclude each other",
			Others:  "SidecarProfile/" + other.Name,
		})
	}
	for _, p := range profiles {
		var own podtext.Ports
		for l := range podtext.NumLists {
			for i := range p.Elements[l] {
				e := &p.Elements[l][i]
				path := fmt.Sprintf("spec.template.spec.%s[%d]", l, i)
				// Containers and init containers share one space of names.
				key, what := "container/"+e.Name, "container"
				if l == podtext.Volumes {
					key, what = "volume/"+e.Name, "volume"
				}
				for _, other := range names[key] {
					if other.Name != p.Name && CanOverlap(p, other) {
						report(p, other, path+".name", fmt.Sprintf("adds a %s named %q", what, e.Name))
					}
				}
				if all := names[key]; len(all) == 0 || all[len(all)-1] != p {
					names[key] = append(all, p)
				}
				if !e.RunsWithOthers(l) {
					continue
				}
				for k := range e.ports {
					port := e.ports[k]
					port.Container = p.Name + "/" + e.Name // Names are unique in a profile only.
					for i, field := range ports.Conflicts(&port) {
						if other := owners[i]; other.Name != p.Name && CanOverlap(p, other) {
							report(p, other, fmt.Sprintf("%s.ports[%d].%s", path, k, field), "declares "+port.Describe(field))
						}
					}
					own = append(own, port)
				}
			}
		}
		for i := range own {
			ports.Add(&own[i])
			owners = append(owners, p)
		}
	}
	return found
}

// CanOverlap reports whether two profiles can apply to one pod: their selectors do not
// exclude each other for certain, and neither replaces the other.
func CanOverlap(a, b *Profile) bool {
	if a.Replaces == b.Name || b.Replaces == a.Name {
		return false
	}
	return !areDisjoint(a.NamespaceSelector, b.NamespaceSelector) && !areDisjoint(a.ObjectSelector, b.ObjectSelector)
}

func areDisjoint(a, b labels.Selector) bool {
	if a == nil || b == nil {
		return false
	}
	ours, _ := a.Requirements()
	theirs, _ := b.Requirements()
	for i := range ours {
		for k := range theirs {
			if ours[i].Key() == theirs[k].Key() && (excludes(&ours[i], &theirs[k]) || excludes(&theirs[k], &ours[i])) {
				return true
			}
		}
	}
	return false
}

// excludes reports whether a label that satisfies a cannot satisfy b.
func excludes(a, b *labels.Requirement) bool {
	absent := b.Operator() == selection.DoesNotExist
	if a.Operator() == selection.Exists {
		return absent
	}
	if !IsOneOf(a) {
		return false
	}
	values := sets.New(a.ValuesUnsorted()...)
	switch {
	case IsOneOf(b):
		return !values.HasAny(b.ValuesUnsorted()...)
	case b.Operator() == selection.NotIn || b.Operator() == selection.NotEquals:
		return sets.New(b.ValuesUnsorted()...).IsSuperset(values)
	default:
		return absent
	}
}

// IsOneOf reports whether a requirement is satisfied by its values alone.
func IsOneOf(r *labels.Requirement) bool {
	return r.Operator() == selection.In || r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals
}
