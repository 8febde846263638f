package podsecurity

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Pod is what a standard looks at in a pod. Fields that no check looks at are
// left empty.
type Pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     corev1.PodSpec    `json:"spec"`
}

// Decode reads a pod as the API server's decoder would. A key that an object has
// twice is an error. Parts that no check looks at are cut out before: they are
// most of a pod, and decoding is most of the cost. What is not known here is kept,
// so that a new check of upstream's sees what it looks at.
func Decode(object rawjson.Value) (*Pod, error) {
	if key, twice := object.DuplicateKey(); twice {
		return nil, &rawjson.DuplicateKeyError{Key: key}
	}
	var metadata, spec rawjson.Value
	for member, value := range object.Members() {
		switch {
		case member.Is("metadata"):
			metadata = value
		case member.Is("spec"):
			spec = value
		}
	}
	var text bytes.Buffer
	text.Grow(len(metadata) + len(spec))
	text.WriteString(`{"metadata":`)
	cut(&text, metadata, inMetadata)
	text.WriteString(`,"spec":`)
	cut(&text, spec, inSpec)
	text.WriteByte('}')

	pod := new(Pod)
	duplicates, err := kjson.UnmarshalStrict(text.Bytes(), pod, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, fmt.Errorf("not a pod: %w", err)
	}
	if len(duplicates) > 0 {
		return nil, duplicates[0]
	}
	defaultVolumes(spec.Get("volumes"), pod.Spec.Volumes)
	return pod, nil
}

// part says what becomes of a member of an object.
type part func(member rawjson.Value) fate

type fate uint8

const (
	// kept as it is.
	kept fate = iota
	// dropped with its name.
	dropped
	// emptied, if it is an object: that it is there is all that is looked at.
	emptied
	// containers, or a list of volumes, is a list whose elements are cut in turn.
	containers
	volumes
)

// The names are compared as they are written: one that is written otherwise,
// with escapes, is kept.

func inMetadata(member rawjson.Value) fate {
	switch string(member) {
	case `"name"`, `"generateName"`, `"namespace"`, `"uid"`, `"resourceVersion"`, `"creationTimestamp"`,
		`"labels"`, `"ownerReferences"`, `"finalizers"`, `"managedFields"`:
		return dropped
	default:
		return kept
	}
}

func inSpec(member rawjson.Value) fate {
	switch string(member) {
	case `"containers"`, `"initContainers"`, `"ephemeralContainers"`:
		return containers
	case `"volumes"`:
		return volumes
	case `"tolerations"`, `"affinity"`, `"nodeSelector"`, `"topologySpreadConstraints"`, `"imagePullSecrets"`,
		`"schedulerName"`, `"dnsPolicy"`, `"restartPolicy"`, `"serviceAccount"`, `"serviceAccountName"`,
		`"terminationGracePeriodSeconds"`, `"enableServiceLinks"`, `"priority"`, `"preemptionPolicy"`, `"nodeName"`:
		return dropped
	default:
		return kept
	}
}

func inContainer(member rawjson.Value) fate {
	switch string(member) {
	case `"env"`, `"envFrom"`, `"resources"`, `"volumeMounts"`, `"command"`, `"args"`,
		`"terminationMessagePath"`, `"terminationMessagePolicy"`, `"imagePullPolicy"`:
		return dropped
	default:
		return kept
	}
}

func inVolume(member rawjson.Value) fate {
	switch string(member) {
	case `"configMap"`, `"downwardAPI"`, `"projected"`, `"secret"`:
		return emptied
	default:
		return kept
	}
}

// cut copies an object part by part.
func cut(to *bytes.Buffer, object rawjson.Value, fateOf part) {
	switch object.Kind() {
	case rawjson.Object:
	case rawjson.Invalid, rawjson.Null:
		to.WriteString("{}")
		return
	case rawjson.Bool, rawjson.Number, rawjson.String, rawjson.Array:
		to.Write(object) // the decoder refuses it
		return
	}
	separator := byte('{')
	for member, value := range object.Members() {
		does := fateOf(member)
		if does == dropped {
			continue
		}
		to.WriteByte(separator)
		separator = ','
		to.Write(member)
		to.WriteByte(':')
		switch {
		case does == emptied && value.Kind() == rawjson.Object:
			to.WriteString("{}")
		case does == containers && value.Kind() == rawjson.Array:
			cutEach(to, value, inContainer)
		case does == volumes && value.Kind() == rawjson.Array:
			cutEach(to, value, inVolume)
		default:
			to.Write(value)
		}
	}
	if separator == '{' {
		to.WriteByte('{')
	}
	to.WriteByte('}')
}

func cutEach(to *bytes.Buffer, list rawjson.Value, fateOf part) {
	to.WriteByte('[')
	for i, element := range list.Elements() {
		if i > 0 {
			to.WriteByte(',')
		}
		cut(to, element, fateOf)
	}
	to.WriteByte(']')
}

// defaultVolumes makes a volume without a source an emptyDir, as the API server
// does when it stores a pod. A volume with a source that is not known here is
// left without one, so that the check for allowed volumes refuses it.
func defaultVolumes(raw rawjson.Value, volumes []corev1.Volume) {
	for i, volume := range raw.Elements() {
		if i >= len(volumes) || volumes[i].VolumeSource != (corev1.VolumeSource{}) {
			continue
		}
		source := false
		for member, value := range volume.Members() {
			source = source || !member.Is("name") && value.Kind() != rawjson.Null
		}
		if !source {
			volumes[i].EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	}
}
