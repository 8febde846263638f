package registration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// apiServer decides with the API server's own code which webhooks it would call.
type apiServer struct {
	namespaces namespace.Matcher
	compiler   cel.ConditionCompiler
	webhooks   []webhook.WebhookAccessor
	indexer    cache.Indexer
}

// newAPIServer is an API server with the expressions of a Kubernetes version.
func newAPIServer(t *testing.T, kubernetes *version.Version, o Options) *apiServer {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	s := &apiServer{
		indexer:    indexer,
		namespaces: namespace.Matcher{NamespaceLister: corelisters.NewNamespaceLister(indexer)},
		compiler:   cel.NewConditionCompiler(environment.MustBaseEnvSet(kubernetes)),
	}
	for _, name := range []string{"default", "shop", "x", "kube-system", "kube-public", "kube-node-lease", "gatehouse-system", "calico-system"} {
		s.setNamespace(t, name, nil)
	}
	a := admissionOf(t, o)
	for _, d := range a.Documents {
		switch c := d.object.(type) {
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			for i := range c.Webhooks {
				s.webhooks = append(s.webhooks, webhook.NewMutatingWebhookAccessor(c.Webhooks[i].Name, c.Name, &c.Webhooks[i]))
			}
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			for i := range c.Webhooks {
				s.webhooks = append(s.webhooks, webhook.NewValidatingWebhookAccessor(c.Webhooks[i].Name, c.Name, &c.Webhooks[i]))
			}
		}
	}
	return s
}

// setNamespace makes or changes a namespace, which gets the label that the API server sets whatever somebody else says.
func (s *apiServer) setNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	all[namespaceName] = name
	if err := s.indexer.Update(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}); err != nil {
		t.Fatal(err)
	}
}

// request is a request to the API server.
type request struct {
	operation                admission.Operation
	group, version, resource string // resource with its subresource
	namespace                string
	object                   map[string]any // nil where there is none
	old                      map[string]any // that of an update, of which it is object if it is nil
}

// calls are the names of the webhooks that are called for a request of somebody
// ordinary, each with its failure policy.
func (s *apiServer) calls(t *testing.T, r request) []string {
	t.Helper()
	return s.callsOf(t, &user.DefaultInfo{Name: "alice"}, r)
}

// callsOf is calls for a request of somebody.
func (s *apiServer) callsOf(t *testing.T, who user.Info, r request) []string {
	t.Helper()
	resource, sub, _ := strings.Cut(r.resource, "/")
	gvk := schema.GroupVersionKind{Group: r.group, Version: r.version, Kind: "X"}
	var object, old runtime.Object
	if r.object != nil {
		object = &unstructured.Unstructured{Object: r.object}
	}
	if r.operation == admission.Update {
		old = object
	}
	if r.old != nil {
		old = &unstructured.Unstructured{Object: r.old}
	}
	a := admission.NewAttributesRecord(object, old, gvk, r.namespace, "x",
		schema.GroupVersionResource{Group: r.group, Version: r.version, Resource: resource}, sub, r.operation, nil, false, who)
	var called []string
	for _, w := range s.webhooks {
		matched := false
		for _, rule := range w.GetRules() {
			m := rules.Matcher{Rule: rule, Attr: a}
			matched = matched || m.Matches()
		}
		if !matched {
			continue
		}
		selected, statusErr := s.namespaces.MatchNamespaceSelector(w, a)
		if statusErr != nil {
			t.Fatal(statusErr)
		}
		if !selected {
			continue
		}
		result := w.GetCompiledMatcher(s.compiler).Match(t.Context(), &admission.VersionedAttributes{Attributes: a, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old)}, nil, nil)
		if result.Error != nil {
			t.Errorf("%s: a match condition fails for %+v: %v", w.GetName(), r, result.Error)
		}
		if result.Matches {
			called = append(called, fmt.Sprintf("%s %s", w.GetName(), *w.GetFailurePolicy()))
		}
	}
	return called
}

// everything is a configuration whose one policy is about everything.
func everything() *webhooks.Spec {
	s := spec()
	s.Policy = policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{ours("all", specWith("", named("*", "*", "*/*", admissionregistrationv1.OperationAll)))}}
	return s
}

// The oldest version of Kubernetes with match conditions that are on by default
// and not in beta, and the one that this program is built with.
func compatibility() []*version.Version {
	return []*version.Version{version.MajorMinor(1, 30), environment.DefaultCompatibilityVersion()}
}

// What takes finalizers away from a pod or a workload that is being deleted is not sent, and nothing else is kept back by
// that, however little the old object says.
func TestBeingDeletedIsNotSent(t *testing.T) {
	t.Parallel()
	ordinary := map[string]any{"metadata": map[string]any{"name": "x"}}
	deleted := map[string]any{"metadata": map[string]any{"name": "x", "deletionTimestamp": "2026-01-02T03:04:05Z"}}
	with := func(path string, value any) map[string]any {
		object := map[string]any{
			"metadata": map[string]any{"name": "x", "labels": map[string]any{"a": "b"}, "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": []any{"x/y"}},
			"spec":     map[string]any{"image": "a"},
		}
		if path != "" {
			if err := unstructured.SetNestedField(object, value, strings.Split(path, ".")...); err != nil {
				t.Fatal(err)
			}
		}
		return object
	}
	without := func(field string) map[string]any {
		object := with("", nil)
		unstructured.RemoveNestedField(object, strings.Split(field, ".")...)
		return object
	}
	const validate = "fail.validate.gatehouse.dev Fail"
	for name, c := range map[string]struct {
		request request
		sent    bool
	}{
		// A finalizer of one's own keeps it, so that it can be changed.
		"finalizers":                 {request{admission.Update, "", "v1", "pods", "default", without("metadata.finalizers"), with("", nil)}, false},
		"owners":                     {request{admission.Update, "", "v1", "pods", "default", with("metadata.ownerReferences", []any{}), with("", nil)}, false},
		"a label of a pod":           {request{admission.Update, "", "v1", "pods", "default", with("metadata.labels.a", "c"), with("", nil)}, true},
		"a label of a pod goes":      {request{admission.Update, "", "v1", "pods", "default", without("metadata.labels"), with("", nil)}, true},
		"a label of a pod comes":     {request{admission.Update, "", "v1", "pods", "default", with("", nil), without("metadata.labels")}, true},
		"an annotation of a pod":     {request{admission.Update, "", "v1", "pods", "default", with("metadata.annotations", map[string]any{"a": "b"}), with("", nil)}, true},
		"an image of a pod":          {request{admission.Update, "", "v1", "pods", "default", with("spec.image", "b"), with("", nil)}, true},
		"a template of a Deployment": {request{admission.Update, "apps", "v1", "deployments", "default", with("spec.template", "b"), with("", nil)}, true},
		"a spec that goes":           {request{admission.Update, "batch", "v1", "jobs", "default", without("spec"), with("", nil)}, true},
		"pod":                        {request{admission.Update, "", "v1", "pods", "default", ordinary, deleted}, false},
		"replication controller":     {request{admission.Update, "", "v1", "replicationcontrollers", "default", ordinary, deleted}, false},
		"deployment":                 {request{admission.Update, "apps", "v1", "deployments", "default", ordinary, deleted}, false},
		"daemon set":                 {request{admission.Update, "apps", "v1", "daemonsets", "default", ordinary, deleted}, false},
		"replica set":                {request{admission.Update, "apps", "v1", "replicasets", "default", ordinary, deleted}, false},
		"stateful set":               {request{admission.Update, "apps", "v1", "statefulsets", "default", ordinary, deleted}, false},
		"job":                        {request{admission.Update, "batch", "v1", "jobs", "default", ordinary, deleted}, false},
		"cron job":                   {request{admission.Update, "batch", "v1", "cronjobs", "default", ordinary, deleted}, false},
		"service":                    {request{admission.Update, "", "v1", "services", "default", ordinary, deleted}, true},
		"pod template":               {request{admission.Update, "", "v1", "podtemplates", "default", ordinary, deleted}, true},
		"job of another group":       {request{admission.Update, "example.org", "v1", "jobs", "default", ordinary, deleted}, true},
		"deployment that stays":      {request{admission.Update, "apps", "v1", "deployments", "default", ordinary, ordinary}, true},
		"one that says it goes":      {request{admission.Update, "apps", "v1", "deployments", "default", deleted, ordinary}, true},
		"creation":                   {request{admission.Create, "", "v1", "pods", "default", deleted, nil}, true},
		"deletion":                   {request{admission.Delete, "", "v1", "pods", "default", nil, deleted}, true},
		"ephemeral containers":       {request{admission.Update, "", "v1", "pods/ephemeralcontainers", "default", ordinary, deleted}, true},
		"scale":                      {request{admission.Update, "apps", "v1", "deployments/scale", "default", ordinary, deleted}, true},
		"connection":                 {request{admission.Connect, "", "v1", "pods/exec", "default", ordinary, nil}, true},
		"old object without members": {request{admission.Update, "", "v1", "pods", "default", ordinary, map[string]any{}}, true},
		"old object without a name":  {request{admission.Update, "", "v1", "pods", "default", ordinary, map[string]any{"metadata": map[string]any{}}}, true},
		"no objects at all":          {request{admission.Update, "", "v1", "pods", "default", nil, nil}, true},
	} {
		for _, kubernetes := range compatibility() {
			t.Run(name+" "+kubernetes.String(), func(t *testing.T) {
				t.Parallel()
				s := newAPIServer(t, kubernetes, options(func(o *Options) { o.Spec = everything() }))
				if got := slices.Contains(s.calls(t, c.request), validate); got != c.sent {
					t.Errorf("sent: %v, want %v", got, c.sent)
				}
			})
		}
	}
}
