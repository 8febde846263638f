// Package audit tests audits of what exists in a real cluster.
package audit

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program runs a command of the program, and returns its exit code, output and messages.
func program(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return programIn(t, "", args...)
}

// programIn is program in a directory.
func programIn(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary, err := gatehouse.Binary()
	must(t, err)
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Dir = dir
	var out, messages bytes.Buffer
	command.Stdout, command.Stderr = &out, &messages
	err = command.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), messages.String()
	}
	must(t, err)
	return 0, out.String(), messages.String()
}

// kubectl runs kubectl with a manifest on standard input, and returns what it prints.
func kubectl(t *testing.T, c *cluster.Cluster, manifest string, args ...string) (string, error) {
	t.Helper()
	command := c.Kubectl(t.Context(), args...)
	command.Stdin = strings.NewReader(manifest)
	text, err := command.CombinedOutput()
	return string(text), err
}

// apply applies a manifest.
func apply(t *testing.T, c *cluster.Cluster, manifest string) {
	t.Helper()
	if text, err := kubectl(t, c, manifest, "apply", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, text)
	}
}

// kubeconfig writes one with the context "prod" for a user, and returns its path.
func kubeconfig(t *testing.T, access *rest.Config) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["prod"] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthorityData: access.CAData}
	config.AuthInfos["prod"] = &clientcmdapi.AuthInfo{ClientCertificateData: access.CertData, ClientKeyData: access.KeyData}
	config.Contexts["prod"] = &clientcmdapi.Context{Cluster: "prod", AuthInfo: "prod"}
	config.CurrentContext = "prod"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, file))
	return file
}

// read returns a file of testdata.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)))
	must(t, err)
	return string(text)
}
