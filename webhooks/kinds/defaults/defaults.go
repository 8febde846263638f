// Package defaults fills in an object of a manifest as the API server does before it calls webhooks, so that a policy decides
// the same offline as in a cluster. It covers Kubernetes' own kinds, in the stable versions:
//
//   - the API server decodes the manifest into its types: quantities become canonical ("1000m" is "1"), a Secret's stringData
//     becomes data, and empty and unknown fields are dropped (hostNetwork: false);
//   - it sets defaults (k8s.io/kubernetes, pkg/apis/*/v*/defaults.go, and the +default markers of k8s.io/api);
//   - admission plug-ins that are always on, and the registry, add what depends on the object alone: a pod's service account,
//     token volume, tolerations and priority, the finalizers of claims and namespaces, and so on.
//
// It fills in objects that are created; on an update the API server fills in less. The rules are those of Kubernetes 1.37 with
// default feature gates and plug-ins. Versions 1.35 and 1.36 differ in a StatefulSet's maxUnavailable and the limits of whole pods.
//
// Not filled in are:
//
//   - what the API server assigns: uid, creationTimestamp, generation, managedFields, generated names, status, the addresses and
//     node ports of a Service, the selector of a Job;
//   - what other objects decide: default storage and ingress classes, limit ranges, runtime classes, other priority classes than
//     the two of the system, a service account's pull secrets. A service account is assumed to mount its token;
//   - defaults in the schemas of custom resources, which offline/schema has;
//   - the label keys of affinities and spread constraints, AppArmor's annotations, volumes of iSCSI,
//     RBD, ScaleIO and Azure, the data source of a claim;
//   - Nodes, LimitRanges, Endpoints, CSIDrivers, kinds of flowcontrol.apiserver.k8s.io, resource.k8s.io and certificates.k8s.io, and
//     alpha and beta versions. Fields of features that are off by default are kept, where the API server drops them.
package defaults

import (
	"encoding/json"
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Apply fills in an object in place. The object is as sigs.k8s.io/json or apimachinery decodes it. Its status stays as it is.
//
// An object of an unknown kind is left alone, and so is one that does not fit its type, which the API server would refuse. Apply
// is idempotent.
func Apply(object map[string]any) {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	typed, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(version, kind))
	if err != nil || convert(object, typed) != nil || !fill(typed) {
		return
	}
	var filled map[string]any
	if convert(typed, &filled) != nil {
		return
	}
	// Types without a status in the manifest write an empty one.
	delete(filled, "status")
	if status, ok := object["status"]; ok {
		filled["status"] = status
	}
	clear(object)
	maps.Copy(object, filled)
}

// Filled decodes an object as Apply leaves it. What Apply leaves alone it returns as it is, and so an object with a field that its
// type does not have, such as that of a later version of Kubernetes: the result would lack it.
func Filled(kind schema.GroupVersionKind, object rawjson.Value) (any, error) {
	given, err := object.Decode()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what is wrong with the object
	}
	typed, err := scheme.Scheme.New(kind)
	if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(object, typed) != nil || !fill(typed) {
		return given, nil //nolint:nilerr // it is none of Kubernetes' own, or does not fit
	}
	text, err := json.Marshal(typed)
	if err != nil {
		return given, nil //nolint:nilerr // such an object cannot be decoded either
	}
	filled, err := rawjson.Value(text).Decode()
	if err != nil || !holds(filled, given) {
		return given, nil //nolint:nilerr // as above
	}
	return filled, nil
}

// holds reports whether a value has all members of another one that are not empty, and all elements.
func holds(value, of any) bool {
	switch of := of.(type) {
	case map[string]any:
		members, _ := value.(map[string]any)
		for name, member := range of {
			if own, is := members[name]; is && !holds(own, member) || !is && !isEmpty(member) {
				return false
			}
		}
	case []any:
		elements, _ := value.([]any)
		for i, element := range of {
			if i >= len(elements) || !holds(elements[i], element) {
				return false
			}
		}
	}
	return true
}

// isEmpty reports whether a type of Kubernetes may leave the value out.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			if !isEmpty(member) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	default:
		return v == nil || v == false || v == int64(0) || v == ""
	}
}

// convert decodes the JSON of a value into another, as the API server decodes objects.
func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, to)
}

// set sets a field that has no value.
func set[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

// setPointer sets a nil pointer.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
