package sidecar

import (
	"fmt"
	"slices"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// Removal is how to take out of a pod what earlier decisions have put in.
type Removal struct {
	// Patches make the pod what it was. It is nil if the pod has no status
	// annotation.
	Patches []jsonpatch.Operation
	// Profiles are those whose additions are taken out.
	Profiles []string
	// Left is what the status annotation lists and is not there, as field paths.
	Left []string
}

// Remove tells how to take out of a pod what its status annotation lists, and
// the annotation: what was added goes, whatever others have made of it since,
// what was replaced comes back, and what others have added stays. The error says why this is no pod,
// or that the annotation cannot be read.
func Remove(text []byte) (Removal, error) {
	text = podtext.Trim(text)
	var sc scratch
	p := &sc.Pod
	if err := p.Parse(&sc.Reader, text); err != nil {
		return Removal{}, err
	}
	if p.StatusAnnotation == nil {
		return Removal{}, nil
	}
	s, err := status.Parse(p.StatusAnnotation.Text())
	if err != nil {
		return Removal{}, fmt.Errorf("%s: %w", status.Field, err)
	}
	var r Removal
	root := s.Undo()
	for i := range s.Profiles {
		r.Profiles = append(r.Profiles, s.Profiles[i].Name)
	}
	var o status.Operations
	root.Revert(nil, text, "", &o)
	r.Patches = o.All
	r.Left = root.NotFound("", nil)
	slices.Sort(r.Left)
	return r, nil
}
