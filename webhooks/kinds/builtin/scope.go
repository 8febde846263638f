package builtin

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IsClusterScoped reports whether objects of a kind of Kubernetes are not in namespaces. It returns false for other kinds.
func IsClusterScoped(kind schema.GroupKind) bool {
	switch kind.Group {
	case "":
		switch kind.Kind {
		case "ComponentStatus", "Namespace", "Node", "PersistentVolume":
			return true
		}
	case "authorization.k8s.io":
		return kind.Kind != "LocalSubjectAccessReview"
	case "certificates.k8s.io":
		return kind.Kind != "PodCertificateRequest"
	case "networking.k8s.io":
		switch kind.Kind {
		case "IngressClass", "IPAddress", "ServiceCIDR":
			return true
		}
	case "policy":
		return kind.Kind == "PodSecurityPolicy"
	case "rbac.authorization.k8s.io":
		return strings.HasPrefix(kind.Kind, "Cluster")
	case "resource.k8s.io":
		return !strings.HasPrefix(kind.Kind, "ResourceClaim")
	case "scheduling.k8s.io":
		return kind.Kind == "PriorityClass"
	case "storage.k8s.io":
		return kind.Kind != "CSIStorageCapacity"
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io", "flowcontrol.apiserver.k8s.io", "imagepolicy.k8s.io",
		"internal.apiserver.k8s.io", "node.k8s.io", "storagemigration.k8s.io":
		return true
	}
	return false
}
