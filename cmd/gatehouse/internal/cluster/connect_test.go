package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: there
contexts: [{name: there, context: {cluster: there, user: me}}]
clusters: [{name: there, cluster: {server: "https://api.example:6443", certificate-authority: pki/ca.crt}}]
users: [{name: me, user: {client-certificate: pki/me.crt, client-key: pki/me.key}}]
`

func TestFromKubeconfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "me.crt", "me.key"} {
		if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pki", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := FromKubeconfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://api.example:6443" || config.CAFile != filepath.Join(dir, "pki", "ca.crt") || config.KeyFile != filepath.Join(dir, "pki", "me.key") {
		t.Errorf("got %s, %s, %s; paths are relative to the file", config.Host, config.CAFile, config.KeyFile)
	}
}

func TestKubeconfigThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, content string
		says          []string
	}{
		{"missing", "", []string{"cannot be read: no such file or directory", "hint: name a kubeconfig file"}},
		{"no YAML", "{", []string{"cannot be read"}},
		{"another document", "apiVersion: v1\nkind: ConfigMap\n", []string{"cannot be read", `"ConfigMap"`}},
		{"nothing in it", "{}", []string{"has no current-context", "use-context NAME"}},
		{"no current context", strings.Replace(kubeconfig, "current-context: there", "", 1), []string{"has no current-context"}},
		{"context that is not there", strings.Replace(kubeconfig, "current-context: there", "current-context: here", 1), []string{`context "here"`, "context was not found"}},
		{"files that are not there", kubeconfig, []string{`context "there"`, "pki/ca.crt", "no such file or directory"}},
		{"no server", strings.Replace(kubeconfig, "https://api.example:6443", "", 1), []string{`context "there"`, "server"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config")
			if test.content != "" {
				if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := FromKubeconfig(path)
			if err == nil {
				t.Fatal("it is used")
			}
			for _, text := range append(test.says, path) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in: %v", text, err)
				}
			}
		})
	}
}

func TestInClusterElsewhere(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	if _, err := InCluster(); err == nil || !strings.Contains(err.Error(), "--kubeconfig FILE") {
		t.Errorf("got %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := InCluster(); err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken") {
		t.Errorf("got %v", err)
	}
}
