// Package versions lists the resources of Kubernetes that are served in several versions
// or API groups, and converts objects between them.
//
// The API server converts the object of a request to the version that a policy names. It
// sends a webhook only one version. For policies that name another, this package converts
// the object, for the kinds that Kubernetes itself serves.
package versions

import (
	"cmp"
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource in one version.
type Resource struct {
	schema.GroupVersionResource
	// Standard is true if API servers serve the version unless told otherwise, and
	// false if they serve it only where --runtime-config says so.
	Standard bool
}

// served is a version of a resource.
type served struct {
	group, version string
	standard       bool
	// schema is equal for versions that differ in apiVersion alone.
	schema int
}

const (
	autoscalingGroup = "autoscaling"
	eventsGroup      = "events.k8s.io"
)

//go:embed resources.txt
var resourcesText string

// resources returns the versions of every resource of Kubernetes.
//
//nolint:gochecknoglobals // it is immutable, and read once
var resources = sync.OnceValue(func() map[schema.GroupResource][]served {
	out := map[schema.GroupResource][]served{}
	for line := range strings.Lines(resourcesText) {
		name, versions, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		resource := schema.ParseGroupResource(name)
		for version := range strings.FieldsSeq(versions) {
			v := served{group: resource.Group}
			version, number, _ := strings.Cut(version, "#")
			v.schema, _ = strconv.Atoi(number)
			version, onRequest := strings.CutSuffix(version, "?")
			v.standard, v.version = !onRequest, version
			if group, inGroup, other := strings.Cut(version, "/"); other {
				v.group, v.version = group, inGroup
			}
			out[resource] = append(out[resource], v)
		}
	}
	return out
})

// Resources returns the resources that Kubernetes 1.35 to 1.37 serve, in a fixed order.
func Resources() []schema.GroupResource {
	return slices.SortedFunc(maps.Keys(resources()), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
}

// Of returns the resource and those that are equivalent to it, in the order in
// which the API server looks through them. It returns nil if the resource is not
// one that Kubernetes 1.35 to 1.37 serve: nothing is known about it then.
func Of(resource schema.GroupVersionResource) []Resource {
	versions := resources()[resource.GroupResource()]
	if !slices.ContainsFunc(versions, func(v served) bool { return v.group == resource.Group && v.version == resource.Version }) {
		return nil
	}
	out := make([]Resource, len(versions))
	for i, v := range versions {
		out[i] = Resource{schema.GroupVersionResource{Group: v.group, Version: v.version, Resource: resource.Resource}, v.standard}
	}
	return out
}

// Versions returns the versions in which Kubernetes 1.35 to 1.37 can serve a
// resource, newest first, or nil if it is none of Kubernetes.
func Versions(group, resource string) []string {
	var out []string
	for _, v := range resources()[schema.GroupResource{Group: group, Resource: resource}] {
		if v.group == group {
			out = append(out, v.version)
		}
	}
	return out
}

// OtherGroup returns the other API group that has the same objects, and false if
// there is none.
func OtherGroup(resource schema.GroupResource) (string, bool) {
	if resource.Resource != "events" {
		return "", false
	}
	switch resource.Group {
	case "":
		return eventsGroup, true
	case eventsGroup:
		return "", true
	default:
		return "", false
	}
}

// Serves reports whether Kubernetes 1.35 to 1.37 can serve the kind in its
// version. It is known for the groups of Kubernetes alone.
func Serves(kind schema.GroupVersionKind) (serves, known bool) {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	versions := resources()[plural.GroupResource()]
	if versions == nil {
		known = kind.Group == autoscalingGroup || kind.Group == eventsGroup
		for resource, versions := range resources() {
			known = known || resource.Group == kind.Group && len(versions) == 1 && versions[0].standard
		}
		return false, known
	}
	return slices.ContainsFunc(versions, func(v served) bool { return v.group == kind.Group && v.version == kind.Version }), true
}

// Convertible reports whether Convert converts objects between the two.
func Convertible(from, to schema.GroupVersionResource) bool {
	if from == to {
		return true
	}
	a, b := servedVersion(from), servedVersion(to)
	if a == nil || b == nil || from.Resource != to.Resource {
		return false
	}
	switch {
	case from.Group != to.Group:
		return from.Resource == "events"
	case from.Group == autoscalingGroup:
		return true
	default:
		return a.schema == b.schema
	}
}

func servedVersion(resource schema.GroupVersionResource) *served {
	for _, v := range resources()[resource.GroupResource()] {
		if v.group == resource.Group && v.version == resource.Version {
			return &v
		}
	}
	return nil
}
