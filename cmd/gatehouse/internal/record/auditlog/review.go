package auditlog

import (
	"cmp"
	"container/list"
	"encoding/json"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// body returns the AdmissionReview of an event, or why there is none.
func (m *Importer) body(e *event) ([]byte, string) {
	gvr := schema.GroupVersionResource{Group: e.resource.group, Version: e.resource.version, Resource: e.resource.name}
	r := admissionv1.AdmissionRequest{
		UID: types.UID(e.id), Resource: metav1.GroupVersionResource(gvr), SubResource: e.resource.subresource, RequestSubResource: e.resource.subresource,
		Namespace: e.namespace, Name: e.name,
	}
	r.RequestResource = &r.Resource
	dryRun := e.query().Get("dryRun") == metav1.DryRunAll
	var object, old rawjson.Value
	switch {
	case e.isConnect():
		r.Operation = admissionv1.Connect
		object = connectOptions(e, gvr)
	case e.verb == "create":
		r.Operation, object = admissionv1.Create, e.object()
	case e.verb == "update" || e.verb == "patch":
		r.Operation, object = admissionv1.Update, e.object()
		old = m.objects.get(e.key())
	case e.verb == "delete":
		r.Operation = admissionv1.Delete
		old = m.objects.get(e.key())
		if old == nil && isObject(e.response) && !e.response.Get("kind").Is("Status") {
			old = e.response // the API server returns what it has deleted, or marked
		}
		dryRun = dryRun || e.request.Get("dryRun").Len() > 0
	default:
		return nil, reasonNoResource
	}
	if object == nil && r.Operation != admissionv1.Delete {
		return nil, reasonNoObject
	}
	kind, known := m.kind(gvr, e.resource.subresource, object, old)
	if !known {
		return nil, reasonKind
	}
	r.Kind = metav1.GroupVersionKind(kind)
	r.RequestKind, r.DryRun = &r.Kind, &dryRun
	if e.user != nil {
		var user authenticationv1.UserInfo
		if json.Unmarshal(e.user, &user) == nil {
			r.UserInfo = user
		}
	}
	r.Name = cmp.Or(r.Name, object.Get("metadata", "name").Text())
	r.Object.Raw, r.OldObject.Raw = object, old
	body, err := json.Marshal(&admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &r})
	if err != nil {
		return nil, reasonNoObject
	}
	return body, ""
}

// object returns the object after the request: as it was stored, or as the client sent it.
func (e *event) object() rawjson.Value {
	stored := isObject(e.response) && !e.response.Get("kind").Is("Status")
	if stored && (e.verb == "patch" || e.response.Get("kind").Text() == e.request.Get("kind").Text()) {
		return e.response
	}
	if e.verb == "patch" || !isObject(e.request) {
		return nil
	}
	return e.request
}

func isObject(v rawjson.Value) bool { return v.Kind() == rawjson.Object }

// kind returns the kind of the objects of a request: their own, or that of the resource.
func (m *Importer) kind(gvr schema.GroupVersionResource, subresource string, objects ...rawjson.Value) (schema.GroupVersionKind, bool) {
	for _, object := range objects {
		version, err := schema.ParseGroupVersion(object.Get("apiVersion").Text())
		if kind := object.Get("kind").Text(); err == nil && kind != "" && version.Version != "" {
			return version.WithKind(kind), true
		}
	}
	if subresource != "" {
		if kind, ok := request.SubresourceKind(gvr, subresource); ok {
			return kind, true
		}
	}
	return m.resources.Kind(gvr)
}

// connectOptions returns the options of a CONNECT, which are in the URL.
func connectOptions(e *event, gvr schema.GroupVersionResource) rawjson.Value {
	kind, ok := request.SubresourceKind(gvr, e.resource.subresource)
	if !ok {
		return nil
	}
	options := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind}
	query := e.query()
	given := func(name string) string { return query.Get(name) }
	switch e.resource.subresource {
	case "exec", "attach":
		for _, name := range []string{"stdin", "stdout", "stderr", "tty"} {
			// As the API server reads them: a parameter without a value is true.
			if value := given(name); query.Has(name) && value != "false" && value != "0" {
				options[name] = true
			}
		}
		if container := given("container"); container != "" {
			options["container"] = container
		}
		if command := query["command"]; len(command) > 0 && e.resource.subresource == "exec" {
			options["command"] = command
		}
	case "portforward":
		var ports []int32
		for _, text := range query["ports"] {
			if port, err := strconv.ParseInt(text, 10, 32); err == nil {
				ports = append(ports, int32(port))
			}
		}
		if len(ports) > 0 {
			options["ports"] = ports
		}
	case "proxy":
		if e.uri != nil {
			if _, path, found := strings.Cut(e.uri.Path, "/"+e.resource.name+"/"+e.name+"/proxy"); found && path != "" {
				options["path"] = path
			}
		}
	}
	text, err := json.Marshal(options)
	if err != nil {
		return nil
	}
	return text
}

// objectKey identifies an object. Versions of a group are the same objects.
type objectKey struct{ group, resource, namespace, name string }

func (e *event) key() objectKey {
	return objectKey{e.resource.group, e.resource.name, e.namespace, e.name}
}

// remember keeps the object of an event, for later events about it.
func (m *Importer) remember(e *event) {
	if e.stage != "ResponseComplete" || e.resource.subresource != "" || e.resource.name == "" || e.hasFailed() || e.query().Get("dryRun") != "" {
		return
	}
	switch e.verb {
	case "delete":
		if isObject(e.response) && e.response.Get("metadata", "deletionTimestamp").Kind() == rawjson.String {
			break // it is only marked, and may be updated until it is gone
		}
		m.objects.remove(e.key())
		return
	case "deletecollection":
		m.objects.clear()
		return
	case "create", "update", "patch", "get":
	default:
		return
	}
	if !isObject(e.response) || e.response.Get("kind").Is("Status") {
		if e.verb != "get" {
			m.objects.remove(e.key()) // what is known is out of date
		}
		return
	}
	key := e.key()
	key.name = cmp.Or(key.name, e.response.Get("metadata", "name").Text())
	m.objects.put(key, e.response)
}

// objectCache has the last objects by key, within a number of bytes.
type objectCache struct {
	entries map[objectKey]*list.Element
	order   *list.List
	bytes   int
}

// maxCache bounds an objectCache, in bytes.
const maxCache = 128 << 20

type cached struct {
	key    objectKey
	object rawjson.Value
}

func newObjectCache() objectCache {
	return objectCache{entries: map[objectKey]*list.Element{}, order: list.New()}
}

func (c *objectCache) get(key objectKey) rawjson.Value {
	element := c.entries[key]
	if element == nil {
		return nil
	}
	c.order.MoveToFront(element)
	entry, _ := element.Value.(*cached)
	return entry.object
}

func (c *objectCache) put(key objectKey, object rawjson.Value) {
	c.remove(key)
	entry := &cached{key, append(rawjson.Value(nil), object...)}
	c.entries[key] = c.order.PushFront(entry)
	c.bytes += entry.size()
	for c.bytes > maxCache {
		oldest, _ := c.order.Back().Value.(*cached)
		c.remove(oldest.key)
	}
}

// size is what an entry takes, roughly, in bytes.
func (e *cached) size() int {
	const overhead = 300
	return len(e.object) + len(e.key.group) + len(e.key.resource) + len(e.key.namespace) + len(e.key.name) + overhead
}

func (c *objectCache) remove(key objectKey) {
	element := c.entries[key]
	if element == nil {
		return
	}
	entry, _ := c.order.Remove(element).(*cached)
	delete(c.entries, key)
	c.bytes -= entry.size()
}

func (c *objectCache) clear() { *c = newObjectCache() }
