package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

const (
	// benchNamespace is the namespace of every pod, and nameLabel the label
	// that the policy asks for.
	benchNamespace = "shop"
	nameLabel      = "app.kubernetes.io/name"

	// tokenID, tokenUser and tokenGroup are what the benchmark's access token
	// is called and proves.
	tokenID    = "bench"
	tokenUser  = "developer@example.com"
	tokenGroup = "developers"

	// placeholderUID stands where each request's own uid is written.
	placeholderUID = "00000000-0000-4000-8000-000000000000"

	// sidecarName is the name of the container and of the volume that every
	// mutating webhook of the benchmark adds.
	sidecarName = "telemetry-agent"
)

// body is what a scenario posts.
type body struct {
	text []byte
	// uidAt is the offset of the uid in text, or -1 for a review without one.
	uidAt int
}

// podReview returns the AdmissionReview that the API server sends when a pod
// is created.
func podReview(pod *corev1.Pod) (body, error) {
	return creationReview(pod, pod,
		metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		"system:serviceaccount:kube-system:replicaset-controller")
}

// deploymentReview is podReview for a Deployment, which a robot deploys.
func deploymentReview(deployment *appsv1.Deployment) (body, error) {
	return creationReview(deployment, deployment,
		metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		"system:serviceaccount:delivery:deployer")
}

// creationReview returns the AdmissionReview that the API server sends when the
// user, who is a service account, creates the object.
func creationReview(created runtime.Object, meta metav1.Object, kind metav1.GroupVersionKind, resource metav1.GroupVersionResource, user string) (body, error) {
	object, err := json.Marshal(created)
	if err != nil {
		return body{}, err
	}
	namespace, _, _ := strings.Cut(strings.TrimPrefix(user, "system:serviceaccount:"), ":")
	text, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
		Request: &admissionv1.AdmissionRequest{
			UID:             placeholderUID,
			Kind:            kind,
			Resource:        resource,
			RequestKind:     &kind,
			RequestResource: &resource,
			Name:            meta.GetName(),
			Namespace:       meta.GetNamespace(),
			Operation:       admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{
				Username: user,
				UID:      "1f0a7c1e-5b0c-4e2f-9a55-5a8c2b9d7e10",
				Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/credential-id": {"JTI=6c1b0f9e-0d3e-4a38-8f0b-0c9f8f9d3b55"},
				},
			},
			Object:  runtime.RawExtension{Raw: object},
			DryRun:  new(false),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	})
	if err != nil {
		return body{}, err
	}
	text = append(text, '\n')
	at := bytes.Index(text, []byte(placeholderUID))
	if at < 0 {
		return body{}, fmt.Errorf("the review of %s %q does not hold its uid", kind.Kind, meta.GetName())
	}
	return body{text: text, uidAt: at}, nil
}

// tokenReview returns the TokenReview that the API server sends for a token.
// It has no uid.
func tokenReview(token string) (body, error) {
	text, err := json.Marshal(&authenticationv1beta1.TokenReview{
		TypeMeta: metav1.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1beta1"},
		Spec:     authenticationv1beta1.TokenReviewSpec{Token: token, Audiences: []string{"https://kubernetes.default.svc.cluster.local"}},
	})
	return body{text: append(text, '\n'), uidAt: -1}, err
}

// realisticPod returns a pod as the API server passes it on when it is created,
// defaults and managed fields included, whose JSON is size bytes long (at least
// 1,500). It is the same for the same size, and meets the Pod Security Standard
// restricted and every policy of the benchmark.
//
// What grows is what grows in real clusters: environment variables with their
// managed fields, spread over more containers, and one long annotation.
func realisticPod(size int) (*corev1.Pod, error) { return markedPod(size, nil, nil) }

// markedPod is realisticPod with more labels and annotations, of the same size.
func markedPod(size int, labels, annotations map[string]string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      "checkout-7d9c5b8f6d-x2x7k",
			Namespace: benchNamespace,
			Labels:    map[string]string{nameLabel: "checkout"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(30)),
			DNSPolicy:                     corev1.DNSClusterFirst,
			SchedulerName:                 corev1.DefaultSchedulerName,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
	for i := range 1 + size/12_000 {
		name := "checkout"
		if i > 0 {
			name = fmt.Sprintf("worker-%d", i)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, realisticContainer(name))
	}
	pod.Annotations = make(map[string]string)
	if size >= 4_000 {
		addExtras(pod, size)
	}
	maps.Copy(pod.Labels, labels)
	maps.Copy(pod.Annotations, annotations)
	// A variable and its managed field are less than 200 bytes long; the note
	// makes up for the rest.
	const variableBytes = 200
	for settings := 0; ; {
		missing, err := missingBytes(pod, size)
		if err != nil {
			return nil, err
		}
		if missing < variableBytes {
			setNote(pod, missing)
			return pod, nil
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

// missingBytes sets a note of no length, so that its managed field is there,
// and returns by how much the pod's JSON is shorter than size.
func missingBytes(pod *corev1.Pod, size int) (int, error) {
	setNote(pod, 0)
	if err := setManagedFields(pod); err != nil {
		return 0, err
	}
	text, err := json.Marshal(pod)
	return size - len(text), err
}

// realisticContainer returns a small container that meets every policy.
func realisticContainer(name string) corev1.Container {
	return corev1.Container{
		Name:  name,
		Image: "registry.example.com/shop/" + name + ":1.42.7",
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		ImagePullPolicy: corev1.PullIfNotPresent,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// addExtras gives the pod what a service of some size has: an owner, probes,
// ports, volumes, tolerations and annotations, one of them long.
func addExtras(pod *corev1.Pod, size int) {
	pod.GenerateName = "checkout-7d9c5b8f6d-"
	pod.Labels["pod-template-hash"] = "7d9c5b8f6d"
	pod.Labels["app.kubernetes.io/instance"] = "checkout-production"
	pod.Labels["app.kubernetes.io/version"] = "1.42.7"
	pod.Annotations["prometheus.io/scrape"] = "true"
	pod.Annotations["prometheus.io/port"] = "9090"
	pod.Annotations["checksum/config"] = fmt.Sprintf("%x", sha256.Sum256([]byte("config")))
	pod.Annotations["shop.example.com/routes"] = strings.Repeat(
		`{"path":"/checkout","methods":["GET","POST"],"timeout":"3s"},`, size/1200)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: strings.TrimSuffix(pod.GenerateName, "-"),
		UID: types.UID("5d3b4c7e-9a62-4a36-bb0e-20f1c5d44f0c"), Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	pod.Spec.ServiceAccountName = "checkout"
	pod.Spec.Tolerations = []corev1.Toleration{
		{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
		{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
	}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "checkout"}, DefaultMode: new(int32(0o644)),
		}}},
		{Name: "kube-api-access-8s2qk", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
					Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
				}},
			},
			DefaultMode: new(int32(0o644)),
		}}},
	}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		port := int32(8080 + i)
		container.Ports = []corev1.ContainerPort{{Name: fmt.Sprintf("http-%d", i), ContainerPort: port, Protocol: corev1.ProtocolTCP}}
		container.TerminationMessagePath = corev1.TerminationMessagePathDefault
		container.TerminationMessagePolicy = corev1.TerminationMessageReadFile
		container.ReadinessProbe = &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP}},
			TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		}
		container.VolumeMounts = []corev1.VolumeMount{
			{Name: "config", ReadOnly: true, MountPath: "/etc/checkout"},
			{Name: "kube-api-access-8s2qk", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
		}
	}
}

// setNote sets the annotation that brings a pod to its size.
func setNote(pod *corev1.Pod, length int) {
	pod.Annotations["shop.example.com/note"] = strings.Repeat("x", max(0, length))
}

// setManagedFields records the whole pod as applied by its controller, in the
// format of managed fields.
func setManagedFields(pod *corev1.Pod) error {
	object := map[string]any{}
	pod.ManagedFields = nil
	text, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	metadata, _ := object["metadata"].(map[string]any)
	fields, err := json.Marshal(map[string]any{
		"f:metadata": map[string]any{
			"f:annotations": managedFields(metadata["annotations"]),
			"f:labels":      managedFields(metadata["labels"]),
		},
		"f:spec": managedFields(object["spec"]),
	})
	if err != nil {
		return err
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		Time:     new(metav1.NewTime(time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC))),
		FieldsV1: metav1.NewFieldsV1(string(fields)), FieldsType: "FieldsV1",
	}}
	return nil
}

// managedFields returns the field set of a JSON value: members as f:name,
// elements of lists of named objects as k:{"name":…}, everything else as a
// leaf.
func managedFields(value any) map[string]any {
	set := map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			set["f:"+name] = managedFields(member)
		}
	case []any:
		for _, element := range value {
			if object, ok := element.(map[string]any); ok && object["name"] != nil {
				fields := managedFields(object)
				fields["."] = map[string]any{}
				set[fmt.Sprintf(`k:{"name":%q}`, object["name"])] = fields
			}
		}
	}
	return set
}

// refusedPod returns the small pod with what every policy of the benchmark
// refuses. It proves that the policies of a scenario are in force.
func refusedPod() (*corev1.Pod, error) {
	pod, err := realisticPod(1_500)
	if err != nil {
		return nil, err
	}
	delete(pod.Labels, nameLabel)
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Image = "registry.example.com/shop/checkout:latest"
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	return pod, nil
}

// deniedPod is a pod of about 5 KB that breaks every one of usualRules.
func deniedPod() (*corev1.Pod, error) {
	pod, err := realisticPod(5_000)
	if err != nil {
		return nil, err
	}
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
	return pod, nil
}

// exceptedPod is a pod of about 5 KB that breaks exceptedRule and no other.
func exceptedPod() (*corev1.Pod, error) {
	pod, err := realisticPod(5_000)
	if err != nil {
		return nil, err
	}
	pod.Spec.HostNetwork = true
	return pod, nil
}

// deploymentOf returns a Deployment of 5,000 bytes, or more if the pod is larger,
// that makes pods such as this one.
func deploymentOf(pod *corev1.Pod) (*appsv1.Deployment, error) {
	const size = 5_000
	deployment := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "checkout", Namespace: pod.Namespace, Labels: pod.Labels,
			Annotations:   map[string]string{"shop.example.com/note": ""},
			ManagedFields: pod.ManagedFields,
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: "checkout"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations},
				Spec:       pod.Spec,
			},
			Strategy:                appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType},
			RevisionHistoryLimit:    new(int32(10)),
			ProgressDeadlineSeconds: new(int32(600)),
		},
	}
	text, err := json.Marshal(deployment)
	if err != nil {
		return nil, err
	}
	deployment.Annotations["shop.example.com/note"] = strings.Repeat("x", max(0, size-len(text)))
	return deployment, nil
}

// sidecarContainer is a native sidecar.
func sidecarContainer(name string) corev1.Container {
	container := realisticContainer(name)
	container.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	container.Args = []string{"--listen=:15020", "--forward=http://collector.telemetry.svc:4318"}
	container.VolumeMounts = []corev1.VolumeMount{{Name: name, MountPath: "/var/spool/" + name}}
	return container
}

// sidecarVolume is the volume of a sidecarContainer.
func sidecarVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// benchToken returns the text of the benchmark's access token and its hash. It
// is no secret: it opens nothing but servers that live for one run.
func benchToken() (text, hash string) {
	return authn.NewToken(tokenID, [25]byte{1})
}

// refusedToken returns a token with the benchmark token's id and another
// secret.
func refusedToken() string {
	text, _ := authn.NewToken(tokenID, [25]byte{2})
	return text
}
