package certstest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
)

// APIServer is as much of an API server as a Secret and Leases need: create, get,
// list by label and in pages, watch by name, merge patch, apply and delete, with resource
// versions and preconditions.
type APIServer struct {
	t      testing.TB
	Server *httptest.Server
	Now    func() time.Time

	Mu      sync.Mutex
	version int
	// Objects are by their path.
	Objects map[string]map[string]any
	// changed is closed with the next change.
	changed chan struct{}
	// asked are "verb path" of all requests.
	asked []string
	// answer takes the place of the usual answer if it returns true.
	answer func(w http.ResponseWriter, r *http.Request, verb string) bool
}

// NewAPIServer starts an API server that ends with the test.
func NewAPIServer(t testing.TB) *APIServer {
	t.Helper()
	api := &APIServer{t: t, Objects: map[string]map[string]any{}, changed: make(chan struct{}), Now: func() time.Time { return Noon }}
	api.Server = httptest.NewServer(api)
	t.Cleanup(func() {
		api.Server.CloseClientConnections()
		api.Server.Close()
	})
	return api
}

// Client returns a client of the server.
func (a *APIServer) Client() kubernetes.Interface {
	a.t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: a.Server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

// Set sets an answer that takes the place of the usual one, nil for none.
func (a *APIServer) Set(answer func(w http.ResponseWriter, r *http.Request, verb string) bool) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.answer = answer
}

// Requests counts those with a verb.
func (a *APIServer) Requests(verb string) int {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	count := 0
	for _, request := range a.asked {
		if strings.HasPrefix(request, verb+" ") {
			count++
		}
	}
	return count
}

// Put stores an object as somebody else does, and remove takes one away.
func (a *APIServer) Put(path, text string) {
	a.t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		a.t.Fatal(err)
	}
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.store(path, object)
}

// Remove deletes an object.
func (a *APIServer) Remove(path string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	delete(a.Objects, path)
	a.wake()
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

func (a *APIServer) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// Meta is the metadata of an object.
func Meta(object map[string]any) map[string]any {
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{}
	}
	return object["metadata"].(map[string]any)
}

// store gives an object what an API server gives it.
func (a *APIServer) store(path string, object map[string]any) {
	m := Meta(object)
	a.version++
	m["resourceVersion"] = strconv.Itoa(a.version)
	m["name"] = path[strings.LastIndex(path, "/")+1:]
	if m["uid"] == nil {
		m["uid"] = fmt.Sprintf("uid-%d", a.version)
	}
	if m["creationTimestamp"] == nil {
		m["creationTimestamp"] = clock.Stamp(a.Now())
	}
	object["apiVersion"], object["kind"] = "v1", "Secret"
	if strings.Contains(path, "/leases/") {
		object["apiVersion"], object["kind"] = "coordination.k8s.io/v1", "Lease"
		m["managedFields"] = []any{map[string]any{"manager": "gatehouse", "operation": "Apply", "time": clock.Stamp(a.Now())}}
	}
	a.Objects[path] = object
	a.wake()
}

// ServeHTTP implements http.Handler.
func (a *APIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb := map[string]string{"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}[r.Method]
	collection := strings.HasSuffix(r.URL.Path, "/secrets") || strings.HasSuffix(r.URL.Path, "/leases")
	if verb == "get" && collection {
		verb = "list"
		if r.URL.Query().Get("watch") != "" {
			verb = "watch"
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	a.Mu.Lock()
	a.asked = append(a.asked, verb+" "+r.URL.Path)
	answer := a.answer
	a.Mu.Unlock()
	if answer != nil && answer(w, r, verb) {
		return
	}
	if verb == "watch" {
		a.watch(w, r)
		return
	}
	a.Mu.Lock()
	defer a.Mu.Unlock()
	object := a.Objects[r.URL.Path]
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case verb == "list":
		items := []any{}
		for _, path := range slices.Sorted(maps.Keys(a.Objects)) {
			labels, _ := Meta(a.Objects[path])["labels"].(map[string]any)
			key, value, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "=")
			if strings.HasPrefix(path, r.URL.Path+"/") && labels[key] == value && path > r.URL.Query().Get("continue") {
				items = append(items, a.Objects[path])
			}
		}
		page := map[string]any{}
		if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && limit < len(items) {
			items = items[:limit]
			page["continue"] = r.URL.Path + "/" + Meta(items[limit-1].(map[string]any))["name"].(string)
		}
		Reply(w, 200, map[string]any{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": page, "items": items})
	case verb == "create":
		var created map[string]any
		if err := json.Unmarshal(body, &created); err != nil {
			a.t.Error(err)
		}
		path := r.URL.Path + "/" + Meta(created)["name"].(string)
		if a.Objects[path] != nil {
			refuse(w, 409, "AlreadyExists", "it already exists")
			return
		}
		a.store(path, created)
		Reply(w, 201, created)
	case verb == "patch" && r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		var applied map[string]any
		if err := json.Unmarshal(body, &applied); err != nil {
			a.t.Error(err)
		}
		if object != nil {
			Meta(applied)["uid"], Meta(applied)["creationTimestamp"] = Meta(object)["uid"], Meta(object)["creationTimestamp"]
		}
		a.store(r.URL.Path, applied)
		Reply(w, 200, applied)
	case object == nil:
		refuse(w, 404, "NotFound", fmt.Sprintf("%q not found", name))
	case verb == "get":
		Reply(w, 200, object)
	case verb == "patch":
		var wanted struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		before, err := json.Marshal(object)
		if err != nil {
			a.t.Error(err)
		}
		if err := json.Unmarshal(body, &wanted); err != nil {
			a.t.Error(err)
		}
		if !a.same(object, wanted.Metadata.UID, wanted.Metadata.ResourceVersion) {
			refuse(w, 409, "Conflict", "the object has been modified")
			return
		}
		after, err := jsonpatch.MergePatch(before, body)
		if err != nil {
			a.t.Error(err)
		}
		var patched map[string]any
		if err := json.Unmarshal(after, &patched); err != nil {
			a.t.Error(err)
		}
		a.store(r.URL.Path, patched)
		Reply(w, 200, patched)
	case verb == "delete":
		var options struct {
			Preconditions struct{ UID, ResourceVersion string }
		}
		if err := json.Unmarshal(body, &options); err != nil {
			a.t.Error(err)
		}
		if !a.same(object, options.Preconditions.UID, options.Preconditions.ResourceVersion) {
			refuse(w, 409, "Conflict", "the precondition failed")
			return
		}
		delete(a.Objects, r.URL.Path)
		a.wake()
		Reply(w, 200, object)
	}
}

func (a *APIServer) same(object map[string]any, uid, version string) bool {
	m := Meta(object)
	return (uid == "" || m["uid"] == uid) && (version == "" || m["resourceVersion"] == version)
}

// watch sends the object of the field selector, and again after every change of
// anything.
func (a *APIServer) watch(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	if !ok {
		a.t.Errorf("a watch of everything: %s", r.URL)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	_ = http.NewResponseController(w).Flush()
	sent := ""
	for {
		a.Mu.Lock()
		object, wait := a.Objects[r.URL.Path+"/"+name], a.changed
		text, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": object})
		if err != nil {
			a.t.Error(err)
		}
		if object == nil && sent != "" {
			text = []byte(`{"type":"DELETED","object":{"kind":"Secret","apiVersion":"v1"}}`)
		}
		a.Mu.Unlock()
		if string(text) != sent && (object != nil || sent != "") {
			sent = string(text)
			_, _ = w.Write(append(text, '\n'))
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
}

// Reply answers with an object.
func Reply(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) //nolint:errchkjson // made of JSON, or of texts
}

func refuse(w http.ResponseWriter, code int, reason, message string, causes ...map[string]any) {
	Reply(w, code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
		"details": map[string]any{"causes": causes},
	})
}

// Refuses is an answer to all requests with a verb.
func Refuses(verb string, code int, reason, message string, causes ...map[string]any) func(http.ResponseWriter, *http.Request, string) bool {
	return func(w http.ResponseWriter, _ *http.Request, asked string) bool {
		if asked == verb {
			refuse(w, code, reason, message, causes...)
		}
		return asked == verb
	}
}
