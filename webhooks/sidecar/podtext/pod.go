// Package podtext reads the JSON text of a pod in one pass: the fields that sidecar
// injection needs, its containers, volumes and ports. The values share the memory of
// the text.
package podtext

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// Domain is part of the name of every annotation for Gatehouse.
const Domain = "gatehouse.dev/"

// mirrorAnnotation marks the mirror pod of a static pod
// (k8s.io/api/core/v1.MirrorPodAnnotationKey). The kubelet runs the static pod whatever the
// mirror says.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// Pod is what is read of a pod. Its values share the memory of the request.
type Pod struct {
	Metadata, Annotations, Labels, Spec rawjson.Value
	// name, generateName and owners, the ownerReferences, are not checked to be
	// what they must be.
	name, generateName, owners rawjson.Value

	InjectAnnotation, StatusAnnotation rawjson.Value
	IsMirror                           bool
	// HasGatehouseNames is true if the pod has an annotation or label for Gatehouse other
	// than the inject and the status annotation.
	HasGatehouseNames bool

	HostNetwork     rawjson.Value
	IsHostProcess   bool
	RestartPolicy   rawjson.Value
	SecurityContext rawjson.Value
	OS              rawjson.Value
	// Resources and GracePeriod are those of the pod as a whole.
	Resources, GracePeriod rawjson.Value

	// Lists are the lists of the spec, and Elements their elements.
	Lists     [EphemeralContainers + 1]ListText
	Elements  []Element
	specError error
	// isUnique says that no object has a member twice.
	isUnique bool
}

// ListText is one list of the spec: its text, and the range of its elements in those of
// the pod.
type ListText struct {
	Text     rawjson.Value
	From, To int
}

// Element is an element of one of the lists.
type Element struct {
	Name, Text, Ports rawjson.Value
	// IsNative is true for an init container that is a native sidecar.
	IsNative bool
}

// Element returns an element of one of the lists, by its index in Elements.
func (p *Pod) Element(i int) *Element { return &p.Elements[i] }

// Find returns the index in the list of the first element of this name, or -1.
func (p *Pod) Find(l List, name string) int {
	for i := p.Lists[l].From; i < p.Lists[l].To; i++ {
		if p.Element(i).Name.Is(name) {
			return i - p.Lists[l].From
		}
	}
	return -1
}

// Trim returns a JSON text without the space around it, as a rawjson.Value has to
// be.
func Trim(text []byte) []byte { return bytes.Trim(text, " \n\t\r") }

// Parse is Read for a text that may not be JSON, or have space around it.
func (p *Pod) Parse(text []byte) error {
	value, err := rawjson.Parse(text)
	if err != nil {
		return fmt.Errorf("the object: %w", err)
	}
	return p.Read(value.Cursor())
}

// Read reads the text of a pod in one pass. It returns an error for a text that is not a
// pod, or is ambiguous: decoders differ in which of two members of one name they take.
// Errors in the spec matter only for pods that a profile selects: SpecError returns them.
func (p *Pod) Read(text rawjson.Cursor) error {
	if kind := text.Kind(); kind != rawjson.Object {
		return fmt.Errorf("the object is %s, not a pod", kind)
	}
	p.isUnique = p.isUnique || text.IsUnique()
	_, err := p.readMembers(&text, "the object", (*Pod).readRootMember)
	return err
}

// ReadAgain is Read for the text of a pod that was read, as profiles have changed it since:
// they add no member twice.
func (p *Pod) ReadAgain(text rawjson.Value) error {
	p.isUnique = true
	return p.Read(text.Cursor())
}

// readMembers reads an object with a function that gets the name of each member and
// reads its value. It returns the text of the object.
func (p *Pod) readMembers(r *rawjson.Cursor, path string, read func(*Pod, *rawjson.Cursor, rawjson.Value) error) (rawjson.Value, error) {
	start := r.At()
	for r.Enter(); r.Next(); {
		if err := read(p, r, r.PlainName()); err != nil {
			return nil, err
		}
	}
	text := r.Since(start)
	if err := p.checkUnique(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

func (p *Pod) checkUnique(object rawjson.Value) error {
	if p.isUnique {
		return nil
	}
	if key, twice := object.DuplicateKey(); twice {
		return &rawjson.DuplicateKeyError{Key: key}
	}
	return nil
}

// readObject reads an object like readMembers and stores its text. Null stands for an
// absent object, as everywhere in the API, but is stored: what is added replaces it.
func (p *Pod) readObject(into *rawjson.Value, r *rawjson.Cursor, path string, read func(*Pod, *rawjson.Cursor, rawjson.Value) error) error {
	switch kind := r.Kind(); kind {
	case rawjson.Object:
		var err error
		*into, err = p.readMembers(r, path, read)
		return err
	case rawjson.Null:
		*into = r.Skip()
		return nil
	default:
		return fmt.Errorf("%s is %s, not an object", path, kind)
	}
}

func (p *Pod) readRootMember(r *rawjson.Cursor, name rawjson.Value) error {
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
		return p.readObject(&p.Metadata, r, "metadata", (*Pod).readMetadataMember)
	case `"spec"`:
		return p.readObject(&p.Spec, r, "spec", (*Pod).readSpecMember)
	default:
		r.Skip()
	}
	return nil
}

func (p *Pod) readMetadataMember(r *rawjson.Cursor, name rawjson.Value) error {
	switch string(name) {
	case `"annotations"`:
		return p.readObject(&p.Annotations, r, "metadata.annotations", (*Pod).readAnnotation)
	case `"labels"`:
		return p.readObject(&p.Labels, r, "metadata.labels", (*Pod).readLabel)
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

func (p *Pod) readAnnotation(r *rawjson.Cursor, name rawjson.Value) error {
	value := r.Skip()
	switch string(name) {
	case `"` + v1alpha1.InjectAnnotation + `"`:
		p.InjectAnnotation = value
	case `"` + v1alpha1.StatusAnnotation + `"`:
		p.StatusAnnotation = value
	case `"` + mirrorAnnotation + `"`:
		p.IsMirror = true
	default:
		p.HasGatehouseNames = p.HasGatehouseNames || bytes.Contains(name, []byte(Domain))
		return nil
	}
	if value.Kind() != rawjson.String {
		return fmt.Errorf("metadata.annotations[%s] is %s, not a string", name.Text(), value.Kind())
	}
	return nil
}

func (p *Pod) readLabel(r *rawjson.Cursor, name rawjson.Value) error {
	p.HasGatehouseNames = p.HasGatehouseNames || bytes.Contains(name, []byte(Domain))
	r.Skip()
	return nil
}

func (p *Pod) readSpecMember(r *rawjson.Cursor, name rawjson.Value) error {
	switch string(name) {
	case `"initContainers"`:
		p.readList(r, InitContainers)
	case `"containers"`:
		p.readList(r, Containers)
	case `"volumes"`:
		p.readList(r, Volumes)
	case `"ephemeralContainers"`:
		p.readList(r, EphemeralContainers)
	case `"hostNetwork"`:
		p.HostNetwork = r.Skip()
	case `"restartPolicy"`:
		p.RestartPolicy = r.Skip()
	case `"os"`:
		p.OS = r.Skip()
	case `"resources"`:
		p.Resources = r.Skip()
	case `"terminationGracePeriodSeconds"`:
		p.GracePeriod = r.Skip()
	case `"securityContext"`:
		p.SecurityContext = r.Skip()
		if err := p.noteHostProcess(p.SecurityContext); err != nil {
			p.noteSpecError("spec.securityContext%w", err)
		}
	default:
		r.Skip()
	}
	return nil
}

func (p *Pod) readList(r *rawjson.Cursor, l List) {
	into := &p.Lists[l]
	into.From, into.To = len(p.Elements), len(p.Elements)
	if kind := r.Kind(); kind != rawjson.Array {
		if kind != rawjson.Null {
			p.noteSpecError("spec.%s is %s, not an array", l, kind)
		}
		into.Text = r.Skip()
		return
	}
	start := r.At()
	r.Enter()
	for i := 0; r.Next(); i++ {
		if err := p.readElement(r, l); err != nil {
			p.noteSpecError("spec.%s[%d]%w", l, i, err)
		}
	}
	into.Text, into.To = r.Since(start), len(p.Elements)
	if n := into.To - into.From; n > workload.MaxElements {
		p.noteSpecError("spec.%s has %d elements: %w", l, n, workload.ErrElements)
	}
}

// readElement reads a container or volume to its end, whatever is wrong with it.
// Errors start with the rest of their path.
func (p *Pod) readElement(r *rawjson.Cursor, l List) error {
	if kind := r.Kind(); kind != rawjson.Object {
		r.Skip()
		return fmt.Errorf(" is %s, not an object", kind)
	}
	var (
		it       Element
		security rawjson.Value
		start    = r.At()
	)
	for r.Enter(); r.Next(); {
		name := r.PlainName()
		value := r.Skip()
		switch string(name) {
		case `"name"`:
			it.Name = value
		case `"ports"`:
			it.Ports = value
		case `"restartPolicy"`:
			it.IsNative = l == InitContainers && value.Is("Always")
		case `"securityContext"`:
			security = value
		}
	}
	it.Text = r.Since(start)
	p.Elements = append(p.Elements, it)
	if err := p.checkUnique(it.Text); err != nil {
		return fmt.Errorf(": %w", err)
	}
	if err := p.noteHostProcess(security); err != nil {
		return fmt.Errorf(".securityContext%w", err)
	}
	return nil
}

func (p *Pod) noteSpecError(format string, args ...any) {
	if p.specError == nil {
		p.specError = fmt.Errorf(format, args...)
	}
}

// SpecError returns the first error in the spec, in the order of the text.
func (p *Pod) SpecError() error {
	if p.Spec.Kind() != rawjson.Object {
		return fmt.Errorf("spec is %s, not an object", p.Spec.Kind())
	}
	return p.specError
}

func (p *Pod) noteHostProcess(security rawjson.Value) error {
	host, err := hostProcess(security)
	p.IsHostProcess = p.IsHostProcess || host
	return err
}

// hostProcess reports whether a securityContext, of a pod or a container, asks
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

// FindContainer looks for a container of any sort, first in one list.
func (p *Pod) FindContainer(name string, first List) (List, int) {
	if at := p.Find(first, name); at >= 0 {
		return first, at
	}
	for _, l := range [...]List{InitContainers, Containers, EphemeralContainers} {
		if at := p.Find(l, name); at >= 0 {
			return l, at
		}
	}
	return first, -1
}

// Names returns the names in each list of the pod.
func (p *Pod) Names() [NumLists]map[string]bool {
	var all [NumLists]map[string]bool
	for l := range NumLists {
		all[l] = make(map[string]bool)
		for i := p.Lists[l].From; i < p.Lists[l].To; i++ {
			all[l][p.Element(i).Name.Text()] = true
		}
	}
	return all
}

// Containers returns the elements of both lists of containers.
func (p *Pod) Containers() iter.Seq2[List, *Element] {
	return func(yield func(List, *Element) bool) {
		for l := InitContainers; l <= Containers; l++ {
			for i := p.Lists[l].From; i < p.Lists[l].To; i++ {
				if !yield(l, p.Element(i)) {
					return
				}
			}
		}
	}
}

// IsReservedAnnotation reports whether a profile must not set an annotation.
func IsReservedAnnotation(annotation string) bool {
	domain, _, _ := strings.Cut(annotation, "/")
	return domain == v1alpha1.ParameterDomain || strings.HasSuffix(domain, "."+v1alpha1.ParameterDomain) || annotation == mirrorAnnotation
}

// Quote returns a text from a pod for a message: quoted, and cut to a length.
func Quote(text string) string {
	const most = 64
	return strconv.Quote(strict.Cut(text, most))
}

// List is one of the lists of a pod's spec that a profile adds to.
type List uint8

// The lists.
const (
	InitContainers List = iota
	Containers
	Volumes
	NumLists // how many there are
	// EphemeralContainers is a list that nothing is added to, but whose elements
	// share the containers' names.
	EphemeralContainers = NumLists
)

// String returns the name of the list in a pod's spec.
func (l List) String() string {
	return [...]string{"initContainers", "containers", "volumes", "ephemeralContainers"}[l]
}

// Pointer returns the JSON pointer of the list in a pod, which is its field path too.
func (l List) Pointer() string {
	return [...]string{"/spec/initContainers", "/spec/containers", "/spec/volumes"}[l]
}

// EndPointer returns the JSON pointer to append an element to the list.
func (l List) EndPointer() string {
	return [...]string{"/spec/initContainers/-", "/spec/containers/-", "/spec/volumes/-"}[l]
}

// ListNamed returns the list of this name in a pod's spec, of those that a profile adds to.
func ListNamed(name string) (List, bool) {
	for l := range NumLists {
		if l.String() == name {
			return l, true
		}
	}
	return 0, false
}

// maxKeptElements bounds the memory that a Pod keeps. A pod of 60 KB has 5 to 40
// containers and volumes.
const maxKeptElements = 128

// Clear removes every reference to the text. It keeps the memory of the elements, but
// not that of a large pod's.
func (p *Pod) Clear() {
	elements := p.Elements
	clear(elements)
	if cap(elements) > maxKeptElements {
		elements = nil
	}
	*p = Pod{Elements: elements[:0]}
}

// WorkloadName returns the name of the workload that owns the pod, without what
// controllers append: the hash of a ReplicaSet, and the time of a CronJob's Job.
func (p *Pod) WorkloadName() string {
	for _, owner := range p.owners.Elements() {
		if !owner.Get("controller").IsTrue() {
			continue
		}
		name := owner.Get("name").Text()
		for _, label := range [...]string{"pod-template-hash", "rollouts-pod-template-hash"} {
			if hash := p.Labels.Get(label).Text(); hash != "" {
				name = strings.TrimSuffix(name, "-"+hash)
			}
		}
		if owner.Get("kind").Is("Job") {
			name = CronJobName(name)
		}
		return name
	}
	if name := p.generateName.Text(); name != "" {
		return strings.TrimSuffix(name, "-")
	}
	return p.name.Text()
}

// ControllerOf returns the workload that people know whose controller has made a pod with this metadata: the Deployment of a ReplicaSet, and
// the CronJob of a Job, as controllers name these. It returns false for a pod without a controller.
func ControllerOf(metadata rawjson.Value) (kind schema.GroupKind, name string, ok bool) {
	for _, owner := range metadata.Get("ownerReferences").Elements() {
		if !owner.Get("controller").IsTrue() {
			continue
		}
		version, err := schema.ParseGroupVersion(owner.Get("apiVersion").Text())
		if err != nil {
			continue
		}
		kind, name = version.WithKind(owner.Get("kind").Text()).GroupKind(), owner.Get("name").Text()
		switch kind.Kind {
		case "ReplicaSet":
			for label, of := range map[string]schema.GroupKind{
				"pod-template-hash": {Group: "apps", Kind: "Deployment"}, "rollouts-pod-template-hash": {Group: "argoproj.io", Kind: "Rollout"},
			} {
				if hash := metadata.Get("labels", label).Text(); hash != "" {
					if workload, cut := strings.CutSuffix(name, "-"+hash); cut && workload != "" {
						return of, workload, true
					}
				}
			}
		case "Job":
			if workload := CronJobName(name); workload != name {
				kind.Kind, name = "CronJob", workload
			}
		}
		return kind, name, true
	}
	return kind, "", false
}

// CronJobName returns the name of a Job without the time, in minutes since 1970, that a
// CronJob puts behind its own: k8s.io/kubernetes/pkg/controller/cronjob.
func CronJobName(name string) string {
	const digits = 8
	i := strings.LastIndexByte(name, '-')
	if i < 0 || len(name)-i-1 < digits || strings.Trim(name[i+1:], "0123456789") != "" {
		return name
	}
	return name[:i]
}
