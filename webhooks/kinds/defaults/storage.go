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
	if v.Spec.ISCSI != nil {
		set(&v.Spec.ISCSI.ISCSIInterface, "default")
	}
	if v.Spec.RBD != nil {
		rbd(&v.Spec.RBD.RBDPool, &v.Spec.RBD.RadosUser, &v.Spec.RBD.Keyring)
	}
	if v.Spec.ScaleIO != nil {
		scaleIO(&v.Spec.ScaleIO.StorageMode, &v.Spec.ScaleIO.FSType)
	}
	azureDisk(v.Spec.AzureDisk)
}

func persistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	protect(&c.ObjectMeta, "kubernetes.io/pvc-protection")
	claimSpec(&c.Spec)
	dataSource(&c.Spec)
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

// dataSource copies the older of two fields to the newer one, or the other way
// round. The older one is dropped if it names what it could never name.
func dataSource(s *corev1.PersistentVolumeClaimSpec) {
	if older := s.DataSource; older != nil && s.DataSourceRef == nil {
		group := ""
		if older.APIGroup != nil {
			group = *older.APIGroup
		}
		if claim := older.Kind == "PersistentVolumeClaim" && group == ""; !claim && (older.Kind != "VolumeSnapshot" || group != "snapshot.storage.k8s.io") {
			s.DataSource = nil
			return
		}
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: older.APIGroup, Kind: older.Kind, Name: older.Name}
	} else if newer := s.DataSourceRef; newer != nil && older == nil && (newer.Namespace == nil || *newer.Namespace == "") {
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: newer.APIGroup, Kind: newer.Kind, Name: newer.Name}
	}
}

func storageClass(c *storagev1.StorageClass) {
	setPointer(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	setPointer(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

func csiDriver(d *storagev1.CSIDriver) {
	setPointer(&d.Spec.AttachRequired, true)
	setPointer(&d.Spec.PodInfoOnMount, false)
	setPointer(&d.Spec.StorageCapacity, false)
	setPointer(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	setPointer(&d.Spec.RequiresRepublish, false)
	setPointer(&d.Spec.SELinuxMount, false)
	setPointer(&d.Spec.PreventPodSchedulingIfMissing, false)
}
