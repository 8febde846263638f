package incluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// chart is the Helm chart.
const chart = "../../manifests/chart/gatehouse"

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
