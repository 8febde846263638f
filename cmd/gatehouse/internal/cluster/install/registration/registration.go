// Package registration makes the documents that register Gatehouse with an API server:
// webhook configurations, objects of cert-manager for the serving certificate, RBAC, and
// the kubeconfig for token reviews.
//
// It is pure: the command "manifests" reads files and writes results. The same options
// give the same bytes.
//
// The documents must never lock a cluster. So requests that a cluster needs to start are
// never sent to Gatehouse, its own namespace is excluded, and nothing fails closed unless
// it was requested: see docs/concepts/what-the-api-server-sends.md.
package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// Options are the options of the documents.
type Options struct {
	// Name is the name of the configurations, and the beginning of the names of
	// what cert-manager needs. A DNS label of at most 40 characters.
	Name string
	// Namespace is the namespace that Gatehouse runs in. Nothing in it is ever
	// sent to Gatehouse, and what cert-manager needs is put there.
	Namespace string
	// ExcludeNamespaces are further namespaces that nothing is sent from.
	ExcludeNamespaces []string
	// IncludeResources are the resources that Gatehouse may have sent although they are restricted: see the annotation
	// IncludedResources. They need Managed.
	IncludeResources []string
	// Server is where the API server finds Gatehouse.
	Server Server
	// CABundle are the CA certificates, in PEM, that the serving certificate is
	// verified with. Without, Gatehouse or cert-manager issues it, and the documents have
	// who Gatehouse is to the API server and what it may do there.
	CABundle []byte
	// SelfSigned is true if Gatehouse has a CA of its own in a Secret, and writes the
	// caBundle itself. It excludes CABundle.
	SelfSigned bool
	// CustomResources reports whether Gatehouse uses the custom resources of the cluster, with
	// or without documents besides: the rights for that are added, and so is the
	// webhook that checks these objects themselves. Policies and profiles come and go
	// then while the registration stays, so that it is made for any.
	CustomResources bool
	// Logouts adds the right to create and delete TokenRevocations, for serve
	// --back-channel-logout. It needs CustomResources.
	Logouts bool
	// Managed leaves rules and selectors of the webhooks to serve --manage-registration, with the right for that. It needs
	// CustomResources, and excludes Spec.
	Managed bool
	// ServiceAccount is who Gatehouse is to the API server, in Namespace. It exists
	// already. "" is one that has the name of the configurations, and is made.
	ServiceAccount string
	// Spec is the configuration that Gatehouse will serve: only what it acts on
	// is registered. Nil stands for a configuration that is not known.
	Spec *webhooks.Spec
}

// Admission are the documents that register Gatehouse for admission.
type Admission struct {
	// Documents are to be applied in this order.
	Documents []Document
	// Notes are remarks for the person who applies those of PartRegistration: none is
	// about another part.
	Notes []string
	// Serve is the command line of serve that the documents are for, "" if they do
	// not depend on it.
	Serve string
}

// Namespaces that are never sent to Gatehouse: the control plane's own
// components, and the nodes' leases. Nothing that is needed to bring a cluster
// up lives in kube-public.
const (
	systemNamespace = "kube-system"
	leasesNamespace = "kube-node-lease"
	// certManagerNamespace is where cert-manager usually is. It is not left out
	// without being asked, because it may be anybody's.
	certManagerNamespace = "cert-manager"
)

// namespaceName is the label of a namespace that has its name.
const namespaceName = "kubernetes.io/metadata.name"

// ForAdmission returns the webhook configurations for mutating and validating admission.
// The error has all errors of the options.
func ForAdmission(o Options) (Admission, error) {
	if err := o.check(); err != nil {
		return Admission{}, err
	}
	var a Admission
	a.Serve = o.serve()
	for _, part := range []struct {
		part     Part
		template string
		applies  bool
	}{
		{PartRights, "rights", o.grantsRights()},
		{PartGuard, "guard", o.patches()},
		{PartGuard, "grants", o.CustomResources},
		{PartCertificates, "certificates", o.byCertManager()},
	} {
		if !part.applies {
			continue
		}
		d, err := render(part.part, part.template, o.facts())
		if err != nil {
			return Admission{}, err
		}
		a.Documents = append(a.Documents, d)
	}
	if o.byCertManager() && !slices.Contains(o.ExcludeNamespaces, certManagerNamespace) { // from the webhooks
		a.Notes = append(a.Notes, "Gatehouse needs cert-manager to renew its certificate, and its webhooks can block cert-manager: exclude cert-manager's namespace (hint: --exclude-namespace "+certManagerNamespace+")")
	}
	var needs Needs
	if !o.Managed {
		spec := o.Spec
		if spec == nil {
			spec = &webhooks.Spec{}
		}
		var notes []string
		var err error
		if needs, notes, _, err = needsOf(spec, o.isUnknown(), []string{all}); err != nil {
			return Admission{}, err
		}
		a.Notes = append(a.Notes, notes...)
		for name, r := range needs {
			if r.Namespaces != nil || r.Objects != nil {
				a.Notes = append(a.Notes, "the API server evaluates the selector that all policies of the webhook "+name+" have: register again whenever it changes")
			}
		}
		slices.Sort(a.Notes)
		if len(needs) == 0 {
			a.Notes = append(a.Notes, "there is neither an active policy nor a SidecarProfile: nothing is sent to policies and profiles")
		}
	}
	a.Documents = append(a.Documents, o.configurations(needs)...)
	return a, nil
}

// isByDirectory reports whether Gatehouse has documents of a directory.
func (o *Options) isByDirectory() bool { return o.Spec != nil || !o.CustomResources }

// isUnknown reports whether other policies and profiles than those of the configuration may come.
func (o *Options) isUnknown() bool { return o.Spec == nil || o.CustomResources }

// patches reports whether Gatehouse has the right to patch its webhook configurations.
func (o *Options) patches() bool { return o.SelfSigned || o.Managed }

// byCertManager reports whether cert-manager issues the serving certificate.
func (o *Options) byCertManager() bool { return len(o.CABundle) == 0 && !o.SelfSigned }

func (o *Options) check() error {
	var problems []error
	const longestName = 40 // leaves characters for the endings of the Certificates' names
	if len(o.Name) > longestName || len(validation.IsDNS1123Label(o.Name)) > 0 {
		problems = append(problems, fmt.Errorf("name %q: must be a DNS label of at most %d characters (hint: gatehouse)", o.Name, longestName))
	}
	for _, namespace := range append([]string{o.Namespace}, o.ExcludeNamespaces...) {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			problems = append(problems, fmt.Errorf("namespace %q: must be a DNS label", namespace))
		}
	}
	if o.Managed && (!o.CustomResources || o.Spec != nil) {
		problems = append(problems, errors.New("a managed registration needs custom resources, and has no rules of its own"))
	}
	for _, name := range o.IncludeResources {
		if !includedName.MatchString(name) {
			problems = append(problems, fmt.Errorf("included resource %.100q: must be a resource (hint: secrets, roles.rbac.authorization.k8s.io, *.rbac.authorization.k8s.io, or * for everything)", name))
		}
	}
	if len(o.IncludeResources) > 0 && !o.Managed {
		problems = append(problems, errors.New("included resources are for a managed registration (hint: without it, the rules are those of the documents)"))
	}
	if o.ServiceAccount != "" && len(validation.IsDNS1123Subdomain(o.ServiceAccount)) > 0 {
		problems = append(problems, fmt.Errorf("service account %.100q: must be a DNS name in lower case (hint: gatehouse)", o.ServiceAccount))
	}
	if o.Server == (Server{}) {
		problems = append(problems, errors.New("there is no address of the server"))
	}
	return errors.Join(problems...)
}

// Excluded returns the namespaces that nothing is sent from.
func (o *Options) Excluded() []string {
	names := append([]string{o.Namespace, systemNamespace, leasesNamespace}, o.ExcludeNamespaces...)
	if o.Server.Namespace != "" {
		names = append(names, o.Server.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// metadata returns the metadata of a configuration.
func (o *Options) metadata() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: o.Name}
	if o.byCertManager() {
		meta.Annotations = map[string]string{injectCAFrom: o.Namespace + "/" + o.Name}
	}
	if o.Managed {
		metav1.SetMetaDataAnnotation(&meta, ExcludedNamespaces, strings.Join(o.Excluded(), ","))
		if len(o.IncludeResources) > 0 {
			metav1.SetMetaDataAnnotation(&meta, IncludedResources, strings.Join(o.IncludeResources, ","))
		}
	}
	return meta
}

func (o *Options) clientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: o.CABundle}
	if o.Server.Namespace != "" {
		c.Service = &admissionregistrationv1.ServiceReference{
			Namespace: o.Server.Namespace,
			Name:      o.Server.Service,
			Path:      &path,
			Port:      new(o.Server.Port),
		}
		return c
	}
	c.URL = new(o.Server.URL + path)
	return c
}
