package cluster_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// The API server comes back at the same address with the same data.
func TestAPIServerIsSuspendedKilledAndStartedAgain(t *testing.T) {
	c := shared.Get(t)
	ready := func() error {
		return c.Client().Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	}
	err := c.APIServer().Signal(syscall.SIGSTOP)
	if err != nil {
		t.Fatal(err)
	}
	err = c.APIServer().Signal(syscall.SIGCONT)
	if err != nil {
		t.Fatal(err)
	}
	err = ready()
	if err != nil {
		t.Errorf("after SIGSTOP and SIGCONT: %v", err)
	}

	err = c.APIServer().Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("start a running API server: got %v, want an error", err)
	}
	before := c.APIServer().PID()
	err = c.APIServer().Kill()
	if err != nil {
		t.Fatal(err)
	}
	err = c.APIServer().Signal(syscall.SIGCONT)
	if !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal a dead API server: got %v, want %v", err, os.ErrProcessDone)
	}
	err = c.APIServer().Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after := c.APIServer().PID(); after == before {
		t.Errorf("the API server still is process %d", after)
	}
	_, err = c.Client().CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Errorf("data from before: %v", err)
	}
}

func TestStartFailsWithTheProgramsOwnWords(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("TMPDIR", directory)
	_, err := cluster.Start(t.Context(), cluster.Options{APIServerFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v, want what kube-apiserver says", err)
	}
	left, err := os.ReadDir(directory)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
