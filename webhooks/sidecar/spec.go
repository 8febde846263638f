// Package sidecar is the mutating endpoint: it merges SidecarProfiles into pods that are
// being created.
//
// Compile turns profiles into a Set. Decide decides about one pod, with a reason for every
// profile. Review is Decide for an admission request. Remove removes what Decide has
// added. All are pure: the same pod gets the same answer offline and online.
//
// A request passes these stages, each of them in a file or package of its own:
//
//	select   which profiles are applied              select.go
//	render   what a profile adds to this pod         render.go
//	merge    the pod with the profile                inject, merge
//	verify   what the API server checks afterwards   verify.go
//	encode   the status annotation and the patch     encode.go
//
// A patch is made of changes of single elements in the text of the pod. The pod is never
// decoded and encoded again: unknown fields stay as they are, byte for byte. A pod that
// has everything already gets no patch.
//
// Anyone who can create a pod can opt out. What a pod must have is the business of a
// validating policy.
package sidecar

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// Profile is a SidecarProfile and where it was found.
type Profile = profile.Document

// ConfigMaps returns the data of the ConfigMaps that presets name.
type ConfigMaps = profile.ConfigMaps

// Namespaces looks up namespaces. It must be safe for concurrent use, and what it returns
// must not change.
type Namespaces interface {
	// Namespace returns the namespace of this name, and whether it is known.
	Namespace(name string) (*corev1.Namespace, bool)
}

// Spec is what a Set is compiled from.
type Spec struct {
	Profiles []Profile
	// Namespaces may be nil: then no namespace is known.
	Namespaces Namespaces
	// ConfigMaps may be nil: then no preset is known.
	ConfigMaps ConfigMaps
	// Known are namespaces whose annotations are checked at once, where they are
	// known beforehand, as those of a directory are.
	Known []KnownNamespace
	// Stop returns an error once Compile is to end, as a context's Err does. Compile calls
	// it before each profile and each expression and returns its error. It may be nil.
	Stop func() error
}
