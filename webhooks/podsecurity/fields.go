package podsecurity

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fields returns the fields of the API's types that upstream's checks read, and so the
// ones that Decode reads. Of a type without fields, Decode reads only that it is there.
// A test compares them with the source of the checks.
func fields() map[reflect.Type][]string {
	container := []string{"Lifecycle", "LivenessProbe", "Name", "Ports", "ReadinessProbe", "SecurityContext", "StartupProbe"}
	return map[reflect.Type][]string{
		reflect.TypeFor[Pod]():               {"Metadata", "Spec"},
		reflect.TypeFor[metav1.ObjectMeta](): {"Annotations"},
		reflect.TypeFor[corev1.PodSpec](): {
			"Containers", "EphemeralContainers", "HostIPC", "HostNetwork", "HostPID", "HostUsers", "InitContainers", "OS", "SecurityContext", "Volumes",
		},
		reflect.TypeFor[corev1.PodOS](): {"Name"},
		reflect.TypeFor[corev1.PodSecurityContext](): {
			"AppArmorProfile", "RunAsNonRoot", "RunAsUser", "SELinuxOptions", "SeccompProfile", "Sysctls", "WindowsOptions",
		},
		reflect.TypeFor[corev1.Sysctl]():                   {"Name"},
		reflect.TypeFor[corev1.Container]():                container,
		reflect.TypeFor[corev1.EphemeralContainer]():       {"EphemeralContainerCommon"},
		reflect.TypeFor[corev1.EphemeralContainerCommon](): container,
		reflect.TypeFor[corev1.ContainerPort]():            {"HostPort"},
		reflect.TypeFor[corev1.SecurityContext](): {
			"AllowPrivilegeEscalation", "AppArmorProfile", "Capabilities", "Privileged", "ProcMount", "RunAsNonRoot", "RunAsUser", "SELinuxOptions",
			"SeccompProfile", "WindowsOptions",
		},
		reflect.TypeFor[corev1.AppArmorProfile]():  {"Type"},
		reflect.TypeFor[corev1.Capabilities]():     {"Add", "Drop"},
		reflect.TypeFor[corev1.SELinuxOptions]():   {"Role", "Type", "User"},
		reflect.TypeFor[corev1.SeccompProfile]():   {"Type"},
		reflect.TypeFor[corev1.Probe]():            {"ProbeHandler"},
		reflect.TypeFor[corev1.ProbeHandler]():     {"HTTPGet", "TCPSocket"},
		reflect.TypeFor[corev1.Lifecycle]():        {"PostStart", "PreStop"},
		reflect.TypeFor[corev1.LifecycleHandler](): {"HTTPGet", "TCPSocket"},
		reflect.TypeFor[corev1.HTTPGetAction]():    {"Host"},
		reflect.TypeFor[corev1.TCPSocketAction]():  {"Host"},
		reflect.TypeFor[corev1.Volume]():           {"Name", "VolumeSource"},
		reflect.TypeFor[corev1.VolumeSource](): {
			"AWSElasticBlockStore", "AzureDisk", "AzureFile", "CSI", "CephFS", "Cinder", "ConfigMap", "DownwardAPI", "EmptyDir", "Ephemeral",
			"FC", "FlexVolume", "Flocker", "GCEPersistentDisk", "GitRepo", "Glusterfs", "HostPath", "ISCSI", "Image", "NFS",
			"PersistentVolumeClaim", "PhotonPersistentDisk", "PortworxVolume", "Projected", "Quobyte", "RBD", "ScaleIO", "Secret", "StorageOS", "VsphereVolume",
		},
		reflect.TypeFor[corev1.WindowsSecurityContextOptions](): {"HostProcess"},
	}
}
