// Package fakeapi is an API server within the process of a test, so that its clock can be that of testing/synctest. It has
// what controllers need: objects with resource versions and generations, pages, watches, discovery and server-side apply.
package fakeapi

import (
	"bytes"
	"cmp"
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
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Resource is a resource that a Server serves.
type Resource struct {
	schema.GroupVersionResource

	Kind       string
	Namespaced bool
}

// Request is a request to a Server.
type Request struct {
	UserAgent string
	// Verb is as in a rule of RBAC.
	Verb string
	// Resource has the subresource, if there is one, behind a slash.
	Resource, Name string
	Time           time.Time
	Body           []byte

	text string
}

// String returns the verb, the path and the field selector: "list /api/v1/configmaps?metadata.name=a".
func (r *Request) String() string { return r.text }

// Server is an API server. Its exported fields are set before the first request, or in Update.
type Server struct {
	// Intercept is called for each request, and for a watch again whenever something changes. Unless it returns nil twice,
	// the object or the error is the answer. An error that is no status of the API is one of the connection.
	Intercept func(*Request) (any, error)
	// Delay is how long every answer takes.
	Delay time.Duration
	// BeforeStatus is called before each write of a status, without the lock.
	BeforeStatus func()
	// Stored is called with each object before it is stored, with the lock held.
	Stored func(*unstructured.Unstructured)
	// Silent keeps watches from sending anything.
	Silent bool

	mu        sync.Mutex
	changed   chan struct{} // closed and made anew with every change
	version   int
	resources []Resource
	objects   map[key]*unstructured.Unstructured
	events    []event
	requests  []Request
}

type key struct {
	schema.GroupVersionResource
	types.NamespacedName
}

type event struct {
	key     key
	version int
	Type    string                     `json:"type"`
	Object  *unstructured.Unstructured `json:"object"`
}

// New returns a Server of these resources.
func New(resources ...Resource) *Server {
	return &Server{changed: make(chan struct{}), resources: resources, objects: map[key]*unstructured.Unstructured{}}
}

// Config returns the configuration of a client.
func (s *Server) Config(userAgent string) *rest.Config {
	return &rest.Config{
		Host: "http://api.test", UserAgent: userAgent, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}, Transport: s,
	}
}

// Update changes the Server.
func (s *Server) Update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.notify()
}

func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Serve adds a resource.
func (s *Server) Serve(r Resource) { s.Update(func() { s.resources = append(s.resources, r) }) }

// Requests returns the requests so far that satisfy a condition. An attempt to read everything by a watch is none.
func (s *Server) Requests(condition func(*Request) bool) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Request
	for i := range s.requests {
		if condition(&s.requests[i]) {
			out = append(out, s.requests[i])
		}
	}
	return out
}

// Count returns the number of requests with this String.
func (s *Server) Count(text string) int {
	return len(s.Requests(func(r *Request) bool { return r.text == text }))
}

// Put creates an object, or replaces one: a change of what is not metadata or status is a new generation. It returns the
// object as it is then.
func (s *Server) Put(object map[string]any) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := (&unstructured.Unstructured{Object: object}).DeepCopy()
	i := slices.IndexFunc(s.resources, func(r Resource) bool { return r.GroupVersion().WithKind(r.Kind) == u.GroupVersionKind() })
	if i < 0 {
		panic(fmt.Sprintf("%s is not served", u.GroupVersionKind()))
	}
	return s.store(s.resources[i].keyOf(u.GetNamespace(), u.GetName()), u).DeepCopy()
}

// Get returns an object, or nil.
func (s *Server) Get(r Resource, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[r.keyOf(namespace, name)].DeepCopy()
}

// List returns all objects of a resource.
func (s *Server) List(r Resource) []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*unstructured.Unstructured
	for k, object := range s.objects {
		if k.GroupVersionResource == r.GroupVersionResource {
			list = append(list, object.DeepCopy())
		}
	}
	return list
}

// Delete deletes an object.
func (s *Server) Delete(r Resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(r.keyOf(namespace, name))
}

func (r *Resource) keyOf(namespace, name string) key {
	if !r.Namespaced {
		namespace = ""
	}
	return key{r.GroupVersionResource, types.NamespacedName{Namespace: namespace, Name: name}}
}

// store stores an object with what a server adds to it. It is called with the lock held, as all below are.
func (s *Server) store(at key, object *unstructured.Unstructured) *unstructured.Unstructured {
	s.version++
	before, how := s.objects[at], "MODIFIED"
	if before == nil {
		how = "ADDED"
		object.SetUID(cmp.Or(object.GetUID(), types.UID(fmt.Sprintf("uid-%d", s.version))))
		object.SetGeneration(1)
	} else {
		object.SetUID(before.GetUID())
		object.SetCreationTimestamp(before.GetCreationTimestamp())
		object.SetGeneration(before.GetGeneration())
		if !reflect.DeepEqual(contentOf(before), contentOf(object)) {
			object.SetGeneration(before.GetGeneration() + 1)
		}
	}
	object.SetResourceVersion(strconv.Itoa(s.version))
	if s.Stored != nil {
		s.Stored(object)
	}
	if object.GetCreationTimestamp() == (metav1.Time{}) {
		object.SetCreationTimestamp(metav1.Now())
	}
	s.objects[at] = object
	s.events = append(s.events, event{at, s.version, how, object})
	s.notify()
	return object
}

func contentOf(u *unstructured.Unstructured) map[string]any {
	content := maps.Clone(u.Object)
	delete(content, "metadata")
	delete(content, "status")
	return content
}

func (s *Server) remove(at key) {
	s.version++
	s.events = append(s.events, event{at, s.version, "DELETED", s.objects[at]})
	delete(s.objects, at)
	s.notify()
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	resolver := apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := resolver.NewRequestInfo(req)
	if err != nil {
		return nil, err
	}
	query := req.URL.Query()
	r := &Request{UserAgent: req.UserAgent(), Verb: info.Verb, Resource: info.Resource, Name: info.Name, Time: time.Now()}
	r.text = strings.TrimSuffix(r.Verb+" "+req.URL.Path+"?"+query.Get("fieldSelector"), "?")
	if info.Subresource != "" {
		r.Resource += "/" + info.Subresource
	}
	if req.Body != nil {
		if r.Body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	if s.BeforeStatus != nil && info.Verb == "patch" && info.Subresource == "status" {
		s.BeforeStatus()
	}
	s.mu.Lock()
	delay := s.Delay
	if !query.Has("sendInitialEvents") {
		s.requests = append(s.requests, *r)
	}
	s.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return respond(req)(s.answer(req, info, r))
}

// respond returns a function that makes a response of an object or an error.
func respond(req *http.Request) func(object any, err error) (*http.Response, error) {
	return func(object any, err error) (*http.Response, error) {
		response := &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}}
		if w, is := object.(*watcher); is {
			response.Body = w
			return response, nil
		}
		if status, is := errors.AsType[*apierrors.StatusError](err); is {
			answer := status.Status()
			answer.Kind, answer.APIVersion = "Status", "v1"
			object, response.StatusCode = answer, int(answer.Code)
		} else if err != nil {
			return nil, err
		}
		encode := func() ([]byte, error) { return json.Marshal(object) }
		if m, is := object.(json.Marshaler); is {
			encode = m.MarshalJSON // json.Marshal would check its result again
		}
		text, err := encode()
		response.Body = io.NopCloser(bytes.NewReader(text))
		return response, err
	}
}

func (s *Server) answer(req *http.Request, info *apirequest.RequestInfo, r *Request) (any, error) {
	if s.Intercept != nil {
		if object, err := s.Intercept(r); object != nil || err != nil {
			return object, err
		}
	}
	if !info.IsResourceRequest {
		return s.discover(req.URL.Path)
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	resource, served := s.served(gvr)
	if !served {
		return nil, Unserved(gvr.GroupResource())
	}
	at := resource.keyOf(info.Namespace, info.Name)
	found := s.objects[at]
	missing := apierrors.NewNotFound(gvr.GroupResource(), info.Name)
	var sent unstructured.Unstructured
	if len(r.Body) > 0 && info.Verb != "delete" {
		if err := json.Unmarshal(r.Body, &sent.Object); err != nil {
			return nil, err
		}
	}
	switch info.Verb {
	case "list":
		return s.list(resource, info, req)
	case "watch":
		return s.watch(resource, info, req, r)
	case "create":
		at.Name = sent.GetName()
		if s.objects[at] != nil {
			return nil, apierrors.NewAlreadyExists(gvr.GroupResource(), at.Name)
		}
		return s.store(at, &sent), nil
	case "patch":
		if req.Header.Get("Content-Type") != string(types.MergePatchType) {
			return s.apply(resource, info, req, &sent)
		}
	}
	if found == nil {
		return nil, missing
	}
	if version := sent.GetResourceVersion(); version != "" && version != found.GetResourceVersion() || sent.GetUID() != "" && sent.GetUID() != found.GetUID() {
		return nil, apierrors.NewConflict(gvr.GroupResource(), info.Name, errors.New("the object has been modified"))
	}
	switch info.Verb {
	case "get":
		return found, nil
	case "patch":
		return s.merge(at, found, r.Body)
	case "update":
		if found.GetResourceVersion() != sent.GetResourceVersion() {
			return nil, apierrors.NewConflict(gvr.GroupResource(), info.Name, errors.New("the object has been modified"))
		}
		return s.store(at, &sent), nil
	case "delete":
		var options metav1.DeleteOptions
		if len(r.Body) > 0 {
			if err := json.Unmarshal(r.Body, &options); err != nil {
				return nil, err
			}
		}
		if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != found.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != found.GetResourceVersion()) {
			return nil, apierrors.NewConflict(gvr.GroupResource(), info.Name, errors.New("the object has been modified"))
		}
		s.remove(at)
		return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
	default:
		return nil, apierrors.NewMethodNotSupported(gvr.GroupResource(), info.Verb)
	}
}

// Unserved returns the error for a resource that a server does not have.
func Unserved(resource schema.GroupResource) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "", "404 page not found", 0, true)
}

func (s *Server) served(gvr schema.GroupVersionResource) (*Resource, bool) {
	i := slices.IndexFunc(s.resources, func(r Resource) bool { return r.GroupVersionResource == gvr })
	if i < 0 {
		return nil, false
	}
	return &s.resources[i], true
}

func (s *Server) discover(path string) (any, error) {
	switch path {
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}, nil
	case "/apis":
		return s.groups(), nil
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for _, r := range s.resources {
		if gv := r.GroupVersion(); path == "/apis/"+gv.String() || gv.Group == "" && path == "/api/"+gv.Version {
			list.GroupVersion = gv.String()
			list.APIResources = append(list.APIResources,
				metav1.APIResource{Name: r.Resource + "/status", Kind: r.Kind, Namespaced: r.Namespaced, Verbs: []string{"get"}},
				metav1.APIResource{Name: r.Resource, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: []string{"create", "get", "list", "watch"}})
		}
	}
	if len(list.APIResources) == 0 {
		return nil, Unserved(schema.GroupResource{})
	}
	return list, nil
}

// groups returns the API groups. The first version of a group is preferred.
func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, r := range s.resources {
		if r.Group == "" {
			continue
		}
		i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == r.Group })
		version := metav1.GroupVersionForDiscovery{GroupVersion: r.GroupVersion().String(), Version: r.Version}
		if i < 0 {
			i = len(list.Groups)
			list.Groups = append(list.Groups, metav1.APIGroup{Name: r.Group, PreferredVersion: version})
		}
		if !slices.Contains(list.Groups[i].Versions, version) {
			list.Groups[i].Versions = append(list.Groups[i].Versions, version)
		}
	}
	return list
}

// selection returns what a list or a watch is of.
func selection(r *Resource, info *apirequest.RequestInfo, req *http.Request) (func(key, *unstructured.Unstructured) bool, error) {
	selector, err := labels.Parse(req.URL.Query().Get("labelSelector"))
	return func(at key, object *unstructured.Unstructured) bool {
		return at.GroupVersionResource == r.GroupVersionResource && (info.Namespace == "" || info.Namespace == at.Namespace) &&
			(info.Name == "" || info.Name == at.Name) && selector.Matches(labels.Set(object.GetLabels()))
	}, err
}

func (s *Server) list(r *Resource, info *apirequest.RequestInfo, req *http.Request) (any, error) {
	selects, err := selection(r, info, req)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": r.GroupVersion().String(), "kind": r.Kind + "List"}}
	list.SetResourceVersion(strconv.Itoa(s.version))
	var names []types.NamespacedName
	for at, object := range s.objects {
		if selects(at, object) {
			names = append(names, at.NamespacedName)
		}
	}
	slices.SortFunc(names, compareNames)
	limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
	if token := req.URL.Query().Get("continue"); token != "" {
		namespace, name, _ := strings.Cut(token, "/")
		next, found := slices.BinarySearchFunc(names, types.NamespacedName{Namespace: namespace, Name: name}, compareNames)
		if found {
			next++
		}
		names = names[next:]
	}
	for _, name := range names {
		if list.Items = append(list.Items, *s.objects[key{r.GroupVersionResource, name}]); len(list.Items) == limit {
			list.SetContinue(name.String())
			break
		}
	}
	return list, nil
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// merge is a JSON merge patch.
func (s *Server) merge(at key, found *unstructured.Unstructured, patch []byte) (any, error) {
	before, err := json.Marshal(found)
	if err != nil {
		return nil, err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return nil, err
	}
	merged := &unstructured.Unstructured{}
	if err := json.Unmarshal(after, &merged.Object); err != nil {
		return nil, err
	}
	return s.store(at, merged), nil
}

// apply is server-side apply. Lists are changed as a whole.
func (s *Server) apply(r *Resource, info *apirequest.RequestInfo, req *http.Request, sent *unstructured.Unstructured) (any, error) {
	at := r.keyOf(info.Namespace, info.Name)
	live := s.objects[at]
	switch {
	case live == nil && info.Subresource != "":
		return nil, apierrors.NewNotFound(r.GroupResource(), info.Name)
	case live == nil:
		live = &unstructured.Unstructured{}
		live.SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind))
	case sent.GetResourceVersion() != "" && sent.GetResourceVersion() != live.GetResourceVersion():
		return nil, apierrors.NewConflict(r.GroupResource(), info.Name, errors.New("the object has been modified"))
	}
	manager, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), sameVersion{}, unstructuredscheme.NewUnstructuredDefaulter(),
		unstructuredscheme.NewUnstructuredCreator(), r.GroupVersion().WithKind(r.Kind), r.GroupVersion(), info.Subresource, nil)
	if err != nil {
		return nil, err
	}
	query := req.URL.Query()
	merged, err := manager.Apply(live, sent, query.Get("fieldManager"), query.Get("force") == "true")
	if err != nil {
		return nil, err
	}
	if reflect.DeepEqual(merged, live) {
		return live, nil
	}
	object, _ := merged.(*unstructured.Unstructured)
	return s.store(at, object), nil
}

// sameVersion converts objects to the one version that there is.
type sameVersion struct{ runtime.ObjectConvertor }

func (sameVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// watcher is the body of the answer to a watch.
type watcher struct {
	*Server

	ctx     context.Context //nolint:containedctx // of the request
	cancel  context.CancelFunc
	request *Request
	gvr     schema.GroupVersionResource
	selects func(key, *unstructured.Unstructured) bool
	since   int
	left    []byte
}

func (s *Server) watch(r *Resource, info *apirequest.RequestInfo, req *http.Request, request *Request) (any, error) {
	query := req.URL.Query()
	if query.Has("sendInitialEvents") {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	w := &watcher{Server: s, request: request, gvr: r.GroupVersionResource}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	w.ctx, w.cancel = context.WithTimeout(req.Context(), time.Duration(seconds)*time.Second)
	var err error
	if w.selects, err = selection(r, info, req); err != nil {
		return nil, err
	}
	if w.since, err = strconv.Atoi(query.Get("resourceVersion")); err == nil {
		return w, nil
	}
	// Without a version it begins with what there is.
	w.since = s.version
	for at, object := range s.objects {
		if w.selects(at, object) {
			text, err := json.Marshal(event{Type: "ADDED", Object: object})
			if err != nil {
				return nil, err
			}
			w.left = append(append(w.left, text...), '\n')
		}
	}
	return w, nil
}

// Read implements io.Reader.
func (w *watcher) Read(p []byte) (int, error) {
	for len(w.left) == 0 {
		changed, err := w.fill()
		if err != nil {
			return 0, err
		}
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

// fill reads the events since the last time, and returns what is closed with the next change.
func (w *watcher) fill() (<-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Intercept != nil {
		if object, err := w.Intercept(w.request); object != nil || err != nil {
			return nil, io.EOF
		}
	}
	if _, served := w.served(w.gvr); !served {
		return nil, io.EOF
	}
	if w.Silent {
		return w.changed, nil
	}
	first, _ := slices.BinarySearchFunc(w.events, w.since+1, func(e event, version int) int { return cmp.Compare(e.version, version) })
	for _, e := range w.events[first:] {
		if w.since = e.version; !w.selects(e.key, e.Object) {
			continue
		}
		text, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		w.left = append(append(w.left, text...), '\n')
	}
	return w.changed, nil
}

// Close implements io.Closer.
func (w *watcher) Close() error {
	w.cancel()
	return nil
}
