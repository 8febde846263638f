package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// inTreePlugin is what the API server's plugins have in common.
type inTreePlugin interface {
	initializer.WantsExternalKubeClientSet
	initializer.WantsExternalKubeInformerFactory
	initializer.WantsDynamicClient
	initializer.WantsRESTMapper
	initializer.WantsUnconditionalAuthorizer
	initializer.WantsDrainedNotification
	apiserveradmission.InitializationValidator
	WaitForReady() bool
}

// inTreeHandler returns the API server's own ValidatingAdmissionPolicy plugin, or that of MutatingAdmissionPolicy, with
// the policies of a configuration, behind the HTTP handler of Gatehouse. The plugin
// gets a typed pod, as in the API server, so that each review decodes one.
func inTreeHandler(configuration string) (http.Handler, error) {
	objects, err := inTreeObjects(configuration)
	if err != nil {
		return nil, err
	}
	validator, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	mutator, err := mutating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	mutator.SetEnabled(true)
	mutates := len(mutatingDocuments(configuration)) > 0
	var plugin inTreePlugin = validator
	if mutates {
		plugin = mutator
	}
	dynamicClient, err := dynamic.NewForConfig(&rest.Config{}) // for parameters, of which there are none
	if err != nil {
		return nil, err
	}
	client := documented{fake.NewClientset(objects...)}
	factory := informers.NewSharedInformerFactory(client, 0)
	stop := make(chan struct{}) // never closed: the process is killed
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetDynamicClient(dynamicClient)
	plugin.SetRESTMapper(meta.NewDefaultRESTMapper(nil))
	plugin.SetUnconditionalAuthorizer(authorizerfactory.NewAlwaysDenyAuthorizer())
	plugin.SetDrainedNotification(stop)
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, err
	}
	factory.Start(stop)
	for !plugin.WaitForReady() { // gives up after 10 s; the driver decides how long a start may take
		continue
	}

	decoder := serializer.NewCodecFactory(clientgoscheme.Scheme).UniversalDeserializer()
	interfaces := inTreeInterfaces{apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme)}
	return review.Admission(func(ctx context.Context, req *review.AdmissionRequest) admission.Response {
		object, _, err := decoder.Decode(req.Object.Raw, nil, nil)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		info := &user.DefaultInfo{Name: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups}
		attributes := apiserveradmission.NewAttributesRecord(object, nil, schema.GroupVersionKind(req.Kind), req.Namespace, req.Name,
			schema.GroupVersionResource(req.Resource), req.SubResource, apiserveradmission.Operation(req.Operation), &metav1.CreateOptions{}, false, info)
		if !mutates {
			if err := validator.Validate(ctx, attributes, interfaces); err != nil {
				return admission.Denied(err.Error())
			}
			return admission.Allowed("")
		}
		err = mutator.Admit(ctx, attributes, interfaces)
		if again := attributes.GetReinvocationContext(); err == nil && again.ShouldReinvoke() {
			again.SetIsReinvoke()
			err = mutator.Admit(ctx, attributes, interfaces)
		}
		if err != nil {
			return admission.Denied(err.Error())
		}
		changed, err := json.Marshal(object)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(req.Object.Raw, changed)
	}, review.Options{
		Name: inTreeServer, MaxBytes: review.MaxAdmissionBytes, MaxTime: 10 * time.Second,
		InFlight: review.NewBudget(8 * review.MaxAdmissionBytes), Slots: review.NewSlots(64), Now: time.Now,
	}), nil
}

// inTreeObjects returns the policies and bindings of a configuration, with the
// defaults of an API server, and the namespace of the pods.
func inTreeObjects(configuration string) ([]runtime.Object, error) {
	namespace := new(corev1.Namespace)
	if err := yaml.UnmarshalStrict([]byte(namespaceDocument), namespace); err != nil {
		return nil, err
	}
	objects := []runtime.Object{namespace}
	for _, document := range mutatingDocuments(configuration) {
		one, other, _ := strings.Cut(document, "---\n")
		policy, binding := new(admissionregistrationv1.MutatingAdmissionPolicy), new(admissionregistrationv1.MutatingAdmissionPolicyBinding)
		if err := errors.Join(yaml.UnmarshalStrict([]byte(one), policy), yaml.UnmarshalStrict([]byte(other), binding)); err != nil {
			return nil, err
		}
		defaults.Default(policy)
		defaults.Default(binding)
		objects = append(objects, policy, binding)
	}
	for _, document := range policyDocuments(configuration) {
		one, other, _ := strings.Cut(document, "---\n")
		policy, binding := new(admissionregistrationv1.ValidatingAdmissionPolicy), new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		if err := errors.Join(yaml.UnmarshalStrict([]byte(one), policy), yaml.UnmarshalStrict([]byte(other), binding)); err != nil {
			return nil, err
		}
		match := policy.Spec.MatchConstraints
		match.MatchPolicy = new(admissionregistrationv1.Equivalent)
		if match.NamespaceSelector == nil {
			match.NamespaceSelector = &metav1.LabelSelector{}
		}
		if match.ObjectSelector == nil {
			match.ObjectSelector = &metav1.LabelSelector{}
		}
		objects = append(objects, policy, binding)
	}
	return objects, nil
}

// documented is a client with the API server's OpenAPI documents, from which the plugin has the schemas of kinds.
type documented struct{ *fake.Clientset }

func (d documented) Discovery() discovery.DiscoveryInterfaces {
	return documentedKinds{d.Clientset.Discovery()}
}

type documentedKinds struct{ discovery.DiscoveryInterfaces }

func (documentedKinds) OpenAPIV3() openapi.Client { return openapitest.NewEmbeddedFileClient() }

// inTreeInterfaces fill in defaults as the API server does, and have one version of each kind.
type inTreeInterfaces struct {
	apiserveradmission.ObjectInterfaces
}

func (i inTreeInterfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return i }
func (i inTreeInterfaces) GetObjectConvertor() runtime.ObjectConvertor {
	return inTreeConvertor{clientgoscheme.Scheme}
}
func (inTreeInterfaces) Default(object runtime.Object) { defaults.Default(object) }

type inTreeConvertor struct{ runtime.ObjectConvertor }

func (inTreeConvertor) Convert(in, out, _ any) error {
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(in).Elem())
	return nil
}
