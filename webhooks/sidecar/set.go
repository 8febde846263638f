// Package sidecar decides which SidecarProfiles a new pod gets, and merges them into the pod: it is the injection of the
// endpoint /mutate. Compile turns profiles into a Set, Set.Decide decides about one pod, with a reason for every profile,
// and Remove removes from a pod what Decide added. All are pure: the same pod gets the same answer offline and online.
//
// A request passes these stages, each of them in a file or package of its own:
//
//	select   which profiles are applied              select.go
//	render   what a profile adds to this pod         render.go
//	merge    the pod with the profile                inject, merge
//	verify   what the API server checks afterwards   verify.go
//	encode   the status annotation and the patch     encode.go
//
// A patch changes single elements in the text of the pod. The pod is never decoded and encoded again, so unknown fields
// stay as they are, byte for byte. A pod that has everything already gets no patch.
//
// Anyone who can create a pod can opt out of a profile. To require something of pods, use a validating policy.
package sidecar

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// Set is a set of compiled profiles. It is immutable and safe for concurrent use.
type Set struct {
	profiles []*profile.Profile // by name
	byName   map[string]int
	// ranks are the places of the profiles in the order in which their containers stand.
	ranks      []int
	index      *index // nil if there are few
	namespaces Namespaces
	configMaps profile.ConfigMaps
	security   *podsecurity.Evaluator
	warnings   diagnostic.List
	// scratch holds cleared *scratch values for Decide.
	scratch *sync.Pool
}

// With returns the Set with other lookups. It costs no compilation.
func (s *Set) With(namespaces Namespaces, configMaps ConfigMaps) *Set {
	with := *s
	with.namespaces, with.configMaps = namespaces, configMaps
	return &with
}

// Warnings returns a copy of the diagnostics that did not stop the compilation.
func (s *Set) Warnings() diagnostic.List { return slices.Clone(s.warnings) }

// Compile checks the profiles and prepares all that does not depend on a pod.
// The error is a diagnostic.List of everything that is wrong, in the order of
// sources, or the error of the spec's Stop. There is no Set then.
func Compile(spec Spec) (*Set, error) {
	s := &Set{
		namespaces: spec.Namespaces, configMaps: spec.ConfigMaps,
		scratch: &sync.Pool{New: func() any { return new(scratch) }},
	}
	if len(spec.Profiles) == 0 {
		return s, nil // What follows takes memory.
	}
	environment, err := template.NewEnvironment(spec.Option)
	if err != nil {
		return nil, fmt.Errorf("sidecar profiles: %w", err)
	}
	if s.security, err = podsecurity.New(); err != nil {
		return nil, fmt.Errorf("sidecar profiles: %w", err)
	}
	found := profile.CheckNames(spec.Profiles)
	for i := range spec.Profiles {
		p, diagnostics := profile.Compile(profile.Input{
			Environment: environment, Profile: &spec.Profiles[i], ConfigMaps: spec.ConfigMaps, Stop: spec.Stop,
		})
		if spec.Stop != nil {
			if err := spec.Stop(); err != nil {
				return nil, err
			}
		}
		found = append(found, diagnostics...)
		s.profiles = append(s.profiles, p)
	}
	slices.SortStableFunc(s.profiles, func(a, b *profile.Profile) int { return cmp.Compare(a.Name, b.Name) })
	s.byName = make(map[string]int, len(s.profiles))
	for i, p := range s.profiles {
		s.byName[p.Name] = i
	}
	order, linked := profile.Link(s.profiles)
	found = append(found, linked...)
	s.ranks = make([]int, len(s.profiles))
	for rank, i := range order {
		s.ranks[i] = rank
	}
	found = append(found, profile.CheckConflicts(s.profiles)...)
	found.Sort()
	if err := found.Err(); err != nil {
		return nil, err
	}
	s.warnings = found
	s.index = newIndex(s.profiles)
	return s, nil
}

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
	// Option is for all expressions, and may be nil.
	Option celbound.Option
	// Stop returns an error once Compile is to end, as a context's Err does. Compile calls
	// it before each profile and each expression and returns its error. It may be nil.
	Stop func() error
}
