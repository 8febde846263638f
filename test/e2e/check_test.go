package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestCheckSaysWhatTheServerSays: check says of manifests what the API server says.
func TestCheckSaysWhatTheServerSays(t *testing.T) {
	w := sharedWorld(t)
	pod := func(ns, name, labels, spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: " + ns + ", labels: {" + labels + "}}\nspec: {" + spec + "}\n"
	}
	c := func(image string) string { return "containers: [{name: a, image: \"" + image + "\"}]" }
	documents := []string{
		pod("rules", "bad", "x: z", c("registry.example/app:latest")+", priorityClassName: system-node-critical"),
		pod("rules", "one", "team: blue", c("registry.example/app:latest")),
		pod("rules", "good", "team: blue", c("registry.example/app:1")),
		pod("standard", "host", "x: z", c("a")+", hostNetwork: true"),
		pod("standard", "plain", "x: z", c("a")),
		pod("inject", "shipped", "x: z", c("a")),
		strings.Replace(pod("inject", "word", "x: z", c("a")), "labels:", "annotations: {sidecar.gatehouse.dev/inject: \"yes\"}, labels:", 1),
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd, namespace: rules}\n",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: even, namespace: rules}\n",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: checked}\nspec: {replicas: 50, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + c("a") + "}}}\n",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: rules}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + c("a:latest") + "}}}\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: checked}\nspec: {ports: [{port: 80}], type: NodePort}\n",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: fresh}\n",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\nrules: []\n",
	}
	w.write(t, "namespace-checked.yaml", map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "checked", "labels": map[string]string{"compared": "true", "team": "blue"}},
	})
	must(t, w.CreateNamespace(t.Context(), "checked", map[string]string{"team": "blue"}))
	file := filepath.Join(t.TempDir(), "all.yaml")
	must(t, os.WriteFile(file, []byte(strings.Join(documents, "---\n")), 0o600))
	out, err := gatehouse.Run(t.Context(), "check", "--config", w.config, "-f", file, "-o", "json", "--as", "kubernetes-admin", "--as-group", "system:masters")
	if err == nil {
		t.Error("nothing is refused")
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(documents) {
		t.Fatalf("%d lines: %s", len(lines), out)
	}
	for i, document := range documents {
		var got struct {
			Verdict    string
			Error      string
			Violations []struct{ Message, Effect, Template string }
			Warnings   []string
		}
		must(t, json.Unmarshal([]byte(lines[i]), &got))
		cmd := w.Kubectl(t.Context(), "create", "--dry-run=server", "-f", "-")
		cmd.Stdin = strings.NewReader(document)
		text, err := cmd.CombinedOutput()
		refused := err != nil
		if refused != (got.Verdict == "refused") {
			t.Errorf("check says %s of\n%s\nand kubectl: %v %s", lines[i], document, err, text)
		}
		for _, v := range got.Violations {
			if (v.Effect == "denied" || v.Effect == "warned") && !strings.Contains(string(text), v.Message) {
				t.Errorf("check says %q, and kubectl %s", v.Message, text)
			}
		}
	}
}
