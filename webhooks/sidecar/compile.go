package sidecar

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Set is a number of compiled profiles. What it answers never changes, and it is
// safe for concurrent use.
type Set struct {
	profiles   []*profile // by name
	namespaces Namespaces
	warnings   finding.List
	// scratch holds cleared *scratch values for Decide.
	scratch sync.Pool
}

// Warnings are the findings that did not keep the Set from being compiled. The
// caller may change the copy that it gets.
func (s *Set) Warnings() finding.List { return slices.Clone(s.warnings) }

// list is one of the lists of a pod's spec that a profile adds to.
type list uint8

const (
	initContainers list = iota
	containers
	volumes
	lists // how many there are
	// ephemeralContainers is a list that nothing is added to, but whose elements
	// share the containers' names.
	ephemeralContainers = lists
)

// profile is a compiled SidecarProfile.
type profile struct {
	name, source string
	// revision is a hash of what the template says, in hexadecimal.
	revision string
	optOut   bool

	// objects and namespaces are nil for a selector that matches everything.
	objects, namespaces labels.Selector
	// byName is the part of namespaces that looks at nothing but the
	// namespace's name, nil without one; nameOnly says that there is no other.
	byName   labels.Selector
	nameOnly bool

	// elements are those of each list, in the order of the template.
	elements [lists][]element
	// plain is the name of a container that keeps a pod from ending: one of the
	// template's containers. It is empty if there is none.
	plain string
	// ports tells whether any element declares a port that is in use while the
	// pod's own containers run.
	ports bool

	// The values of patch operations for the common case that one profile
	// applies with all its elements, boxed once: the whole status annotation,
	// and each list as an array.
	status any
	arrays [lists]any
}

func (p *profile) onlyVolumes() bool {
	return len(p.elements[initContainers])+len(p.elements[containers]) == 0
}

// element is one element of a template.
type element struct {
	name string
	raw  json.RawMessage
	// value is raw as the value of a patch operation, boxed once.
	value any
	// native tells that an init container is a native sidecar.
	native bool
	ports  portList
	volume *corev1.Volume
}

func declaredPorts(c *corev1.Container) portList {
	var ports portList
	for i := range c.Ports {
		ports = append(ports, newPort(&c.Ports[i], c.Name))
	}
	return ports
}

// runs tells whether the element runs while others do, so that its ports clash
// with theirs. A plain init container of a template has ended before the pod's
// own containers start.
func (e *element) runs(l list) bool { return l == containers || e.native }

// Compile checks the profiles and prepares all that does not depend on a pod.
// The error is a finding.List of everything that is wrong, in the order of
// sources, and then there is no Set.
func Compile(spec Spec) (*Set, error) {
	var found finding.List
	for i := range spec.Profiles {
		found = append(found, checkProfile(&spec.Profiles[i])...)
	}
	found = append(found, checkNames(spec.Profiles)...)

	s := &Set{namespaces: spec.Namespaces}
	s.scratch.New = func() any { return new(scratch) }
	for i := range spec.Profiles {
		p, err := compile(&spec.Profiles[i])
		if err != nil {
			found = append(found, errorAt(&spec.Profiles[i], "spec", err.Error()))
			continue
		}
		s.profiles = append(s.profiles, p)
	}
	slices.SortStableFunc(s.profiles, func(a, b *profile) int { return cmp.Compare(a.name, b.name) })
	found = append(found, checkShared(s.profiles)...)
	found.Sort()
	if err := found.Err(); err != nil {
		return nil, err
	}
	s.warnings = found
	return s, nil
}

func compile(from *Profile) (*profile, error) {
	p := &profile{
		name:   from.Name,
		source: from.Source,
		optOut: from.Spec.Injection == v1alpha1.OptOut,
	}
	p.objects = selector(from.Spec.Match.ObjectSelector)
	p.namespaces = selector(from.Spec.Match.NamespaceSelector)
	if p.namespaces != nil {
		p.byName, p.nameOnly = nameRequirements(p.namespaces)
	}

	template := from.Spec.Template.Spec
	for i := range template.InitContainers {
		c := &template.InitContainers[i]
		if err := p.add(initContainers, c, element{name: c.Name, native: isNative(c), ports: declaredPorts(c)}); err != nil {
			return nil, err
		}
	}
	for i := range template.Containers {
		c := &template.Containers[i]
		p.plain = cmp.Or(p.plain, c.Name)
		if err := p.add(containers, c, element{name: c.Name, ports: declaredPorts(c)}); err != nil {
			return nil, err
		}
	}
	for i := range template.Volumes {
		v := template.Volumes[i].DeepCopy()
		if err := p.add(volumes, v, element{name: v.Name, volume: v}); err != nil {
			return nil, err
		}
	}

	hash := sha256.New()
	for l := range lists {
		all := array(p.elements[l])
		p.arrays[l] = all
		_, _ = hash.Write(all) // never fails
	}
	const digits = 12 // 48 bits: enough to tell the revisions of one profile apart
	p.revision = hex.EncodeToString(hash.Sum(nil))[:digits]
	p.status = statusValue([]entry{p.entry(nil)})
	return p, nil
}

// add renders an element of the template, once for all pods.
func (p *profile) add(l list, object any, e element) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object); err != nil {
		return fmt.Errorf("template.spec.%s: %q cannot be written as JSON: %w", l, e.name, err)
	}
	e.raw = json.RawMessage(bytes.TrimSpace(b.Bytes()))
	e.value = e.raw
	p.ports = p.ports || e.runs(l) && len(e.ports) > 0
	p.elements[l] = append(p.elements[l], e)
	return nil
}

// String is the list's name in a pod's spec.
func (l list) String() string {
	switch l {
	case initContainers:
		return "initContainers"
	case containers:
		return "containers"
	case volumes:
		return "volumes"
	case ephemeralContainers:
		return "ephemeralContainers"
	default:
		return "unknown"
	}
}

// selector compiles a label selector that was checked. It is nil for one that
// matches everything, as a nil selector does here.
func selector(from *metav1.LabelSelector) labels.Selector {
	if from == nil {
		return nil
	}
	s, err := metav1.LabelSelectorAsSelector(from)
	if err != nil {
		return labels.Nothing() // Reported by checkProfile.
	}
	if s.Empty() {
		return nil
	}
	return s
}

// nameRequirements is the part of a selector that looks at the label which
// every namespace has and whose value is its name.
func nameRequirements(from labels.Selector) (byName labels.Selector, only bool) {
	all, _ := from.Requirements()
	for _, r := range all {
		if r.Key() != corev1.LabelMetadataName {
			continue
		}
		if byName == nil {
			byName = labels.NewSelector()
		}
		byName = byName.Add(r)
	}
	if byName == nil {
		return nil, false
	}
	named, _ := byName.Requirements()
	return byName, len(named) == len(all)
}

// statusValue is the status annotation as the value of a patch operation.
func statusValue(entries []entry) any {
	return json.RawMessage(rawjson.AppendString(nil, renderStatus(entries)))
}
