// Package gatehouse runs bin/gatehouse for tests, as its users do: as a program, by its command line.
package gatehouse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// startTimeout is a hundred times what a start takes on an idle machine. It bounds a start whose context has no deadline.
const startTimeout = 30 * time.Second

// Run runs a subcommand to its end and returns what it wrote to standard output. An exit code other than 0 is an error
// that satisfies errors.As(err, **exec.ExitError) and holds what the program wrote to standard error.
func Run(ctx context.Context, args ...string) (string, error) {
	binary, err := Binary()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, binary, args...) //nolint:gosec // the program under test
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	if err != nil {
		return stdout.String(), fmt.Errorf("gatehouse %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

var timeoutSeconds = regexp.MustCompile(`(?m)^( *timeoutSeconds:) \d+$`)

// Patient returns webhook configurations with the longest timeouts that Kubernetes lets a test of decisions on a busy
// machine wait for: those that 'gatehouse manifests' prints are for servers that have a processor.
func Patient(manifests string) string { return timeoutSeconds.ReplaceAllString(manifests, "$1 30") }

// Binary returns the path of the program.
func Binary() (string, error) { return support.Built("build", "gatehouse") }

// Server is a running 'gatehouse serve'. It never outlives this process on Linux, however this one ends.
type Server struct {
	*cluster.Process

	// Reviews and Ops are the addresses that it listens at.
	Reviews, Ops netip.AddrPort
}

// Start runs 'gatehouse serve' with these flags and returns when it is ready. What it logs is appended to a file. The
// context bounds the start only.
func Start(ctx context.Context, log string, flags ...string) (*Server, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	return StartProgram(ctx, binary, log, append([]string{"serve"}, flags...)...)
}

// StartProgram is [Start] for another program, with all of its arguments. Like 'gatehouse serve' it logs where it listens
// and answers /readyz.
func StartProgram(ctx context.Context, path, log string, args ...string) (*Server, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
		defer cancel()
	}
	before, err := os.ReadFile(log) //nolint:gosec // a path of the tests' own
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s := &Server{}
	s.Process = cluster.NewProcess(cluster.ProcessOptions{
		Path: path, Args: args, Log: log,
		Ready: func(ctx context.Context) error { return s.ready(ctx, len(before)) },
	})
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// ready learns the addresses from the log and asks the server itself.
func (s *Server) ready(ctx context.Context, offset int) error {
	if !s.Ops.IsValid() {
		content, err := os.ReadFile(s.Log())
		if err != nil {
			return err
		}
		for line := range bytes.Lines(content[offset:]) {
			var entry struct {
				Message      string `json:"msg"`
				Reviews, Ops netip.AddrPort
			}
			if json.Unmarshal(line, &entry) == nil && entry.Message == "serving" {
				s.Reviews, s.Ops = entry.Reviews, entry.Ops
			}
		}
		if !s.Ops.IsValid() {
			return errors.New("it has not said where it listens")
		}
	}
	code, body, err := s.Get(ctx, "/readyz")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("/readyz says %d: %s", code, body)
	}
	return err
}

// Get asks the listener for health and metrics.
func (s *Server) Get(ctx context.Context, path string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Ops.String()+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), errors.Join(err, response.Body.Close())
}

// Metric returns the sum of the metric's samples that have all of these labels, written name="value".
func (s *Server) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	code, body, err := s.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	if code != http.StatusOK {
		return 0, fmt.Errorf("/metrics says %d", code)
	}
	return Sum(body, name, labels...)
}

// Sum returns the sum of a metric's samples, in the text format, that have all of these labels, written name="value".
func Sum(text, name string, labels ...string) (float64, error) {
	var sum float64
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		fits := true
		for _, label := range labels {
			fits = fits && strings.Contains(rest, label)
		}
		if !fits {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += value
	}
	return sum, nil
}

// Kill ends the program without giving it a chance to react, and returns when it is gone.
func (s *Server) Kill() {
	_ = s.Process.Kill() // it may have ended already
}

// Wait waits until the program has ended by itself and returns its exit code.
func (s *Server) Wait(ctx context.Context) (int, error) {
	select {
	case <-s.Exited():
		return s.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("gatehouse serve has not ended: %w", context.Cause(ctx))
	}
}

// PeakMemory returns the most memory, in bytes, that the program has had resident at one time, without the pages of files
// (the program itself) that are resident now: the kernel takes those back where memory is short. Only Linux tells.
func (s *Server) PeakMemory() (int64, error) { return PeakMemory(s.PID()) }

// PeakMemory is [Server.PeakMemory] for another process.
func PeakMemory(pid int) (int64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := process.NewStatus()
	return int64(status.VmHWM) - int64(status.RssFile), err //nolint:gosec // far below 2^63
}
