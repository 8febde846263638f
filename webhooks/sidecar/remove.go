package sidecar

import (
	"fmt"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
)

// Removal is how to take out of a pod what earlier decisions have put in.
type Removal struct {
	// Patches make the pod what it was. It is nil if the pod has no status
	// annotation.
	Patches []jsonpatch.Operation
	// Profiles are those whose additions are taken out.
	Profiles []string
	// Left is what the status annotation lists and is not there, as trails.
	Left []string
}

// Remove tells how to take out of a pod what its status annotation lists, and
// the annotation: what was added goes, whatever others have made of it since,
// what was replaced comes back, and what others have added stays. The error says why this is no pod,
// or that the annotation cannot be read.
func Remove(text []byte) (Removal, error) {
	text = trimmed(text)
	var sc scratch
	p := &sc.pod
	if err := p.parse(&sc.reader, text); err != nil {
		return Removal{}, err
	}
	if p.status == nil {
		return Removal{}, nil
	}
	s, err := parseStatus(p.status.Text())
	if err != nil {
		return Removal{}, fmt.Errorf("%s: %w", statusField, err)
	}
	var r Removal
	root := s.undo()
	for i := range s.Profiles {
		r.Profiles = append(r.Profiles, s.Profiles[i].Name)
	}
	var o operations
	root.revert(nil, text, "", &o)
	r.Patches = o.all
	r.Left = root.left("", nil)
	slices.Sort(r.Left)
	return r, nil
}
