package certstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// APIServer is a fake API server for Secrets, Leases and webhook configurations: create,
// get, list by label, by name and in pages, watch by name, merge patch, server-side apply
// and delete, with resource versions and preconditions. It uses no network, so that it
// works in the bubbles of synctest.
type APIServer struct {
	t testing.TB

	Mu sync.Mutex
	// Now returns the time by the clock of the server.
	Now func() time.Time
	// Objects are by their paths.
	Objects map[string]map[string]any
	// Apply merges an apply patch into an object, which is nil if it does not exist, or
	// answers in place of the server. Nil replaces the object.
	Apply func(object, patch map[string]any) (map[string]any, *http.Response)

	version int
	events  []event
	// changed is closed with the next event, and broken to end all watches.
	changed, broken chan struct{}
	requests        map[string]int
	fault           Fault
}

type event struct {
	version    int
	path, kind string
	object     json.RawMessage
}

// Fault answers a request in place of an APIServer if it returns a response or an error.
type Fault func(verb string, r *http.Request) (*http.Response, error)

// NewAPIServer returns an empty API server.
func NewAPIServer(t testing.TB) *APIServer {
	return &APIServer{
		t: t, Objects: map[string]map[string]any{}, requests: map[string]int{}, Now: func() time.Time { return Noon },
		changed: make(chan struct{}), broken: make(chan struct{}),
	}
}

// Client returns a client of the server.
func (a *APIServer) Client() kubernetes.Interface {
	a.t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://apiserver", Transport: a, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

// Set sets a fault, and ends all watches. Nil removes it, and ends none.
func (a *APIServer) Set(fault Fault) {
	a.Mu.Lock()
	a.fault = fault
	a.Mu.Unlock()
	if fault != nil {
		a.Break()
	}
}

// Break ends all watches.
func (a *APIServer) Break() {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	close(a.broken)
	a.broken = make(chan struct{})
}

// Requests counts the requests with a verb.
func (a *APIServer) Requests(verb string) int {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return a.requests[verb]
}

// Put stores an object as another client does.
func (a *APIServer) Put(path, text string) {
	a.t.Helper()
	a.Edit(path, func(map[string]any) map[string]any {
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			a.t.Error(err)
		}
		return object
	})
}

// Edit replaces an object, which is nil if it does not exist.
func (a *APIServer) Edit(path string, change func(object map[string]any) map[string]any) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.store(path, change(a.Objects[path]))
}

// Remove deletes an object.
func (a *APIServer) Remove(path string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.remove(path)
}

func (a *APIServer) remove(path string) {
	object := a.Objects[path]
	delete(a.Objects, path)
	a.version++
	a.notify(path, "DELETED", object)
}

// Get returns an object, nil if it is missing.
func (a *APIServer) Get(path string) map[string]any {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return a.Objects[path]
}

// Paths returns the sorted paths of all objects.
func (a *APIServer) Paths() []string {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return slices.Sorted(maps.Keys(a.Objects))
}

// Meta returns the metadata of an object.
func Meta(object map[string]any) map[string]any {
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{}
	}
	return object["metadata"].(map[string]any)
}

// kindOf returns the kind of what is at a path, and whether that is a collection.
func kindOf(path string) (apiVersion, kind string, isCollection bool) {
	for resource, known := range map[string][2]string{
		"secrets": {"v1", "Secret"}, "leases": {"coordination.k8s.io/v1", "Lease"},
		"mutatingwebhookconfigurations":   {"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"},
		"validatingwebhookconfigurations": {"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"},
	} {
		if strings.Contains(path+"/", "/"+resource+"/") {
			return known[0], known[1], strings.HasSuffix(path, "/"+resource)
		}
	}
	return "", "", false
}

// store adds to an object what an API server sets.
func (a *APIServer) store(path string, object map[string]any) {
	kind := "MODIFIED"
	if a.Objects[path] == nil {
		kind = "ADDED"
	}
	m := Meta(object)
	a.version++
	m["resourceVersion"] = strconv.Itoa(a.version)
	m["name"] = path[strings.LastIndex(path, "/")+1:]
	if m["uid"] == nil {
		m["uid"] = fmt.Sprintf("uid-%d", a.version)
	}
	if m["creationTimestamp"] == nil {
		m["creationTimestamp"] = a.Now().UTC().Format(time.RFC3339)
	}
	object["apiVersion"], object["kind"], _ = kindOf(path)
	if object["kind"] == "Lease" {
		m["managedFields"] = []any{map[string]any{"manager": "gatehouse", "operation": "Apply", "time": a.Now().UTC().Format(time.RFC3339)}}
	}
	a.Objects[path] = object
	a.notify(path, kind, object)
}

func (a *APIServer) notify(path, kind string, object map[string]any) {
	text, err := json.Marshal(object)
	if err != nil {
		a.t.Error(err)
	}
	a.events = append(a.events, event{a.version, path, kind, text})
	close(a.changed)
	a.changed = make(chan struct{})
}

// RoundTrip implements http.RoundTripper.
func (a *APIServer) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.Path
	verb := map[string]string{"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}[r.Method]
	if _, _, isCollection := kindOf(path); isCollection && verb == "get" {
		verb = "list"
		if r.URL.Query().Get("watch") != "" {
			verb = "watch"
		}
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	a.Mu.Lock()
	a.requests[verb]++
	fault := a.fault
	a.Mu.Unlock()
	if fault != nil {
		if response, err := fault(verb, r); response != nil || err != nil {
			return response, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	a.Mu.Lock()
	defer a.Mu.Unlock()
	switch verb {
	case "list":
		return a.list(r), nil
	case "watch":
		return a.watch(r)
	case "create":
		created := parse(a.t, body)
		path += "/" + Meta(created)["name"].(string)
		if a.Objects[path] != nil {
			return Reply(http.StatusConflict, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists}), nil
		}
		a.store(path, created)
		return Reply(http.StatusCreated, created), nil
	}
	if verb == "patch" && r.Header.Get("Content-Type") == "application/apply-patch+yaml" {
		return a.apply(r, body), nil
	}
	object := a.Objects[path]
	if object == nil {
		return Refuse(http.StatusNotFound, fmt.Sprintf("%q not found", path)), nil
	}
	// Preconditions of a deletion, and what a patch requires.
	var wanted struct {
		Metadata, Preconditions struct{ UID, ResourceVersion string }
	}
	_ = json.Unmarshal(body, &wanted) // a get has no body
	uid, version := wanted.Metadata.UID+wanted.Preconditions.UID, wanted.Metadata.ResourceVersion+wanted.Preconditions.ResourceVersion
	if m := Meta(object); uid != "" && m["uid"] != uid || version != "" && m["resourceVersion"] != version {
		return Refuse(http.StatusConflict, "the object has been modified"), nil
	}
	switch verb {
	case "patch":
		before, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		after, err := jsonpatch.MergePatch(before, body)
		if err != nil {
			return nil, err
		}
		object = parse(a.t, after)
		a.store(path, object)
	case "delete":
		a.remove(path)
	}
	return Reply(http.StatusOK, object), nil
}

func parse(t testing.TB, text []byte) map[string]any {
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Error(err)
	}
	return object
}

// list answers with what the selectors select.
func (a *APIServer) list(r *http.Request) *http.Response {
	query := r.URL.Query()
	apiVersion, kind, _ := kindOf(r.URL.Path)
	label, value, _ := strings.Cut(query.Get("labelSelector"), "=")
	name, byName := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	if !byName && label == "" {
		return Refuse(http.StatusForbidden, "only what is named may be listed")
	}
	page, items := map[string]any{"resourceVersion": strconv.Itoa(a.version)}, []any{}
	for _, path := range slices.Sorted(maps.Keys(a.Objects)) {
		m := Meta(a.Objects[path])
		labels, _ := m["labels"].(map[string]any)
		if strings.HasPrefix(path, r.URL.Path+"/") && (!byName || m["name"] == name) && (label == "" || labels[label] == value) && path > query.Get("continue") {
			items = append(items, a.Objects[path])
		}
	}
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit < len(items) {
		items = items[:limit]
		page["continue"] = r.URL.Path + "/" + Meta(items[limit-1].(map[string]any))["name"].(string)
	}
	return Reply(http.StatusOK, map[string]any{"kind": kind + "List", "apiVersion": apiVersion, "metadata": page, "items": items})
}

func (a *APIServer) apply(r *http.Request, body []byte) *http.Response {
	if q := r.URL.Query(); q.Get("fieldManager") == "" || q.Get("force") != "true" {
		return Refuse(http.StatusBadRequest, "no server-side apply of ours")
	}
	path, applied := r.URL.Path, parse(a.t, body)
	object := a.Objects[path]
	if a.Apply != nil {
		var response *http.Response
		if applied, response = a.Apply(object, applied); response != nil {
			return response
		}
	} else if object != nil {
		Meta(applied)["uid"], Meta(applied)["creationTimestamp"] = Meta(object)["uid"], Meta(object)["creationTimestamp"]
	}
	a.store(path, applied)
	return Reply(http.StatusOK, applied)
}

// watch sends the events of one object after a resource version. Without one it begins
// with the object.
func (a *APIServer) watch(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	name, byName := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	if !byName {
		a.t.Errorf("a watch of everything: %s", r.URL)
	}
	path := r.URL.Path + "/" + name
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil {
		return nil, err
	}
	from, err := strconv.Atoi(query.Get("resourceVersion"))
	if err != nil {
		from = a.version
		if object := a.Objects[path]; object != nil {
			if from, err = strconv.Atoi(Meta(object)["resourceVersion"].(string)); err != nil {
				return nil, err
			}
			from--
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	reader, writer := io.Pipe()
	broken := a.broken
	go func() {
		defer cancel()
		for {
			a.Mu.Lock()
			events, changed := a.events, a.changed
			a.Mu.Unlock()
			for _, e := range events {
				if e.version <= from || e.path != path {
					continue
				}
				from = e.version
				if _, err := fmt.Fprintf(writer, `{"type":%q,"object":%s}`+"\n", e.kind, e.object); err != nil {
					return
				}
			}
			select {
			case <-changed:
			case <-broken:
				_ = writer.CloseWithError(io.ErrUnexpectedEOF)
				return
			case <-ctx.Done():
				_ = writer.Close()
				return
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, Request: r}, nil
}

// Reply returns an answer with an object.
func Reply(code int, object any) *http.Response {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text))}
}

// Refuse returns an answer that refuses a request.
func Refuse(code int, message string, causes ...metav1.StatusCause) *http.Response {
	return Reply(code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Message: message, Details: &metav1.StatusDetails{Causes: causes},
	})
}

// Refuses returns a fault that refuses all requests with the verbs.
func Refuses(code int, message string, verbs ...string) Fault {
	return func(verb string, _ *http.Request) (*http.Response, error) {
		if slices.Contains(verbs, verb) {
			return Refuse(code, message), nil
		}
		return nil, nil
	}
}

// Hang is a fault that answers nothing until the client gives up.
func Hang(_ string, r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}
