package defaults

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ContainerOfPod fills in a container of a pod, which may be in the network of its node: what Container does, and what depends on
// other fields. The mount of the service account's token is not filled in.
func ContainerOfPod(c *corev1.Container, hostNetwork bool) {
	inPod(c, hostNetwork)
	Container(c)
}

func inPod(c *corev1.Container, hostNetwork bool) {
	copyMissing(&c.Resources.Requests, c.Resources.Limits)
	if hostNetwork {
		for i := range c.Ports {
			set(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
}

// pod fills in a pod: defaults, and what admission plug-ins and the registry add.
func pod(p *corev1.Pod) {
	s := &p.Spec
	if seconds := s.TerminationGracePeriodSeconds; seconds != nil && *seconds < 0 {
		*seconds = 1
	}
	podDefaults(s)

	serviceAccount(p)
	tolerate(s)
	priority(s)

	podResources(s)
}

// podDefaults fills in the defaults of a pod.
func podDefaults(s *corev1.PodSpec) {
	for c := range containers(s) {
		inPod(c, s.HostNetwork)
	}
	setPointer(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	podSpec(s)
}

const (
	// TokenMount is where the API server mounts the token of the service account into every container:
	// k8s.io/kubernetes/plugin/pkg/admission/serviceaccount, DefaultAPITokenMountPath.
	TokenMount = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // a path
	// tokenVolumes begins the names of volumes with such a token. The API server
	// appends five random characters, of which 0 is none.
	tokenVolumes = "kube-api-access-"
	tokenVolume  = tokenVolumes + "00000"
	// tokenSeconds is for how long the token is asked for.
	tokenSeconds = 3607
)

// serviceAccount does what the admission plug-in ServiceAccount does for a service account that mounts its token.
func serviceAccount(p *corev1.Pod) {
	s := &p.Spec
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return
	}
	set(&s.ServiceAccountName, "default")
	s.DeprecatedServiceAccount = s.ServiceAccountName
	if s.AutomountServiceAccountToken != nil && !*s.AutomountServiceAccountToken {
		return
	}
	name, has := tokenVolume, false
	if i := slices.IndexFunc(s.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, tokenVolumes) }); i >= 0 {
		name, has = s.Volumes[i].Name, true
	}
	needed := false
	for c := range containers(s) {
		if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == TokenMount }) {
			continue
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: TokenMount})
		needed = true
	}
	if needed && !has {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: token()}})
	}
}

// token returns the volume of a token.
func token() *corev1.ProjectedVolumeSource {
	mode, seconds := corev1.ProjectedVolumeSourceDefaultMode, int64(tokenSeconds)
	return &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
		}}},
	}}
}

// tolerate does what the admission plug-in DefaultTolerationSeconds does.
func tolerate(s *corev1.PodSpec) {
	seconds := int64(300)
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		}) {
			s.Tolerations = append(s.Tolerations, corev1.Toleration{
				Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			})
		}
	}
}

// priority does what the admission plug-in Priority does for a pod without a class, if no class is the default, and for the two
// classes of the system.
func priority(s *corev1.PodSpec) {
	var value int32
	switch s.PriorityClassName {
	case "":
	case "system-cluster-critical":
		value = 2_000_000_000
	case "system-node-critical":
		value = 2_000_001_000
	default:
		return
	}
	setPointer(&s.Priority, value)
	setPointer(&s.PreemptionPolicy, corev1.PreemptLowerPriority)
}
