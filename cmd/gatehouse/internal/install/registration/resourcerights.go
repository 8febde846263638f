package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	// resourcesRole is behind the name of the roles for custom resources.
	resourcesRole = "-resources"

	definitionsGroup = "apiextensions.k8s.io"
)

// resourceRights are what is needed to use custom resources, and to tell people
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
			reason: "list, watch: Gatehouse is ready once it has read them, and uses what changes within two seconds.\nget: one object anew, before its status is written again.",
		},
		{
			rule:   status,
			reason: "patch: conditions and counts, and when an access token was last used. Nothing that is decided depends on it.",
		},
		{
			rule:   definitions,
			reason: "get: whether the definitions are those of this version. Without it that is not told.",
		},
		{
			rule:   registrations,
			reason: "list, watch: to tell of a policy in its status that the API server does not send what it is about.",
		},
		{
			rule: rule(corev1.GroupName, "", "events", "create", "patch"),
			reason: `create: what people should notice of an object, for kubectl events. The Event about a PolicyException is in its
namespace, which may be any, and those about what is in no namespace are in "default".
patch: to count what happens again. Nothing depends on either.`,
		},
	}
	if o.CountPods {
		rights = append(rights, right{
			rule: rule(corev1.GroupName, "", "pods", "list"),
			reason: `list: one replica counts now and then how many pods each SidecarProfile matches, and how many have it as it is.
These are pods of all namespaces, for a profile may be about any.`,
		})
	}
	list := role("What Gatehouse may do with its custom resources. It writes their status, and nothing else of them.", "", name, subject, rights...)
	return append(list, role("What the replicas of Gatehouse tell each other about custom resources.", o.Namespace, name, subject, right{
		rule: rule(coordinationv1.GroupName, "", "leases", "create", "delete", "get", "list", "patch", "update", "watch"),
		reason: `create, get, update: one replica is elected to write status and Events.
patch: each replica reports in a Lease of its own which version of each object it uses.
list, watch: whether all of them use an object.
delete: its own report when a replica stops, and those of replicas that are gone.`,
	})...)
}
