package sidecar

import "context"

// Standing is how a pod that exists stands to one profile.
type Standing struct {
	// Profile is its name.
	Profile string
	// Matched is true if the pod would get the profile if it were created now.
	Matched bool
	// Injected is true if the pod's status annotation says that it has it, and Stale
	// if it has it as an earlier version of the profile made it. What cannot be told
	// is not stale.
	Injected, Stale bool
}

// Profiles are the names of all profiles, sorted.
func (s *Set) Profiles() []string {
	names := make([]string, len(s.profiles))
	for i, p := range s.profiles {
		names[i] = p.Name
	}
	return names
}

// Census tells how a pod that exists stands to the profiles, as its JSON text in the
// namespace is now. Profiles that the pod has nothing to do with are left out, and
// so are those that it has and that are no more; the others are in the order of
// their names. The text may be unchecked bytes, and is not referred to afterwards.
//
// An error says why it cannot be told what the pod would get; what it has is told
// nevertheless. Census is safe for concurrent use.
func (s *Set) Census(ctx context.Context, namespace string, pod []byte) ([]Standing, error) {
	d, had := s.decide(Input{Context: ctx, Namespace: namespace, Pod: pod})
	matched, revisions := map[string]bool{}, map[string]string{}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		revisions[v.Profile] = v.Revision
		matched[v.Profile] = d.Err == nil && (v.Reason == Applied || v.Reason == AlreadyThere)
	}
	var out []Standing
	for _, p := range s.profiles {
		standing := Standing{Profile: p.Name, Matched: matched[p.Name]}
		if e := had.Find(p.Name); e != nil {
			revision := revisions[p.Name]
			if revision == "" {
				revision = p.FixedRevision()
			}
			standing.Injected, standing.Stale = true, revision != "" && e.Revision != revision
		}
		if standing.Matched || standing.Injected {
			out = append(out, standing)
		}
	}
	return out, d.Err
}
