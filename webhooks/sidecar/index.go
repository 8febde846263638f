package sidecar

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// fewProfiles is the number of profiles up to which no index is used.
const fewProfiles = 16

// index finds the profiles that the labels of a pod and its namespace do not exclude. The
// time for a request then grows with the profiles that match, and not with all.
type index struct {
	// always are profiles that no single label excludes.
	always []int
	// objects and namespaces are profiles by a label that they require.
	objects, namespaces pivots
}

// pivots are indexes of profiles by the key and value of a label. For pods'
// labels both are JSON strings, as they stand in the text.
type pivots map[string]map[string][]int

func (p pivots) add(key, value string, profile int) {
	if p[key] == nil {
		p[key] = make(map[string][]int)
	}
	p[key][value] = append(p[key][value], profile)
}

// newIndex returns an index, or nil for few profiles.
func newIndex(profiles []*profile.Profile) *index {
	if len(profiles) <= fewProfiles {
		return nil
	}
	x := &index{objects: make(pivots), namespaces: make(pivots)}
	for i, p := range profiles {
		if key, values := pivot(p.ObjectSelector); key != "" {
			for _, value := range values {
				x.objects.add(string(rawjson.AppendString(nil, key)), string(rawjson.AppendString(nil, value)), i)
			}
			continue
		}
		if key, values := pivot(p.NamespaceSelector); key != "" {
			for _, value := range values {
				x.namespaces.add(key, value, i)
			}
			continue
		}
		x.always = append(x.always, i)
	}
	return x
}

// pivot returns a label that a selector requires, and the values that it may have.
func pivot(s labels.Selector) (key string, values []string) {
	if s == nil {
		return "", nil
	}
	requirements, _ := s.Requirements()
	for i := range requirements {
		r := &requirements[i]
		if profile.IsOneOf(r) && (values == nil || r.ValuesUnsorted() != nil && len(r.ValuesUnsorted()) < len(values)) {
			key, values = r.Key(), r.ValuesUnsorted()
		}
	}
	return key, values
}

// candidates marks the profiles that are not excluded.
func (x *index) candidates(marks []bool, p *podtext.Pod, ns *namespace) {
	mark := func(profiles []int) {
		for _, i := range profiles {
			marks[i] = true
		}
	}
	mark(x.always)
	for name, value := range p.Labels.Members() {
		if bytes.IndexByte(name, '\\') >= 0 {
			name = rawjson.AppendString(nil, name.Text())
		}
		byValue := x.objects[string(name)]
		if byValue == nil {
			continue
		}
		if bytes.IndexByte(value, '\\') >= 0 {
			value = rawjson.AppendString(nil, value.Text())
		}
		mark(byValue[string(value)])
	}
	for key, byValue := range x.namespaces {
		value, ok := ns.Lookup(key)
		switch {
		case ok:
			mark(byValue[value])
		case !ns.known && key != corev1.LabelMetadataName:
			// The label is not known.
			for _, profiles := range byValue {
				mark(profiles)
			}
		}
	}
}
