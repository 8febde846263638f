package defaults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// filler is what fills in objects of a kind, and nil for a kind that is not
// known.
func filler(apiVersion, kind string) func(map[string]any) (map[string]any, error) {
	switch apiVersion + " " + kind {
	case "v1 ConfigMap":
		return typed(nothing[corev1.ConfigMap])
	case "v1 Endpoints":
		return typed(endpoints)
	case "v1 LimitRange":
		return typed(limitRange)
	case "v1 Namespace":
		return typed(namespace)
	case "v1 Node":
		return typed(node)
	case "v1 PersistentVolume":
		return typed(persistentVolume)
	case "v1 PersistentVolumeClaim":
		return typed(persistentVolumeClaim)
	case "v1 Pod":
		return typed(pod)
	case "v1 PodTemplate":
		return typed(podTemplateObject)
	case "v1 ReplicationController":
		return typed(replicationController)
	case "v1 ResourceQuota":
		return typed(resourceQuota)
	case "v1 Secret":
		return typed(secret)
	case "v1 Service":
		return typed(service)
	case "v1 ServiceAccount":
		return typed(nothing[corev1.ServiceAccount])
	case "apps/v1 DaemonSet":
		return typed(daemonSet)
	case "apps/v1 Deployment":
		return typed(deployment)
	case "apps/v1 ReplicaSet":
		return typed(replicaSet)
	case "apps/v1 StatefulSet":
		return typed(statefulSet)
	case "autoscaling/v1 HorizontalPodAutoscaler":
		return typed(autoscalerV1)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		return typed(autoscaler)
	case "batch/v1 CronJob":
		return typed(cronJob)
	case "batch/v1 Job":
		return typed(job)
	case "networking.k8s.io/v1 Ingress":
		return typed(nothing[networkingv1.Ingress])
	case "networking.k8s.io/v1 IngressClass":
		return typed(ingressClass)
	case "networking.k8s.io/v1 NetworkPolicy":
		return typed(networkPolicy)
	case "discovery.k8s.io/v1 EndpointSlice":
		return typed(endpointSlice)
	case "policy/v1 PodDisruptionBudget":
		return typed(nothing[policyv1.PodDisruptionBudget])
	case "rbac.authorization.k8s.io/v1 Role":
		return typed(nothing[rbacv1.Role])
	case "rbac.authorization.k8s.io/v1 ClusterRole":
		return typed(nothing[rbacv1.ClusterRole])
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return typed(roleBinding)
	case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
		return typed(clusterRoleBinding)
	case "storage.k8s.io/v1 StorageClass":
		return typed(storageClass)
	case "storage.k8s.io/v1 CSIDriver":
		return typed(csiDriver)
	case "storage.k8s.io/v1 CSINode":
		return typed(nothing[storagev1.CSINode])
	case "scheduling.k8s.io/v1 PriorityClass":
		return typed(priorityClass)
	case "node.k8s.io/v1 RuntimeClass":
		return typed(nothing[nodev1.RuntimeClass])
	case "coordination.k8s.io/v1 Lease":
		return typed(nothing[coordinationv1.Lease])
	case "flowcontrol.apiserver.k8s.io/v1 FlowSchema":
		return typed(flowSchema)
	case "flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration":
		return typed(priorityLevel)
	case "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration":
		return typed(mutatingWebhooks)
	case "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration":
		return typed(validatingWebhooks)
	case "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy":
		return typed(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) { validatingPolicy(&p.Spec) })
	case "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding":
		return typed(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			matchResources(b.Spec.MatchResources)
		})
	case "admissionregistration.k8s.io/v1 MutatingAdmissionPolicy":
		return typed(func(p *admissionregistrationv1.MutatingAdmissionPolicy) { mutatingPolicy(&p.Spec) })
	case "admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding":
		return typed(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) { matchResources(b.Spec.MatchResources) })
	}
	return nil
}
