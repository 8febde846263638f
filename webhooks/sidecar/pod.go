package sidecar

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/strict"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

// mark is in the name of every annotation that is for Gatehouse, and of those
// that are meant to be.
const mark = "gatehouse.dev/"

// mirrorAnnotation marks the pod by which the API server shows a static pod
// (k8s.io/api/core/v1.MirrorPodAnnotationKey). The kubelet runs the static pod,
// whatever becomes of its mirror.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// pod is what is read of a pod. Its values share the memory of the request.
type pod struct {
	metadata, annotations, labels, spec rawjson.Value
	// name, generateName and owners, the ownerReferences, are not checked to be
	// what they must be.
	name, generateName, owners rawjson.Value

	inject, status rawjson.Value
	mirror         bool
	// parameters tells whether there is an annotation, or a label that was meant
	// to be one, beside the word and the status, which may set a parameter
	// of a profile.
	parameters bool

	hostNetwork   rawjson.Value
	hostProcess   bool
	restartPolicy rawjson.Value
	security      rawjson.Value
	os            rawjson.Value
	// resources and grace are those of the pod as a whole.
	resources, grace rawjson.Value

	// lists are the lists of the spec, and items their elements.
	lists [ephemeralContainers + 1]podList
	items []item
	// unreadable says what specError says of the members of the spec.
	unreadable error
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

func (p *pod) item(i int) *item { return &p.items[i] }

// find returns the index in the list of the first element of this name, or -1.
func (p *pod) find(l list, name string) int {
	for i := p.lists[l].from; i < p.lists[l].to; i++ {
		if p.item(i).name.Is(name) {
			return i - p.lists[l].from
		}
	}
	return -1
}

// reader reads the text of a pod in one pass.
type reader struct {
	rawjson.Cursor
	// seen has the members of the objects that are being read, by depth.
	seen [depths]siblings
}

// The depths of the objects that are looked into.
const (
	atRoot   = iota
	inRoot   // metadata, spec
	inMember // metadata.annotations, metadata.labels, elements of the lists of spec
	depths
)

// trimmed is a JSON text without the space around it, as a rawjson.Value has to
// be.
func trimmed(text []byte) []byte { return bytes.Trim(text, " \n\t\r") }

// parse is read for a text that may be no JSON, or have space around it.
func (p *pod) parse(r *reader, text []byte) error {
	value, err := rawjson.Parse(text)
	if err != nil {
		return fmt.Errorf("the object: %w", err)
	}
	return p.read(r, value)
}

// read reads the text of a pod in one pass. An error means that this is no pod,
// or one that no two readers would read alike. What keeps profiles from having
// to do with its spec, and nothing else, is for specError.
func (p *pod) read(r *reader, text rawjson.Value) error {
	if kind := text.Kind(); kind != rawjson.Object {
		return fmt.Errorf("the object is %s, not a pod", kind)
	}
	r.Cursor = text.Cursor()
	return p.members(r, atRoot, "the object", (*pod).rootMember)
}

// members reads an object with a function that gets the name of each member and
// reads its value.
func (p *pod) members(r *reader, depth int, path string, read func(*pod, *reader, rawjson.Value) error) error {
	seen := &r.seen[depth]
	for r.Enter(); r.Next(); {
		name := r.PlainName()
		if err := seen.add(name); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := read(p, r, name); err != nil {
			return err
		}
	}
	seen.clear()
	return nil
}

// object is members that stores the object's text. Null stands for an absent
// object, as everywhere in the API, but is stored: what is put there replaces it.
func (p *pod) object(into *rawjson.Value, r *reader, depth int, path string, read func(*pod, *reader, rawjson.Value) error) error {
	switch kind := r.Kind(); kind {
	case rawjson.Object:
		start := r.At()
		if err := p.members(r, depth, path, read); err != nil {
			return err
		}
		*into = r.Since(start)
		return nil
	case rawjson.Null:
		*into = r.Skip()
		return nil
	default:
		return fmt.Errorf("%s is %s, not an object", path, kind)
	}
}

func (p *pod) rootMember(r *reader, name rawjson.Value) error {
	switch string(name) {
	case `"kind"`:
		if !r.Skip().Is("Pod") {
			return errors.New("the object is not of kind Pod")
		}
	case `"apiVersion"`:
		if !r.Skip().Is("v1") {
			return errors.New("the object is not of apiVersion v1")
		}
	case `"metadata"`:
		return p.object(&p.metadata, r, inRoot, "metadata", (*pod).metadataMember)
	case `"spec"`:
		return p.object(&p.spec, r, inRoot, "spec", (*pod).specMember)
	default:
		r.Skip()
	}
	return nil
}

func (p *pod) metadataMember(r *reader, name rawjson.Value) error {
	switch string(name) {
	case `"annotations"`:
		return p.object(&p.annotations, r, inMember, "metadata.annotations", (*pod).annotation)
	case `"labels"`:
		return p.object(&p.labels, r, inMember, "metadata.labels", (*pod).label)
	case `"name"`:
		p.name = r.Skip()
	case `"generateName"`:
		p.generateName = r.Skip()
	case `"ownerReferences"`:
		p.owners = r.Skip()
	default:
		r.Skip()
	}
	return nil
}

func (p *pod) annotation(r *reader, name rawjson.Value) error {
	value := r.Skip()
	switch string(name) {
	case `"` + v1alpha1.InjectAnnotation + `"`:
		p.inject = value
	case `"` + v1alpha1.StatusAnnotation + `"`:
		p.status = value
	case `"` + mirrorAnnotation + `"`:
		p.mirror = true
	default:
		p.parameters = p.parameters || bytes.Contains(name, []byte(mark))
		return nil
	}
	if value.Kind() != rawjson.String {
		return fmt.Errorf("metadata.annotations[%s] is %s, not a string", name.Text(), value.Kind())
	}
	return nil
}

// label passes by a label: a look at its name is all that it takes.
func (p *pod) label(r *reader, name rawjson.Value) error {
	p.parameters = p.parameters || bytes.Contains(name, []byte(mark))
	r.Skip()
	return nil
}

func (p *pod) specMember(r *reader, name rawjson.Value) error {
	switch string(name) {
	case `"initContainers"`:
		p.list(r, initContainers)
	case `"containers"`:
		p.list(r, containers)
	case `"volumes"`:
		p.list(r, volumes)
	case `"ephemeralContainers"`:
		p.list(r, ephemeralContainers)
	case `"hostNetwork"`:
		p.hostNetwork = r.Skip()
	case `"restartPolicy"`:
		p.restartPolicy = r.Skip()
	case `"os"`:
		p.os = r.Skip()
	case `"resources"`:
		p.resources = r.Skip()
	case `"terminationGracePeriodSeconds"`:
		p.grace = r.Skip()
	case `"securityContext"`:
		p.security = r.Skip()
		if err := p.noteHostProcess(p.security); err != nil {
			p.cannotRead("spec.securityContext%w", err)
		}
	default:
		r.Skip()
	}
	return nil
}

// list reads a list of the spec, as far as profiles may have to do with it.
func (p *pod) list(r *reader, l list) {
	into := &p.lists[l]
	into.from, into.to = len(p.items), len(p.items)
	if kind := r.Kind(); kind != rawjson.Array {
		if kind != rawjson.Null {
			p.cannotRead("spec.%s is %s, not an array", l, kind)
		}
		into.text = r.Skip()
		return
	}
	start := r.At()
	r.Enter()
	for i := 0; r.Next(); i++ {
		if err := p.element(r, l); err != nil {
			p.cannotRead("spec.%s[%d]%w", l, i, err)
		}
	}
	into.text, into.to = r.Since(start), len(p.items)
	if n := into.to - into.from; n > workload.MaxElements {
		p.cannotRead("%w: spec.%s has %d elements, allowed are %d", workload.ErrElements, l, n, workload.MaxElements)
	}
}

// element reads a container or volume to its end, whatever is wrong with it.
// Errors start with the rest of their path.
func (p *pod) element(r *reader, l list) error {
	if kind := r.Kind(); kind != rawjson.Object {
		r.Skip()
		return fmt.Errorf(" is %s, not an object", kind)
	}
	var (
		it       item
		security rawjson.Value
		dup      error
		start    = r.At()
		seen     = &r.seen[inMember]
	)
	for r.Enter(); r.Next(); {
		name := r.PlainName()
		if dup == nil {
			dup = seen.add(name)
		}
		value := r.Skip()
		switch string(name) {
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
	seen.clear()
	it.text = r.Since(start)
	p.items = append(p.items, it)
	if dup != nil {
		return fmt.Errorf(": %w", dup)
	}
	if err := p.noteHostProcess(security); err != nil {
		return fmt.Errorf(".securityContext%w", err)
	}
	return nil
}

// cannotRead notes why profiles cannot have to do with the spec.
func (p *pod) cannotRead(format string, args ...any) {
	if p.unreadable == nil {
		p.unreadable = fmt.Errorf(format, args...)
	}
}

// specError says why profiles cannot have to do with the spec, the first reason
// in the order of the text. It matters for pods only that a profile selects.
func (p *pod) specError() error {
	if p.spec.Kind() != rawjson.Object {
		return fmt.Errorf("spec is %s, not an object", p.spec.Kind())
	}
	return p.unreadable
}

func (p *pod) noteHostProcess(security rawjson.Value) error {
	host, err := hostProcess(security)
	p.hostProcess = p.hostProcess || host
	return err
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

// findContainer looks for a container of any sort, first in one list.
func (p *pod) findContainer(name string, first list) (list, int) {
	if at := p.find(first, name); at >= 0 {
		return first, at
	}
	for _, l := range [...]list{initContainers, containers, ephemeralContainers} {
		if at := p.find(l, name); at >= 0 {
			return l, at
		}
	}
	return first, -1
}

// names are the names in each list of the pod.
func (p *pod) names() [lists]map[string]bool {
	var all [lists]map[string]bool
	for l := range lists {
		all[l] = make(map[string]bool)
		for i := p.lists[l].from; i < p.lists[l].to; i++ {
			all[l][p.item(i).name.Text()] = true
		}
	}
	return all
}

// containers are the elements of both lists of containers.
func (p *pod) containers() iter.Seq2[list, *item] {
	return func(yield func(list, *item) bool) {
		for l := initContainers; l <= containers; l++ {
			for i := p.lists[l].from; i < p.lists[l].to; i++ {
				if !yield(l, p.item(i)) {
					return
				}
			}
		}
	}
}

// reserved tells whether an annotation is not for a profile to set.
func reserved(annotation string) bool {
	domain, _, _ := strings.Cut(annotation, "/")
	return domain == v1alpha1.ParameterDomain || strings.HasSuffix(domain, "."+v1alpha1.ParameterDomain) || annotation == mirrorAnnotation
}

func quote(text string) string {
	const most = 64
	return strconv.Quote(strict.Cut(text, most))
}
