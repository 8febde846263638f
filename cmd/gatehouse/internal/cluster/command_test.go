package cluster_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
)

// policyText is a policy about pods.
func policyText(name, expression string) string {
	return `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: ` + name + `}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "` + expression + `"}]
  validationActions: [Deny]
`
}

// policyObject is the same as an object of the cluster.
func policyObject(name, expression string) map[string]any {
	return map[string]any{
		"apiVersion": "gatehouse.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"pods"},
			}}},
			"validations": []any{map[string]any{"expression": expression}}, "validationActions": []any{"Deny"},
		},
	}
}

// commandCluster is an API server with two policies, of which one has an error, and a native one.
func commandCluster(t *testing.T) *fakeapi.Server {
	t.Helper()
	resource := func(version schema.GroupVersion, name, kind string, namespaced bool) fakeapi.Resource {
		return fakeapi.Resource{GroupVersionResource: version.WithResource(name), Kind: kind, Namespaced: namespaced}
	}
	native := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	a := fakeapi.New(
		resource(corev1.SchemeGroupVersion, "namespaces", "Namespace", false), resource(corev1.SchemeGroupVersion, "configmaps", "ConfigMap", true),
		resource(v1alpha1.GroupVersion, "admissionpolicies", "AdmissionPolicy", false),
		resource(native, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false), resource(native, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false),
	)
	a.Put(policyObject("images", "true"))
	a.Put(policyObject("broken", "objekt.spec"))
	spec, _ := policyObject("", "true")["spec"].(map[string]any)
	delete(spec, "validationActions")
	a.Put(map[string]any{
		"apiVersion": native.String(), "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "native"},
		"spec": spec,
	})
	a.Put(map[string]any{"apiVersion": native.String(), "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "invalid"}, "spec": map[string]any{}})
	a.Put(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop", "labels": map[string]any{"team": "blue", "kept": "true"}}})
	for _, name := range []string{"a", "b"} {
		a.Put(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "shop"}, "data": map[string]any{"from": "cluster"}})
	}
	return a
}

// load is resolve.ForCommand with the documents of files, none for no directory.
func load(t *testing.T, a *fakeapi.Server, files map[string]string, change func(*resolve.CommandSources)) (*resolve.CommandConfig, error) {
	t.Helper()
	c, err := cluster.New(a.Config(""), "v1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	in := resolve.CommandSources{Cluster: c.Once(t.Context()), Custom: true}
	if files != nil {
		in.Dir = t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(in.Dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	in.Documents, in.Found = config.InspectBeside(in.Dir)
	if change != nil {
		change(&in)
	}
	return resolve.ForCommand(in)
}

// TestOverlay: objects of the directory count as if they had been applied.
func TestOverlay(t *testing.T) {
	t.Parallel()
	got, err := load(t, commandCluster(t), map[string]string{"objects.yaml": policyText("new", "true") + `---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: green}}
---
apiVersion: v1
kind: Namespace
metadata: {name: new}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, namespace: shop, labels: {new: "true"}}
data: {from: directory}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: shop}
data: {from: directory}
`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	objects := got.Config.Policy.Objects
	if n, ok := objects.Namespace("shop"); !ok || n.Labels["team"] != "green" || n.Labels["kept"] != "true" {
		t.Errorf("got namespace %v, %v", n, ok)
	}
	if _, ok := objects.Namespace("new"); !ok {
		t.Error("the namespace of the directory is not known")
	}
	if _, ok := objects.Namespace("none"); ok {
		t.Error("there is no such namespace")
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	for name, want := range map[string]string{"a": "cluster", "b": "directory", "c": "directory"} {
		object, err := objects.Get(kind, "shop", name)
		if err != nil || object == nil || object.Object["data"].(map[string]any)["from"] != want {
			t.Errorf("%s: got %v, %v", name, object, err)
		}
		if data, ok := got.Config.Sidecar.ConfigMaps.ConfigMapData("shop", name); !ok || data["from"] != want {
			t.Errorf("%s: got data %v", name, data)
		}
	}
	list, err := objects.List(kind, "shop", nil)
	if err != nil || len(list) != 3 || list[0].GetName() != "a" || list[2].GetName() != "c" {
		t.Errorf("got %v, %v", list, err)
	}
	selector := labels.SelectorFromSet(labels.Set{"new": "true"})
	if list, err = objects.List(kind, "shop", selector); err != nil || len(list) != 1 || list[0].GetName() != "b" {
		t.Errorf("got %v, %v", list, err)
	}
}
