package incluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// chart is the Helm chart.
const chart = "../../manifests/chart/gatehouse"

// twoReplicas is an install as it is rendered, with two replicas.
func twoReplicas(t *testing.T, documents string) string {
	t.Helper()
	return adjusted(t, documents, 2)
}

// adjusted is an install as it is rendered, with so many replicas, short waits between the steps of a rollout, and further
// arguments of the server.
func adjusted(t *testing.T, documents string, replicas int, args ...string) string {
	t.Helper()
	const resources = "\n        - --custom-resources\n"
	more := resources
	for _, arg := range args {
		more += "        - " + arg + "\n"
	}
	for _, field := range []struct{ usual, here string }{
		{"\n  replicas: 3\n", fmt.Sprintf("\n  replicas: %d\n", replicas)},
		{"\n  minReadySeconds: 10\n", "\n  minReadySeconds: 2\n"},
		{resources, more},
	} {
		if n := strings.Count(documents, field.usual); n != 1 {
			t.Fatalf("the install has %q %d times, want once", field.usual, n)
		}
		documents = strings.Replace(documents, field.usual, field.here, 1)
	}
	return documents
}

// kustomized is what kubectl renders of the overlay "self-signed".
func (s *site) kustomized(t *testing.T) string {
	t.Helper()
	documents, err := s.kubectl(t.Context(), "", "kustomize", filepath.Join(overlays, "self-signed"))
	must(t, err)
	return documents
}

// applyInstall applies documents as the documents about installing say, and waits until the replicas are there.
func (s *site) applyInstall(t *testing.T, documents string) {
	t.Helper()
	_, err := s.kubectl(t.Context(), documents, "apply", "--server-side", "--filename", "-")
	must(t, err)
	s.rolledOut(t)
}

// helm runs a command of helm as the administrator, and returns what it prints.
func (s *site) helm(ctx context.Context, home string, args ...string) (string, error) {
	program, err := support.Built("installers", "installers", "helm")
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_DATA_HOME="+home)
	var output, said bytes.Buffer
	command.Stdout, command.Stderr = &output, &said
	err = command.Run()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w: %s%s", strings.Join(args, " "), err, output.String(), said.String())
	}
	return output.String(), nil
}

// waitForSuccesses waits until many calls in a row have come to what they must.
func waitForSuccesses(t *testing.T, l *load.Load) {
	t.Helper()
	const n = 10 * load.Callers
	calls, failed := l.Calls(), l.Failed()
	support.Eventually(t, fmt.Sprintf("%d calls without a failure", n), func() error {
		if now := l.Failed(); now != failed {
			calls, failed = l.Calls(), now
		}
		if missing := calls + n - l.Calls(); missing > 0 {
			return fmt.Errorf("%d are missing, of %s", missing, l)
		}
		return nil
	})
}
