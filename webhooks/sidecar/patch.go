package sidecar

import (
	"encoding/json"
	"strconv"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

const statusPath = "/metadata/annotations/sidecar.gatehouse.dev~1status"

// buildPatch makes the patch that carries out the plans, or nil if there is
// nothing to do. Every operation adds to an object or array that was seen in the
// pod, or puts it there: a patch that does not apply makes the API server refuse
// the pod even where failures are to be ignored.
func buildPatch(p *pod, plans []plan, earlier []entry) []jsonpatch.Operation {
	operations := 0
	for i := range plans {
		if plans[i].reason == Applied {
			for l := range lists {
				operations += len(plans[i].profile.elements[l])
			}
		}
	}
	if operations == 0 {
		return nil
	}
	patch := make([]jsonpatch.Operation, 0, operations+1)
	patch = append(patch, statusOperation(p, plans, earlier))
	for l := range lists {
		if p.lists[l].text.Kind() == rawjson.Array {
			patch = addElements(patch, plans, l)
		} else {
			patch = addList(patch, plans, l)
		}
	}
	return patch
}

// statusOperation writes the status annotation, and the objects around it where
// they are absent or null.
func statusOperation(p *pod, plans []plan, earlier []entry) jsonpatch.Operation {
	value := newStatus(p, plans, earlier)
	switch {
	case p.metadata.Kind() != rawjson.Object:
		return jsonpatch.Operation{Operation: "add", Path: "/metadata", Value: wrap(`{"annotations":{"`+v1alpha1.StatusAnnotation+`":`, value, `}}`)}
	case p.annotations.Kind() != rawjson.Object:
		return jsonpatch.Operation{Operation: "add", Path: "/metadata/annotations", Value: wrap(`{"`+v1alpha1.StatusAnnotation+`":`, value, `}`)}
	case p.status != nil:
		return jsonpatch.Operation{Operation: "replace", Path: statusPath, Value: value}
	default:
		return jsonpatch.Operation{Operation: "add", Path: statusPath, Value: value}
	}
}

func wrap(before string, value any, after string) json.RawMessage {
	text, _ := value.(json.RawMessage)
	return json.RawMessage(before + string(text) + after)
}

// newStatus is the status annotation as the value of a patch operation. It keeps
// what earlier entries claim, as far as it is there.
func newStatus(p *pod, plans []plan, earlier []entry) any {
	if len(plans) == 1 && len(earlier) == 0 && plans[0].whole() {
		return plans[0].profile.status
	}
	entries := make([]entry, 0, len(plans)+len(earlier))
	for i := range plans {
		if plans[i].reason == Applied {
			entries = append(entries, plans[i].profile.entry(&plans[i]))
		}
	}
	written := make(map[string]bool, len(entries))
	for i := range entries {
		written[entries[i].Name] = true
	}
	there := p.names()
	for i := range earlier {
		if kept := earlier[i].prune(there); !written[kept.Name] && !kept.empty() {
			entries = append(entries, kept)
		}
	}
	return statusValue(entries)
}

// addList puts a list where there is none, or null. Of the lists of a plan
// nothing can be there then.
func addList(patch []jsonpatch.Operation, plans []plan, l list) []jsonpatch.Operation {
	var all [][]element
	var value any
	for i := range plans {
		if profile := plans[i].profile; plans[i].reason == Applied && len(profile.elements[l]) > 0 {
			all = append(all, profile.elements[l])
			value = profile.arrays[l]
		}
	}
	switch len(all) {
	case 0:
		return patch
	case 1:
	default:
		value = array(all...)
	}
	return append(patch, jsonpatch.Operation{Operation: "add", Path: "/spec/" + l.String(), Value: value})
}

// array writes elements as a JSON array.
func array(all ...[]element) json.RawMessage {
	dst := []byte{'['}
	for _, elements := range all {
		for i := range elements {
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			dst = append(dst, elements[i].raw...)
		}
	}
	return append(dst, ']')
}

// addElements adds to a list: init containers in front of the pod's own, but
// behind those of earlier profiles that are there already; others at the end.
func addElements(patch []jsonpatch.Operation, plans []plan, l list) []jsonpatch.Operation {
	next, added := 0, 0
	for i := range plans {
		plan := &plans[i]
		for k := range plan.profile.elements[l] {
			switch fate := plan.fate(l, k); {
			case fate.what == present:
				next = max(next, fate.index+added+1)
			case fate.what == toAdd && plan.reason == Applied:
				patch = append(patch, jsonpatch.Operation{Operation: "add", Path: elementPath(l, next), Value: plan.profile.elements[l][k].value})
				next++
				added++
			}
		}
	}
	return patch
}

func elementPath(l list, index int) string {
	switch {
	case l == containers:
		return "/spec/containers/-"
	case l == volumes:
		return "/spec/volumes/-"
	case index == 0:
		return "/spec/initContainers/0"
	default:
		return "/spec/initContainers/" + strconv.Itoa(index)
	}
}
