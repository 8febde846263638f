//go:build linux

package cluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// childCommand runs this test binary as one of the children, outside of our own namespace's mark.
func childCommand(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), executable, args...)
	command.Env = append(os.Environ(), childVariable+"="+name, cluster.NamespaceVariable+"=")
	return command
}

func needNamespace(t *testing.T) {
	t.Helper()
	if !cluster.Namespaced() {
		t.Skip("network namespaces are not allowed here, as RunInNamespace said, or switched off")
	}
}

func TestRunInNamespacePassesArgumentsStreamsAndExitCode(t *testing.T) {
	needNamespace(t)
	for _, test := range []struct {
		name, mark, wantNamespaced, wantAddress string
	}{
		{"in a namespace", "", "true", cluster.ServiceAddress},
		{"switched off", "off", "false", "127.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			command := childCommand(t, "report", "-test.run=X", "a b")
			command.Env = append(command.Env, cluster.NamespaceVariable+"="+test.mark)
			command.Stdout, command.Stderr, command.Dir = &stdout, &stderr, "/"
			err := command.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 7 {
				t.Errorf("got %v, want exit status 7", err)
			}
			if got, want := stdout.String(), test.wantNamespaced+" -test.run=X a b / <nil>\n"; got != want {
				t.Errorf("stdout: got %q, want %q", got, want)
			}
			if got, want := stderr.String(), test.wantAddress+"\n"; got != want {
				t.Errorf("stderr: got %q, want %q", got, want)
			}
		})
	}
}

// Without the right to make namespaces the tests must still run, and somebody must be told.
func TestRunInNamespaceFallsBack(t *testing.T) {
	needNamespace(t)
	command := childCommand(t, "report")
	// Whom a user namespace has no mapping for may make no namespaces in it.
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("got %v, want exit status 7", err)
	}
	if !strings.HasPrefix(stdout.String(), "false ") {
		t.Errorf("stdout: got %q, want it to begin with false", stdout.String())
	}
	if got := stderr.String(); !strings.Contains(got, "no network namespace") || !strings.Contains(got, "hint: ") {
		t.Errorf("stderr: got %q, want the reason and a hint", got)
	}
}

// A killed test runs no cleanup. The kernel must end what it started, whether its tests run in a namespace, with one
// more process in between, or in place.
func TestKilledTestLeavesNothing(t *testing.T) {
	for _, mark := range []string{"", "off"} {
		t.Run("namespace="+mark, func(t *testing.T) {
			t.Parallel()
			command := childCommand(t, "cluster")
			command.Env = append(command.Env, cluster.NamespaceVariable+"="+mark, "TMPDIR="+t.TempDir())
			command.Stderr = os.Stderr
			stdout, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			err = command.Start()
			if err != nil {
				t.Fatal(err)
			}
			var child, etcd, apiServer int
			_, err = fmt.Fscan(stdout, &child, &etcd, &apiServer)
			if err != nil {
				t.Fatalf("read the child's answer: %v", err)
			}
			t.Cleanup(func() {
				for _, pid := range []int{child, etcd, apiServer} {
					if t.Failed() && alive(t, pid) {
						_ = syscall.Kill(pid, syscall.SIGKILL) // what this test is about did not happen
					}
				}
			})
			for _, pid := range []int{child, etcd, apiServer} {
				if !alive(t, pid) {
					t.Fatalf("process %d does not run although its cluster has started", pid)
				}
			}

			err = command.Process.Kill()
			if err != nil {
				t.Fatal(err)
			}
			_ = command.Wait() // it was killed
			for _, pid := range []int{child, etcd, apiServer} {
				support.Eventually(t, fmt.Sprintf("process %d lives on", pid), func() error {
					if alive(t, pid) {
						return errNotYet
					}
					return nil
				})
			}
		})
	}
}

// alive takes a zombie for dead: whether somebody has collected its exit status is not ours to say.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	_, state, found := bytes.Cut(stat, []byte(") "))
	return !found || state[0] != 'Z'
}
