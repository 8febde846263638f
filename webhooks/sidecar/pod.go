package sidecar

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// mirrorAnnotation marks the pod by which the API server shows a static pod
// (k8s.io/api/core/v1.MirrorPodAnnotationKey). The kubelet runs the static pod,
// whatever becomes of its mirror.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// scratch is the memory that one decision needs while it is made.
type scratch struct {
	pod pod
	// A pod of 5 KB has about 50 members at the depth that is looked at. One
	// with more than there is room for is read more slowly.
	members [96]rawjson.Member
}

func (s *scratch) clear() { *s = scratch{} }

// pod is what is read of a pod. Its values share the memory of the request.
type pod struct {
	metadata, annotations, labels, spec rawjson.Value

	inject, status rawjson.Value
	mirror         bool

	hostNetwork   rawjson.Value
	hostProcess   bool
	restartPolicy rawjson.Value
	security      rawjson.Value

	// lists are the lists of the spec.
	lists [ephemeralContainers + 1]podList
	// The first items need no memory of their own.
	few   [12]item
	more  []item
	items int
}

// podList is one list of the spec: its text, and which of the pod's items are
// its elements.
type podList struct {
	text     rawjson.Value
	from, to int
}

// item is an element of one of the lists.
type item struct {
	name, text, ports rawjson.Value
	// native tells that an init container is a native sidecar.
	native bool
}

func (p *pod) add(it item) {
	if p.items < len(p.few) {
		p.few[p.items] = it
	} else {
		p.more = append(p.more, it)
	}
	p.items++
}

func (p *pod) item(i int) *item {
	if i < len(p.few) {
		return &p.few[i]
	}
	return &p.more[i-len(p.few)]
}

// find returns the index in the list of the first element of this name, or -1.
func (p *pod) find(l list, name string) int {
	for i := p.lists[l].from; i < p.lists[l].to; i++ {
		if p.item(i).name.Is(name) {
			return i - p.lists[l].from
		}
	}
	return -1
}

// place is an object of a pod that is looked into.
type place uint8

const (
	elsewhere place = iota
	root
	metadata
	annotations
	labelsOf
	spec
)

func (pl place) String() string {
	switch pl {
	case metadata:
		return "metadata"
	case annotations:
		return "metadata.annotations"
	case labelsOf:
		return "metadata.labels"
	case spec:
		return "spec"
	case root, elsewhere:
		return "the object"
	default:
		return "unknown"
	}
}

// read checks the text of a pod and reads its metadata and the members of its
// spec in one pass; the lists of the spec are for readLists. An error means that
// this is no pod, or one that no two readers would read alike.
func (p *pod) read(room []rawjson.Member, text []byte) error {
	const depth = 3 // metadata.annotations.*
	members, _, err := rawjson.Outline(room, text, depth)
	if err != nil {
		// This is not JSON, or there is not room enough.
		value, err := rawjson.Parse(text)
		if err != nil {
			return fmt.Errorf("the object: %w", err)
		}
		if members, err = outline(nil, value, 1, depth); err != nil {
			return fmt.Errorf("the object: %w", err)
		}
	}
	if kind := rawjson.Value(bytes.TrimLeft(text, " \n\t\r")).Kind(); kind != rawjson.Object {
		return fmt.Errorf("the object is %s, not a pod", kind)
	}
	var (
		places [depth + 2]place // by depth: the object whose members stand there
		seen   [depth + 1]siblings
		count  [depth + 1]int
	)
	places[1] = root
	for i := range members {
		d := members[i].Depth
		in := places[d]
		if in == elsewhere {
			places[d+1] = elsewhere
			continue
		}
		if err := seen[d].check(members, i, count[d]); err != nil {
			return fmt.Errorf("%s: %w", in, err)
		}
		count[d]++
		below, err := p.member(in, &members[i])
		if err != nil {
			return err
		}
		places[d+1] = below
		if d < depth {
			count[d+1] = 0
		}
	}
	return nil
}

// member takes note of a member and returns the place that its value is.
func (p *pod) member(in place, m *rawjson.Member) (place, error) {
	switch in {
	case root:
		switch string(m.Name) {
		case `"kind"`:
			if !m.Value.Is("Pod") {
				return elsewhere, errors.New("the object is not of kind Pod")
			}
		case `"apiVersion"`:
			if !m.Value.Is("v1") {
				return elsewhere, errors.New("the object is not of apiVersion v1")
			}
		case `"metadata"`:
			return metadata, into(&p.metadata, metadata, m.Value)
		case `"spec"`:
			return spec, into(&p.spec, spec, m.Value)
		}
	case metadata:
		switch string(m.Name) {
		case `"annotations"`:
			return annotations, into(&p.annotations, annotations, m.Value)
		case `"labels"`:
			return labelsOf, into(&p.labels, labelsOf, m.Value)
		}
	case annotations:
		switch string(m.Name) {
		case `"` + v1alpha1.InjectAnnotation + `"`:
			p.inject = m.Value
		case `"` + v1alpha1.StatusAnnotation + `"`:
			p.status = m.Value
		case `"` + mirrorAnnotation + `"`:
			p.mirror = true
		default:
			return elsewhere, nil
		}
		if m.Value.Kind() != rawjson.String {
			return elsewhere, fmt.Errorf("metadata.annotations[%s] is %s, not a string", m.Name.Text(), m.Value.Kind())
		}
	case spec:
		switch string(m.Name) {
		case `"initContainers"`:
			p.lists[initContainers].text = m.Value
		case `"containers"`:
			p.lists[containers].text = m.Value
		case `"volumes"`:
			p.lists[volumes].text = m.Value
		case `"ephemeralContainers"`:
			p.lists[ephemeralContainers].text = m.Value
		case `"hostNetwork"`:
			p.hostNetwork = m.Value
		case `"restartPolicy"`:
			p.restartPolicy = m.Value
		case `"securityContext"`:
			p.security = m.Value
		}
	case labelsOf, elsewhere:
	}
	return elsewhere, nil
}

// into stores an object. Null stands for an absent one, as everywhere in the
// API, but is kept: what is put there replaces it.
func into(dst *rawjson.Value, where place, v rawjson.Value) error {
	if kind := v.Kind(); kind != rawjson.Object && kind != rawjson.Null {
		return fmt.Errorf("%s is %s, not an object", where, kind)
	}
	*dst = v
	return nil
}

// readLists reads the lists of the spec, as far as profiles may have to do with
// them.
func (p *pod) readLists() error {
	if p.spec.Kind() != rawjson.Object {
		return fmt.Errorf("spec is %s, not an object", p.spec.Kind())
	}
	var (
		room    [32]rawjson.Member
		members = room[:0]
		err     error
	)
	if p.hostProcess, err = hostProcess(p.security); err != nil {
		return fmt.Errorf("spec.securityContext%w", err)
	}
	for l := range p.lists {
		which := list(l)
		text := p.lists[l].text
		p.lists[l].from, p.lists[l].to = p.items, p.items
		switch text.Kind() {
		case rawjson.Array:
		case rawjson.Invalid, rawjson.Null:
			continue
		default:
			return fmt.Errorf("spec.%s is %s, not an array", which, text.Kind())
		}
		for i, element := range text.Elements() {
			if element.Kind() != rawjson.Object {
				return fmt.Errorf("spec.%s[%d] is %s, not an object", which, i, element.Kind())
			}
			if members, err = p.readElement(members[:0], which, element); err != nil {
				return fmt.Errorf("spec.%s[%d]%w", which, i, err)
			}
		}
		p.lists[l].to = p.items
	}
	return nil
}

// readElement reads a container or volume. Errors start with the rest of their
// path. It returns its room, which may have grown.
func (p *pod) readElement(room []rawjson.Member, l list, element rawjson.Value) ([]rawjson.Member, error) {
	members, err := fields(room, element)
	if err != nil {
		return members, fmt.Errorf(": %w", err)
	}
	it := item{text: element}
	var security rawjson.Value
	for i := range members {
		value := members[i].Value
		switch string(members[i].Name) {
		case `"name"`:
			it.name = value
		case `"ports"`:
			it.ports = value
		case `"restartPolicy"`:
			it.native = l == initContainers && value.Is("Always")
		case `"securityContext"`:
			security = value
		}
	}
	p.add(it)
	host, err := hostProcess(security)
	if err != nil {
		return members, fmt.Errorf(".securityContext%w", err)
	}
	p.hostProcess = p.hostProcess || host
	return members, nil
}

// hostProcess tells whether a securityContext, of a pod or a container, asks
// for a Windows host process. Errors start with the rest of their path.
func hostProcess(security rawjson.Value) (bool, error) {
	if !bytes.Contains(security, []byte("hostProcess")) && bytes.IndexByte(security, '\\') < 0 {
		return false, nil
	}
	if key, dup := security.DuplicateKey(); dup {
		return false, fmt.Errorf(": %w", &rawjson.DuplicateKeyError{Key: key})
	}
	windows := security.Get("windowsOptions")
	if key, dup := windows.DuplicateKey(); dup {
		return false, fmt.Errorf(".windowsOptions: %w", &rawjson.DuplicateKeyError{Key: key})
	}
	return windows.Get("hostProcess").IsTrue(), nil
}
