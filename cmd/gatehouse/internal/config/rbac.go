package config

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config/rbac"
)

// The kinds of RBAC, which are context too.
const (
	roleKind           = "Role"
	clusterRole        = "ClusterRole"
	roleBinding        = "RoleBinding"
	clusterRoleBinding = "ClusterRoleBinding"
)

// isRBAC reports whether a kind is one of RBAC. Other groups have kinds of these names too.
func isRBAC(kind string) bool {
	switch kind {
	case roleKind, clusterRole, roleBinding, clusterRoleBinding:
		return true
	default:
		return false
	}
}

// keepRBAC adds an object of RBAC for the authorizer, and reports whether the object is
// one. It is decoded strictly, because a rule with a typing error grants something else.
func (o *object) keepRBAC(gvk schema.GroupVersionKind) bool {
	if gvk.GroupVersion() != rbacv1.SchemeGroupVersion {
		return false
	}
	switch gvk.Kind {
	case roleKind:
		keepAuthorization(o, &o.rbac.Roles)
	case clusterRole:
		keepAuthorization(o, &o.rbac.ClusterRoles)
	case roleBinding:
		keepAuthorization(o, &o.rbac.RoleBindings)
	case clusterRoleBinding:
		keepAuthorization(o, &o.rbac.ClusterRoleBindings)
	default:
		return false
	}
	return true
}

func keepAuthorization[T any](o *object, list *[]rbac.Document[T]) {
	var v T
	if o.decodeInto(&v) {
		*list = append(*list, rbac.Document[T]{Source: o.source, Object: v})
	}
}
