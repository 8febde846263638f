package registration

import (
	"cmp"

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
)

// auditRole is behind the name of the role for audits.
const auditRole = "-audit"

// AuditOptions say whose rights ForAudit returns. Name, Namespace and Rules are required.
type AuditOptions struct {
	// Name is that of the install, and Namespace that of its pods.
	Name, Namespace string
	// ServiceAccount is that of its pods, "" for one with the name of the install.
	ServiceAccount string
	// Rules are the rights to what is audited.
	Rules []rbacv1.PolicyRule
}

// ForAudit returns the RBAC objects for serve --audit-every.
func ForAudit(o AuditOptions) []Document {
	rights := reportRights(o.Namespace)
	for i, r := range o.Rules {
		reason := ""
		if i == 0 {
			reason = "list: the objects that the active policies and profiles match, and nothing else. Run gatehouse manifests --audit\nagain when they match others: the log, the status of policies and the ClusterReport name a right that is missing."
		}
		rights = append(rights, right{rule: r, reason: reason})
	}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: cmp.Or(o.ServiceAccount, o.Name), Namespace: o.Namespace}
	return role("What Gatehouse may do to audit existing objects. No decision depends on it.", "", o.Name+auditRole, subject, rights...)
}

// reportRights returns the rights to the reports of an install in a namespace.
func reportRights(namespace string) []right {
	groups, resources := []string{v1alpha1.GroupName}, []string{"reports", "clusterreports"}
	return []right{{
		rule: rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: []string{"create", "list"}},
		reason: `create: one report for each namespace with violations, and one for the cluster.
list: to find its own.`,
	}, {
		rule: rbacv1.PolicyRule{APIGroups: groups, Resources: resources, ResourceNames: []string{install.ReportName(namespace)}, Verbs: []string{"delete", "patch"}},
		reason: `patch: its own reports alone.
delete: when there are no violations any more.`,
	}}
}
