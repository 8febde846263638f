package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	// benchNamespace is the namespace of every pod, and nameLabel the label
	// that the policy requires.
	benchNamespace = "shop"
	nameLabel      = "app.kubernetes.io/name"

	// noteAnnotation fills an object up to its size.
	noteAnnotation = "shop.example.com/note"

	// placeholderUID is replaced by each request's own uid.
	placeholderUID = "00000000-0000-4000-8000-000000000000"
)

//go:embed documents/*.yaml
var documents embed.FS

// must returns a value that is made of constants of this program, so that an
// error is a mistake in it.
func must[T any](value T, err error) T {
	must0(err)
	return value
}

func must0(err error) {
	if err != nil {
		panic(err)
	}
}

// realisticPod returns a pod as the API server passes it on when it is created,
// defaults and managed fields included, whose JSON is size bytes long (at least
// 1,500). It is the same for the same size. Without changes it meets the Pod
// Security Standard restricted and every policy of the benchmark.
//
// What grows is what grows in real clusters: environment variables with their
// managed fields, spread over more containers, and one long annotation.
func realisticPod(size int, changes ...func(*corev1.Pod)) *corev1.Pod {
	file := "documents/pod.yaml"
	if size < 4_000 {
		file = "documents/small-pod.yaml"
	}
	pod := new(corev1.Pod)
	must0(yaml.UnmarshalStrict(must(documents.ReadFile(file)), pod))
	for i := range size / 12_000 {
		worker := pod.Spec.Containers[0].DeepCopy()
		worker.Name = fmt.Sprintf("worker-%d", i+1)
		pod.Spec.Containers = append(pod.Spec.Containers, *worker)
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if size >= 4_000 {
		pod.Annotations["shop.example.com/routes"] = strings.Repeat(`{"path":"/checkout","methods":["GET","POST"],"timeout":"3s"},`, size/1200)
	}
	for _, change := range changes {
		change(pod)
	}
	// A variable and its managed field are less than 200 bytes long; the note
	// fills the rest.
	const variableBytes = 200
	for settings := 0; ; {
		pod.Annotations[noteAnnotation] = ""
		setManagedFields(pod)
		missing := size - len(must(json.Marshal(pod)))
		if missing < variableBytes {
			pod.Annotations[noteAnnotation] = strings.Repeat("x", max(0, missing))
			return pod
		}
		for range missing / variableBytes {
			container := &pod.Spec.Containers[settings%len(pod.Spec.Containers)]
			container.Env = append(container.Env, corev1.EnvVar{
				Name:  fmt.Sprintf("CHECKOUT_SETTING_%03d", settings),
				Value: fmt.Sprintf("https://setting-%03d.shop.svc.cluster.local:8443/v1", settings),
			})
			settings++
		}
	}
}

// setManagedFields records the pod as applied by its controller.
func setManagedFields(pod *corev1.Pod) {
	pod.ManagedFields = nil
	var object map[string]any
	must0(json.Unmarshal(must(json.Marshal(pod)), &object))
	fields := fieldpath.SetFromValue(value.NewValueInterface(object))
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		Time:     new(metav1.NewTime(time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC))),
		FieldsV1: metav1.NewFieldsV1(string(must(fields.ToJSON()))), FieldsType: "FieldsV1",
	}}
}

// refusedPod returns a small pod that every policy of the benchmark refuses. It
// proves that the policies of a scenario are active.
func refusedPod() *corev1.Pod { return realisticPod(1_500, breakRules) }

// breakRules makes a pod break every one of usualRules.
func breakRules(pod *corev1.Pod) {
	delete(pod.Labels, nameLabel)
	pod.Spec.HostNetwork, pod.Spec.HostPID = true, true
	pod.Spec.SecurityContext = nil
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/"},
	}})
	container := &pod.Spec.Containers[0]
	container.Image = "docker.io/shop/checkout:latest"
	container.Resources = corev1.ResourceRequirements{}
	container.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
}

// deploymentOf returns a Deployment of 5,000 bytes, or more if the pod is larger,
// with the pod as its template.
func deploymentOf(pod *corev1.Pod) *appsv1.Deployment {
	const size = 5_000
	deployment := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "checkout", Namespace: pod.Namespace, Labels: pod.Labels,
			Annotations:   map[string]string{noteAnnotation: ""},
			ManagedFields: pod.ManagedFields,
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: "checkout"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations},
				Spec:       pod.Spec,
			},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType},
		},
	}
	missing := size - len(must(json.Marshal(deployment)))
	deployment.Annotations[noteAnnotation] = strings.Repeat("x", max(0, missing))
	return deployment
}

// reviewOf returns the AdmissionReview that the API server sends when a
// controller creates the object.
func reviewOf(object interface {
	metav1.Object
	runtime.Object
},
) []byte {
	kind := metav1.GroupVersionKind(object.GetObjectKind().GroupVersionKind())
	resource := metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s"}
	review := must(json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
		Request: &admissionv1.AdmissionRequest{
			UID:             placeholderUID,
			Kind:            kind,
			Resource:        resource,
			RequestKind:     &kind,
			RequestResource: &resource,
			Name:            object.GetName(),
			Namespace:       object.GetNamespace(),
			Operation:       admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{
				Username: "system:serviceaccount:kube-system:replicaset-controller",
				UID:      "1f0a7c1e-5b0c-4e2f-9a55-5a8c2b9d7e10",
				Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/credential-id": {"JTI=6c1b0f9e-0d3e-4a38-8f0b-0c9f8f9d3b55"},
				},
			},
			Object:  runtime.RawExtension{Raw: must(json.Marshal(object))},
			DryRun:  new(false),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	}))
	return append(review, '\n')
}

// tokenReview returns the TokenReview that the API server sends for a token. It
// has no uid.
func tokenReview(token string) []byte {
	review := must(json.Marshal(&authenticationv1beta1.TokenReview{
		TypeMeta: metav1.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1beta1"},
		Spec:     authenticationv1beta1.TokenReviewSpec{Token: token, Audiences: []string{"https://kubernetes.default.svc.cluster.local"}},
	}))
	return append(review, '\n')
}

// accessReview returns a SubjectAccessReview about pods, as kube-apiserver sends it, of a user whose token has the scope view in a
// namespace.
func accessReview(verb string) []byte {
	review := must(json.Marshal(&authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop", Verb: verb, Version: "v1", Resource: "pods"},
			User:               tokenUser, Groups: []string{"dev", "system:authenticated"},
			Extra: map[string]authorizationv1.ExtraValue{v1alpha1.ScopeExtraKey: {"view", "namespace=shop"}},
		},
	}))
	return append(review, '\n')
}
