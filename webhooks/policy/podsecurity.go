package policy

import (
	"bytes"
	"fmt"
	"iter"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// podSecurity is a Pod Security Standard in one version, evaluated by upstream's
// own checks.
type podSecurity struct {
	evaluator podsecuritypolicy.Evaluator
	standard  podsecurityapi.LevelVersion
}

// compilePodSecurity reports a standard that does not exist, and rules by which
// the policy would match what is not a pod: nothing there can be checked, and
// passing it silently would look like a check.
func compilePodSecurity(d document, evaluator podsecuritypolicy.Evaluator, spec *v1alpha1.PodSecurity, match *admissionregistrationv1.MatchResources) *podSecurity {
	path := field.NewPath("spec", "podSecurity")
	out := &podSecurity{evaluator: evaluator}
	var err error
	if out.standard.Level, err = podsecurityapi.ParseLevel(spec.Level); err != nil {
		d.oneOf(path.Child("level"), spec.Level, "privileged", "baseline", "restricted")
	}
	if out.standard.Level == podsecurityapi.LevelPrivileged {
		d.warnf(path.Child("level"), "", `"privileged" allows every pod`)
	}
	out.standard.Version = podsecurityapi.LatestVersion()
	if spec.Version != "" {
		if out.standard.Version, err = podsecurityapi.ParseVersion(spec.Version); err != nil {
			d.errorf(path.Child("version"), "", `%q is not allowed; allowed are "latest" and "v1.NN"`, spec.Version)
		}
	}
	if match == nil {
		return out
	}
	for i := range match.ResourceRules {
		rule := &match.ResourceRules[i]
		at := field.NewPath("spec", "matchConstraints", "resourceRules").Index(i)
		for k, group := range rule.APIGroups {
			if group != "" {
				d.errorf(at.Child("apiGroups").Index(k), `pods are in the group ""`, "%q is not allowed with podSecurity, which looks at pods only", group)
			}
		}
		for k, resource := range rule.Resources {
			if resource != "pods" && resource != "pods/ephemeralcontainers" {
				d.errorf(at.Child("resources").Index(k), "a workload's pods are checked when they are created",
					`%q is not allowed with podSecurity, which looks at "pods" and "pods/ephemeralcontainers" only`, resource)
			}
		}
		for k, operation := range rule.Operations {
			if operation != admissionregistrationv1.Create && operation != admissionregistrationv1.Update {
				d.errorf(at.Child("operations").Index(k), "",
					`%q is not allowed with podSecurity, which looks at "CREATE" and "UPDATE" only`, string(operation))
			}
		}
	}
	return out
}

// violations are the checks that the request's pod fails, one text each, in
// upstream's order. As upstream does, an update is looked at only if it changes
// what can change the outcome. An error means that the pod cannot be read.
func (p *podSecurity) violations(r *request) ([]string, error) {
	if p.standard.Level == podsecurityapi.LevelPrivileged {
		return nil, nil
	}
	if kind := r.Kind; kind.Group != "" || kind.Version != "v1" || kind.Kind != "Pod" {
		return nil, fmt.Errorf("podSecurity looks at v1 Pods, and this is %s %s", metav1.GroupVersion{Group: kind.Group, Version: kind.Version}, kind.Kind)
	}
	object, err := r.object.json()
	if err != nil {
		return nil, err
	}
	old, err := r.oldObject.json()
	if err != nil {
		return nil, err
	}
	if r.Operation == admissionv1.Update && len(old) > 0 && !changesSecurity(object, old) {
		return nil, nil
	}
	meta, spec, err := r.pod()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, result := range p.evaluator.EvaluatePod(p.standard, meta, spec) {
		if !result.Allowed {
			one := podsecuritypolicy.AggregateCheckResults([]podsecuritypolicy.CheckResult{result})
			out = append(out, fmt.Sprintf("violates PodSecurity %q: %s", p.standard.String(), one.ForbiddenDetail()))
		}
	}
	return out, nil
}

// changesSecurity tells whether an update of a pod can change the outcome: of
// what a standard looks at, only images, and the list of ephemeral containers,
// can be changed in a pod that exists. The rule is upstream's,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/staging/src/k8s.io/pod-security-admission/admission/admission.go.
func changesSecurity(object, old rawjson.Value) bool {
	for _, list := range []string{"containers", "initContainers"} {
		if !sameImages(object.Get("spec", list), old.Get("spec", list)) {
			return true
		}
	}
	before := old.Get("spec", "ephemeralContainers")
	for _, container := range object.Get("spec", "ephemeralContainers").Elements() {
		name, known := container.Get("name").Text(), false
		for _, other := range before.Elements() {
			if other.Get("name").Text() == name {
				known = sameText(container.Get("image"), other.Get("image"))
				break
			}
		}
		if !known {
			return true
		}
	}
	return false
}

func sameImages(a, b rawjson.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	next, stop := iter.Pull2(b.Elements())
	defer stop()
	for _, container := range a.Elements() {
		_, other, _ := next()
		if !sameText(container.Get("image"), other.Get("image")) {
			return false
		}
	}
	return true
}

func sameText(a, b rawjson.Value) bool {
	return bytes.Equal(a, b) || a.Kind() == rawjson.String && b.Kind() == rawjson.String && a.Text() == b.Text()
}

// podUnderCheck is what a standard looks at in a pod.
type podUnderCheck struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     corev1.PodSpec    `json:"spec"`
}

// decodePod reads a pod as the API server's decoder would. Parts that no check
// looks at are cut out before: they are most of a pod, and decoding is most of
// the cost. What is not known here is kept, so that a new check of upstream's
// sees what it looks at.
func decodePod(object rawjson.Value) (*podUnderCheck, error) {
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

	pod := new(podUnderCheck)
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
