package manifest

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Object is a Kubernetes object in a file.
type Object struct {
	// File is the file, or what the object is rendered from, and then Rendered is true. NoLines reports whether the lines of the object
	// are none of File.
	File              string
	Rendered, NoLines bool
	// Source is File, with # and the number of the document if it has several.
	Source string
	// Document is the number of the document in the file, from 1, without those that have no content.
	Document int
	// Item is the place of an object in a list, "items[2]", and empty for an object that is a document.
	Item string
	// Kind, Namespace and Name are as written. Namespace and Name may be empty.
	Kind, Namespace, Name string
	// Template is the path of the pod template, "spec.template", and empty for a Pod.
	Template string
	// Workload is the kind and name of what creates the pod, "Deployment/checkout", and empty for a Pod and an object without one.
	Workload string
	// NoPod says why the object holds no pod. It is empty if it does.
	NoPod string
	// Odd reports whether this is no Kubernetes object, or has no kind or apiVersion, which may be a mistake.
	Odd bool
	// OfKind reports whether objects of this kind hold a pod.
	OfKind bool
	// LooksLikeWorkload reports whether an object of another kind seems to hold a pod.
	LooksLikeWorkload bool
	// Unreadable is why the document cannot be read, or nil. An unreadable object is Odd.
	Unreadable *diagnostic.Diagnostic

	document   *document
	apiVersion string
	prefix     string // the JSON pointer of the object
	pointer    string // that of the pod or template, from the object
	value      rawjson.Value
	pod        rawjson.Value // the pod or template in it
	patch      []change
}

// found is an object in a document.
type found struct {
	apiVersion, kind string
	value            rawjson.Value
	items            []int // its index in the list, in the list of that, …
}

// maxLists bounds the depth of lists of lists. kubectl writes one.
const maxLists = 8

// objectsIn yields the objects of a document: itself, or the items of a list. Items of a typed list, such as PodList, inherit its
// version and kind. Other values than objects are yielded too, without a kind, but for null, which templates may leave.
func objectsIn(document rawjson.Value) iter.Seq[found] {
	return func(yield func(found) bool) {
		var visit func(found) bool
		visit = func(f found) bool {
			if f.value.Kind() == rawjson.Null {
				return true
			}
			if kind := f.value.Get("kind"); kind.Kind() == rawjson.String {
				f.kind = kind.Text()
			}
			if version := f.value.Get("apiVersion"); version.Kind() == rawjson.String {
				f.apiVersion = version.Text()
			}
			items := f.value.Get("items")
			if !strings.HasSuffix(f.kind, "List") || items.Kind() != rawjson.Array || len(f.items) == maxLists {
				return yield(f)
			}
			for i, item := range items.Elements() {
				inner := found{value: item, items: append(slices.Clone(f.items), i)}
				if f.kind != "List" {
					inner.kind, inner.apiVersion = strings.TrimSuffix(f.kind, "List"), f.apiVersion
				}
				if !visit(inner) {
					return false
				}
			}
			return true
		}
		visit(found{value: document})
	}
}

// objects returns the objects of the document.
func (d *document) objects(workloads *Workloads) []*Object {
	var objects []*Object
	for f := range objectsIn(d.value) {
		metadata := f.value.Get("metadata")
		o := &Object{
			Document: d.number, Kind: f.kind, document: d, apiVersion: f.apiVersion, value: f.value,
			Namespace: metadata.Get("namespace").Text(), Name: metadata.Get("name").Text(),
		}
		if o.Name == "" {
			o.Name = metadata.Get("generateName").Text()
		}
		for _, i := range f.items {
			o.prefix += "/items/" + strconv.Itoa(i)
			o.Item = strings.TrimPrefix(o.Item+".items["+strconv.Itoa(i)+"]", ".")
		}
		objects = append(objects, o)
		if o.Odd = f.kind == "" || f.apiVersion == ""; o.Odd {
			o.NoPod = "not a Kubernetes object: " + f.lacks()
			continue
		}
		path, ok := workloads.path(f.apiVersion, f.kind)
		if !ok {
			o.NoPod = "its kind has no pod"
			o.LooksLikeWorkload = hasTemplate(&f)
			continue
		}
		o.OfKind = true
		o.find(f.value, path)
	}
	return objects
}

// IsForeign reports whether this is something of another program: it has neither kind nor apiVersion.
func (o *Object) IsForeign() bool { return o.Unreadable == nil && o.Kind == "" && o.apiVersion == "" }

// lacks returns what keeps a value from being an object.
func (f *found) lacks() string {
	switch {
	case f.value.Kind() != rawjson.Object:
		return "it is " + f.value.Kind().String()
	case f.kind != "":
		return "apiVersion is missing"
	case f.apiVersion != "":
		return "kind is missing"
	default:
		return "apiVersion and kind are missing"
	}
}

// hasTemplate reports whether a custom resource has a pod template where most have it.
func hasTemplate(f *found) bool {
	version, err := schema.ParseGroupVersion(f.apiVersion)
	return err == nil && version.Group != "" && f.value.Get("spec", "template", "spec", "containers").Kind() == rawjson.Array
}

// find finds the pod in the object.
func (o *Object) find(object rawjson.Value, path []string) {
	template := object.Get(path...)
	for _, step := range path {
		o.pointer += "/" + escape(step)
	}
	o.Template = strings.Join(path, ".")
	if len(path) > 0 {
		o.Workload = o.Kind + "/" + o.Name
	}
	where := strings.TrimPrefix(o.Template+".", ".")
	switch {
	case len(path) > 0 && template.Kind() != rawjson.Object:
		o.NoPod = o.Template + " is " + describe(template)
	case noPod(template) != "":
		o.NoPod = where + noPod(template)
	default:
		o.pod = template
	}
}

func describe(v rawjson.Value) string {
	if v.Kind() == rawjson.Invalid {
		return "absent"
	}
	return v.Kind().String()
}

// isAbsent reports whether a member is left out or null, which the API server does not distinguish.
func isAbsent(v rawjson.Value) bool { return v.Kind() == rawjson.Invalid || v.Kind() == rawjson.Null }

// Title returns kind and name, as messages name the object. It is empty for what is no object.
func (o *Object) Title() string {
	if o.Name == "" || o.Kind == "" {
		return printable(o.Kind)
	}
	return printable(o.Kind + "/" + o.Name)
}

// IsNamed reports whether the object has a name, and not only a generateName.
func (o *Object) IsNamed() bool { return o.value.Get("metadata", "name").Text() != "" }

// Place returns where the object is, as messages name it.
func (o *Object) Place() string { return fmt.Sprintf("%s, line %d", printable(o.Source), o.Line()) }

// printable returns a text of a manifest as it may be shown on a terminal: short, and without control characters.
func printable(text string) string {
	const most = 300 // bytes
	text = truncate.Bytes(text, most)
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// Field returns the path in the document of a field of the pod.
func (o *Object) Field(field string) string {
	return strings.Trim(strings.Join(slices.DeleteFunc([]string{o.Item, o.Template, field}, func(part string) bool { return part == "" }), "."), ".")
}

// Pod returns the JSON of the pod that the object is or creates, as a request to create it in the namespace, or nil for an object
// with NoPod.
func (o *Object) Pod(namespace string) []byte {
	if o.NoPod != "" {
		return nil
	}
	if o.Workload != "" {
		pod, _ := PodOfTemplate(o.pod, namespace)
		return pod
	}
	return append(appendMembers(append([]byte(`{"metadata":`), metadataIn(o.pod, namespace)...), o.pod, "metadata"), '}')
}

// PodOfTemplate returns the JSON of the pod that a pod template makes, as a request to create it in the namespace, and false if the
// template makes none.
func PodOfTemplate(template rawjson.Value, namespace string) ([]byte, bool) {
	if noPod(template) != "" {
		return nil, false
	}
	dst := append([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":`), metadataIn(template, namespace)...)
	dst = append(dst, `,"spec":`...)
	return append(append(dst, template.Get("spec")...), '}'), true
}

// metadataIn returns the metadata of a pod or template with the namespace.
func metadataIn(pod rawjson.Value, namespace string) []byte {
	metadata := rawjson.AppendString([]byte(`{"namespace":`), namespace)
	return append(appendMembers(metadata, pod.Get("metadata"), "namespace"), '}')
}

// noPod returns why a pod or template cannot be one, "" if it can. The field comes first.
func noPod(pod rawjson.Value) string {
	metadata := pod.Get("metadata")
	switch {
	case pod.Get("spec").Kind() != rawjson.Object:
		return "spec is " + describe(pod.Get("spec"))
	case !isAbsent(metadata) && metadata.Kind() != rawjson.Object:
		return "metadata is " + describe(metadata) + " and no object"
	default:
		return ""
	}
}

// appendMembers appends the members of an object but for some, each behind a comma.
func appendMembers(dst []byte, object rawjson.Value, but ...string) []byte {
	for name, value := range object.Members() {
		if !slices.ContainsFunc(but, name.Is) {
			dst = append(append(append(append(dst, ','), name...), ':'), value...)
		}
	}
	return dst
}

// Apply changes the pod. The paths of the operations, which are add, replace and remove, are those of Pod. A change of
// metadata.namespace, which Pod has added, is dropped. An error means that the operations do not fit, and changes nothing.
func (o *Object) Apply(patches []jsonpatch.Operation) error {
	if o.NoPod != "" {
		return fmt.Errorf("%s holds no pod: %s", o.Title(), o.NoPod)
	}
	var patch []change
	metadata := isAbsent(o.pod.Get("metadata"))
	for i := range patches {
		c, err := newChange(&patches[i])
		if err != nil {
			return err
		}
		switch {
		case c.path == "/metadata/namespace":
			continue
		case c.path == "/metadata" && c.op != remove:
			if c.value, err = withoutNamespace(c.value, o.pod); err != nil {
				return err
			}
		case strings.HasPrefix(c.path, "/metadata/") && metadata:
			patch = append(patch, change{op: add, path: o.pointer + "/metadata", value: rawjson.Value("{}")})
		}
		metadata = metadata && !strings.HasPrefix(c.path, "/metadata")
		c.path = o.pointer + c.path
		patch = append(patch, c)
	}
	after, err := o.changed(patch)
	if err != nil {
		return err
	}
	// A template that had no metadata has none once the last of it is removed.
	left, had := after.Get(steps(o.pointer+"/metadata")...), o.pod.Get("metadata").Len() > 0
	if o.pointer != "" && len(patch) > 0 && had && left.Kind() == rawjson.Object && left.Len() == 0 {
		patch = append(patch, change{op: remove, path: o.pointer + "/metadata"})
	}
	return o.add(patch)
}

// ApplyToObject changes the object. The paths of the operations, which are add, replace and remove, are those of the object. Pod is that
// of the changed object then. An error means that the operations do not fit, and changes nothing.
func (o *Object) ApplyToObject(patches []jsonpatch.Operation) error {
	patch := make([]change, len(patches))
	for i := range patches {
		var err error
		if patch[i], err = newChange(&patches[i]); err != nil {
			return err
		}
	}
	return o.add(patch)
}

// Result returns the patch that was applied and the object with it, as JSON.
func (o *Object) Result() (patch, object json.RawMessage, err error) {
	after, err := o.changed(nil)
	return marshal(o.patch), json.RawMessage(after), err
}

// changed returns the object with all changes and these.
func (o *Object) changed(patch []change) (rawjson.Value, error) {
	return applyChanges(o.value, append(slices.Clone(o.patch), patch...))
}

// add adds changes of the object.
func (o *Object) add(patch []change) error {
	if len(patch) == 0 {
		return nil
	}
	after, err := o.changed(patch)
	if err != nil {
		return err
	}
	if o.NoPod == "" {
		o.pod = after.Get(steps(o.pointer)...)
	}
	o.patch = append(o.patch, patch...)
	for _, c := range patch {
		c.path = o.prefix + c.path
		o.document.changes = append(o.document.changes, c)
	}
	return nil
}

// withoutNamespace returns metadata that replaces all of the pod's, with the namespace that the pod had.
func withoutNamespace(metadata, pod rawjson.Value) (rawjson.Value, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(metadata, &members); err != nil {
		return nil, fmt.Errorf("metadata is no object: %w", err)
	}
	if delete(members, "namespace"); !isAbsent(pod.Get("metadata", "namespace")) {
		members["namespace"] = json.RawMessage(pod.Get("metadata", "namespace"))
	}
	text, err := json.Marshal(members)
	return text, err
}

// Changed reports whether Apply has changed anything.
func (o *Object) Changed() bool { return len(o.patch) > 0 }
