package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// A server that can read its CA starts on a disk that is full or read-only: it serves,
// is ready, and reports what it cannot write.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	const (
		mount  = `mount -t tmpfs -o mode=0700,size=256k,nr_inodes=64 none "$1"; `
		copied = `cp "$2"/* "$1"; rm "$1/apiserver-client.crt"; `
	)
	namespace := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	made := t.TempDir()
	if _, err := certs.NewOwnCA(t.Context(), certs.OwnCAConfig{Hosts: []string{"127.0.0.1"}, Store: certs.NewDirStore(made)}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		script string
		says   string
	}{
		"full":      {mount + copied + `cat /dev/zero >"$1/filler" 2>/dev/null || true; `, "no space left on device"},
		"no inodes": {mount + copied + `i=0; while touch "$1/$i" 2>/dev/null; do i=$((i+1)); done; `, "no space left on device"},
		"read-only": {mount + copied + `mount -o remount,ro "$1"; `, "read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), "sh", "-c", "set -e; "+test.script+
				`exec gatehouse serve --config ../../manifests/examples/log-shipper --listen 127.0.0.1:0 --ops-listen 127.0.0.1:0 --drain-delay 0s \
				--self-signed 127.0.0.1 --self-signed-dir "$1"`, "sh", t.TempDir(), made)
			program.SysProcAttr = namespace
			log, err := program.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := program.Start(); errors.Is(err, syscall.EPERM) {
				t.Logf("this machine allows no mounts, so that nothing is tried: %v", err)
				return
			} else if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			ops, reported := "", false
			for lines := bufio.NewScanner(io.TeeReader(log, &said)); (ops == "" || !reported) && lines.Scan(); {
				var line struct{ Msg, Ops, Error string }
				if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
					ops = line.Ops
				}
				reported = reported || line.Msg == "certificate error" && strings.Contains(line.Error, test.says)
			}
			if ops == "" {
				_, _ = io.Copy(&said, log)
				t.Fatalf("it does not serve: %v\n%s", program.Wait(), said.String())
			}
			get := func(path string) (int, string) {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ops+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = answer.Body.Close() }()
				body, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatal(err)
				}
				return answer.StatusCode, string(body)
			}
			if code, body := get("/readyz"); code != http.StatusOK {
				t.Errorf("/readyz says %d: %s", code, body)
			}
			if _, metrics := get("/metrics"); !strings.Contains(metrics, "\ngatehouse_ca_store_last_successful 0\n") {
				t.Error("metrics do not have that something cannot be written")
			}
			if err := program.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(&said, log)
			if err := program.Wait(); err != nil {
				t.Errorf("it ends with %v:\n%s", err, said.String())
			}
		})
	}
}
