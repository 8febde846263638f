package registration

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
)

const (
	// authoritySecret is behind the name of the Secret with the CA.
	authoritySecret = "-ca"
	// servingSecret is behind the name of the Secret that cert-manager writes.
	servingSecret = "-tls"
	// leaderLease is behind the name of the Lease of the election.
	leaderLease = "-leader"
	// contextRole is behind the name of the role for what policies look up.
	contextRole = "-context"
	// managementRole is behind the name of the role for rules and selectors.
	managementRole = "-registration"
	// certificatesRole is behind the name of all other roles.
	certificatesRole = "-certificates"

	secretsResource = "secrets"
)

// right is a rule of a role, and why each of its verbs is needed.
type right struct {
	rule   rbacv1.PolicyRule
	reason string
}

// grantsRights reports whether the documents have RBAC objects.
func (o *Options) grantsRights() bool { return o.grantsCertificateRights() || o.CustomResources }

// grantsCertificateRights reports whether they have RBAC objects for certificates.
func (o *Options) grantsCertificateRights() bool { return o.Rights || o.SelfSigned }

// rights returns the ServiceAccount and the RBAC objects that serve needs, and nothing more.
func (o *Options) rights() []Document {
	account := cmp.Or(o.ServiceAccount, o.Name)
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: o.Namespace}
	var list []Document
	if o.ServiceAccount == "" {
		list = append(list, Document{
			comment: "The ServiceAccount of Gatehouse's pods.",
			object: &corev1.ServiceAccount{
				TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: rbacv1.ServiceAccountKind},
				ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: o.Namespace},
			},
		})
	}
	if o.grantsCertificateRights() {
		list = append(list, o.certificateRights(subject)...)
	}
	if o.CustomResources {
		list = append(list, o.resourceRights(subject)...)
	}
	if o.Managed {
		list = append(list, o.managementRights(subject)...)
	}
	if o.needsNamespaces() {
		list = append(list, role(`What policies and profiles look up with "serve --in-cluster". Params, presets and the authorizer need
more, which depends on the documents (docs/policy.md).`, "", o.Name+contextRole, subject, right{
			rule:   rule(corev1.GroupName, "", "namespaces", "get", "list", "watch"),
			reason: "list, watch: Gatehouse is ready once it has read them, and follows changes of their labels.\nget: the namespace of a review, if it was created just before.",
		})...)
	}
	return list
}

// certificateRights returns the RBAC objects for certificates.
func (o *Options) certificateRights(subject rbacv1.Subject) []Document {
	name := o.Name + certificatesRole
	var list []Document
	events := right{
		rule:   rule(corev1.GroupName, "", "events", "create", "patch"),
		reason: "create: changes of the CA and of the webhook configurations, and failed ones, for kubectl events.\npatch: to count repeated Events. Nothing else depends on either.",
	}
	if o.SelfSigned {
		list = append(list, role("What Gatehouse may do in its own namespace, for its certificates.", o.Namespace, name, subject, append(sharedState(o.Name+authoritySecret), events)...)...)
	}
	if !o.SelfSigned || o.Namespace != metav1.NamespaceDefault {
		list = append(list, role("Events about cluster-scoped objects are in this namespace.", metav1.NamespaceDefault, name, subject, events)...)
	}
	return append(list, role("What Gatehouse may do with its registration.", "", name, subject, o.registrationRight())...)
}

// managementRights returns the right to write rules and selectors.
func (o *Options) managementRights(subject rbacv1.Subject) []Document {
	r := right{
		rule: rule(admissionregistrationv1.GroupName, o.Name, "mutatingwebhookconfigurations", "patch"),
		reason: `patch: the elected replica writes rules and selectors of its webhooks, as policies and profiles need them. The
ValidatingAdmissionPolicy ` + o.Name + guardEnding + ` restricts it to that.`,
	}
	r.rule.Resources = append(r.rule.Resources, "validatingwebhookconfigurations")
	return role("What Gatehouse may do with serve --manage-registration.", "", o.Name+managementRole, subject, r)
}

// needsNamespaces reports whether there are, or may be, policies or profiles.
func (o *Options) needsNamespaces() bool {
	return o.Spec == nil || o.CustomResources || len(o.Spec.Policy.Policies)+len(o.Spec.Policy.AdmissionPolicies)+len(o.Spec.Mutation.Policies)+len(o.Spec.Sidecar.Profiles) > 0
}

// sharedState returns the rights for the CA that replicas share, and for the election of the one that rotates it.
func sharedState(secret string) []right {
	return []right{
		{
			rule: rule(corev1.GroupName, secret, secretsResource, "get", "update"),
			reason: `get: the CA and its key, which all replicas share.
update: the steps of a rotation, and repairs of damaged data, by the elected replica.`,
		},
		{
			rule: rule(corev1.GroupName, "", secretsResource, "create"),
			reason: `create: the first replica creates it, and the elected one does if it is deleted. This cannot be limited to a name: leave the
rule out if you make the Secret "` + secret + `" yourself, without data, and make sure that it stays.`,
		},
		{
			rule:   rule(coordinationv1.GroupName, "", "leases", "create"),
			reason: "create: the Lease by which one replica is elected. This cannot be limited to a name.",
		},
		{
			rule:   rule(coordinationv1.GroupName, install.DefaultGroup+leaderLease, "leases", "get", "update"),
			reason: "get, update: the elected replica rotates the CA and writes the webhook configurations.",
		},
	}
}

// registrationRight returns the right to the webhook configurations.
func (o *Options) registrationRight() right {
	r := right{
		rule:   rule(admissionregistrationv1.GroupName, o.Name, "mutatingwebhookconfigurations", "list", "watch"),
		reason: "list, watch: Gatehouse is ready once the API server trusts the certificate that is served.",
	}
	r.rule.Resources = append(r.rule.Resources, "validatingwebhookconfigurations")
	if o.SelfSigned {
		r.rule.Verbs = []string{"list", "patch", "watch"}
		r.reason += "\npatch: the elected replica writes caBundle, and restores it when another client changes it."
	}
	return r
}

// rule returns a rule about a resource, of one name or all.
func rule(group, name, resource string, verbs ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	if name != "" {
		r.ResourceNames = []string{name}
	}
	return r
}

// role returns a role and its binding: in a namespace, or without one a cluster role.
func role(comment, namespace, name string, subject rbacv1.Subject, rights ...right) []Document {
	d := Document{comment: comment}
	var rules []rbacv1.PolicyRule
	for _, r := range rights {
		rules = append(rules, r.rule)
		d.reasons = append(d.reasons, r.reason)
	}
	typed := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	subjects := []rbacv1.Subject{subject}
	if namespace == "" {
		d.object = &rbacv1.ClusterRole{TypeMeta: typed("ClusterRole"), ObjectMeta: meta, Rules: rules}
		return []Document{d, {object: &rbacv1.ClusterRoleBinding{TypeMeta: typed("ClusterRoleBinding"), ObjectMeta: meta, RoleRef: ref("ClusterRole"), Subjects: subjects}}}
	}
	d.object = &rbacv1.Role{TypeMeta: typed("Role"), ObjectMeta: meta, Rules: rules}
	return []Document{d, {object: &rbacv1.RoleBinding{TypeMeta: typed("RoleBinding"), ObjectMeta: meta, RoleRef: ref("Role"), Subjects: subjects}}}
}

// serve returns the command line of serve that the rights are for, "" without them.
func (o *Options) serve() string {
	if !o.grantsRights() {
		return ""
	}
	words := []string{"gatehouse serve"}
	if o.Spec != nil || !o.CustomResources {
		words = append(words, "--config DIR")
	}
	if o.CustomResources {
		words = append(words, "--custom-resources")
		if o.CountPods {
			words = append(words, "--count-pods-every 5m")
		}
		if o.Logouts {
			words = append(words, "--back-channel-logout 24h")
		}
	}
	if o.Managed {
		words = append(words, "--manage-registration")
	}
	words = append(words, "--in-cluster")
	switch {
	case o.SelfSigned:
		words = append(words,
			"--self-signed", strings.Join(slices.Concat(o.Server.names()), ","),
			"--self-signed-secret", o.Namespace+"/"+o.Name+authoritySecret)
	default:
		words = append(words, "--tls-cert FILE --tls-key FILE")
	}
	if o.Name != defaultName || o.Rights && !o.SelfSigned {
		words = append(words, "--registration", o.Name)
	}
	return strings.Join(words, " ")
}
