package builtin_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
)

func TestIsClusterScoped(t *testing.T) {
	t.Parallel()
	for kind, want := range map[schema.GroupKind]bool{
		{Kind: "Namespace"}:                 true,
		{Kind: "Pod"}:                       false,
		{Group: "apps", Kind: "Deployment"}: false,
		{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:           true,
		{Group: "rbac.authorization.k8s.io", Kind: "Role"}:                  false,
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:   true,
		{Group: "apiregistration.k8s.io", Kind: "APIService"}:               true,
		{Group: "resource.k8s.io", Kind: "DeviceClass"}:                     true,
		{Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"}:           false,
		{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}:               false,
		{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:          true,
		{Group: "example.com", Kind: "Namespace"}:                           false,
		{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}:     false, // its definition says it
		{Group: "authorization.k8s.io", Kind: "LocalSubjectAccessReview"}:   false,
		{Group: "networking.k8s.io", Kind: "IngressClass"}:                  true,
		{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}:         true,
		{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:                 true,
		{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: true,
	} {
		if got := builtin.IsClusterScoped(kind); got != want {
			t.Errorf("%v: got %v", kind, got)
		}
	}
}
