package sidecar

import (
	"cmp"
	"context"
	"slices"
)

// ProfileStatus is what one profile is to a pod that exists.
type ProfileStatus struct {
	// Profile is the name of the profile.
	Profile string
	// Matched is true if the pod would get the profile if it were created now.
	Matched bool
	// Injected is true if the status annotation of the pod lists the profile, and Stale
	// if it lists an earlier revision. It is false if the revision is unknown.
	Injected, Stale bool
}

// IsEmpty reports whether there are no profiles, so that no pod is changed or refused.
func (s *Set) IsEmpty() bool { return len(s.profiles) == 0 }

// Profiles returns the names of all profiles, sorted.
func (s *Set) Profiles() []string {
	names := make([]string, len(s.profiles))
	for i, p := range s.profiles {
		names[i] = p.Name
	}
	return names
}

// Revision returns the revision of a profile: that of all pods, and "" if it depends on the pod or there is no such profile.
func (s *Set) Revision(name string) string {
	if i, known := s.byName[name]; known {
		return s.profiles[i].FixedRevision()
	}
	return ""
}

// PodStatus returns the status of the profiles that a pod has or would get, by name. The
// pod is its JSON text in the namespace. It may be unchecked bytes, and is not referred
// to afterwards.
//
// With an error it cannot be decided what the pod would get. Injected and Stale are valid
// nevertheless. PodStatus is safe for concurrent use.
func (s *Set) PodStatus(ctx context.Context, namespace string, pod []byte) ([]ProfileStatus, error) {
	d := s.Decide(ctx, ForPod(namespace, pod))
	return d.statuses(s), d.Err
}

// statuses returns the status of the profiles of the Set that a pod has or would get, by name.
func (d *Decision) statuses(s *Set) []ProfileStatus {
	matched, revisions := map[string]bool{}, map[string]string{}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		revisions[v.Profile] = v.Revision
		matched[v.Profile] = d.Err == nil && (v.Reason == Applied || v.Reason == AlreadyThere)
	}
	var out []ProfileStatus
	for _, p := range s.profiles {
		one := ProfileStatus{Profile: p.Name, Matched: matched[p.Name]}
		if e := d.had.Find(p.Name); e != nil {
			revision := revisions[p.Name]
			if revision == "" {
				revision = p.FixedRevision()
			}
			one.Injected, one.Stale = true, revision != "" && e.Revision != revision
		}
		if one.Matched || one.Injected {
			out = append(out, one)
		}
	}
	return out
}

// Statuses returns what PodStatus returns for the pod that the Set has decided about with d, and the
// profiles that the status annotation of the pod lists and that do not exist, by name.
func (s *Set) Statuses(d *Decision) []ProfileStatus {
	out := d.statuses(s)
	if d.had == nil {
		return out
	}
	for i := range d.had.Profiles {
		name := d.had.Profiles[i].Name
		if _, exists := s.byName[name]; !exists {
			out = append(out, ProfileStatus{Profile: name, Injected: true})
		}
	}
	slices.SortStableFunc(out, func(a, b ProfileStatus) int { return cmp.Compare(a.Profile, b.Profile) })
	return slices.CompactFunc(out, func(a, b ProfileStatus) bool { return a.Profile == b.Profile })
}
