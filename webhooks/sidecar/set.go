package sidecar

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
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
	scratch sync.Pool
}

// Warnings returns a copy of the diagnostics that did not stop the compilation.
func (s *Set) Warnings() diagnostic.List { return slices.Clone(s.warnings) }

// Compile checks the profiles and prepares all that does not depend on a pod.
// The error is a diagnostic.List of everything that is wrong, in the order of
// sources, or the error of the spec's Stop. There is no Set then.
func Compile(spec Spec) (*Set, error) {
	s := &Set{namespaces: spec.Namespaces, configMaps: spec.ConfigMaps}
	s.scratch.New = func() any { return new(scratch) }
	if len(spec.Profiles) == 0 {
		return s, nil // What follows takes memory.
	}
	environment, err := template.NewEnvironment()
	if err != nil {
		return nil, fmt.Errorf("sidecar profiles: %w", err)
	}
	if s.security, err = podsecurity.New(); err != nil {
		return nil, fmt.Errorf("sidecar profiles: %w", err)
	}
	found := profile.CheckNames(spec.Profiles)
	for i := range spec.Profiles {
		p, diagnostics := profile.Compile(profile.Input{
			Environment: environment, Security: s.security, Profile: &spec.Profiles[i], ConfigMaps: spec.ConfigMaps, Stop: spec.Stop,
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
	found = append(found, s.lintNamespaces(spec.Known)...)
	found.Sort()
	s.warnings = found
	s.index = newIndex(s.profiles)
	return s, nil
}
