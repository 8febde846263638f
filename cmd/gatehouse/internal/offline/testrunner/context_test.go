package testrunner

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

func TestContextLiesOverTheConfiguration(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"config/all.yaml": `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {env: prod}}
---
apiVersion: v1
kind: Namespace
metadata: {name: other, labels: {env: prod}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: shop}
data: {most: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: shop}
data: {most: "2"}
---
apiVersion: example.org/v1
kind: Limit
metadata: {name: below, namespace: shop}
`,
		"test.yaml": head + `metadata: {name: t}
context:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: dev}}}
- {apiVersion: v1, kind: Namespace, metadata: {name: new}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: shop, labels: {a: b}}, data: {most: "3"}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: z, namespace: shop}, data: {most: "4"}}
- {apiVersion: example.org/v1, kind: Quota, metadata: {name: q}}
- {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: shares.example.org}, spec: {group: example.org, scope: Cluster, names: {kind: Share}}}
cases: [{name: c, object: {}, expect: {verdict: Allowed}}]
`,
	})
	c, err := config.Load(filepath.Join(dir, "config"))
	if err != nil {
		t.Fatal(err)
	}
	all, found := Load([]string{filepath.Join(dir, "test.yaml")})
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	objects := all[0].Context.Over(c.Policy.Objects, c.Sidecar.ConfigMaps)
	for name, want := range map[string]string{
		"shop": "env=dev,kubernetes.io/metadata.name=shop", "other": "env=prod,kubernetes.io/metadata.name=other", "new": "kubernetes.io/metadata.name=new",
	} {
		n, ok := objects.Namespace(name)
		if !ok || labels.Set(n.Labels).String() != want {
			t.Errorf("namespace %s: %v, %v", name, n, ok)
		}
		u, err := objects.Get(corev1.SchemeGroupVersion.WithKind("Namespace"), "", name)
		if err != nil || u == nil || labels.Set(u.GetLabels()).String() != want {
			t.Errorf("as an object: %v, %v", u, err)
		}
	}
	if _, ok := objects.Namespace("nowhere"); ok {
		t.Error("a namespace is known that nobody gives")
	}
	configMap := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	most := func(u *unstructured.Unstructured) string {
		text, _, _ := unstructured.NestedString(u.Object, "data", "most")
		return u.GetName() + "=" + text
	}
	for selector, want := range map[string]string{"": "a=2 limits=3 z=4", "a=b": "limits=3", "!a": "a=2 z=4"} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		list, err := objects.List(configMap, "shop", parsed)
		var got []string
		for _, u := range list {
			got = append(got, most(u))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("with %q there are %v, %v, want %s", selector, got, err, want)
		}
	}
	for name, want := range map[string]string{"a": "2", "limits": "3", "z": "4"} {
		u, err := objects.Get(configMap, "shop", name)
		if err != nil || most(u) != name+"="+want {
			t.Errorf("%s is %v, %v", name, u, err)
		}
		if data, ok := objects.ConfigMapData("shop", name); !ok || data["most"] != want {
			t.Errorf("the data of %s is %v, %v", name, data, ok)
		}
	}
	if u, err := objects.Get(configMap, "other", "limits"); u != nil || err != nil {
		t.Errorf("in another namespace there is %v, %v", u, err)
	}
	if _, ok := objects.ConfigMapData("other", "limits"); ok {
		t.Error("in another namespace there is data")
	}
	for kind, want := range map[schema.GroupVersionKind]bool{
		configMap: true, corev1.SchemeGroupVersion.WithKind("Namespace"): false,
		{Group: "example.org", Version: "v1", Kind: "Share"}: false, {Group: "example.org", Version: "v1", Kind: "Quota"}: false, {Group: "example.org", Version: "v1", Kind: "Limit"}: true,
	} {
		if got, err := objects.Namespaced(kind); got != want || err != nil {
			t.Errorf("%s is in namespaces: %v, %v", kind.Kind, got, err)
		}
	}
}
