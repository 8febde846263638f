package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

var policyResource = fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("admissionpolicies"), Kind: "AdmissionPolicy"}

// once returns what a command looks up in an API server.
func once(t *testing.T, a *fakeapi.Server) *Once {
	t.Helper()
	c, _ := connected(t, a)
	return c.Once(t.Context())
}

// texts returns problems for people.
func texts(o *Once) []string {
	list, _ := o.Problems()
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Error()
	}
	return out
}

// TestOnce looks up objects with get and list, and each once.
func TestOnce(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	put(t, a, namespaceKind, `{"metadata":{"name":"shop","labels":{"team":"blue"}}}`)
	for i, labels := range []string{`{"kind":"limit"}`, `{}`, `{"kind":"limit"}`} {
		put(t, a, configMaps, fmt.Sprintf(`{"metadata":{"name":"c%d","namespace":"shop","labels":%s},"data":{"a":"%d"}}`, 3-i, labels, i))
	}
	o := once(t, a)
	for range 3 {
		if n, ok := o.Namespace("shop"); !ok || n.Labels["team"] != "blue" || n.ManagedFields != nil {
			t.Fatalf("got %v, %v", n, ok)
		}
		if _, ok := o.Namespace("other"); ok {
			t.Error("there is no such namespace")
		}
		if data, ok := o.ConfigMapData("shop", "c2"); !ok || data["a"] != "1" {
			t.Errorf("got %v, %v", data, ok)
		}
		if object, err := o.Get(configMaps, "shop", "none"); object != nil || err != nil {
			t.Errorf("got %v, %v", object, err)
		}
		selector, err := labels.Parse("kind=limit")
		if err != nil {
			t.Fatal(err)
		}
		list, err := o.List(configMaps, "shop", selector)
		if err != nil || len(list) != 2 || list[0].GetName() != "c1" || list[1].GetName() != "c3" {
			t.Errorf("got %v, %v", list, err)
		}
		if namespaced, err := o.Namespaced(configMaps); !namespaced || err != nil {
			t.Errorf("got %v, %v", namespaced, err)
		}
		if _, err := o.Get(limits, "", "a"); !errors.Is(err, policy.ErrNotServed) {
			t.Errorf("got %v", err)
		}
	}
	if _, ok := o.Namespace("../pods"); ok {
		t.Error("that is no name of a namespace")
	}
	for text, want := range map[string]int{
		"get /api/v1/namespaces/shop": 1, "get /api/v1/namespaces/other": 1, "get /api/v1/namespaces/shop/configmaps/c2": 1, "get /api/v1/namespaces/shop/configmaps/none": 1,
	} {
		if n := a.Count(text); n != want {
			t.Errorf("%s: %d requests, want %d", text, n, want)
		}
	}
	if watches := a.Requests(func(r *fakeapi.Request) bool { return r.Verb == "watch" }); len(watches) > 0 {
		t.Errorf("%d watches", len(watches))
	}
	if got := texts(o); len(got) > 0 {
		t.Errorf("got problems %q", got)
	}
}

// TestOnceNamesMissingRights: each missing right is named once, and they do not grow with the names of tenants.
func TestOnceNamesMissingRights(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	forbid(a, "get", "configmaps")
	o := once(t, a)
	for range 2 {
		for i := range maxProblems + 5 {
			_, err := o.Get(configMaps, fmt.Sprintf("shop-%d", i), "limits")
			if want := fmt.Sprintf(`missing right: get configmaps in namespace "shop-%d"`, i); err == nil || err.Error() != want {
				t.Fatalf("got %v, want %s", err, want)
			}
			if !errors.Is(err, policy.ErrUnanswered) {
				t.Fatalf("%v is not a look-up without an answer, so that policies would be violated", err)
			}
		}
	}
	list, more := o.Problems()
	if len(list) != maxProblems || more != 5 || list[0].Error() != `missing right: get configmaps in namespace "shop-0"` {
		t.Errorf("got %d problems and %d more, the first is %v", len(list), more, list[0])
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c, _ := connected(t, a)
	stopped := c.Once(ended)
	if _, err := stopped.Get(configMaps, "shop", "limits"); err == nil {
		t.Error("a command that ends gets an object")
	}
	if got := texts(stopped); len(got) > 0 {
		t.Errorf("the end of a command is a problem: %q", got)
	}
}

// TestOnceResources lists custom resources, without those for tokens. A kind that is not installed is none, and one that must not
// be read is a problem.
func TestOnceResources(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	if all, installed, err := once(t, a).Resources(); len(all) > 0 || installed || err != nil {
		t.Errorf("got %v, %v, %v", all, installed, err)
	}
	tokens := fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("accesstokens"), Kind: "AccessToken"}
	profiles := fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("sidecarprofiles"), Kind: "SidecarProfile"}
	for _, r := range []fakeapi.Resource{policyResource, tokens, profiles} {
		a.Serve(r)
	}
	put(t, a, v1alpha1.GroupVersion.WithKind("AdmissionPolicy"), `{"metadata":{"name":"a"},"spec":{"validations":[{"expression":"true"}]}}`)
	put(t, a, v1alpha1.GroupVersion.WithKind("AccessToken"), `{"metadata":{"name":"secret"}}`)
	forbid(a, "list", "sidecarprofiles")
	o := once(t, a)
	all, installed, err := o.Resources()
	if err != nil || !installed || len(all) != 1 || all[0].Object() != "AdmissionPolicy/a" {
		t.Errorf("got %v, %v, %v", all, installed, err)
	}
	if got := texts(o); !slices.Equal(got, []string{"missing right: list sidecarprofiles.gatehouse.dev (hint: bind the ClusterRole gatehouse-auditor)"}) {
		t.Errorf("got problems %q", got)
	}
	if n := len(a.Requests(func(r *fakeapi.Request) bool { return strings.HasPrefix(r.Resource, "accesstokens") })); n > 0 {
		t.Errorf("access tokens are read %d times", n)
	}
	disconnect(a)
	if _, _, err := once(t, a).Resources(); err == nil {
		t.Error("an API server that does not answer is no error")
	}
}

// TestOnceDefinition returns the definition of a kind, or what discovery says of it.
func TestOnceDefinition(t *testing.T) {
	t.Parallel()
	a := newAPIServer()
	crds := fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Kind: "CustomResourceDefinition"}
	a.Serve(crds)
	a.Serve(limitResource)
	put(t, a, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		`{"metadata":{"name":"limits.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"kind":"Limit","plural":"limits"},"versions":[{"name":"v1"}]}}`)
	if got, opaque, err := once(t, a).Definition(limits); err != nil || opaque || got.GetName() != "limits.example.com" {
		t.Errorf("got %v, %v, %v", got, opaque, err)
	}
	if got, _, err := once(t, a).Definition(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "None"}); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	forbid(a, "get", "customresourcedefinitions")
	o := once(t, a)
	got, opaque, err := o.Definition(limits)
	if err != nil || !opaque || got.GetName() != "limits.example.com" {
		t.Fatalf("got %v, %v, %v", got, opaque, err)
	}
	spec, _ := got.Object["spec"].(map[string]any)
	if spec["scope"] != "Cluster" || len(texts(o)) != 1 {
		t.Errorf("got %v, problems %q", spec, texts(o))
	}
}
