// Package recording tests a recording of real requests as a whole: an API server sends them, a server records them, and a
// replay decides them again.
package recording

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

var shared cluster.Shared

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m, shared.Stop)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is an API server that asks a recording server.
type site struct {
	*cluster.Cluster
	server *gatehouse.Server
	// config and recording are directories.
	config, recording string
}

// newSite starts a server that records, and registers it with flags of manifests.
func newSite(t *testing.T, name, config string, flags ...string) *site {
	t.Helper()
	c := shared.Get(t)
	dir := t.TempDir()
	s := &site{Cluster: c, config: config, recording: filepath.Join(dir, "recording")}
	authority, err := cluster.NewAuthority("gatehouse")
	must(t, err)
	cert, key, err := authority.Serve(cluster.ListenAddress())
	must(t, err)
	for file, content := range map[string][]byte{
		"ca.crt": authority.CertPEM(), "tls.crt": cert, "tls.key": key,
	} {
		must(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	s.server, err = gatehouse.Start(t.Context(), filepath.Join(dir, "gatehouse.log"), "--config", config,
		"--listen", cluster.ListenAddress()+":0", "--ops-listen", "127.0.0.1:0", "--drain-delay", "1s",
		"--tls-cert", filepath.Join(dir, "tls.crt"), "--tls-key", filepath.Join(dir, "tls.key"),
		"--record", s.recording)
	must(t, err)
	t.Cleanup(s.server.Kill)
	registration, err := gatehouse.Run(t.Context(), append([]string{
		"manifests", "--name", name, "--url", "https://" + s.server.Reviews.String(), "--ca-file", filepath.Join(dir, "ca.crt"), "--config", config,
	}, flags...)...)
	must(t, err)
	kubectl := s.Kubectl(t.Context(), "apply", "--filename", "-")
	kubectl.Stdin = strings.NewReader(gatehouse.Patient(registration))
	output, err := kubectl.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, output)
	}
	t.Cleanup(func() {
		output, err := s.Kubectl(context.WithoutCancel(t.Context()), "delete", "--ignore-not-found",
			"mutatingwebhookconfiguration,validatingwebhookconfiguration", name).CombinedOutput()
		if err != nil {
			t.Errorf("kubectl delete: %v: %s", err, output)
		}
	})
	return s
}

// size is the number of bytes of the segments on disk.
func (s *site) size(t *testing.T) (bytes int64) {
	t.Helper()
	must(t, filepath.WalkDir(s.recording, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".zst") {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	}))
	return bytes
}

// stop ends the server, which writes what it has.
func (s *site) stop(t *testing.T) {
	t.Helper()
	must(t, s.server.Signal(os.Interrupt))
	code, err := s.server.Wait(t.Context())
	if err != nil || code != 0 {
		t.Fatalf("the server ends with %d, %v", code, err)
	}
}

// program runs a command of the program, and returns its exit code and output.
func program(t *testing.T, args ...string) (int, string) {
	t.Helper()
	binary, err := gatehouse.Binary()
	must(t, err)
	command := exec.CommandContext(t.Context(), binary, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Logf("gatehouse %s says on standard error: %s", args[0], stderr.String())
		return exit.ExitCode(), stdout.String()
	}
	must(t, err)
	return 0, stdout.String()
}

// root is that of the repository.
func root(t *testing.T) string {
	t.Helper()
	directory, err := support.Root()
	must(t, err)
	return directory
}
