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
)

// A disk that is full, or read-only, or lets no report be written for another reason,
// keeps no server from starting that can read its CA: it serves, is ready, and says
// what it cannot write.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	const (
		mount = `mount -t tmpfs -o mode=0700,size=256k,nr_inodes=64 none "$1"; `
		made  = `gatehouse certs init "$1" --host 127.0.0.1 >/dev/null; `
	)
	namespace := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	for name, test := range map[string]struct {
		script string
		attr   *syscall.SysProcAttr
		says   string
	}{
		"full":      {mount + made + `cat /dev/zero >"$1/filler" 2>/dev/null || true; `, namespace, "no space left on device"},
		"no inodes": {mount + made + `i=0; while touch "$1/$i" 2>/dev/null; do i=$((i+1)); done; `, namespace, "no space left on device"},
		"read-only": {mount + made + `mount -o remount,ro "$1"; `, namespace, "read-only file system"},
		"occupied":  {made + `: >"$1/replicas"; `, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), "sh", "-c", "set -e; "+test.script+
				`exec gatehouse serve --config ../../manifests/examples/log-shipper --listen 127.0.0.1:0 --ops-listen 127.0.0.1:0 --drain-delay 0s \
				--self-signed 127.0.0.1 --self-signed-dir "$1"`, "sh", t.TempDir())
			program.SysProcAttr = test.attr
			log, err := program.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := program.Start(); errors.Is(err, syscall.EPERM) && test.attr == namespace {
				t.Logf("this machine allows no mounts of one's own, so that only what is occupied is tried: %v", err)
				return
			} else if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			ops := ""
			for lines := bufio.NewScanner(io.TeeReader(log, &said)); ops == "" && lines.Scan(); {
				var line struct{ Msg, Ops string }
				if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
					ops = line.Ops
				}
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
			if !strings.Contains(said.String(), test.says) || !strings.Contains(said.String(), `"level":"ERROR","msg":"certificate error"`) {
				t.Errorf("the log does not have what cannot be written:\n%s", said.String())
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
