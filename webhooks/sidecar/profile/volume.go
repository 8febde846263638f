package profile

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// volumeEquality compares volumes as equality.Semantic does, but a quantity with a huge
// exponent, which takes minutes to compare, equals none.
var volumeEquality = conversion.EqualitiesOrDie( //nolint:gochecknoglobals // a table that nobody changes
	func(a, b resource.Quantity) bool { return !isHuge(&a) && !isHuge(&b) && a.Cmp(b) == 0 },
	func(a, b metav1.Time) bool { return a.Equal(&b) },
)

func isHuge(q *resource.Quantity) bool {
	const largest = 100 // digits
	scale := q.AsDec().Scale()
	return scale < -largest || scale > largest
}

// EqualVolume reports whether a volume of a pod is the one that a template
// declares. The pod's has the defaults that the API server has put in, so they
// are put into both; a volume with a member that is not known here is equal to
// none.
func EqualVolume(template *corev1.Volume, text rawjson.Value) bool {
	var own corev1.Volume
	strict, err := kjson.UnmarshalStrict(text, &own)
	if err != nil || len(strict) > 0 {
		return false
	}
	ours := template.DeepCopy()
	defaultVolume(ours)
	defaultVolume(&own)
	return volumeEquality.DeepEqual(ours, &own)
}

// defaultVolume writes a path of the node in one way, and sets the defaults of a volume's source, as
// k8s.io/kubernetes/pkg/apis/core/v1 does in SetDefaults_Volume and, for a pod's
// volumes, in SetObjectDefaults_Pod.
func defaultVolume(v *corev1.Volume) {
	const (
		mode       int32 = 0o644
		expiration int64 = 60 * 60 // seconds
	)
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if s := v.Secret; s != nil {
		setDefault(&s.DefaultMode, mode)
	}
	if s := v.ConfigMap; s != nil {
		setDefault(&s.DefaultMode, mode)
	}
	if s := v.HostPath; s != nil {
		s.Path = podtext.CleanPath(s.Path)
		setDefault(&s.Type, corev1.HostPathUnset)
	}
	if s := v.DownwardAPI; s != nil {
		setDefault(&s.DefaultMode, mode)
		defaultFields(s.Items)
	}
	if s := v.Projected; s != nil {
		setDefault(&s.DefaultMode, mode)
		for i := range s.Sources {
			if t := s.Sources[i].ServiceAccountToken; t != nil {
				setDefault(&t.ExpirationSeconds, expiration)
			}
			if d := s.Sources[i].DownwardAPI; d != nil {
				defaultFields(d.Items)
			}
		}
	}
	if s := v.Image; s != nil && s.PullPolicy == "" {
		s.PullPolicy = pullPolicy(s.Reference)
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		setDefault(&s.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	defaultDisk(v)
}

func defaultDisk(v *corev1.Volume) {
	if s := v.AzureDisk; s != nil {
		setDefault(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		setDefault(&s.FSType, "ext4")
		setDefault(&s.ReadOnly, false)
		setDefault(&s.Kind, corev1.AzureSharedBlobDisk)
	}
	if s := v.ISCSI; s != nil {
		s.ISCSIInterface = cmp.Or(s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		s.RBDPool = cmp.Or(s.RBDPool, "rbd")
		s.RadosUser = cmp.Or(s.RadosUser, "admin")
		s.Keyring = cmp.Or(s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.ScaleIO; s != nil {
		s.StorageMode = cmp.Or(s.StorageMode, "ThinProvisioned")
		s.FSType = cmp.Or(s.FSType, "xfs")
	}
}

// pullPolicy returns the default of an image: Always for the tag latest, which an
// image without tag and digest has.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, digested := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
	if tag == "latest" || !tagged && !digested {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultFields(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if f := items[i].FieldRef; f != nil && f.APIVersion == "" {
			f.APIVersion = "v1"
		}
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
