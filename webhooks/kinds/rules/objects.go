package rules

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// unchecked are fields that the API server does not look into.
//
//nolint:gochecknoglobals // a table that nobody changes
var unchecked = map[string]bool{
	// It drops them unless a feature is enabled that is not by default.
	"GRPCAction.mode": true, "HTTPGetAction.protocol": true, "Lifecycle.stopSignal": true, "PodSpec.evictionResponders": true,
}

// byHand returns the rules that no marker states, by the names of fields and of types.
//
//nolint:gochecknoglobals // a table that nobody changes
var byHand = sync.OnceValue(func() map[string]rule {
	all := podRules()
	maps.Copy(all, objectRules())
	for _, group := range []struct {
		rule   rule
		fields []string
	}{
		{required(), []string{
			"AWSElasticBlockStoreVolumeSource.volumeID", "AppArmorProfile.type", "AzureDiskVolumeSource.diskName", "AzureDiskVolumeSource.diskURI",
			"AzureFileVolumeSource.secretName", "AzureFileVolumeSource.shareName", "CSIPersistentVolumeSource.volumeHandle",
			"CinderVolumeSource.volumeID", "ConfigMapProjection.name", "ConfigMapVolumeSource.name", "ContainerResizePolicy.restartPolicy",
			"FlexVolumeSource.driver", "GCEPersistentDiskVolumeSource.pdName", "GitRepoVolumeSource.repository", "GlusterfsVolumeSource.endpoints",
			"GlusterfsVolumeSource.path", "ISCSIVolumeSource.iqn", "ISCSIVolumeSource.targetPortal", "ImageVolumeSource.reference", "KeyToPath.key",
			"NFSVolumeSource.server", "NodeSelectorRequirement.operator", "PersistentVolumeClaimVolumeSource.claimName", "PodDNSConfigOption.name",
			"PodOS.name", "PortworxVolumeSource.volumeID", "QuobyteVolumeSource.registry", "QuobyteVolumeSource.volume", "RBDVolumeSource.image",
			"ScaleIOVolumeSource.gateway", "ScaleIOVolumeSource.system", "ScaleIOVolumeSource.volumeName", "SeccompProfile.type", "SecretProjection.name",
			"SecretVolumeSource.secretName", "Taint.effect", "TopologySpreadConstraint.topologyKey", "TopologySpreadConstraint.whenUnsatisfiable",
			"VsphereVirtualDiskVolumeSource.volumePath", "autoscaling/v2.HPAScalingPolicy.type", "autoscaling/v2.MetricSpec.type",
			"autoscaling/v2.MetricTarget.type", "batch/v1.PodFailurePolicyOnExitCodesRequirement.operator", "batch/v1.PodFailurePolicyRule.action",
			"meta/v1.LabelSelectorRequirement.operator", "networking/v1.HTTPIngressPath.pathType",
		}},
		{atLeast(0), []string{
			"Probe.failureThreshold", "Probe.initialDelaySeconds", "Probe.periodSeconds", "Probe.successThreshold", "Probe.timeoutSeconds",
			"SleepAction.seconds", "apps/v1.DaemonSetSpec.minReadySeconds", "apps/v1.DaemonSetSpec.revisionHistoryLimit",
			"apps/v1.DeploymentSpec.minReadySeconds", "apps/v1.DeploymentSpec.progressDeadlineSeconds", "apps/v1.DeploymentSpec.replicas",
			"apps/v1.DeploymentSpec.revisionHistoryLimit", "apps/v1.ReplicaSetSpec.minReadySeconds", "apps/v1.ReplicaSetSpec.replicas",
			"apps/v1.RollingUpdateStatefulSetStrategy.partition", "apps/v1.StatefulSetOrdinals.start", "apps/v1.StatefulSetSpec.minReadySeconds",
			"apps/v1.StatefulSetSpec.replicas", "autoscaling/v1.HorizontalPodAutoscalerSpec.minReplicas",
			"autoscaling/v2.HorizontalPodAutoscalerSpec.minReplicas", "batch/v1.CronJobSpec.failedJobsHistoryLimit",
			"batch/v1.CronJobSpec.startingDeadlineSeconds", "batch/v1.CronJobSpec.successfulJobsHistoryLimit", "batch/v1.JobSpec.activeDeadlineSeconds",
			"batch/v1.JobSpec.backoffLimit", "batch/v1.JobSpec.backoffLimitPerIndex", "batch/v1.JobSpec.completions", "batch/v1.JobSpec.maxFailedIndexes",
			"batch/v1.JobSpec.parallelism", "batch/v1.JobSpec.ttlSecondsAfterFinished", "coordination/v1.LeaseSpec.leaseTransitions",
		}},
		{valid(validation.IsDNS1123Subdomain), []string{
			"HostAlias.hostnames", "PodResourceClaim.resourceClaimName", "PodResourceClaim.resourceClaimTemplateName", "PodSpec.runtimeClassName",
			"networking/v1.IngressSpec.ingressClassName",
		}},
		{mode, []string{
			"ConfigMapVolumeSource.defaultMode", "DownwardAPIVolumeFile.mode", "DownwardAPIVolumeSource.defaultMode", "KeyToPath.mode",
			"ProjectedVolumeSource.defaultMode", "SecretVolumeSource.defaultMode",
		}},
		{user, []string{
			"PodSecurityContext.fsGroup", "PodSecurityContext.runAsGroup", "PodSecurityContext.runAsUser", "PodSecurityContext.supplementalGroups",
			"SecurityContext.runAsGroup", "SecurityContext.runAsUser",
		}},
		{port, []string{
			"ContainerPort.containerPort", "GRPCAction.port", "HTTPGetAction.port", "ServicePort.port", "TCPSocketAction.port",
			"admissionregistration/v1.ServiceReference.port", "networking/v1.NetworkPolicyPort.endPort", "networking/v1.NetworkPolicyPort.port",
		}},
		{labels, []string{
			"PodSpec.nodeSelector", "ReplicationControllerSpec.selector", "ServiceSpec.selector", "meta/v1.ObjectMeta.labels",
			"node/v1.Scheduling.nodeSelector",
		}},
		{quantities, []string{
			"PersistentVolumeSpec.capacity", "PodSpec.overhead", "ResourceQuotaSpec.hard", "node/v1.Overhead.podFixed",
		}},
		{share(true), []string{
			"apps/v1.RollingUpdateDaemonSet.maxSurge", "apps/v1.RollingUpdateDaemonSet.maxUnavailable", "apps/v1.RollingUpdateDeployment.maxUnavailable",
			"apps/v1.RollingUpdateStatefulSetStrategy.maxUnavailable", "policy/v1.PodDisruptionBudgetSpec.maxUnavailable",
			"policy/v1.PodDisruptionBudgetSpec.minAvailable",
		}},
		{address, []string{
			"HostAlias.ip", "PodDNSConfig.nameservers", "ServiceSpec.externalIPs",
		}},
		{optional(port), []string{
			"ContainerPort.hostPort", "ServicePort.nodePort", "ServicePort.targetPort", "ServiceSpec.healthCheckNodePort",
			"networking/v1.ServiceBackendPort.number",
		}},
		{atLeast(1), []string{
			"Probe.terminationGracePeriodSeconds", "TopologySpreadConstraint.maxSkew", "TopologySpreadConstraint.minDomains",
			"autoscaling/v1.HorizontalPodAutoscalerSpec.targetCPUUtilizationPercentage", "autoscaling/v2.HPAScalingPolicy.value",
			"autoscaling/v2.MetricTarget.averageUtilization", "coordination/v1.LeaseSpec.leaseDurationSeconds",
		}},
	} {
		for _, field := range group.fields {
			all[field] = group.rule
		}
	}
	for name, fields := range map[string][]string{
		"k8s-short-name": {
			"ResourceClaim.request", "StorageOSVolumeSource.volumeName", "StorageOSVolumeSource.volumeNamespace", "apps/v1.StatefulSetSpec.serviceName",
			"autoscaling/v2.ContainerResourceMetricSource.container", "discovery/v1.Endpoint.hostname", "discovery/v1.EndpointPort.name",
			"flowcontrol/v1.ServiceAccountSubject.namespace", "networking/v1.IngressClassParametersReference.namespace", "resource/v1.DeviceRequest.name",
		},
		"k8s-long-name": {
			"PersistentVolumeClaimSpec.storageClassName", "PersistentVolumeClaimSpec.volumeAttributesClassName", "PersistentVolumeSpec.storageClassName",
			"PodSpec.nodeName", "admissionregistration/v1.MutatingAdmissionPolicyBindingSpec.policyName",
			"admissionregistration/v1.MutatingWebhook.name", "admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec.policyName",
			"admissionregistration/v1.ValidatingWebhook.name", "discovery/v1.Endpoint.nodeName", "flowcontrol/v1.PriorityLevelConfigurationReference.name",
			"networking/v1.IngressClassParametersReference.apiGroup", "resource/v1.ExactDeviceRequest.deviceClassName",
		},
		"k8s-label-key":   {"ServiceSpec.loadBalancerClass", "TopologySelectorLabelRequirement.key", "discovery/v1.EndpointPort.appProtocol"},
		"k8s-label-value": {"Taint.value", "resource/v1.DeviceToleration.value"},
		"k8s-path-segment-name": {
			"autoscaling/v1.CrossVersionObjectReference.kind", "autoscaling/v1.CrossVersionObjectReference.name", "autoscaling/v2.CrossVersionObjectReference.kind",
			"autoscaling/v2.CrossVersionObjectReference.name", "autoscaling/v2.MetricIdentifier.name", "networking/v1.IngressClassParametersReference.kind",
			"networking/v1.IngressClassParametersReference.name", "rbac/v1.RoleRef.name", "admissionregistration/v1.ParamRef.name",
		},
	} {
		for _, field := range fields {
			all[field] = optional(format(name))
		}
	}
	return all
})

// objectRules are those of podRules for other types than those in pods.
func objectRules() map[string]rule {
	return map[string]rule{
		"ConfigMap.binaryData":      keyed(validation.IsConfigMapKey, nil),
		"ConfigMap.data":            keyed(validation.IsConfigMapKey, nil),
		"LimitRangeItem.type":       limitType,
		"Pod":                       of(func(c *checker, path string, p *corev1.Pod) { c.containers(path+"spec", &p.Spec, true) }),
		"PodTemplateSpec":           of(func(c *checker, path string, p *corev1.PodTemplateSpec) { c.containers(path+".spec", &p.Spec, false) }),
		"Secret.data":               keyed(validation.IsConfigMapKey, nil),
		"Secret.stringData":         keyed(validation.IsConfigMapKey, nil),
		"PersistentVolumeClaimSpec": of(volumeClaim),
		"PersistentVolumeSpec": of(func(c *checker, path string, s *corev1.PersistentVolumeSpec) {
			c.some(path+".accessModes", len(s.AccessModes))
			c.oneSource(path, &s.PersistentVolumeSource)
		}),
		"CSIPersistentVolumeSource.driver": required(csiDriver),
		"LocalVolumeSource.path":           required(noParentReferences),

		"ClientIPConfig.timeoutSeconds": within(1, 24*60*60),
		"ServicePort.appProtocol":       valid(validation.IsQualifiedName),
		"ServicePort.name":              optional(valid(validation.IsDNS1123Label)),
		"ServiceSpec.clusterIP":         clusterIP,
		"ServiceSpec.clusterIPs":        clusterIP,
		"ServiceSpec.loadBalancerSourceRanges": func(c *checker, path string, v reflect.Value) {
			cidr(c, path, reflect.ValueOf(strings.TrimSpace(v.String())))
		},
		"ServiceSpec.trafficDistribution": oneOf(corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode),
		"Taint.key":                       valid(validation.IsQualifiedName),

		"meta/v1.LabelSelector":          of(selector),
		"meta/v1.ObjectMeta.annotations": annotations,

		"apps/v1.DaemonSetSpec":                                            of(func(c *checker, path string, s *appsv1.DaemonSetSpec) { c.lasting(path, &s.Template) }),
		"apps/v1.DeploymentSpec":                                           of(func(c *checker, path string, s *appsv1.DeploymentSpec) { c.lasting(path, &s.Template) }),
		"apps/v1.ReplicaSetSpec":                                           of(func(c *checker, path string, s *appsv1.ReplicaSetSpec) { c.lasting(path, &s.Template) }),
		"apps/v1.RollingUpdateDeployment.maxSurge":                         share(false),
		"admissionregistration/v1.MutatingWebhook.sideEffects":             oneOf("None", "NoneOnDryRun"),
		"admissionregistration/v1.MutatingWebhook.timeoutSeconds":          within(1, 30),
		"admissionregistration/v1.Validation.reason":                       oneOf("Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"),
		"admissionregistration/v1.ValidatingWebhook.sideEffects":           oneOf("None", "NoneOnDryRun"),
		"admissionregistration/v1.ValidatingWebhook.timeoutSeconds":        within(1, 30),
		"flowcontrol/v1.LimitedPriorityLevelConfiguration.lendablePercent": within(0, 100),
		"storage/v1.TokenRequest.expirationSeconds":                        within(10*60, 1<<32),

		"apps/v1.StatefulSetSpec": of(statefulSetSpec),

		"batch/v1.CronJobSpec.schedule":                          optional(schedule),
		"batch/v1.CronJobSpec.timeZone":                          timeZone,
		"batch/v1.JobSpec":                                       of(jobSpec),
		"batch/v1.PodFailurePolicyOnPodConditionsPattern.status": oneOf("True", "False", "Unknown"),
		"batch/v1.PodFailurePolicyOnPodConditionsPattern.type":   valid(validation.IsQualifiedName),

		"autoscaling/v1.HorizontalPodAutoscalerSpec": of(func(c *checker, path string, s *autoscalingv1.HorizontalPodAutoscalerSpec) {
			c.replicas(path, s.MinReplicas, s.MaxReplicas)
		}),
		"autoscaling/v2.HPAScalingPolicy.periodSeconds":             within(1, 1800),
		"autoscaling/v2.HPAScalingRules.stabilizationWindowSeconds": within(0, 3600),
		"autoscaling/v2.HorizontalPodAutoscalerSpec": of(func(c *checker, path string, s *autoscalingv2.HorizontalPodAutoscalerSpec) {
			c.replicas(path, s.MinReplicas, s.MaxReplicas)
		}),

		"networking/v1.HTTPIngressPath": of(ingressPath),
		"networking/v1.HTTPIngressRuleValue": of(func(c *checker, path string, r *networkingv1.HTTPIngressRuleValue) {
			c.some(path+".paths", len(r.Paths))
		}),
		"networking/v1.IPBlock.cidr":                          optional(cidr),
		"networking/v1.IPBlock.except":                        cidr,
		"networking/v1.IngressBackend":                        of(ingressBackend),
		"networking/v1.IngressClassParametersReference.scope": oneOf("Cluster", "Namespace"),
		"networking/v1.IngressRule.host":                      optional(host),
		"networking/v1.IngressServiceBackend.name":            required(valid(validation.IsDNS1035Label)),
		"networking/v1.IngressTLS.hosts":                      tlsHost,
		"networking/v1.IngressTLS.secretName":                 optional(valid(validation.IsDNS1123Subdomain)),
		"networking/v1.NetworkPolicyPeer": of(func(c *checker, path string, p *networkingv1.NetworkPolicyPeer) {
			if CountSet(p) == 0 {
				c.error(path, "one of podSelector, namespaceSelector and ipBlock is required")
			}
		}),
		"networking/v1.ServiceBackendPort.name": optional(valid(validation.IsValidPortName)),

		"rbac/v1.ClusterRoleBinding": of(clusterRoleBinding),
		"rbac/v1.PolicyRule":         of(policyRule),
		"rbac/v1.RoleBinding":        of(func(c *checker, _ string, b *rbacv1.RoleBinding) { c.roleRef(&b.RoleRef, "Role", "ClusterRole") }),
		"rbac/v1.Subject":            of(subject),
		"rbac/v1.Subject.kind":       required(oneOf(rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind)),
	}
}

// limitType checks what a limit is for: one of Kubernetes' own sorts, or a name with a domain.
func limitType(c *checker, path string, v reflect.Value) {
	if !strings.Contains(v.String(), "/") {
		oneOf(corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim)(c, path, v)
	}
}

// containers checks that containers have a name and an image. Only those of pods may have no space around the image.
func (c *checker) containers(path string, s *corev1.PodSpec, ofPod bool) {
	path = strings.TrimPrefix(path, ".")
	c.some(path+".containers", len(s.Containers))
	for name, list := range map[string][]corev1.Container{".initContainers": s.InitContainers, ".containers": s.Containers} {
		for i := range list {
			at, image := strict.Element(path+name, i), list[i].Image
			if list[i].Name == "" {
				c.error(at+".name", "a value is required")
			}
			if image == "" {
				c.error(at+".image", "a value is required")
			}
			if ofPod && strings.TrimSpace(image) != image {
				c.error(at+".image", "%s begins or ends with whitespace", quoted(image))
			}
		}
	}
}

// lasting checks a template of pods that are always restarted.
func (c *checker) lasting(path string, t *corev1.PodTemplateSpec) {
	if p := t.Spec.RestartPolicy; p == corev1.RestartPolicyNever || p == corev1.RestartPolicyOnFailure {
		c.error(path+".template.spec.restartPolicy", "%q is invalid: must be \"Always\"", p)
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		c.error(path+".template.spec.activeDeadlineSeconds", "is allowed only in Pods and Jobs")
	}
}

// statefulSetSpec leaves the host names of pods, which the API server does not look into: the controller sets them.
func statefulSetSpec(c *checker, path string, s *appsv1.StatefulSetSpec) {
	c.lasting(path, &s.Template)
	c.ignored = []string{path + ".template.spec.hostname", path + ".template.spec.subdomain"}
}

// jobSpec checks a template of pods that end.
func jobSpec(c *checker, path string, s *batchv1.JobSpec) {
	if p := s.Template.Spec.RestartPolicy; p == corev1.RestartPolicyAlways || p == "" {
		c.error(path+".template.spec.restartPolicy", "%q is invalid: must be \"OnFailure\" or \"Never\"", p)
	}
}

func volumeClaim(c *checker, path string, s *corev1.PersistentVolumeClaimSpec) {
	c.some(path+".accessModes", len(s.AccessModes))
	if storage, set := s.Resources.Requests[corev1.ResourceStorage]; !set {
		c.error(path+".resources.requests.storage", "a value is required")
	} else if storage.Sign() <= 0 {
		c.error(path+".resources.requests.storage", "%q is too low: must be above 0", storage.String())
	}
}

func clusterIP(c *checker, path string, v reflect.Value) {
	if v.String() != corev1.ClusterIPNone {
		optional(address)(c, path, v)
	}
}

func (c *checker) replicas(path string, least *int32, most int32) {
	if least != nil && *least > most && most > 0 {
		c.error(path+".maxReplicas", `"%d" is too low: must be minReplicas, which is %d, or more`, most, *least)
	}
}

// ingressPath checks a path, which must be a plain one unless the controller decides what it means.
func ingressPath(c *checker, path string, p *networkingv1.HTTPIngressPath) {
	if p.PathType == nil {
		c.error(path+".pathType", "a value is required")
		return
	}
	if plain := *p.PathType != networkingv1.PathTypeImplementationSpecific; !strings.HasPrefix(p.Path, "/") && (plain || p.Path != "") {
		c.error(path+".path", "%s must be an absolute path", quoted(p.Path))
	} else if plain {
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				c.error(path+".path", "%s must not contain %q", quoted(p.Path), part)
			}
		}
		if strings.HasSuffix(p.Path, "/..") || strings.HasSuffix(p.Path, "/.") {
			c.error(path+".path", `%s must not end with "/." or "/.."`, quoted(p.Path))
		}
	}
}

func ingressBackend(c *checker, path string, b *networkingv1.IngressBackend) {
	if n := CountSet(b); n != 1 {
		c.error(path, "exactly one of service and resource is required, found %d", n)
	}
	if b.Service != nil && CountSet(&b.Service.Port) != 1 {
		c.error(path+".service.port", "exactly one of name and number is required")
	}
}

func tlsHost(c *checker, path string, v reflect.Value) {
	if strings.Contains(v.String(), "*") {
		c.messages(path, v.String(), validation.IsWildcardDNS1123Subdomain(v.String()))
	} else {
		c.messages(path, v.String(), validation.IsDNS1123Subdomain(v.String()))
	}
}

// policyRule checks that a rule is about resources or about URLs. Its verbs have a marker.
func policyRule(c *checker, path string, r *rbacv1.PolicyRule) {
	if len(r.NonResourceURLs) > 0 {
		if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
			c.error(path+".nonResourceURLs", "is not allowed with apiGroups, resources or resourceNames")
		}
		return
	}
	c.some(path+".apiGroups", len(r.APIGroups))
	c.some(path+".resources", len(r.Resources))
}

func clusterRoleBinding(c *checker, _ string, b *rbacv1.ClusterRoleBinding) {
	c.roleRef(&b.RoleRef, "ClusterRole")
	for i := range b.Subjects {
		if s := &b.Subjects[i]; s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "" {
			c.error(strict.Element("subjects", i)+".namespace", "a value is required for a ServiceAccount")
		}
	}
}

func (c *checker) roleRef(r *rbacv1.RoleRef, kinds ...string) {
	required(oneOf(kinds...))(c, "roleRef.kind", reflect.ValueOf(r.Kind))
	optional(oneOf(rbacv1.GroupName))(c, "roleRef.apiGroup", reflect.ValueOf(r.APIGroup))
}

func subject(c *checker, path string, s *rbacv1.Subject) {
	group := rbacv1.GroupName
	if s.Kind == rbacv1.ServiceAccountKind {
		group = ""
		c.messages(path+".name", s.Name, validation.IsDNS1123Subdomain(s.Name))
	}
	if s.APIGroup != "" && s.APIGroup != group {
		c.error(path+".apiGroup", "%s is invalid: must be %s", quoted(s.APIGroup), fmt.Sprintf("%q", group))
	}
}
