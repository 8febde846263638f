package cabundle

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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiServer is what these tests need of an API server, inside of the process so
// that it works in the bubbles of synctest: get, list and watch of one object, and
// server-side apply of a caBundle with its resourceVersion, which takes away what
// the same manager applied before and leaves out now. What a real one does
// with the same requests is tested in test/cabundle.
type apiServer struct {
	mu       sync.Mutex
	version  int
	objects  map[string]configuration
	log      []logged
	changed  chan struct{}
	requests map[string]int
	// fault answers in place of the server, if it answers.
	fault func(verb string, r *http.Request) (*http.Response, error)
}

// configuration is either kind: they differ in nothing that matters here.
type configuration = admissionregistrationv1.ValidatingWebhookConfiguration

type logged struct {
	version      int
	path, change string
	object       configuration
}

const apiPath = "/apis/admissionregistration.k8s.io/v1/"

var errAway = errors.New("connection refused")

func newAPIServer() *apiServer {
	return &apiServer{objects: map[string]configuration{}, changed: make(chan struct{}), requests: map[string]int{}}
}

func (s *apiServer) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://apiserver", Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// put writes an object "validating/NAME" or "mutating/NAME" as somebody does who
// replaces it whole.
func (s *apiServer) put(name string, change func(*configuration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	short, object, _ := strings.Cut(name, "/")
	path := short + "webhookconfigurations/" + object
	o, there := s.objects[path]
	o = *o.DeepCopy()
	if !there {
		o.Name = object
		o.UID = "uid"
	}
	before := o.DeepCopy()
	change(&o)
	if reflect.DeepEqual(before.ManagedFields, o.ManagedFields) {
		// A caBundle that somebody else changed is not managed by us any more.
		manage(&o, slices.DeleteFunc(managed(&o), func(name string) bool { return !bytes.Equal(bundleIn(before, name), bundleIn(&o, name)) }))
	}
	s.store(path, o, there)
}

// bundleIn is the caBundle of a webhook, nil if it is not there.
func bundleIn(o *configuration, webhook string) []byte {
	for i := range o.Webhooks {
		if o.Webhooks[i].Name == webhook {
			return o.Webhooks[i].ClientConfig.CABundle
		}
	}
	return nil
}

// managed are the webhooks whose caBundle we applied last.
func managed(o *configuration) []string {
	var names []string
	for i := range o.Webhooks {
		if name := o.Webhooks[i].Name; newObject(kinds()[1], &o.ObjectMeta).isApplied(name) {
			names = append(names, name)
		}
	}
	return names
}

// manage makes us the manager of these caBundles and no others.
func manage(o *configuration, webhooks []string) {
	o.ManagedFields = slices.DeleteFunc(slices.Clone(o.ManagedFields), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == FieldManager })
	if len(webhooks) == 0 {
		return
	}
	var fields []string
	for _, name := range webhooks {
		fields = append(fields, fmt.Sprintf(`"k:{\"name\":\"%s\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}}`, name))
	}
	o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.Now()),
		FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{` + strings.Join(fields, ",") + `}}`),
	})
}

func (s *apiServer) store(path string, o configuration, there bool) {
	s.version++
	o.ResourceVersion = strconv.Itoa(s.version)
	o.APIVersion = "admissionregistration.k8s.io/v1"
	o.Kind = "MutatingWebhookConfiguration"
	if strings.HasPrefix(path, "validating") {
		o.Kind = "ValidatingWebhookConfiguration"
	}
	s.objects[path] = o
	change := "ADDED"
	if there {
		change = "MODIFIED"
	}
	s.append(logged{s.version, path, change, o})
}

func (s *apiServer) append(l logged) {
	s.log = append(s.log, l)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	short, object, _ := strings.Cut(name, "/")
	path := short + "webhookconfigurations/" + object
	o := s.objects[path]
	delete(s.objects, path)
	s.version++
	s.append(logged{s.version, path, "DELETED", o})
}

// bundles are the caBundles of an object's webhooks.
func (s *apiServer) bundles(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	short, object, _ := strings.Cut(name, "/")
	var list []string
	for _, w := range s.objects[short+"webhookconfigurations/"+object].Webhooks {
		list = append(list, string(w.ClientConfig.CABundle))
	}
	return list
}

func (s *apiServer) count(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[verb]
}

func (s *apiServer) spoil(fault func(verb string, r *http.Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
	// Watches that are open end too.
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(r.URL.Path, apiPath)
	resource, _, named := strings.Cut(path, "/")
	verb := map[bool]string{true: "get", false: "list"}[named]
	switch {
	case r.Method == http.MethodPatch:
		verb = "patch"
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	s.mu.Lock()
	s.requests[verb]++
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if response, err := fault(verb, r); response != nil || err != nil {
			return response, err
		}
	}
	if !named {
		name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		if !ok {
			return status(http.StatusForbidden, "only what is named may be listed"), nil
		}
		path = resource + "/" + name
	}
	switch verb {
	case "watch":
		return s.watch(r, path)
	case "patch":
		return s.patch(r, path, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, there := s.objects[path]
	switch {
	case verb == "list":
		list := admissionregistrationv1.ValidatingWebhookConfigurationList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
		list.APIVersion = "admissionregistration.k8s.io/v1"
		list.Kind = strings.Replace(strings.Replace(resource, "mutatingwebhookconfigurations", "MutatingWebhookConfigurationList", 1), "validatingwebhookconfigurations", "ValidatingWebhookConfigurationList", 1)
		if there {
			list.Items = append(list.Items, o)
		}
		return answer(http.StatusOK, list), nil
	case there:
		return answer(http.StatusOK, o), nil
	}
	return status(http.StatusNotFound, "not found"), nil
}

func (s *apiServer) patch(r *http.Request, path string, body []byte) (*http.Response, error) {
	var patch configuration
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&patch); err != nil {
		return nil, err
	}
	if q := r.URL.Query(); q.Get("fieldManager") != FieldManager || q.Get("force") != "true" || r.Header.Get("Content-Type") != "application/apply-patch+yaml" {
		return status(http.StatusBadRequest, "no server-side apply of ours"), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, there := s.objects[path]
	if !there {
		return status(http.StatusUnprocessableEntity, "webhooks[0].sideEffects: Required value"), nil
	}
	if o.ResourceVersion != patch.ResourceVersion {
		return status(http.StatusConflict, "conflict"), nil
	}
	o = *o.DeepCopy()
	var names []string
	for _, w := range patch.Webhooks {
		names = append(names, w.Name)
		i := slices.IndexFunc(o.Webhooks, func(v admissionregistrationv1.ValidatingWebhook) bool { return v.Name == w.Name })
		if i < 0 {
			return status(http.StatusUnprocessableEntity, "Required value"), nil
		}
		if !bytes.Equal(o.Webhooks[i].ClientConfig.CABundle, w.ClientConfig.CABundle) {
			// Who managed it does not any more. That is all that others manage here.
			o.ManagedFields = slices.DeleteFunc(o.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
				return f.Manager != FieldManager && managesBundle(f.FieldsV1.GetRawBytes(), w.Name)
			})
		}
		o.Webhooks[i].ClientConfig.CABundle = w.ClientConfig.CABundle
	}
	for i := range o.Webhooks {
		w := &o.Webhooks[i]
		if list := newObject(kinds()[1], &o.ObjectMeta).managers(w.Name); len(list) == 1 && list[0].Name == FieldManager && !slices.Contains(names, w.Name) {
			w.ClientConfig.CABundle = nil
		}
	}
	manage(&o, names)
	s.store(path, o, true)
	return answer(http.StatusOK, s.objects[path]), nil
}

func (s *apiServer) watch(r *http.Request, path string) (*http.Response, error) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	reader, writer := io.Pipe()
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	go func() {
		defer cancel()
		for {
			s.mu.Lock()
			log, changed, broken := s.log, s.changed, fault == nil && s.fault != nil
			s.mu.Unlock()
			if broken {
				_ = writer.CloseWithError(io.ErrUnexpectedEOF)
				return
			}
			for _, l := range log {
				if l.version <= from {
					continue
				}
				from = l.version
				if l.path != path {
					continue
				}
				line, err := json.Marshal(map[string]any{"type": l.change, "object": l.object})
				if err == nil {
					_, err = writer.Write(append(line, '\n'))
				}
				if err != nil {
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				_ = writer.Close()
				return
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, Request: r}, nil
}

func answer(code int, body any) *http.Response {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text))}
}

func status(code int, message string) *http.Response {
	reasons := map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusGone: metav1.StatusReasonExpired,
	}
	return answer(code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reasons[code], Message: fmt.Sprintf("%d: %s", code, message),
	})
}

// refusing answers some verbs with a code.
func refusing(code int, verbs ...string) func(string, *http.Request) (*http.Response, error) {
	return func(verb string, _ *http.Request) (*http.Response, error) {
		if slices.Contains(verbs, verb) {
			return status(code, "by the test"), nil
		}
		return nil, nil
	}
}

// webhooks sets the webhooks of a configuration: names, and the hosts that they
// call, which are services if they end in .svc.
func webhooks(bundle string, hosts map[string]string) func(*configuration) {
	return func(o *configuration) {
		o.Webhooks = nil
		for _, name := range slices.Sorted(maps.Keys(hosts)) {
			w := admissionregistrationv1.ValidatingWebhook{Name: name}
			if service, ok := strings.CutSuffix(hosts[name], ".svc"); ok {
				service, namespace, _ := strings.Cut(service, ".")
				w.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Name: service, Namespace: namespace}
			} else {
				w.ClientConfig.URL = new("https://" + hosts[name] + "/validate")
			}
			w.ClientConfig.CABundle = []byte(bundle)
			o.Webhooks = append(o.Webhooks, w)
		}
	}
}
