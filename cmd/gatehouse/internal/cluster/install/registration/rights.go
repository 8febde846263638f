package registration

import (
	"cmp"
	"slices"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// injectCAFrom asks cert-manager to fill in the caBundle of a configuration
// from a Certificate, NAMESPACE/NAME.
const injectCAFrom = certmanagerv1.WantInjectAnnotation

// facts are what the templates of the parts ask. GrantsCertificates is true unless somebody else says whom to trust.
type facts struct {
	*Options

	// Account is who Gatehouse is to the API server.
	Account                             string
	GrantsCertificates, NeedsNamespaces bool
	Resources, DNSNames, IPAddresses    []string
	ManagedNames, NewPodNames           []string
	ExcludedAnnotation, InjectCAFrom    string
	MutatingNames, RestrictedGroups     []string
	IncludedAnnotation                  string
	MaxRules                            int
	GrantPolicy                         string
	// GrantGroups are the indexes of the groups of a Grant.
	GrantGroups []int
}

func (o *Options) facts() facts {
	f := facts{
		Options: o, Account: cmp.Or(o.ServiceAccount, o.Name),
		GrantsCertificates: o.grantsCertificateRights(), NeedsNamespaces: o.needsNamespaces(), Resources: install.CustomResources(),
		ManagedNames: slices.Concat(MutatingNames(), ValidatingNames()), NewPodNames: []string{AskedMutate, DefaultMutate},
		MutatingNames: MutatingNames(), RestrictedGroups: restrictedGroups(), IncludedAnnotation: IncludedResources,
		GrantPolicy:        install.GrantPolicy,
		ExcludedAnnotation: ExcludedNamespaces, InjectCAFrom: injectCAFrom, MaxRules: MaxRules,
	}
	for i := range v1alpha1.MaxGrantGroups {
		f.GrantGroups = append(f.GrantGroups, i)
	}
	f.DNSNames, f.IPAddresses = o.Server.names()
	return f
}

// binding is the binding of a role to the account, in a namespace or, without one, of a cluster role.
type binding struct {
	facts

	Kind, In, Role string
}

// Bind returns the binding of a role that has this ending behind the name of the install.
func (f facts) Bind(kind, namespace, ending string) binding {
	return binding{f, kind, namespace, f.Name + "-" + ending}
}

// grantsRights reports whether the documents have RBAC objects.
func (o *Options) grantsRights() bool { return o.grantsCertificateRights() || o.CustomResources }

// grantsCertificateRights reports whether they have RBAC objects for certificates: with a CA bundle, somebody else renews the
// certificate and says whom to trust.
func (o *Options) grantsCertificateRights() bool { return len(o.CABundle) == 0 }

// needsNamespaces reports whether there are, or may be, policies or profiles.
func (o *Options) needsNamespaces() bool {
	return o.Spec == nil || o.CustomResources || len(o.Spec.Policy.Policies)+len(o.Spec.Policy.AdmissionPolicies)+len(o.Spec.Mutation.Policies)+len(o.Spec.Sidecar.Profiles) > 0
}

// ForAudit returns the RBAC objects for serve --audit-every, with the rights to what is audited. It needs the names of the options alone.
func ForAudit(o Options, audited []rbacv1.PolicyRule) (Document, error) {
	return render(PartRights, "audit", struct {
		facts

		ReportName string
		Audited    []rbacv1.PolicyRule
	}{o.facts(), install.ReportName(o.Namespace), audited})
}

// serve returns the command line of serve that the rights are for, "" without them.
func (o *Options) serve() string {
	if !o.grantsRights() {
		return ""
	}
	words := []string{"gatehouse serve"}
	add := func(is bool, flags ...string) {
		if is {
			words = append(words, flags...)
		}
	}
	add(o.isByDirectory(), "--config DIR")
	add(o.CustomResources, "--custom-resources")
	add(o.Logouts, "--back-channel-logout 24h")
	add(o.Managed, "--manage-registration")
	add(true, "--in-cluster")
	add(o.SelfSigned, "--self-signed", strings.Join(slices.Concat(o.Server.names()), ","), "--self-signed-secret", o.Namespace+"/"+o.Name+"-ca")
	add(!o.SelfSigned, "--tls-cert FILE --tls-key FILE")
	add(o.Name != install.DefaultRegistration || o.byCertManager(), "--registration", o.Name)
	return strings.Join(words, " ")
}

// ForDrill returns the ClusterRole of those who run drill, which lists these resources.
func ForDrill(o Options, resources []schema.GroupVersionResource) (Document, error) {
	var rules []rbacv1.PolicyRule
	for _, r := range resources {
		if last := len(rules) - 1; last >= 0 && rules[last].APIGroups[0] == r.Group {
			rules[last].Resources = append(rules[last].Resources, r.Resource)
			continue
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{"list"}})
	}
	return render(PartRights, "drill", struct {
		Name string
		Read []rbacv1.PolicyRule
	}{o.Name, rules})
}
