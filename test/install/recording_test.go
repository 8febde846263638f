package install

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const recordingOn = `recording.enabled=true`

// TestRecordingFits: the directory of the recording is a volume that the program may write to, and nobody records who has not
// asked for it.
func TestRecordingFits(t *testing.T) {
	t.Parallel()
	volume := func(v *variant) *corev1.Volume {
		pod := as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Spec
		for _, arg := range pod.Containers[0].Args {
			path, found := strings.CutPrefix(arg, "--record=")
			if !found {
				continue
			}
			for _, mount := range pod.Containers[0].VolumeMounts {
				if mount.MountPath == path && !mount.ReadOnly {
					return &pod.Volumes[slices.IndexFunc(pod.Volumes, func(volume corev1.Volume) bool { return volume.Name == mount.Name })]
				}
			}
			t.Errorf("%s: %s is not mounted", v.name, arg)
		}
		return nil
	}
	for _, v := range variants(t) {
		if got := volume(v); got != nil {
			t.Errorf("%s has the volume %v", v.name, got)
		}
	}
	if got := volume(chartedWith(t, recordingOn)); got == nil || got.EmptyDir == nil || got.EmptyDir.SizeLimit.IsZero() {
		t.Errorf("the volume is %v, want an emptyDir with a limit", got)
	}
	const claims = `recording.persistence.enabled=true`
	claimed := chartedWith(t, recordingOn, claims)
	if got := volume(claimed); got == nil || got.PersistentVolumeClaim == nil {
		t.Errorf("the volume is %v, want a claim", got)
	} else if claim := as[corev1.PersistentVolumeClaim](t, claimed.find(t, "PersistentVolumeClaim", got.PersistentVolumeClaim.ClaimName)); !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) {
		t.Errorf("replicas cannot share %v", claim.Spec.AccessModes)
	}
	if got := volume(chartedWith(t, recordingOn, claims, `recording.persistence.existingClaim="mine"`)); got == nil || got.PersistentVolumeClaim == nil || got.PersistentVolumeClaim.ClaimName != "mine" {
		t.Errorf("the volume is %v, want the claim of somebody else", got)
	}
}

// TestRecordingConfigurationStartsPods: the program reads the configuration when it starts, so that a change of it replaces pods.
func TestRecordingConfigurationStartsPods(t *testing.T) {
	t.Parallel()
	annotation := func(share string) string {
		v := chartedWith(t, recordingOn, `recording.config={"sampling":{"default":`+share+`}}`)
		return as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Annotations["checksum/recording"]
	}
	if a, b := annotation("0.5"), annotation("0.25"); a == "" || a == b {
		t.Errorf("the pods have the annotations %q and %q", a, b)
	}
}
