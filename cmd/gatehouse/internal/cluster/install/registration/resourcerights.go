package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	// resourcesRole is behind the name of the roles for custom resources.
	resourcesRole = "-resources"

	definitionsGroup = "apiextensions.k8s.io"
)

// resourceRights are what is needed to use custom resources, and to notify people
// what became of them.
func (o *Options) resourceRights(subject rbacv1.Subject) []Document {
	group := v1alpha1.GroupVersion.Group
	objects := rule(group, "", "", "get", "list", "watch")
	status := rule(group, "", "", "patch")
	definitions := rule(definitionsGroup, "", "customresourcedefinitions", "get")
	objects.Resources, status.Resources = nil, nil
	for _, resource := range install.CustomResources() {
		objects.Resources = append(objects.Resources, resource)
		status.Resources = append(status.Resources, resource+"/status")
		definitions.ResourceNames = append(definitions.ResourceNames, resource+"."+group)
	}
	registrations := rule(admissionregistrationv1.GroupName, o.Name, "mutatingwebhookconfigurations", "list", "watch")
	registrations.Resources = append(registrations.Resources, "validatingwebhookconfigurations")
	name := o.Name + resourcesRole
	rights := []right{
		{
			rule:   objects,
			reason: "list, watch: Gatehouse is ready once it has read them, and activates changes within two seconds.\nget: the latest version of an object, before its status is written again.",
		},
		{
			rule:   status,
			reason: "patch: conditions, the results of audits and counts of pods, and when an access token was last used. Decisions do not depend on it.",
		},
		{
			rule:   definitions,
			reason: "get: whether the definitions match this version. Without this right, Gatehouse does not check that.",
		},
		{
			rule:   registrations,
			reason: "list, watch: to report in a policy's status that the API server does not send requests that it matches.",
		},
		{
			rule: rule(corev1.GroupName, "", "events", "create", "patch"),
			reason: `create: problems of an object, for kubectl events. The Event about a PolicyException is in its
namespace, which may be any, and those about cluster-scoped objects are in "default".
patch: to count repeated Events. Nothing else depends on either.`,
		},
	}
	if o.CountPods {
		rights = append(rights, right{
			rule: rule(corev1.GroupName, "", "pods", "list"),
			reason: `list: one replica counts how many pods each SidecarProfile matches, and how many have its current version.
These are pods of all namespaces, because a profile can match any of them.`,
		})
	}
	writes := "only their status"
	if o.Logouts {
		writes += ", and the TokenRevocations of logouts"
		rights = append(rights, right{
			rule:   rule(group, "", "tokenrevocations", "create", "delete"),
			reason: "create: the logouts of JWT issuers, on all replicas.\ndelete: those that are older than serve --back-channel-logout, by the label gatehouse.dev/logout.",
		})
	}
	list := role("What Gatehouse may do with its custom resources. It writes "+writes+".", "", name, subject, rights...)
	return append(list, role("What the replicas of Gatehouse report to each other about custom resources.", o.Namespace, name, subject, right{
		rule: rule(coordinationv1.GroupName, "", "leases", "create", "delete", "get", "list", "patch", "update"),
		reason: `create, get, update: one replica is elected to write status and Events, audit and count pods.
patch: each replica reports in its own Lease which version of each object it uses.
list: whether all replicas use an object.
delete: its own report when a replica stops, and those of replicas that are gone.`,
	})...)
}
