package main

import (
	"context"
	"errors"
	"net/http"
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
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// inTreeHandler returns the API server's own ValidatingAdmissionPolicy plugin with
// the policies of a configuration, behind the HTTP handler of Gatehouse. The plugin
// gets a typed pod, as in the API server, so that each review decodes one.
func inTreeHandler(configuration string) (http.Handler, error) {
	objects, err := inTreeObjects(configuration)
	if err != nil {
		return nil, err
	}
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(&rest.Config{}) // for parameters, of which there are none
	if err != nil {
		return nil, err
	}
	client := fake.NewClientset(objects...)
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
	interfaces := apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme)
	return review.Admission(func(ctx context.Context, req *review.AdmissionRequest) admission.Response {
		object, _, err := decoder.Decode(req.Object.Raw, nil, nil)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		info := &user.DefaultInfo{Name: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups}
		err = plugin.Validate(ctx, apiserveradmission.NewAttributesRecord(object, nil, schema.GroupVersionKind(req.Kind), req.Namespace, req.Name,
			schema.GroupVersionResource(req.Resource), req.SubResource, apiserveradmission.Operation(req.Operation), &metav1.CreateOptions{}, false, info), interfaces)
		if err != nil {
			return admission.Denied(err.Error())
		}
		return admission.Allowed("")
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
