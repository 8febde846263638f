package defaults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func persistentVolume(v *corev1.PersistentVolume) {
	protect(&v.ObjectMeta, "kubernetes.io/pv-protection")
	volumeDefaults(v)
}

func volumeDefaults(v *corev1.PersistentVolume) {
	set(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	setPointer(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	resources(v.Spec.Capacity)
	if v.Spec.HostPath != nil {
		setPointer(&v.Spec.HostPath.Type, corev1.HostPathUnset)
	}
}

func persistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	protect(&c.ObjectMeta, "kubernetes.io/pvc-protection")
	claimSpec(&c.Spec)
}

// protect does what the admission plug-in StorageObjectInUseProtection does.
func protect(m *metav1.ObjectMeta, finalizer string) {
	if !slices.Contains(m.Finalizers, finalizer) {
		m.Finalizers = append(m.Finalizers, finalizer)
	}
}

func claimSpec(s *corev1.PersistentVolumeClaimSpec) {
	setPointer(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	resources(s.Resources.Limits)
	resources(s.Resources.Requests)
}

func storageClass(c *storagev1.StorageClass) {
	setPointer(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	setPointer(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}
