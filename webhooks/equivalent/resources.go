// Package equivalent knows which resources of Kubernetes are the same objects in
// several versions or API groups, and converts objects between them.
//
// The API server converts the object of a request to the version that a policy
// names. To a webhook it sends one version, which suits one of the policies. What
// the others need is converted here, for the kinds that Kubernetes itself serves.
package equivalent

import (
	"slices"
	"strings"

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

// several returns the resources that Kubernetes 1.35 to 1.37 serve in other versions
// than v1 alone, in the order in which API servers look through the versions.
// Events of both groups are the same objects.
func several(resource schema.GroupResource) []served {
	beta := func(versions ...string) []served {
		out := []served{{resource.Group, "v1", true, 0}}
		for _, v := range versions {
			out = append(out, served{resource.Group, v, false, 0})
		}
		return out
	}
	switch resource {
	case schema.GroupResource{Group: autoscalingGroup, Resource: "horizontalpodautoscalers"}:
		return []served{{autoscalingGroup, "v2", true, 2}, {autoscalingGroup, "v1", true, 1}}
	case schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: eventsGroup, Resource: "events"}:
		return []served{{"", "v1", true, 0}, {eventsGroup, "v1", true, 1}}
	}
	switch resource.String() {
	case "clustertrustbundles.certificates.k8s.io":
		return beta("v1beta1", "v1alpha1")
	case "podcertificaterequests.certificates.k8s.io":
		return []served{{resource.Group, "v1", true, 0}, {resource.Group, "v1beta1", false, 1}}
	case "leasecandidates.coordination.k8s.io":
		return []served{{resource.Group, "v1beta1", false, 0}, {resource.Group, "v1alpha2", false, 0}}
	case "storageversions.internal.apiserver.k8s.io", "evictionrequests.lifecycle.k8s.io", "evictions.lifecycle.k8s.io":
		return []served{{resource.Group, "v1alpha1", false, 0}}
	case "ipaddresses.networking.k8s.io", "servicecidrs.networking.k8s.io", "volumeattributesclasses.storage.k8s.io",
		"storageversionmigrations.storagemigration.k8s.io":
		return beta("v1beta1")
	case "deviceclasses.resource.k8s.io":
		return beta("v1beta2", "v1beta1")
	case "devicetaintrules.resource.k8s.io":
		return beta("v1beta2", "v1alpha3")
	case "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io", "resourceslices.resource.k8s.io":
		return append(beta("v1beta2"), served{resource.Group, "v1beta1", false, 1})
	case "resourcepoolstatusrequests.resource.k8s.io":
		return []served{{resource.Group, "v1alpha3", false, 0}}
	case "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io":
		return []served{
			{resource.Group, "v1beta1", false, 0},
			{resource.Group, "v1alpha3", false, 0},
			{resource.Group, "v1alpha2", false, 2},
			{resource.Group, "v1alpha1", false, 1},
		}
	case "compositepodgroups.scheduling.k8s.io":
		return []served{{resource.Group, "v1alpha3", false, 0}}
	default:
		return nil
	}
}

// inV1Alone returns the resources of the groups of Kubernetes that are served in v1
// and in no other version.
func inV1Alone(group string) string {
	switch group {
	case "":
		return "bindings componentstatuses configmaps endpoints limitranges namespaces nodes persistentvolumeclaims persistentvolumes " +
			"pods podtemplates replicationcontrollers resourcequotas secrets serviceaccounts services"
	case "apiextensions.k8s.io":
		return "customresourcedefinitions"
	case "apiregistration.k8s.io":
		return "apiservices"
	case "apps":
		return "controllerrevisions daemonsets deployments replicasets statefulsets"
	case "batch":
		return "cronjobs jobs"
	case "certificates.k8s.io":
		return "certificatesigningrequests"
	case "coordination.k8s.io":
		return "leases"
	case "discovery.k8s.io":
		return "endpointslices"
	case "flowcontrol.apiserver.k8s.io":
		return "flowschemas prioritylevelconfigurations"
	case "networking.k8s.io":
		return "ingressclasses ingresses networkpolicies"
	case "node.k8s.io":
		return "runtimeclasses"
	case "policy":
		return "poddisruptionbudgets"
	case "rbac.authorization.k8s.io":
		return "clusterrolebindings clusterroles rolebindings roles"
	case "scheduling.k8s.io":
		return "priorityclasses"
	case "storage.k8s.io":
		return "csidrivers csinodes csistoragecapacities storageclasses volumeattachments"
	default:
		return ""
	}
}

// InV1Alone reports whether everything in the API group is served in v1 and in no
// other version, so that a rule that names another matches nothing.
func InV1Alone(group string) bool {
	switch group {
	case "", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "batch", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io",
		"node.k8s.io", "policy", "rbac.authorization.k8s.io":
		return true
	default:
		return false
	}
}

// versionsOf returns the versions of a resource of Kubernetes.
func versionsOf(resource schema.GroupResource) []served {
	if versions := several(resource); versions != nil {
		return versions
	}
	for name := range strings.SplitSeq(inV1Alone(resource.Group), " ") {
		if name == resource.Resource && name != "" {
			return []served{{resource.Group, "v1", true, 0}}
		}
	}
	return nil
}

// Of returns the resource and those that are equivalent to it, in the order in
// which the API server looks through them. It returns nil if the resource is not
// one that Kubernetes 1.35 to 1.37 serve: nothing is known about it then.
func Of(resource schema.GroupVersionResource) []Resource {
	versions := versionsOf(resource.GroupResource())
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
	for _, v := range versionsOf(schema.GroupResource{Group: group, Resource: resource}) {
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
	versions := versionsOf(plural.GroupResource())
	if versions == nil {
		return false, inV1Alone(kind.Group) != "" || kind.Group == autoscalingGroup || kind.Group == eventsGroup
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
	for _, v := range several(resource.GroupResource()) {
		if v.group == resource.Group && v.version == resource.Version {
			return &v
		}
	}
	return nil
}
