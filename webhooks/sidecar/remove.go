package sidecar

import (
	"fmt"
	"slices"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// Removal removes from a pod what profiles have added.
type Removal struct {
	// Patches make the pod what it was. It is nil if the pod has no status
	// annotation.
	Patches []jsonpatch.Operation
	// Profiles are those whose additions are taken out.
	Profiles []string
	// Left are the field paths that the status annotation lists and the pod does not have.
	Left []string
}

// Remove returns how to remove from a pod what its status annotation lists, and the
// annotation. What was added is removed even if others have changed it since, what was
// replaced is restored, and what others have added stays. It returns an error for a text
// that is not a pod, or whose annotation cannot be read.
func Remove(text []byte) (Removal, error) {
	text = podtext.Trim(text)
	var p podtext.Pod
	if err := p.Parse(text); err != nil {
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
	_, r.Patches, _ = root.Revert(nil, text, "")
	r.Left = root.NotFound("", nil)
	slices.Sort(r.Left)
	return r, nil
}
