package certstest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

// APIServer is a fake API server for Secrets, Leases and webhook configurations, by their paths. It refuses what no code of
// certificates may ask for: to list or watch everything, and to apply without force. It uses no network, so that it works in
// the bubbles of synctest.
type APIServer struct {
	t      testing.TB
	server *fakeapi.Server

	Mu sync.Mutex
	// Now returns the time by the clock of the server.
	Now func() time.Time
	// Apply merges an apply patch into an object, which is nil if it does not exist, or
	// answers in place of the server. Nil leaves that to the server.
	Apply func(object, patch map[string]any) (map[string]any, *http.Response)

	// broken is closed to end all watches.
	broken   chan struct{}
	requests map[string]int
	fault    Fault
}

// Fault answers a request in place of an APIServer if it returns a response or an error.
type Fault func(verb string, r *http.Request) (*http.Response, error)

// served are the resources, by their names.
var served = map[string]fakeapi.Resource{
	"secrets":                         resource("", "secrets", "Secret", true),
	"leases":                          resource("coordination.k8s.io", "leases", "Lease", true),
	"mutatingwebhookconfigurations":   resource("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false),
	"validatingwebhookconfigurations": resource("admissionregistration.k8s.io", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false),
}

func resource(group, name, kind string, namespaced bool) fakeapi.Resource {
	return fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, Kind: kind, Namespaced: namespaced}
}

// NewAPIServer returns an empty API server.
func NewAPIServer(t testing.TB) *APIServer {
	a := &APIServer{t: t, server: fakeapi.New(), requests: map[string]int{}, Now: func() time.Time { return Noon }, broken: make(chan struct{})}
	for _, r := range served {
		a.server.Serve(r)
	}
	a.server.Stored = a.stamp
	return a
}

// stamp sets the times of an object by the clock of the server.
func (a *APIServer) stamp(object *unstructured.Unstructured) {
	now := metav1.NewTime(a.Now())
	if object.GetCreationTimestamp() == (metav1.Time{}) {
		object.SetCreationTimestamp(now)
	}
	if object.GetKind() != "Lease" {
		return
	}
	managed := object.GetManagedFields()
	if len(managed) == 0 {
		managed = []metav1.ManagedFieldsEntry{{
			Manager: "gatehouse", Operation: metav1.ManagedFieldsOperationApply, APIVersion: object.GetAPIVersion(), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
		}}
	}
	for i := range managed {
		managed[i].Time = &now
	}
	object.SetManagedFields(managed)
}

// Client returns a client of the server.
func (a *APIServer) Client() kubernetes.Interface {
	a.t.Helper()
	config := a.server.Config("test")
	config.Transport = a
	client, err := kubernetes.NewForConfig(config)
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
	a.edit(path, change)
}

func (a *APIServer) edit(path string, change func(object map[string]any) map[string]any) map[string]any {
	r, namespace, name := at(path)
	object := change(a.Get(path))
	object["apiVersion"], object["kind"] = r.GroupVersion().String(), r.Kind
	m := Meta(object)
	m["name"] = name
	if namespace != "" {
		m["namespace"] = namespace
	}
	return a.server.Put(object).Object
}

// at returns what a path is of.
func at(path string) (r fakeapi.Resource, namespace, name string) {
	parts := strings.Split(path, "/")
	n := len(parts)
	if r = served[parts[n-2]]; r.Namespaced {
		namespace = parts[n-3]
	}
	return r, namespace, parts[n-1]
}

// Remove deletes an object.
func (a *APIServer) Remove(path string) { a.server.Delete(at(path)) }

// Get returns an object, nil if it is missing.
func (a *APIServer) Get(path string) map[string]any {
	if object := a.server.Get(at(path)); object != nil {
		return object.Object
	}
	return nil
}

// Paths returns the sorted names of all Leases.
func (a *APIServer) Paths() []string {
	var names []string
	for _, object := range a.server.List(served["leases"]) {
		names = append(names, object.GetName())
	}
	slices.Sort(names)
	return names
}

// Meta returns the metadata of an object.
func Meta(object map[string]any) map[string]any {
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{}
	}
	return object["metadata"].(map[string]any)
}

// RoundTrip implements http.RoundTripper.
func (a *APIServer) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	verb := map[string]string{"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}[r.Method]
	if _, isCollection := served[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]; isCollection && verb == "get" {
		verb = "list"
		if query.Get("watch") != "" {
			verb = "watch"
		}
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
	byName := strings.HasPrefix(query.Get("fieldSelector"), "metadata.name=")
	switch {
	case verb == "list" && !byName && query.Get("labelSelector") == "":
		return Refuse(http.StatusForbidden, "only what is named may be listed"), nil
	case verb == "watch" && !byName:
		a.t.Errorf("a watch of everything: %s", r.URL)
	case verb == "watch":
		return a.watch(r)
	case r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		if query.Get("fieldManager") == "" || query.Get("force") != "true" {
			return Refuse(http.StatusBadRequest, "no server-side apply of ours"), nil
		}
		if a.Apply != nil {
			return a.apply(r)
		}
	}
	return a.server.RoundTrip(r)
}

func (a *APIServer) apply(r *http.Request) (response *http.Response, err error) {
	var patch map[string]any
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		return nil, err
	}
	a.Mu.Lock()
	defer a.Mu.Unlock()
	applied, response := a.Apply(a.Get(r.URL.Path), patch)
	if response != nil {
		return response, nil
	}
	return Reply(http.StatusOK, a.edit(r.URL.Path, func(map[string]any) map[string]any { return applied })), nil
}

// watch is a watch that Break ends.
func (a *APIServer) watch(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	response, err := a.server.RoundTrip(r.WithContext(ctx))
	if err != nil || response.StatusCode != http.StatusOK {
		cancel()
		return response, err
	}
	a.Mu.Lock()
	w := &watch{response.Body, cancel, a.broken}
	a.Mu.Unlock()
	go func() {
		select {
		case <-w.broken:
			cancel()
		case <-ctx.Done():
		}
	}()
	response.Body = w
	return response, nil
}

type watch struct {
	io.ReadCloser

	cancel context.CancelFunc
	broken chan struct{}
}

func (w *watch) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	w.cancel()
	select {
	case <-w.broken:
		err = io.ErrUnexpectedEOF
	default:
	}
	return n, err
}

func (w *watch) Close() error {
	w.cancel()
	return w.ReadCloser.Close()
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
