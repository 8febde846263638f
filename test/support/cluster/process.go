package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

const (
	// pollInterval is short against the seconds that a start takes and long against the cost of a question.
	pollInterval = 25 * time.Millisecond
	// stopGrace is several times what an idle API server needs. Nothing is lost when it is not enough.
	stopGrace = 10 * time.Second
	// tailSize is about a screenful and a half of log.
	tailSize = 8 << 10
)

// ProcessOptions say what a Process runs.
type ProcessOptions struct {
	// Path is the program, and Args are its flags.
	Path string
	Args []string
	// Env is its environment, and Dir its working directory; empty are those of this process.
	Env []string
	Dir string
	// Log is the file that everything it prints is appended to.
	Log string
	// Attributes are those of the system, such as namespaces; nil for none.
	Attributes *syscall.SysProcAttr
	// Ready returns nil once the program does its work.
	Ready func(context.Context) error
}

// Started is a Ready for a program that its caller waits for by itself.
func Started(context.Context) error { return nil }

// NewProcess returns a program that does not run yet.
func NewProcess(o ProcessOptions) *Process {
	return &Process{path: o.Path, args: o.Args, env: o.Env, dir: o.Dir, log: o.Log, attributes: o.Attributes, ready: o.Ready}
}

// Process is a program that tests need, such as one of the control plane. Tests stop, kill, suspend and start it again to see what their
// subject makes of that. It keeps its flags, its data and its port.
//
// It never outlives this process, however this one ends.
type Process struct {
	path       string
	args       []string
	env        []string
	dir        string
	log        string
	attributes *syscall.SysProcAttr
	ready      func(context.Context) error

	mu      sync.Mutex
	command *exec.Cmd
	exited  chan struct{}
}

// Start starts the program and waits until it is ready. The context bounds the wait only.
func (p *Process) Start(ctx context.Context) error {
	exited, err := p.launch()
	if err != nil {
		return err
	}
	err = poll(ctx, p.ready, exited)
	if err == nil {
		return nil
	}
	stopErr := p.Stop()
	return errors.Join(fmt.Errorf("%s is not ready: %w; its log ends with\n%s", p.Name(), err, p.Tail(0)), stopErr)
}

// Stop asks the program to end and kills it when it does not. A program that does not run is stopped already.
func (p *Process) Stop() error {
	p.mu.Lock()
	command, exited := p.command, p.exited
	p.mu.Unlock()
	if command == nil {
		return nil
	}
	err := terminate(command.Process)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name(), err)
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-exited:
		return nil
	case <-timer.C:
	}
	return p.Kill()
}

// Kill ends the program without giving it a chance to react, as a power cut does.
func (p *Process) Kill() error {
	err := p.Signal(os.Kill)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	if exited != nil {
		<-exited
	}
	return nil
}

// Signal sends a signal: SIGSTOP and SIGCONT make a program hang and go on.
func (p *Process) Signal(signal os.Signal) error {
	p.mu.Lock()
	command := p.command
	p.mu.Unlock()
	if command == nil {
		return fmt.Errorf("signal %s: %w", p.Name(), os.ErrProcessDone)
	}
	err := command.Process.Signal(signal)
	if err != nil {
		return fmt.Errorf("signal %s: %w", p.Name(), err)
	}
	return nil
}

// Suspend makes the program hang until a SIGCONT: the kernel takes connections for it, and nothing is answered. It returns
// when no thread runs any more, which is later than the signal.
func (p *Process) Suspend() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(stopGrace); ; time.Sleep(pollInterval) {
		threads, err := procfs.AllThreads(p.PID())
		runs := slices.ContainsFunc(threads, func(thread procfs.Proc) bool {
			status, err := thread.Stat()
			return err != nil || status.State != "T"
		})
		if err != nil || !runs {
			return err //nolint:wrapcheck // it names the path
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("suspend %s: it still runs", p.Name())
		}
	}
}

// Exited is closed when the program that runs, or ran last, has ended. It is nil before the first start.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exited
}

// PID returns the process id, of the last run when the program has stopped, or 0 when it never ran.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return 0
	}
	return p.command.Process.Pid
}

// ExitCode returns with what code the program ended: -1 if it runs, never ran, or was ended by a signal.
func (p *Process) ExitCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return -1
	}
	select {
	case <-p.exited:
		return p.command.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Name returns the program's name.
func (p *Process) Name() string {
	return filepath.Base(p.path)
}

// Log returns the file that everything the program prints goes to. A second start appends.
func (p *Process) Log() string {
	return p.log
}

// launch starts the program once and returns a channel that is closed when it has ended.
func (p *Process) launch() (<-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command != nil {
		select {
		case <-p.exited:
		default:
			return nil, fmt.Errorf("start %s: it runs already", p.Name())
		}
	}

	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name(), err)
	}
	defer log.Close() //nolint:errcheck // the program writes through a descriptor of its own

	// Stop ends it, not a context: the one given to Start may end long before the cluster is no longer needed.
	command := exec.Command(p.path, p.args...) //nolint:noctx,gosec // see above; the program is the caller's choice
	command.Env, command.Dir = p.env, p.dir
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = tiedToParent(p.attributes)

	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		// The kernel ends the child when the *thread* that started it ends. Go starts goroutines' work on whatever
		// thread is free and may end threads, so this goroutine keeps its thread until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err != nil {
			return
		}
		_ = command.Wait() // a program that failed said why in its log
		close(exited)
	}()
	err = <-started
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name(), err)
	}
	p.command, p.exited = command, exited
	return exited, nil
}

// Tail returns the end of what the log holds from an offset on.
func (p *Process) Tail(offset int) []byte {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	return content[max(min(offset, len(content)), len(content)-tailSize):]
}

var errStopped = errors.New("it has stopped")

// poll asks until the answer is yes, the context ends or stopped is closed. Its error tells what was missing last.
func poll(ctx context.Context, ask func(context.Context) error, stopped <-chan struct{}) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-stopped:
			return errStopped
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
