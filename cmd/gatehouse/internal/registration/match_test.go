package registration

import (
	"fmt"
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
	a, err := ForAdmission(o)
	if err != nil {
		t.Fatal(err)
	}
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
}

// calls are the names of the webhooks that are called for a request, each with
// its failure policy.
func (s *apiServer) calls(t *testing.T, r request) []string {
	t.Helper()
	resource, sub, _ := strings.Cut(r.resource, "/")
	gvk := schema.GroupVersionKind{Group: r.group, Version: r.version, Kind: "X"}
	var object runtime.Object
	if r.object != nil {
		object = &unstructured.Unstructured{Object: r.object}
	}
	a := admission.NewAttributesRecord(object, nil, gvk, r.namespace, "x",
		schema.GroupVersionResource{Group: r.group, Version: r.version, Resource: resource}, sub, r.operation, nil, false, &user.DefaultInfo{Name: "alice"})
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
		result := w.GetCompiledMatcher(s.compiler).Match(t.Context(), &admission.VersionedAttributes{Attributes: a, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(object)}, nil, nil)
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
		return request{admission.Create, "", "v1", "pods", namespace, object}
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
		"pod with null annotations":         {podIn("default", pod(map[string]any{"annotations": nil})), []string{silent, validate}},
		"pod with no annotation in them":    {podIn("default", pod(map[string]any{"annotations": map[string]any{}})), []string{silent, validate}},
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
		"pod update":                        {request{admission.Update, "", "v1", "pods", "default", annotated("true")}, []string{validate}},
		"pod status":                        {request{admission.Update, "", "v1", "pods/status", "default", annotated("true")}, []string{validate}},
		"pod binding":                       {request{admission.Create, "", "v1", "pods/binding", "default", other}, []string{validate}},
		"pod deletion":                      {request{admission.Delete, "", "v1", "pods", "default", nil}, []string{validate}},
		"pod exec":                          {request{admission.Connect, "", "v1", "pods/exec", "default", other}, []string{validate}},
		"deployment":                        {request{admission.Create, "apps", "v1", "deployments", "default", other}, []string{validate}},
		"cluster role":                      {request{admission.Create, "rbac.authorization.k8s.io", "v1", "clusterroles", "", other}, []string{validate}},
		"namespace":                         {request{admission.Create, "", "v1", "namespaces", "default", other}, []string{validate}},
		"the gate's own namespace":          {request{admission.Update, "", "v1", "namespaces", "gatehouse-system", map[string]any{"metadata": map[string]any{"labels": map[string]any{"kubernetes.io/metadata.name": "gatehouse-system"}}}}, nil},
		"node":                              {request{admission.Create, "", "v1", "nodes", "", other}, nil},
		"node status":                       {request{admission.Update, "", "v1", "nodes/status", "", other}, nil},
		"node deletion":                     {request{admission.Delete, "", "v1", "nodes", "", nil}, nil},
		"CSI node":                          {request{admission.Create, "storage.k8s.io", "v1", "csinodes", "", other}, nil},
		"CSI driver":                        {request{admission.Create, "storage.k8s.io", "v1", "csidrivers", "", other}, []string{validate}},
		"nodes of metrics":                  {request{admission.Create, "metrics.k8s.io", "v1", "nodes", "", other}, []string{validate}},
		"node lease":                        {request{admission.Update, "coordination.k8s.io", "v1", "leases", "kube-node-lease", other}, nil},
		"lease of a leader":                 {request{admission.Update, "coordination.k8s.io", "v1", "leases", "default", other}, nil},
		"event":                             {request{admission.Create, "", "v1", "events", "default", other}, nil},
		"event of the new group":            {request{admission.Create, "events.k8s.io", "v1", "events", "default", other}, nil},
		"certificate signing request":       {request{admission.Create, "certificates.k8s.io", "v1", "certificatesigningrequests", "", other}, nil},
		"its approval":                      {request{admission.Update, "certificates.k8s.io", "v1", "certificatesigningrequests/approval", "", other}, nil},
		"cluster trust bundle":              {request{admission.Create, "certificates.k8s.io", "v1beta1", "clustertrustbundles", "", other}, []string{validate}},
		"token review":                      {request{admission.Create, "authentication.k8s.io", "v1", "tokenreviews", "", other}, nil},
		"self subject review":               {request{admission.Create, "authentication.k8s.io", "v1", "selfsubjectreviews", "", other}, nil},
		"subject access review":             {request{admission.Create, "authorization.k8s.io", "v1", "subjectaccessreviews", "", other}, nil},
		"local subject access review":       {request{admission.Create, "authorization.k8s.io", "v1", "localsubjectaccessreviews", "default", other}, nil},
		"self subject rules review":         {request{admission.Create, "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "", other}, nil},
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

// What is registered without a configuration is narrow.
func TestWhatIsSentByDefault(t *testing.T) {
	s := newAPIServer(t, environment.DefaultCompatibilityVersion(), options())
	other := map[string]any{"metadata": map[string]any{}}
	for name, c := range map[string]struct {
		request request
		sent    bool
	}{
		"pod":                  {request{admission.Create, "", "v1", "pods", "default", other}, true},
		"ephemeral containers": {request{admission.Update, "", "v1", "pods/ephemeralcontainers", "default", other}, true},
		"deployment":           {request{admission.Update, "apps", "v1", "deployments", "default", other}, true},
		"cron job":             {request{admission.Create, "batch", "v1", "cronjobs", "default", other}, true},
		"pod status":           {request{admission.Update, "", "v1", "pods/status", "default", other}, false},
		"pod deletion":         {request{admission.Delete, "", "v1", "pods", "default", nil}, false},
		"deployment scale":     {request{admission.Update, "apps", "v1", "deployments/scale", "default", other}, false},
		"config map":           {request{admission.Create, "", "v1", "configmaps", "default", other}, false},
		"secret":               {request{admission.Create, "", "v1", "secrets", "default", other}, false},
		"token request":        {request{admission.Create, "", "v1", "serviceaccounts/token", "default", other}, false},
	} {
		got := s.calls(t, c.request)
		validated := len(got) > 0 && got[len(got)-1] == "fail.validate.gatehouse.dev Fail"
		if validated != c.sent {
			t.Errorf("%s: called are %q, want validation: %v", name, got, c.sent)
		}
	}
}
