package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// apiServer is as much of an API server as a client needs that reads. Its watches
// begin where a list ended, it cannot send everything by a watch, and it can be
// away, late, and strict.
type apiServer struct {
	address string
	server  *http.Server
	served  chan struct{} // closed when the server has ended

	mu sync.Mutex
	// changed is closed and made anew with every change.
	changed chan struct{}
	version int
	kinds   map[string]served // by path of the group, version and resource
	objects map[string]map[string]map[string]any
	events  []event
	// forbidden are "verb resource".
	forbidden map[string]bool
	// ending ends the watches, late sends no events, hung does not say what one
	// object is.
	ending, late, hung bool
	// agents are who asked.
	agents map[string]bool
	// asked counts "verb path?fieldSelector".
	asked map[string]int
}

type served struct {
	kind, resource string
	namespaced     bool
}

type event struct {
	version             int
	path, key, typeName string
	object              map[string]any
}

const (
	namespacesPath = "/api/v1/namespaces"
	configMapsPath = "/api/v1/configmaps"
	limitsPath     = "/apis/example.com/v1/limits"
	reviewsPath    = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

func newAPIServer(t testing.TB) *apiServer {
	t.Helper()
	a := &apiServer{
		changed: make(chan struct{}), objects: map[string]map[string]map[string]any{}, forbidden: map[string]bool{}, asked: map[string]int{}, agents: map[string]bool{},
		kinds: map[string]served{
			namespacesPath: {"Namespace", "namespaces", false},
			configMapsPath: {"ConfigMap", "configmaps", true},
		},
	}
	a.address = "127.0.0.1:0"
	a.start(t)
	t.Cleanup(a.stop)
	return a
}

// start makes the server reachable, at the same address each time.
func (a *apiServer) start(t testing.TB) {
	t.Helper()
	var listener net.Listener
	eventually(t, "to listen", func() (err error) { // somebody else may call from that port for a moment
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", a.address)
		return err
	})
	a.set(func() { a.ending = false })
	a.address = listener.Addr().String()
	a.server, a.served = &http.Server{Handler: a}, make(chan struct{})
	go func() {
		defer close(a.served)
		_ = a.server.Serve(listener) // that it was closed
	}()
}

// stop ends every call, and refuses connections from then on.
func (a *apiServer) stop() {
	a.set(func() { a.ending = true })
	_ = a.server.Close()
	<-a.served
}

func (a *apiServer) config() *rest.Config { return &rest.Config{Host: "http://" + a.address} }

// set changes the server.
func (a *apiServer) set(update func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	update()
	close(a.changed)
	a.changed = make(chan struct{})
}

// put creates or updates an object. What is written is metadata and more, as
// JSON.
func (a *apiServer) put(t testing.TB, path, text string) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	a.set(func() {
		kind := a.kinds[path]
		object["kind"] = kind.kind
		object["apiVersion"] = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(path, "/"+kind.resource), "/apis/"), "/api/")
		metadata, _ := object["metadata"].(map[string]any)
		a.version++
		metadata["resourceVersion"] = strconv.Itoa(a.version)
		metadata["managedFields"] = []any{map[string]any{"manager": "somebody", "operation": "Update"}}
		namespace, _ := metadata["namespace"].(string)
		name, _ := metadata["name"].(string)
		typeName := "ADDED"
		if a.objects[path] == nil {
			a.objects[path] = map[string]map[string]any{}
		}
		if a.objects[path][key(namespace, name)] != nil {
			typeName = "MODIFIED"
		}
		a.objects[path][key(namespace, name)] = object
		a.events = append(a.events, event{a.version, path, key(namespace, name), typeName, object})
	})
}

// drop deletes an object.
func (a *apiServer) drop(path, objectKey string) {
	a.set(func() {
		a.version++
		a.events = append(a.events, event{a.version, path, objectKey, "DELETED", a.objects[path][objectKey]})
		delete(a.objects[path], objectKey)
	})
}

// count is how often something was asked.
func (a *apiServer) count(what string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[what]
}

// questions are all that was asked.
func (a *apiServer) questions() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.asked))
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.agents[r.UserAgent()] = true
	q := r.URL.Query()
	path, namespace, name := a.split(r.URL.Path)
	verb := "get"
	switch {
	case r.Method == http.MethodPost:
		verb = "create"
	case q.Get("watch") != "":
		verb = "watch"
	case name == "" && path != "":
		verb = "list"
	}
	if verb != "watch" || q.Get("sendInitialEvents") == "" {
		a.asked[strings.TrimSuffix(verb+" "+r.URL.Path+"?"+q.Get("fieldSelector"), "?")]++
	}
	kind, isServed := a.kinds[path]
	switch {
	case r.URL.Path == reviewsPath:
		a.review(w, r)
	case path == "":
		a.discover(w, r.URL.Path)
	case !isServed:
		fail(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case a.forbidden[verb+" "+kind.resource]:
		fail(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("%s is forbidden: User \"gate\" cannot %s resource %q", kind.resource, verb, kind.resource))
	case verb == "get" && a.hung:
		a.mu.Unlock()
		<-r.Context().Done()
		a.mu.Lock()
	case verb == "get":
		object := a.objects[path][key(namespace, name)]
		if object == nil {
			fail(w, http.StatusNotFound, "NotFound", kind.resource+" not found")
			return
		}
		answer(w, http.StatusOK, object)
	case q.Get("sendInitialEvents") != "":
		fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
	case verb == "watch":
		since, _ := strconv.Atoi(q.Get("resourceVersion"))
		a.watch(w, r, path, since, wanted(namespace, q.Get("fieldSelector")))
	default:
		fits := wanted(namespace, q.Get("fieldSelector"))
		items := []any{}
		for k, object := range a.objects[path] {
			if fits(k) {
				items = append(items, object)
			}
		}
		answer(w, http.StatusOK, map[string]any{
			"kind": kind.kind + "List", "apiVersion": apiVersionOf(path, kind), "items": items,
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)},
		})
	}
}

func apiVersionOf(path string, kind served) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(path, "/"+kind.resource), "/apis/"), "/api/")
}

// wanted tells by an object's key whether it is asked for.
func wanted(namespace, selector string) func(string) bool {
	return func(k string) bool {
		in, name, namespaced := strings.Cut(k, "/")
		if !namespaced {
			in, name = "", k
		}
		return (namespace == "" || in == namespace) && (selector == "" || selector == "metadata.name="+name)
	}
}

// split takes a path apart into that of the resource, and what is in it.
func (a *apiServer) split(path string) (resourcePath, namespace, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	prefix := 2
	if parts[0] == "apis" {
		prefix = 3
	}
	if len(parts) <= prefix {
		return "", "", ""
	}
	base, rest := "/"+strings.Join(parts[:prefix], "/"), parts[prefix:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		namespace, rest = rest[1], rest[2:]
	}
	if len(rest) > 1 {
		name = rest[1]
	}
	return base + "/" + rest[0], namespace, name
}

// watch sends what happens. It is called, and returns, with the lock held.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, path string, since int, fits func(string) bool) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flusher, _ := w.(http.Flusher)
	flusher.Flush()
	for {
		for _, e := range a.events {
			if e.version > since && e.path == path && fits(e.key) && !a.late {
				since = e.version
				write(w, map[string]any{"type": e.typeName, "object": e.object})
			}
		}
		flusher.Flush()
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		a.mu.Lock()
		if _, isServed := a.kinds[path]; !isServed || a.ending || r.Context().Err() != nil {
			return
		}
	}
}

func (a *apiServer) discover(w http.ResponseWriter, path string) {
	resources := []any{}
	for p, kind := range a.kinds {
		if strings.TrimSuffix(p, "/"+kind.resource) == path {
			resources = append(resources,
				map[string]any{"name": kind.resource + "/status", "kind": kind.kind, "namespaced": kind.namespaced, "verbs": []string{"get"}},
				map[string]any{"name": kind.resource, "kind": kind.kind, "namespaced": kind.namespaced, "verbs": []string{"get", "list", "watch"}})
		}
	}
	if len(resources) == 0 {
		fail(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		return
	}
	answer(w, http.StatusOK, map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": resources})
}

// review lets alice do everything, and tells nothing of anybody without a name.
func (a *apiServer) review(w http.ResponseWriter, r *http.Request) {
	if a.forbidden["create subjectaccessreviews"] {
		fail(w, http.StatusForbidden, "Forbidden", "subjectaccessreviews.authorization.k8s.io is forbidden")
		return
	}
	body, _ := io.ReadAll(r.Body)
	var review authorizationv1.SubjectAccessReview
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
		fail(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	answer(w, http.StatusCreated, map[string]any{
		"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": map[string]any{},
		"status": map[string]any{"allowed": review.Spec.User == "alice" && slices.Contains(review.Spec.Groups, "staff")},
	})
}

func answer(w http.ResponseWriter, code int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	write(w, body)
}

// write writes to a client that may be gone.
func write(w io.Writer, body map[string]any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // everything here can be written
	}
	_, _ = w.Write(append(text, '\n'))
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
	})
}
