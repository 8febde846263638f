package profile

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	kjson "sigs.k8s.io/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
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

// defaultVolume fills in the defaults of the API server, and writes a path of the node in one way.
func defaultVolume(v *corev1.Volume) {
	defaults.Volume(v)
	if v.HostPath != nil {
		v.HostPath.Path = merge.CleanPath(v.HostPath.Path)
	}
}
