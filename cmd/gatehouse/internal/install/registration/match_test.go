package registration

import (
	"fmt"
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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// apiServer decides with the API server's own code which webhooks it would call.
type apiServer struct {
	namespaces namespace.Matcher
	compiler   cel.ConditionCompiler
	webhooks   []webhook.WebhookAccessor
}

// newAPIServer is an API server with the expressions of a Kubernetes version.
func newAPIServer(t *testing.T, kubernetes *version.Version, o Options) *apiServer {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease", "gatehouse-system", "calico-system"} {
		err := indexer.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &apiServer{
		namespaces: namespace.Matcher{NamespaceLister: corelisters.NewNamespaceLister(indexer)},
		compiler:   cel.NewConditionCompiler(environment.MustBaseEnvSet(kubernetes)),
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
func versions() []*version.Version {
	return []*version.Version{version.MajorMinor(1, 30), environment.DefaultCompatibilityVersion()}
}

func TestWhatIsSent(t *testing.T) {
	const (
		asked    = "asked.mutate.gatehouse.dev Fail"
		silent   = "default.mutate.gatehouse.dev Ignore"
		validate = "fail.validate.gatehouse.dev Fail"
	)
	pod := func(metadata any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
	}
	annotated := func(value any) map[string]any {
		return pod(map[string]any{"name": "x", "annotations": map[string]any{"sidecar.gatehouse.dev/inject": value}})
	}
	podIn := func(namespace string, object map[string]any) request {
		return request{admission.Create, "", "v1", "pods", namespace, object, nil}
	}
	other := map[string]any{"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": "x"}}
	servers := map[string]*apiServer{}
	for _, kubernetes := range versions() {
		servers[kubernetes.String()] = newAPIServer(t, kubernetes, options(func(o *Options) {
			o.Spec, o.ExcludeNamespaces = everything(), []string{"calico-system"}
		}))
	}
	for name, c := range map[string]struct {
		request request
		want    []string
	}{
		"pod without annotations":           {podIn("default", pod(map[string]any{"name": "x"})), []string{silent, validate}},
		"pod with another annotation":       {podIn("default", pod(map[string]any{"annotations": map[string]any{"a": "b"}})), []string{silent, validate}},
		"pod that asks":                     {podIn("default", annotated("true")), []string{asked, validate}},
		"pod that declines":                 {podIn("default", annotated("false")), []string{silent, validate}},
		"pod with a misspelt wish":          {podIn("default", annotated("yes")), []string{asked, validate}},
		"pod with an empty wish":            {podIn("default", annotated("")), []string{asked, validate}},
		"pod that asks by name":             {podIn("default", annotated("mesh, -logs")), []string{asked, validate}},
		"pod that declines one name":        {podIn("default", annotated("-logs")), []string{silent, validate}},
		"pod that declines names":           {podIn("default", annotated(" -logs, -mesh")), []string{silent, validate}},
		"pod that only begins like a no":    {podIn("default", annotated("false,mesh")), []string{asked, validate}},
		"pod in kube-public":                {podIn("kube-public", annotated("true")), []string{asked, validate}},
		"pod in kube-system":                {podIn("kube-system", annotated("true")), nil},
		"pod in the gate's namespace":       {podIn("gatehouse-system", annotated("true")), nil},
		"pod in an excluded namespace":      {podIn("calico-system", annotated("true")), nil},
		"pod update":                        {request{admission.Update, "", "v1", "pods", "default", annotated("true"), nil}, []string{validate}},
		"pod deletion":                      {request{admission.Delete, "", "v1", "pods", "default", nil, nil}, []string{validate}},
		"namespace":                         {request{admission.Create, "", "v1", "namespaces", "default", other, nil}, []string{validate}},
		"the gate's own namespace":          {request{admission.Update, "", "v1", "namespaces", "gatehouse-system", map[string]any{"metadata": map[string]any{"labels": map[string]any{"kubernetes.io/metadata.name": "gatehouse-system"}}}, nil}, nil},
		"node":                              {request{admission.Create, "", "v1", "nodes", "", other, nil}, nil},
		"CSI node":                          {request{admission.Create, "storage.k8s.io", "v1", "csinodes", "", other, nil}, nil},
		"nodes of metrics":                  {request{admission.Create, "metrics.k8s.io", "v1", "nodes", "", other, nil}, []string{validate}},
		"node lease":                        {request{admission.Update, "coordination.k8s.io", "v1", "leases", "kube-node-lease", other, nil}, nil},
		"event":                             {request{admission.Create, "", "v1", "events", "default", other, nil}, nil},
		"certificate signing request":       {request{admission.Create, "certificates.k8s.io", "v1", "certificatesigningrequests", "", other, nil}, nil},
		"token review":                      {request{admission.Create, "authentication.k8s.io", "v1", "tokenreviews", "", other, nil}, nil},
		"subject access review":             {request{admission.Create, "authorization.k8s.io", "v1", "subjectaccessreviews", "", other, nil}, nil},
		"pod whose metadata has no members": {podIn("default", pod(map[string]any{})), []string{silent, validate}},
	} {
		for kubernetes, s := range servers {
			t.Run(name+" "+kubernetes, func(t *testing.T) {
				got := s.calls(t, c.request)
				if strings.Join(got, ", ") != strings.Join(c.want, ", ") {
					t.Errorf("called are %q, want %q", got, c.want)
				}
			})
		}
	}
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
		for _, kubernetes := range versions() {
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

// A request of the group of emergencies is sent to nobody, whatever it is about, and no other group is taken for it. Custom
// resources are checked even then, by a webhook that fails open.
func TestBreakGlassIsNotSent(t *testing.T) {
	t.Parallel()
	asks := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"sidecar.gatehouse.dev/inject": "true"}}}
	object := map[string]any{"metadata": map[string]any{"name": "x"}}
	requests := map[string]request{
		"pod":           {admission.Create, "", "v1", "pods", "default", object, nil},
		"pod that asks": {admission.Create, "", "v1", "pods", "default", asks, nil},
		"deployment":    {admission.Update, "apps", "v1", "deployments", "default", object, nil},
		"deletion":      {admission.Delete, "", "v1", "services", "default", nil, nil},
		"exec":          {admission.Connect, "", "v1", "pods/exec", "default", object, nil},
		"cluster role":  {admission.Update, "rbac.authorization.k8s.io", "v1", "clusterroles", "", object, nil},
	}
	document := request{admission.Create, "gatehouse.dev", "v1alpha1", "admissionpolicies", "", object, nil}
	group := v1alpha1.BreakGlassGroup
	for name, c := range map[string]struct {
		who  user.DefaultInfo
		sent bool
	}{
		"no groups":               {user.DefaultInfo{Name: "alice"}, true},
		"other groups":            {user.DefaultInfo{Name: "alice", Groups: []string{"system:masters", group + "-team", "break-glass"}}, true},
		"the group's name":        {user.DefaultInfo{Name: group}, true},
		"the group":               {user.DefaultInfo{Name: "alice", Groups: []string{group}}, false},
		"the group behind others": {user.DefaultInfo{Name: "alice", Groups: []string{"system:masters", "system:authenticated", group}}, false},
	} {
		for _, kubernetes := range versions() {
			s := newAPIServer(t, kubernetes, options(func(o *Options) { o.Spec, o.CustomResources = everything(), true }))
			t.Run(name+" "+kubernetes.String(), func(t *testing.T) {
				t.Parallel()
				for what, r := range requests {
					if got := s.callsOf(t, &c.who, r); (len(got) > 0) != c.sent {
						t.Errorf("%s: called are %q, want any: %v", what, got, c.sent)
					}
				}
				if got := s.callsOf(t, &c.who, document); !slices.Equal(got, []string{"documents.validate.gatehouse.dev Ignore"}) {
					t.Errorf("custom resource: called are %q", got)
				}
			})
		}
	}
}

// The condition of an emergency is the first of each webhook but that for custom resources, which fails open and checks what
// is done in an emergency too.
func TestBreakGlassComesFirst(t *testing.T) {
	t.Parallel()
	for name, o := range withRights() {
		s := newAPIServer(t, environment.DefaultCompatibilityVersion(), o)
		for _, w := range s.webhooks {
			if conditions := w.GetMatchConditions(); w.GetName() != documentsWebhook && (len(conditions) == 0 || conditions[0] != notBreakGlass()) {
				t.Errorf("%s: %s has the conditions %+v", name, w.GetName(), conditions)
			}
		}
	}
}

// Custom resources are checked wherever they are, and policies have no say about them.
func TestCustomResourcesAreSent(t *testing.T) {
	t.Parallel()
	const documents = "documents.validate.gatehouse.dev Ignore"
	object := map[string]any{"metadata": map[string]any{"name": "x"}}
	everything, err := ParseRules("*.*:*,*.*/*:*")
	if err != nil {
		t.Fatal(err)
	}
	s := newAPIServer(t, environment.DefaultCompatibilityVersion(), options(func(o *Options) { o.CustomResources, o.Validate = true, everything }))
	requests := map[string]struct {
		request request
		want    []string
	}{
		"exception where Gatehouse runs": {request{admission.Create, "gatehouse.dev", "v1alpha1", "policyexceptions", "gatehouse-system", object, nil}, []string{documents}},
		"exception of the system":        {request{admission.Update, "gatehouse.dev", "v1alpha1", "policyexceptions", "kube-system", object, nil}, []string{documents}},
		"deletion":                       {request{admission.Delete, "gatehouse.dev", "v1alpha1", "admissionpolicies", "", nil, nil}, nil},
		"another version":                {request{admission.Create, "gatehouse.dev", "v2", "admissionpolicies", "", object, nil}, nil},
		"another kind":                   {request{admission.Create, "gatehouse.dev", "v1alpha1", "others", "", object, nil}, nil},
		"definition":                     {request{admission.Create, "apiextensions.k8s.io", "v1", "customresourcedefinitions", "", object, nil}, []string{"fail.validate.gatehouse.dev Fail"}},
		"pod where Gatehouse runs":       {request{admission.Create, "", "v1", "pods", "gatehouse-system", object, nil}, nil},
		"lease":                          {request{admission.Update, "coordination.k8s.io", "v1", "leases", "default", object, nil}, nil},
		"node":                           {request{admission.Update, "", "v1", "nodes", "", object, nil}, nil},
		"service":                        {request{admission.Create, "", "v1", "services", "default", object, nil}, []string{"fail.validate.gatehouse.dev Fail"}},
	}
	for _, resource := range install.CustomResources() {
		requests["creation of "+resource] = struct {
			request request
			want    []string
		}{request{admission.Create, "gatehouse.dev", "v1alpha1", resource, "", object, nil}, []string{documents}}
		requests["status of "+resource] = struct {
			request request
			want    []string
		}{request{admission.Update, "gatehouse.dev", "v1alpha1", resource + "/status", "", object, nil}, nil}
	}
	for name, c := range requests {
		if got := s.calls(t, c.request); !slices.Equal(got, c.want) {
			t.Errorf("%s: called are %q, want %q", name, got, c.want)
		}
		if got := s.callsOf(t, &user.DefaultInfo{Name: "system:apiserver"}, c.request); len(got) > 0 {
			t.Errorf("%s, of the API server: called are %q", name, got)
		}
	}
}
