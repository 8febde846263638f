// Package defaults makes of a manifest the object that webhooks are asked
// about: what the API server fills in before it asks them is filled in, so that a
// policy gives the same verdict offline as in a cluster.
//
// Three things stand between a manifest and a validating webhook, and all of
// them are done here for the kinds that Kubernetes itself has, in the versions
// that are served by default:
//
//   - the API server reads the manifest into its own types: quantities become
//     canonical ("1000m" is "1"), a Secret's stringData becomes data, and what is
//     empty, or unknown to the types, is left out (hostNetwork: false);
//   - it sets defaults (k8s.io/kubernetes, pkg/apis/*/v*/defaults.go, and the
//     +default markers of k8s.io/api);
//   - admission plug-ins that are always on, and the registry when it prepares
//     an object for creation, add to it what depends on nothing but the object: a
//     pod's service account and its token's volume, its tolerations of nodes that
//     do not answer, its priority, a claim's finalizer, a namespace's, and so on.
//
// It is about creation: on an update the API server fills in less. The rules are
// those of Kubernetes 1.37 with default feature gates and plug-ins. What 1.36 does
// otherwise is little: a StatefulSet's maxUnavailable, a CSIDriver's
// preventPodSchedulingIfMissing, the limits of pods as a whole.
//
// What is not done, because the object does not tell it:
//
//   - what the API server assigns: uid, creationTimestamp, generation,
//     managedFields, a name for generateName, status, the addresses, address
//     families and node ports of a Service, the selector of a Job and the labels of
//     its pods (they hold the Job's uid);
//   - what other objects decide: default storage and ingress classes, limit
//     ranges, runtime classes, priority classes other than the two of the system,
//     and a service account's pull secrets. A service account is taken to want its
//     token mounted, as one that says nothing does;
//   - defaults in the schemas of custom resources.
//
// Nor is what would cost more than it tells: fields of features that are off by
// default are kept, where the API server drops them, and the kinds of
// resource.k8s.io and certificates.k8s.io and all alpha and beta versions are left
// alone.
package defaults

import (
	"encoding/json"
	"maps"

	kjson "sigs.k8s.io/json"
)

// Apply fills in an object, which it changes in place. The object is as
// sigs.k8s.io/json or apimachinery decodes it. Its status, which the API server
// replaces, stays as it is.
//
// An object of a kind that is not known here is left alone, and so is one that
// does not fit the types of its kind: the API server would refuse it. Applied
// twice, it changes nothing the second time.
func Apply(object map[string]any) {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	fill := filler(version, kind)
	if fill == nil {
		return
	}
	filled, err := fill(object)
	if err != nil {
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

// typed makes a filler of trees of what fills in a type.
func typed[T any](fill func(*T)) func(map[string]any) (map[string]any, error) {
	return func(tree map[string]any) (map[string]any, error) {
		text, err := json.Marshal(tree)
		if err != nil {
			return nil, err
		}
		var object T
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &object)
		if err != nil {
			return nil, err
		}
		fill(&object)
		text, err = json.Marshal(&object)
		if err != nil {
			return nil, err
		}
		var filled map[string]any
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &filled)
		return filled, err
	}
}

// nothing is what is filled in for kinds without defaults: they are read into
// their types like all others.
func nothing[T any](*T) {}

// set gives a field without a value one.
func set[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

// point gives a pointer to nothing a value.
func point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
