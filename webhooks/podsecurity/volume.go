package podsecurity

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// volume reads which source a volume has: nothing more of it is looked at. One
// without a source is an emptyDir, as the API server makes it when it stores a
// pod. One with a source that is not known here is left without one, so that the
// check for allowed volumes refuses it.
func (r *reader) volume(to *corev1.Volume) {
	unknown := false
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"name"`:
			to.Name = r.string()
		case `"awsElasticBlockStore"`:
			to.AWSElasticBlockStore = source[corev1.AWSElasticBlockStoreVolumeSource](r)
		case `"azureDisk"`:
			to.AzureDisk = source[corev1.AzureDiskVolumeSource](r)
		case `"azureFile"`:
			to.AzureFile = source[corev1.AzureFileVolumeSource](r)
		case `"cephfs"`:
			to.CephFS = source[corev1.CephFSVolumeSource](r)
		case `"cinder"`:
			to.Cinder = source[corev1.CinderVolumeSource](r)
		case `"configMap"`:
			to.ConfigMap = source[corev1.ConfigMapVolumeSource](r)
		case `"csi"`:
			to.CSI = source[corev1.CSIVolumeSource](r)
		case `"downwardAPI"`:
			to.DownwardAPI = source[corev1.DownwardAPIVolumeSource](r)
		case `"emptyDir"`:
			to.EmptyDir = source[corev1.EmptyDirVolumeSource](r)
		case `"ephemeral"`:
			to.Ephemeral = source[corev1.EphemeralVolumeSource](r)
		case `"fc"`:
			to.FC = source[corev1.FCVolumeSource](r)
		case `"flexVolume"`:
			to.FlexVolume = source[corev1.FlexVolumeSource](r)
		case `"flocker"`:
			to.Flocker = source[corev1.FlockerVolumeSource](r)
		case `"gcePersistentDisk"`:
			to.GCEPersistentDisk = source[corev1.GCEPersistentDiskVolumeSource](r)
		case `"gitRepo"`:
			to.GitRepo = source[corev1.GitRepoVolumeSource](r)
		case `"glusterfs"`:
			to.Glusterfs = source[corev1.GlusterfsVolumeSource](r)
		case `"hostPath"`:
			to.HostPath = source[corev1.HostPathVolumeSource](r)
		case `"image"`:
			to.Image = source[corev1.ImageVolumeSource](r)
		case `"iscsi"`:
			to.ISCSI = source[corev1.ISCSIVolumeSource](r)
		case `"nfs"`:
			to.NFS = source[corev1.NFSVolumeSource](r)
		case `"persistentVolumeClaim"`:
			to.PersistentVolumeClaim = source[corev1.PersistentVolumeClaimVolumeSource](r)
		case `"photonPersistentDisk"`:
			to.PhotonPersistentDisk = source[corev1.PhotonPersistentDiskVolumeSource](r)
		case `"portworxVolume"`:
			to.PortworxVolume = source[corev1.PortworxVolumeSource](r)
		case `"projected"`:
			to.Projected = source[corev1.ProjectedVolumeSource](r)
		case `"quobyte"`:
			to.Quobyte = source[corev1.QuobyteVolumeSource](r)
		case `"rbd"`:
			to.RBD = source[corev1.RBDVolumeSource](r)
		case `"scaleIO"`:
			to.ScaleIO = source[corev1.ScaleIOVolumeSource](r)
		case `"secret"`:
			to.Secret = source[corev1.SecretVolumeSource](r)
		case `"storageos"`:
			to.StorageOS = source[corev1.StorageOSVolumeSource](r)
		case `"vsphereVolume"`:
			to.VsphereVolume = source[corev1.VsphereVirtualDiskVolumeSource](r)
		default:
			unknown = r.c.Skip().Kind() != rawjson.Null || unknown
		}
	}
	if to.VolumeSource == (corev1.VolumeSource{}) && !unknown {
		to.EmptyDir = new(corev1.EmptyDirVolumeSource)
	}
}

// source reads that there is a source, and nothing of it.
func source[T any](r *reader) *T {
	if len(r.value(rawjson.Object)) == 0 {
		return nil
	}
	return new(T)
}
