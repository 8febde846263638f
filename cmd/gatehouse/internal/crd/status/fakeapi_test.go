package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// fakeAPI is as much of an API server as a Controller needs, within a process so that
// its clock can be a fake one: leases and custom resources with server-side apply,
// where each leaf has the managers that applied it, resource versions, and watches.
type fakeAPI struct {
	mu      sync.Mutex
	changed chan struct{} // closed and made anew with every change
	version int
	objects map[string]*stored // by resource/namespace/name
	log     []change
	asked   []asking
	// refuse, if it is not nil, answers in the place of the server unless it returns
	// nil. It is called with the lock held.
	refuse func(who, verb, resource, name string) error
	// late is how long every answer takes.
	late time.Duration
	// between, if it is not nil, is called before each apply of a status, without the
	// lock.
	between func(name string)
}

type stored struct {
	object map[string]any // with conditions by type
	// owners are the managers of each leaf, and wrote is when each wrote last.
	owners map[string]map[string]bool
	wrote  map[string]time.Time
}

type change struct {
	version        int
	resource, kind string
	object         map[string]any
}

type asking struct {
	who, verb, resource, name string
	at                        time.Time
	body                      string
}

// statusError is an answer that is not a success.
type statusError struct {
	code    int
	reason  string
	message string
	causes  []any
}

func (e *statusError) Error() string { return e.message }

var (
	errForbidden = &statusError{code: 403, reason: "Forbidden", message: "no rule allows it"}
	errUnserved  = &statusError{code: 404, reason: "NotFound", message: "the server could not find the requested resource", causes: []any{
		map[string]any{"reason": "UnexpectedServerResponse", "message": "404 page not found"},
	}}
	errBroken = &statusError{code: 500, reason: "InternalError", message: "etcdserver: no leader"}
	errAway   = errors.New("connection refused")
)

// leases is the resource that can be watched.
const leases = "leases"

func newFakeAPI() *fakeAPI {
	return &fakeAPI{changed: make(chan struct{}), objects: map[string]*stored{}}
}

// client is that of a process.
func (a *fakeAPI) client(who string) *rest.Config {
	return &rest.Config{Host: "http://api.test", UserAgent: who, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: roundTripper{a, who}}
}

type roundTripper struct {
	api *fakeAPI
	who string
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.api.serve(r.who, req)
}

func (a *fakeAPI) serve(who string, req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")[3:]
	namespace, resource, name, subresource := "", "", "", ""
	if parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		subresource = "/" + parts[2]
	}
	q := req.URL.Query()
	verb := map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[req.Method]
	if verb == "get" && name == "" {
		verb = "list"
		if q.Get("watch") != "" {
			verb = "watch"
		}
	}
	if a.between != nil && verb == "patch" && subresource != "" {
		a.between(name)
	}
	a.mu.Lock()
	late := a.late
	a.asked = append(a.asked, asking{who, verb, resource + subresource, name, time.Now(), string(body)})
	a.mu.Unlock()
	if late > 0 {
		if !pause(req.Context(), late) {
			return nil, req.Context().Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != nil {
		if err := a.refuse(who, verb, resource+subresource, name); err != nil {
			return respond(req, nil, err)
		}
	}
	var sent map[string]any
	if len(body) > 0 && verb != "delete" {
		if err := json.Unmarshal(body, &sent); err != nil {
			return nil, err
		}
	}
	at := resource + "/" + namespace + "/" + name
	switch verb {
	case "get":
		o := a.objects[at]
		if o == nil {
			return respond(req, nil, missing(resource, name))
		}
		return respond(req, o.shown(), nil)
	case "list":
		apiVersion, kind := "gatehouse.dev/v1alpha1", "List"
		if resource == leases {
			apiVersion, kind = "coordination.k8s.io/v1", "LeaseList"
		}
		list := a.listed(resource, q.Get("labelSelector"), q.Get("limit"), q.Get("continue"))
		list["apiVersion"], list["kind"] = apiVersion, kind
		return respond(req, list, nil)
	case "watch":
		since, _ := strconv.Atoi(q.Get("resourceVersion"))
		seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
		ctx, cancel := context.WithTimeout(req.Context(), time.Duration(seconds)*time.Second)
		return &http.Response{
			StatusCode: http.StatusOK, Request: req, Header: http.Header{"Content-Type": {"application/json"}},
			Body: &watchBody{api: a, ctx: ctx, cancel: cancel, who: who, resource: resource, selector: q.Get("labelSelector"), since: since},
		}, nil
	case "create":
		metadata, _ := sent["metadata"].(map[string]any)
		name, _ = metadata["name"].(string)
		at += name
		if a.objects[at] != nil {
			return respond(req, nil, &statusError{code: 409, reason: "AlreadyExists", message: "already exists"})
		}
		return respond(req, a.put(at, resource, sent, "ADDED").shown(), nil)
	case "update":
		o := a.objects[at]
		if o == nil {
			return respond(req, nil, missing(resource, name))
		}
		if o.version() != versionOf(sent) {
			return respond(req, nil, &statusError{code: 409, reason: "Conflict", message: "the object has been modified"})
		}
		return respond(req, a.put(at, resource, sent, "MODIFIED").shown(), nil)
	case "delete":
		o := a.objects[at]
		if o == nil {
			return respond(req, nil, missing(resource, name))
		}
		delete(a.objects, at)
		a.note(resource, "DELETED", o)
		return respond(req, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}, nil)
	default:
		o, err := a.apply(at, resource, subresource, sent, q.Get("fieldManager"), q.Get("force") == "true")
		if err != nil {
			return respond(req, nil, err)
		}
		return respond(req, o.shown(), nil)
	}
}

func missing(resource, name string) error {
	return &statusError{code: 404, reason: "NotFound", message: resource + " " + strconv.Quote(name) + " not found"}
}

func respond(req *http.Request, object map[string]any, err error) (*http.Response, error) {
	code := http.StatusOK
	if refused, ok := errors.AsType[*statusError](err); ok {
		code = refused.code
		object = map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": refused.reason, "message": refused.message,
			"details": map[string]any{"causes": refused.causes},
		}
	} else if err != nil {
		return nil, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Request: req, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}

func versionOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	version, _ := metadata["resourceVersion"].(string)
	return version
}

func (o *stored) version() string { return versionOf(o.object) }

// put writes an object whole.
func (a *fakeAPI) put(at, resource string, object map[string]any, how string) *stored {
	o := a.objects[at]
	if o == nil {
		o = &stored{owners: map[string]map[string]bool{}, wrote: map[string]time.Time{}}
		a.objects[at] = o
	}
	var before map[string]any
	if o.object != nil {
		before, _ = o.object["metadata"].(map[string]any)
	}
	o.object = object
	a.stamp(o, before)
	a.note(resource, how, o)
	return o
}

// stamp gives an object what the server gives it.
func (a *fakeAPI) stamp(o *stored, before map[string]any) {
	a.version++
	metadata, _ := o.object["metadata"].(map[string]any)
	if before == nil {
		before = map[string]any{"uid": fmt.Sprintf("uid-%d", a.version), "creationTimestamp": time.Now().UTC().Format(time.RFC3339), "generation": int64(1)}
	}
	for _, field := range []string{"uid", "creationTimestamp", "generation"} {
		metadata[field] = before[field]
	}
	metadata["resourceVersion"] = strconv.Itoa(a.version)
}

func (a *fakeAPI) note(resource, how string, o *stored) {
	if how == "DELETED" {
		a.version++
	}
	if resource == leases {
		a.log = append(a.log, change{a.version, resource, how, o.shown()})
		a.log = a.log[max(0, len(a.log)-200):] // nobody who watches is further behind
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// shown is the object as it is read.
func (o *stored) shown() map[string]any {
	text, err := json.Marshal(o.object)
	if err != nil {
		panic(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		panic(err)
	}
	if status, ok := object["status"].(map[string]any); ok {
		if byType, ok := status["conditions"].(map[string]any); ok {
			list := []any{}
			for _, name := range slices.Sorted(maps.Keys(byType)) {
				list = append(list, byType[name])
			}
			status["conditions"] = list
		}
	}
	managed := []any{}
	for _, manager := range slices.Sorted(maps.Keys(o.wrote)) {
		managed = append(managed, map[string]any{
			"manager": manager, "operation": "Apply", "subresource": "status", "time": o.wrote[manager].UTC().Format(time.RFC3339),
		})
	}
	metadata, _ := object["metadata"].(map[string]any)
	metadata["managedFields"] = managed
	return object
}

// leaves takes an object apart.
func leaves(prefix string, value any, into map[string]any) {
	if object, ok := value.(map[string]any); ok {
		for name, child := range object {
			leaves(prefix+"\x00"+name, child, into)
		}
		return
	}
	into[prefix] = value
}

func set(object map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		child, ok := object[name].(map[string]any)
		if !ok {
			child = map[string]any{}
			object[name] = child
		}
		object = child
	}
	if value == nil {
		delete(object, path[len(path)-1])
		return
	}
	object[path[len(path)-1]] = value
}

// apply is server-side apply.
func (a *fakeAPI) apply(at, resource, subresource string, sent map[string]any, manager string, force bool) (*stored, error) {
	o := a.objects[at]
	if o == nil && subresource != "" {
		return nil, missing(resource, at)
	}
	how := "MODIFIED"
	if o == nil {
		how = "ADDED"
		metadata, _ := sent["metadata"].(map[string]any)
		o = &stored{
			object: map[string]any{"apiVersion": sent["apiVersion"], "kind": sent["kind"], "metadata": map[string]any{"name": metadata["name"], "namespace": metadata["namespace"]}},
			owners: map[string]map[string]bool{}, wrote: map[string]time.Time{},
		}
		a.stamp(o, nil)
		a.objects[at] = o
	} else if version := versionOf(sent); version != "" && version != o.version() {
		return nil, &statusError{code: 409, reason: "Conflict", message: "the object has been modified; please apply your changes to the latest version"}
	}
	wanted := map[string]any{}
	if subresource == "" {
		metadata, _ := sent["metadata"].(map[string]any)
		leaves("metadata\x00labels", metadata["labels"], wanted)
		leaves("metadata\x00annotations", metadata["annotations"], wanted)
		leaves("spec", sent["spec"], wanted)
	} else {
		status, _ := sent["status"].(map[string]any)
		if list, ok := status["conditions"].([]any); ok {
			byType := map[string]any{}
			for _, one := range list {
				byType[one.(map[string]any)["type"].(string)] = one
			}
			status["conditions"] = byType
		}
		leaves("status", status, wanted)
	}
	found := map[string]any{}
	leaves("status", o.object["status"], found)
	leaves("spec", o.object["spec"], found)
	metadata, _ := o.object["metadata"].(map[string]any)
	leaves("metadata\x00labels", metadata["labels"], found)
	leaves("metadata\x00annotations", metadata["annotations"], found)
	var causes []any
	for path, value := range wanted {
		for isOther := range o.owners[path] {
			if isOther != manager && !reflect.DeepEqual(found[path], value) {
				causes = append(causes, map[string]any{
					"reason": "FieldManagerConflict", "field": strings.ReplaceAll(path, "\x00", "."),
					"message": fmt.Sprintf("conflict with %q using gatehouse.dev/v1alpha1", isOther),
				})
			}
		}
	}
	if len(causes) > 0 && !force {
		return nil, &statusError{code: 409, reason: "Conflict", message: fmt.Sprintf("Apply failed with %d conflicts", len(causes)), causes: causes}
	}
	changed := false
	for path, managers := range o.owners {
		if _, still := wanted[path]; !still && managers[manager] {
			delete(managers, manager)
			if len(managers) == 0 {
				delete(o.owners, path)
				set(o.object, strings.Split(path, "\x00"), nil)
				changed = true
			}
		}
	}
	for path, value := range wanted {
		if !reflect.DeepEqual(found[path], value) {
			changed = true
			delete(o.owners, path)
			set(o.object, strings.Split(path, "\x00"), value)
		}
		if o.owners[path] == nil {
			o.owners[path] = map[string]bool{}
		}
		o.owners[path][manager] = true
	}
	if changed || o.wrote[manager].IsZero() {
		o.wrote[manager] = time.Now()
		a.stamp(o, maps.Clone(metadata))
		a.note(resource, how, o)
	}
	return o, nil
}

func fits(object map[string]any, selector string) bool {
	if selector == "" {
		return true
	}
	name, value, _ := strings.Cut(selector, "=")
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	return labels[name] == value
}

func (a *fakeAPI) listed(resource, selector, limitText, from string) map[string]any {
	limit, _ := strconv.Atoi(limitText)
	items, next := []any{}, ""
	for _, at := range slices.Sorted(maps.Keys(a.objects)) {
		o := a.objects[at]
		if !strings.HasPrefix(at, resource+"/") || !fits(o.object, selector) || at <= from {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = a.keyBefore(items)
			break
		}
		items = append(items, o.shown())
	}
	return map[string]any{
		"items":    items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version), "continue": next},
	}
}

func (a *fakeAPI) keyBefore(items []any) string {
	last, _ := items[len(items)-1].(map[string]any)
	for at, o := range a.objects {
		if o.version() == versionOf(last) {
			return at
		}
	}
	return ""
}

// watchBody sends what happens.
type watchBody struct {
	api      *fakeAPI
	ctx      context.Context
	cancel   context.CancelFunc
	who      string
	resource string
	selector string
	since    int
	left     []byte
}

func (w *watchBody) Read(p []byte) (int, error) {
	for len(w.left) == 0 {
		w.api.mu.Lock()
		if w.api.refuse != nil {
			if err := w.api.refuse(w.who, "watch", w.resource, ""); err != nil {
				w.api.mu.Unlock()
				return 0, io.EOF
			}
		}
		for _, c := range w.api.log {
			if c.version > w.since && c.resource == w.resource && fits(c.object, w.selector) {
				text, err := json.Marshal(map[string]any{"type": c.kind, "object": c.object})
				if err != nil {
					panic(err)
				}
				w.left = append(append(w.left, text...), '\n')
			}
			w.since = max(w.since, c.version)
		}
		changed := w.api.changed
		w.api.mu.Unlock()
		if len(w.left) > 0 {
			break
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			return 0, io.EOF
		}
	}
	n := copy(p, w.left)
	w.left = w.left[n:]
	return n, nil
}

func (w *watchBody) Close() error {
	w.cancel()
	return nil
}

// set changes the server.
func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.changed)
	a.changed = make(chan struct{})
}

// make creates a custom resource, and tells how it is read.
func (a *fakeAPI) make(kind, name string) Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	resource := resourceOf(kind)
	o := a.put(resource+"//"+name, resource, map[string]any{
		"apiVersion": "gatehouse.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name},
	}, "ADDED")
	metadata := o.object["metadata"].(map[string]any)
	return Object{Kind: kind, Name: name, UID: types.UID(metadata["uid"].(string)), Generation: metadata["generation"].(int64)}
}

// edit changes the spec of a custom resource.
func (a *fakeAPI) edit(o Object) Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.objects[resourceOf(o.Kind)+"//"+o.Name]
	metadata := found.object["metadata"].(map[string]any)
	o.Generation++
	metadata["generation"] = o.Generation
	a.stamp(found, maps.Clone(metadata))
	return o
}

// get is a custom resource's status, and remove removes one.
func (a *fakeAPI) get(t *testing.T, o Object) fields {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.objects[resourceOf(o.Kind)+"//"+o.Name]
	if found == nil {
		t.Fatalf("there is no %s %s", o.Kind, o.Name)
	}
	text, err := json.Marshal(found.shown()["status"])
	if err != nil {
		t.Fatal(err)
	}
	var f fields
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func (a *fakeAPI) remove(o Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, resourceOf(o.Kind)+"//"+o.Name)
}

// leases are the names of those that are reports.
func (a *fakeAPI) reports() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for at, o := range a.objects {
		metadata := o.object["metadata"].(map[string]any)
		if labels, ok := metadata["labels"].(map[string]any); ok && labels[reportLabel] != nil {
			names = append(names, at[strings.LastIndex(at, "/")+1:])
		}
	}
	slices.Sort(names)
	return names
}

// asks are what was asked since then and fits.
func (a *fakeAPI) asks(since time.Time, fits func(asking) bool) []asking {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []asking
	for _, one := range a.asked {
		if !one.at.Before(since) && fits(one) {
			list = append(list, one)
		}
	}
	return list
}
