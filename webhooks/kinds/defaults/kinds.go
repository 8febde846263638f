package defaults

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Default fills in the defaults of an object alone, and nothing of what admission plug-ins and the registry add. The API
// server does so after each mutation of a MutatingAdmissionPolicy.
func Default(object runtime.Object) {
	switch o := object.(type) {
	case *corev1.Namespace:
		namespaceLabel(o)
	case *corev1.PersistentVolume:
		volumeDefaults(o)
	case *corev1.PersistentVolumeClaim:
		claimSpec(&o.Spec)
	case *corev1.Pod:
		podDefaults(&o.Spec)
		podResources(&o.Spec)
	case *corev1.Secret:
		set(&o.Type, corev1.SecretTypeOpaque)
	case *appsv1.DaemonSet:
		daemonSetDefaults(o)
	default:
		fill(o)
	}
}

// IgnoreMetadata reports whether the defaults of a kind are known neither to read nor to write the metadata.
func IgnoreMetadata(kind schema.GroupVersionKind) bool {
	switch kind.GroupVersion() {
	case corev1.SchemeGroupVersion:
		return slices.Contains([]string{"Pod", "ConfigMap", "Secret", "Service", "ServiceAccount", "PersistentVolumeClaim"}, kind.Kind)
	case appsv1.SchemeGroupVersion:
		return kind.Kind == "Deployment" || kind.Kind == "StatefulSet"
	default:
		return kind == networkingv1.SchemeGroupVersion.WithKind("Ingress")
	}
}

// fill fills in an object, and reports whether its kind is known.
func fill(object runtime.Object) bool {
	switch o := object.(type) {
	case *corev1.ConfigMap, *corev1.ServiceAccount, *networkingv1.Ingress, *policyv1.PodDisruptionBudget, *rbacv1.Role, *rbacv1.ClusterRole,
		*storagev1.CSINode, *nodev1.RuntimeClass, *coordinationv1.Lease:
		// They have no defaults.
	case *corev1.Namespace:
		namespace(o)
	case *corev1.PersistentVolume:
		persistentVolume(o)
	case *corev1.PersistentVolumeClaim:
		persistentVolumeClaim(o)
	case *corev1.Pod:
		pod(o)
	case *corev1.PodTemplate:
		podSpec(&o.Template.Spec)
	case *corev1.ReplicationController:
		replicationController(o)
	case *corev1.ResourceQuota:
		resources(o.Spec.Hard)
	case *corev1.Secret:
		secret(o)
	case *corev1.Service:
		service(o)
	case *appsv1.DaemonSet:
		daemonSet(o)
	case *appsv1.Deployment:
		deployment(o)
	case *appsv1.ReplicaSet:
		podSpec(&o.Spec.Template.Spec)
		setPointer(&o.Spec.Replicas, 1)
	case *appsv1.StatefulSet:
		statefulSet(o)
	case *autoscalingv1.HorizontalPodAutoscaler:
		autoscalerV1(o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		autoscaler(o)
	case *batchv1.CronJob:
		cronJob(o)
	case *batchv1.Job:
		job(o)
	case *networkingv1.IngressClass:
		ingressClass(o)
	case *networkingv1.NetworkPolicy:
		networkPolicy(o)
	case *discoveryv1.EndpointSlice:
		endpointSlice(o)
	case *rbacv1.RoleBinding:
		roleBinding(&o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		roleBinding(&o.RoleRef, o.Subjects)
	case *storagev1.StorageClass:
		storageClass(o)
	case *schedulingv1.PriorityClass:
		setPointer(&o.PreemptionPolicy, corev1.PreemptLowerPriority)
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		mutatingWebhooks(o)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		validatingWebhooks(o)
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		setPointer(&o.Spec.FailurePolicy, admissionregistrationv1.Fail)
		matchResources(o.Spec.MatchConstraints)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		matchResources(o.Spec.MatchResources)
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		setPointer(&o.Spec.FailurePolicy, admissionregistrationv1.Fail)
		matchResources(o.Spec.MatchConstraints)
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		matchResources(o.Spec.MatchResources)
	default:
		return false
	}
	return true
}
