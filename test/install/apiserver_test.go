package install

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// apiServer decides with the API server's own code which webhooks it would call: rules and what is equivalent to them,
// selectors of namespaces and objects, match conditions.
type apiServer struct {
	plugin     *generic.Webhook
	namespaces cache.Indexer
	interfaces admission.ObjectInterfaces
	webhooks   []webhook.WebhookAccessor
}

// registrations are the webhook configurations among the objects.
func registrations(t *testing.T, objects []*unstructured.Unstructured) (mutating []*admissionregistrationv1.MutatingWebhookConfiguration, validating []*admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	for _, o := range objects {
		switch o.GetKind() {
		case "MutatingWebhookConfiguration":
			c := &admissionregistrationv1.MutatingWebhookConfiguration{}
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, c, true))
			mutating = append(mutating, c)
		case "ValidatingWebhookConfiguration":
			c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, c, true))
			validating = append(validating, c)
		}
	}
	if len(mutating) == 0 || len(validating) == 0 {
		t.Fatalf("there are %d mutating and %d validating webhook configurations", len(mutating), len(validating))
	}
	return mutating, validating
}

// newAPIServer is an API server with the namespaces, each with its labels besides the one that it puts there itself.
func newAPIServer(t *testing.T, objects []*unstructured.Unstructured, namespaces map[string]map[string]string) *apiServer {
	t.Helper()
	plugin, err := generic.NewWebhook(admission.NewHandler(admission.Create, admission.Update, admission.Delete, admission.Connect), nil,
		func(informers.SharedInformerFactory, sets.Set[schema.GroupResource]) generic.Source { return nil },
		func(*webhookutil.ClientManager) generic.Dispatcher { return nil })
	must(t, err)
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	s := &apiServer{
		plugin: plugin, namespaces: factory.Core().V1().Namespaces().Informer().GetIndexer(),
		interfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
	}
	for name, labels := range namespaces {
		s.setNamespace(t, name, labels)
	}
	mutating, validating := registrations(t, objects)
	for _, c := range mutating {
		for i := range c.Webhooks {
			s.webhooks = append(s.webhooks, webhook.NewMutatingWebhookAccessor(c.Webhooks[i].Name, c.Name, &c.Webhooks[i]))
		}
	}
	for _, c := range validating {
		for i := range c.Webhooks {
			s.webhooks = append(s.webhooks, webhook.NewValidatingWebhookAccessor(c.Webhooks[i].Name, c.Name, &c.Webhooks[i]))
		}
	}
	return s
}

// setNamespace makes or changes a namespace.
func (s *apiServer) setNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	must(t, s.namespaces.Update(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: namespaceLabels(name, labels)}}))
}

// namespaceLabels are the labels of a namespace, with the one that the API server sets whatever somebody else says.
func namespaceLabels(name string, labels map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, labels)
	all[corev1.LabelMetadataName] = name
	return all
}

// request is a request to an API server.
type request struct {
	operation admission.Operation
	// resource is GROUP/VERSION/RESOURCE[/SUBRESOURCE]; the group may be empty.
	resource, namespace, name string
	// object has metadata at least; nil where there is none.
	object map[string]any
	user   user.Info
}

// versioned gives webhooks the object as it is.
type versioned struct {
	attributes *admission.VersionedAttributes
}

// VersionedAttribute implements generic.VersionedAttributeAccessor.
func (v versioned) VersionedAttribute(schema.GroupVersionKind) (*admission.VersionedAttributes, error) {
	return v.attributes, nil
}

// calls are the webhooks that are called for a request, each with its failure policy.
func (s *apiServer) calls(t *testing.T, r *request) map[string]admissionregistrationv1.FailurePolicyType {
	t.Helper()
	resource, subresource := r.parse(t)
	gvk := resource.GroupVersion().WithKind(kindOf(resource.Resource))
	var object, old runtime.Object
	if r.object != nil {
		object = &unstructured.Unstructured{Object: r.object}
	}
	switch r.operation {
	case admission.Update:
		old = object
	case admission.Delete:
		object, old = nil, object
	}
	who := r.user
	if who == nil {
		who = &user.DefaultInfo{Name: "system:serviceaccount:kube-system:any", Groups: []string{"system:authenticated"}}
	}
	attributes := admission.NewAttributesRecord(object, old, gvk, r.namespace, r.name, resource, subresource, r.operation, nil, false, who)
	v := versioned{&admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old),
	}}
	called := map[string]admissionregistrationv1.FailurePolicyType{}
	if rules.IsExemptAdmissionConfigurationResource(attributes) {
		return called // as the API server does before all else
	}
	for _, w := range s.webhooks {
		invocation, err := s.plugin.ShouldCallHook(t.Context(), w, attributes, s.interfaces, v)
		if err != nil {
			t.Errorf("%s cannot be decided on for %s %s: %v", w.GetName(), r.operation, r.resource, err)
		}
		if invocation != nil {
			called[w.GetName()] = *w.GetFailurePolicy()
		}
	}
	return called
}

// kindOf is the kind of a resource where the API server goes by it, and any where it does not.
func kindOf(resource string) string {
	kinds := map[string]string{
		"mutatingwebhookconfigurations": "MutatingWebhookConfiguration", "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
		"validatingadmissionpolicies": "ValidatingAdmissionPolicy", "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
	}
	if kind, ok := kinds[resource]; ok {
		return kind
	}
	return "Any"
}

// closed are the webhooks that are called for a request and must answer.
func (s *apiServer) closed(t *testing.T, r *request) []string {
	t.Helper()
	var names []string
	for name, policy := range s.calls(t, r) {
		if policy != admissionregistrationv1.Ignore {
			names = append(names, name)
		}
	}
	return names
}

// everything is what is registered for a policy that is about everything there is, and fails closed: the widest that
// the program registers, whatever people configure.
func everything(t *testing.T) *variant {
	t.Helper()
	config := t.TempDir()
	must(t, os.WriteFile(filepath.Join(config, "everything.yaml"), []byte(`
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: everything}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]
  validations:
  - {expression: "true"}
`), 0o600))
	return newVariant(t, "everything", run(t, binary(t), "manifests", "--service", system+"/"+name, "--certificates", "self-signed", "--custom-resources",
		"--part", "registration", "--config", config))
}
