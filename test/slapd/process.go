package slapd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	pollInterval = 10 * time.Millisecond
	// stopGrace is many times what an idle server needs.
	stopGrace = 10 * time.Second
)

var errStopped = errors.New("it has stopped")

// process is one run of the program.
type process struct {
	command *exec.Cmd
	exited  chan struct{}
}

// launch starts the program. What it prints is appended to the log.
func launch(log string, environment []string, path string, args ...string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a path of our own making
	if err != nil {
		return nil, err
	}
	defer output.Close() //nolint:errcheck // the program writes through a descriptor of its own

	command := exec.Command(path, args...) //nolint:noctx,gosec // stop ends it; the path is of our own making
	command.Env = environment
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = tiedToParent()
	started, exited := make(chan error), make(chan struct{})
	go func() {
		// The kernel ends the child with the thread that started it, so the thread
		// is kept for as long.
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
		return nil, err
	}
	return &process{command: command, exited: exited}, nil
}

// await asks until the answer is yes, or the context or the process ends.
func (p *process) await(ctx context.Context, ask func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return errStopped
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// stop ends the process and waits for its end. It is fine for one that has ended
// or was never started.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	// A suspended process would take the request only when it goes on.
	err := errors.Join(p.signal(syscall.SIGTERM), p.resume())
	if err != nil {
		return err
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
	}
	err = p.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.exited
	return nil
}

// pause suspends the process, and returns when it does nothing any more: the
// signal alone is on its way for a moment.
func (p *process) pause() error {
	err := p.signal(syscall.SIGSTOP)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	return p.await(ctx, func() error { return suspended(p.command.Process.Pid) })
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(signal os.Signal) error {
	err := p.command.Process.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
