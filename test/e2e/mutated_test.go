package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestCheckOfMutatedObjects: of what a mutating policy makes, check refuses what the API server refuses with the same policy, and admits
// what a policy has mended.
func TestCheckOfMutatedObjects(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	if w.Minor(t) < mutatingSince {
		return
	}
	const name = "mutated"
	w.newNamespace(t, name, nil)
	definition := `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: meters.mutated.example.com}
spec:
  group: mutated.example.com
  scope: Namespaced
  names: {kind: Meter, plural: meters, singular: meter}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [owner], properties: {
      owner: {type: string}, count: {type: integer, minimum: 0}}}}}}}
`
	cases := []struct{ name, kind, more, patch string }{
		{"label", "ConfigMap", "", `{op: "add", path: "/metadata/labels", value: {"a": "b:c"}}`},
		{"mended", "ConfigMap", `, labels: {a: "b:c"}`, `{op: "add", path: "/metadata/labels", value: {"a": "b-c"}}`},
		{"renamed", "ConfigMap", "", `{op: "replace", path: "/metadata/name", value: "other"}`},
		{"misnamed", "ConfigMap", "", `{op: "replace", path: "/metadata/name", value: "A_B"}`},
		{"nameless", "ConfigMap", "", `{op: "remove", path: "/metadata/name"}`},
		{"moved", "ConfigMap", "", `{op: "replace", path: "/metadata/namespace", value: "default"}`},
		{"unmoved", "ConfigMap", "", `{op: "remove", path: "/metadata/namespace"}`},
		{"kind", "ConfigMap", "", `{op: "replace", path: "/kind", value: "Secret"}`},
		{"version", "ConfigMap", "", `{op: "replace", path: "/apiVersion", value: "v2"}`},
		{"unknown", "ConfigMap", "", `{op: "add", path: "/colour", value: "red"}`},
		{"owner", "ConfigMap", "", `{op: "add", path: "/metadata/ownerReferences", value: [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]}`},
		{"finalizer", "ConfigMap", "", `{op: "add", path: "/metadata/finalizers", value: ["a b"]}`},
		{"ok-meter", "Meter", "", `{op: "add", path: "/spec/count", value: 1}`},
		{"wrong-meter", "Meter", "", `{op: "add", path: "/spec/count", value: "many"}`},
		{"low-meter", "Meter", "", `{op: "add", path: "/spec/count", value: -1}`},
		{"unknown-meter", "Meter", "", `{op: "add", path: "/spec/colour", value: "red"}`},
		{"filled-meter", "Meter", "", `{op: "add", path: "/spec", value: {"owner": "a"}}`},
		{"kind-meter", "Meter", "", `{op: "replace", path: "/kind", value: "Other"}`},
		{"moved-meter", "Meter", "", `{op: "replace", path: "/metadata/namespace", value: "default"}`},
		{"renamed-meter", "Meter", "", `{op: "replace", path: "/metadata/name", value: "other"}`},
	}
	expression, manifests := "[]", make([]string, len(cases))
	for i, c := range cases {
		expression = fmt.Sprintf("object.metadata.name == %q ? [JSONPatch%s] : %s", c.name, c.patch, expression)
		manifests[i] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s%s}\n", c.name, name, c.more)
		if c.kind == "Meter" {
			manifests[i] = fmt.Sprintf("apiVersion: mutated.example.com/v1\nkind: Meter\nmetadata: {name: %s, namespace: %s}\nspec: {owner: a}\n", c.name, name)
		}
		if c.name == "filled-meter" {
			manifests[i] = strings.Replace(manifests[i], "owner: a", "", 1)
		}
	}
	documents := fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mutated}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: mutated}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
    - {apiGroups: [mutated.example.com], apiVersions: [v1], operations: [CREATE], resources: [meters]}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: %q}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: mutated}
spec: {policyName: mutated}
---
`, expression)
	must(t, w.apply(t.Context(), documents+definition))
	create := func(manifest string) (string, error) {
		cmd := w.Kubectl(t.Context(), "create", "--dry-run=server", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	support.Eventually(t, "the policy and the kind", func() error {
		if text, err := create(manifests[0]); err == nil {
			return fmt.Errorf("it is created: %s", text)
		}
		text, err := create(manifests[12])
		if err != nil {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return err
	})
	config := t.TempDir()
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: mutated}\n---\n"
	must(t, os.WriteFile(filepath.Join(config, "documents.yaml"), []byte(namespace+documents+definition), 0o600))
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	must(t, os.WriteFile(file, []byte(strings.Join(manifests, "---\n")), 0o600))
	output, err := gatehouse.Run(t.Context(), "check", "--config", config, "-f", file, "-o", "json")
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if err == nil || len(lines) != len(cases) {
		t.Fatalf("check: %v %s", err, output)
	}
	for i, c := range cases {
		var got struct{ Verdict string }
		must(t, json.Unmarshal([]byte(lines[i]), &got))
		text, err := create(manifests[i])
		if (err != nil) != (got.Verdict == "refused") || err == nil && got.Verdict != "admitted" {
			t.Errorf("%s: check says %s\nand kubectl: %v %s", c.name, lines[i], err, text)
		}
	}
}
