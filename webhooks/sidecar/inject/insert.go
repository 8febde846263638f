package inject

import (
	"encoding/json"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// insertAll adds the elements of one list that are missing.
func (inj *injection) insertAll(l podtext.List) error {
	elements := inj.in.Profile.Elements[l]
	if len(elements) == 0 {
		return nil
	}
	own := inj.now.Pod.Lists[l].Text
	if own.Kind() != rawjson.Array {
		value := inj.in.Rendered.Arrays[l]
		if inj.actions[l] != nil {
			value = inj.array(l)
		}
		inj.record.NoteCreated(l.Pointer(), own)
		if own.Kind() == rawjson.Null {
			return inj.now.Editor.Replace(l.Pointer(), own, value)
		}
		return inj.now.Editor.Add(l.Pointer(), inj.now.Pod.Spec, l.String(), value)
	}
	length := inj.now.Pod.Lists[l].To - inj.now.Pod.Lists[l].From
	next, added := inj.position(l, length), 0
	for i := range elements {
		f := inj.action(l, i)
		if f.kind != add {
			if inj.in.Profile.First[l] {
				next = max(next, f.index+1)
			}
			continue
		}
		value := inj.in.Rendered.Elements[l][i].Value
		if f.raw != nil {
			value = json.RawMessage(f.raw)
		}
		var err error
		if next >= length {
			err = inj.now.Editor.Push(l.EndPointer(), own, value)
		} else {
			err = inj.now.Editor.Insert(l.Pointer(), next+added, inj.now.Pod.Element(inj.now.Pod.Lists[l].From+next).Text, value)
		}
		if err != nil {
			return err
		}
		added++
	}
	return nil
}

// array returns a list that the pod does not have.
func (inj *injection) array(l podtext.List) json.RawMessage {
	parts := slices.Clone(inj.in.Rendered.Elements[l])
	for i := range parts {
		if raw := inj.actions[l][i].raw; raw != nil {
			parts[i].Raw = raw
		}
	}
	return profile.Array(parts)
}

// position returns the index at which the profile's elements begin: in front of the
// pod's own or behind them, and among those of other profiles in their order.
func (inj *injection) position(l podtext.List, length int) int {
	first := inj.in.Profile.First[l]
	at := length
	if first {
		at = 0
	}
	if l == podtext.Volumes || inj.in.Owners.IsEmpty() {
		return at
	}
	for i := range length {
		owner, rank := inj.in.Owners.Owner(l, inj.now.Pod.Element(inj.now.Pod.Lists[l].From+i).Name.Text())
		switch {
		case owner == nil || owner.First[l] != first:
		case first && rank < inj.in.Rank:
			at = i + 1
		case !first && rank > inj.in.Rank:
			return i
		}
	}
	return at
}
