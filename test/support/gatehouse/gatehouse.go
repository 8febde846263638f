// Package gatehouse runs bin/gatehouse for tests, as its users do: as a program, by its command line.
package gatehouse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	// startTimeout is a hundred times what a start takes on an idle machine.
	startTimeout = 30 * time.Second
	pollInterval = 10 * time.Millisecond
	// tailSize is how much of a log goes into an error.
	tailSize = 4 << 10
)

// Binary returns the path of the program. That it is missing is an error: a test that needs it must fail, not skip.
func Binary() (string, error) {
	root, err := root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "gatehouse")
	_, err = os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("no program to test: %w; hint: run 'make build'", err)
	}
	return path, nil
}

// root walks up from the working directory, which for a Go test is the directory of its package.
func root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository's root: %w", err)
	}
	for directory := start; ; directory = filepath.Dir(directory) {
		_, err := os.Stat(filepath.Join(directory, "cmd", "gatehouse", "main.go"))
		if err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("no cmd/gatehouse above %s; hint: run inside the repository", start)
		}
	}
}

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

// Server is a running 'gatehouse serve'. It never outlives this process on Linux, however this one ends.
type Server struct {
	// Reviews and Ops are the addresses that it listens at.
	Reviews, Ops netip.AddrPort

	log     string
	limit   *memoryLimit // nil without one
	process *os.Process
	exited  chan struct{}
	// state is set once exited is closed.
	state *os.ProcessState
}

// Start runs 'gatehouse serve' with these flags and returns when it is ready. What it logs is appended to a file. The
// context bounds the start only.
func Start(ctx context.Context, log string, flags ...string) (*Server, error) {
	return start(ctx, nil, log, flags)
}

// StartLimited is [Start] with a memory limit, in bytes, as a container has one: a memory cgroup where this process may
// create one, else the GOMEMLIMIT that Gatehouse would derive from it. [Server.Limited] reports which.
func StartLimited(ctx context.Context, memory int64, log string, flags ...string) (*Server, error) {
	return start(ctx, newMemoryLimit(memory), log, flags)
}

func start(ctx context.Context, limit *memoryLimit, log string, flags []string) (*Server, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	s := &Server{log: log, limit: limit, exited: make(chan struct{})}
	offset, err := s.launch(flags)
	if err != nil {
		return nil, fmt.Errorf("start gatehouse serve: %w", err)
	}
	err = s.poll(ctx, func() error { return s.ready(ctx, offset) })
	if err != nil {
		s.Kill()
		return nil, fmt.Errorf("gatehouse serve is not ready: %w; its log ends with\n%s", err, s.tail())
	}
	return s, nil
}

// launch starts the program and returns the size of the log before.
func (s *Server) launch(flags []string) (int64, error) {
	binary, err := Binary()
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close() //nolint:errcheck // the program writes through a descriptor of its own
	info, err := log.Stat()
	if err != nil {
		return 0, err
	}

	// Kill ends it, not a context: it is needed for longer than its start.
	command := exec.Command(binary, append([]string{"serve"}, flags...)...) //nolint:noctx,gosec // see above; the program under test
	s.limit.apply(command)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = tiedToParent()
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends, so this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err != nil {
			s.limit.remove()
			return
		}
		_ = command.Wait() // what matters is in the state
		s.limit.remove()
		s.state = command.ProcessState
		close(s.exited)
	}()
	err = <-started
	s.process = command.Process
	return info.Size(), err
}

// ready learns the addresses from the log and asks the server itself.
func (s *Server) ready(ctx context.Context, offset int64) error {
	if !s.Ops.IsValid() {
		content, err := os.ReadFile(s.log)
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

// poll asks until the answer is yes, the context ends, or the program has.
func (s *Server) poll(ctx context.Context, ask func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("it has ended (%s)", s.state)
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

func (s *Server) tail() []byte {
	content, err := os.ReadFile(s.log)
	if err != nil {
		return []byte(err.Error())
	}
	return content[max(0, len(content)-tailSize):]
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
	var sum float64
	for line := range strings.Lines(body) {
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

// Log returns the file that the server logs to.
func (s *Server) Log() string { return s.log }

// Signal sends a signal. That the program has ended already is an error.
func (s *Server) Signal(signal os.Signal) error { return s.process.Signal(signal) }

// Kill ends the program without giving it a chance to react, and returns when it is gone.
func (s *Server) Kill() {
	_ = s.process.Kill() // it may have ended already
	<-s.exited
}

// Wait waits until the program has ended by itself and returns its exit code.
func (s *Server) Wait(ctx context.Context) (int, error) {
	select {
	case <-s.exited:
		return s.state.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("gatehouse serve has not ended: %w", context.Cause(ctx))
	}
}

// Limited returns how the memory is limited: "cgroup", "GOMEMLIMIT", or "" without a limit.
func (s *Server) Limited() string {
	switch {
	case s.limit == nil:
		return ""
	case s.limit.group == "":
		return "GOMEMLIMIT"
	default:
		return "cgroup"
	}
}

// Exited is closed when the program has ended, however.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// PeakMemory returns the most memory, in bytes, that the program has had resident at one time, without the pages of files
// (the program itself) that are resident now: the kernel takes those back where memory is short. Only Linux tells.
func (s *Server) PeakMemory() (int64, error) {
	if runtime.GOOS != "linux" {
		return 0, errors.ErrUnsupported
	}
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Pid))
	if err != nil {
		return 0, err
	}
	kibibytes := map[string]int64{}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[2] == "kB" {
			if kibibytes[fields[0]], err = strconv.ParseInt(fields[1], 10, 64); err != nil {
				return 0, fmt.Errorf("/proc/%d/status: %w", s.process.Pid, err)
			}
		}
	}
	if kibibytes["VmHWM:"] == 0 {
		return 0, fmt.Errorf("no VmHWM in /proc/%d/status", s.process.Pid)
	}
	return (kibibytes["VmHWM:"] - kibibytes["RssFile:"]) << 10, nil
}
