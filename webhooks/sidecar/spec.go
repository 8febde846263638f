// Package sidecar is the mutating endpoint: it adds the containers and volumes
// of SidecarProfiles to pods that are being created.
//
// Compile turns profiles into a Set once. Decide is the decision about one pod,
// with a reason for every profile, and Review is Decide behind an admission
// request. All three are pure: the same pod gets the same answer offline and
// online.
//
// A patch is built element by element on the text of the pod, which is never
// decoded and written back: what this package does not know stays as it was,
// byte for byte. A pod that already has what a profile adds gets no patch, so
// that a second call changes nothing.
//
// Injection is a service to the pod's author, not a fence around them: who may
// create a pod may also decline. What a pod must have is for a validating
// policy to demand.
package sidecar

import "github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"

// Profile is a SidecarProfile and where it was found.
type Profile struct {
	// Source is the file and document, for messages only: "profiles/log.yaml#2".
	Source string
	v1alpha1.SidecarProfile
}

// Namespaces tells the labels of namespaces. It must be safe for concurrent
// use, and the labels must not change once returned.
type Namespaces interface {
	// NamespaceLabels returns the labels of the namespace of this name, and
	// whether the namespace is known at all.
	NamespaceLabels(name string) (labels map[string]string, known bool)
}

// Spec is what a Set is compiled from.
type Spec struct {
	Profiles []Profile
	// Namespaces may be nil: then no namespace is known.
	Namespaces Namespaces
}
