// Package sidecar is the mutating endpoint: it adds what SidecarProfiles
// describe to pods that are being created.
//
// Compile turns profiles into a Set once. Decide is the decision about one pod,
// with a reason for every profile, Review is Decide behind an admission request,
// and Remove takes out again what a decision has put in. All are pure: the same
// pod gets the same answer offline and online.
//
// A patch is built element by element on the text of the pod, which is never
// decoded and written back: what this package does not know stays as it was,
// byte for byte. A pod that already has what a profile adds gets no patch, so
// that a second call changes nothing but what has appeared since the first.
//
// Injection is a service to the pod's author, not a fence around them: who may
// create a pod may also decline. What a pod must have is for a validating
// policy to demand.
package sidecar

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// Profile is a SidecarProfile and where it was found.
type Profile = profile.Document

// ConfigMaps returns the data of the ConfigMaps that presets name.
type ConfigMaps = profile.ConfigMaps

// Namespaces tells what is known of namespaces. It must be safe for concurrent
// use, and what it returns must not change.
type Namespaces interface {
	// Namespace returns the namespace of this name, and whether it is known at
	// all.
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
