package dex

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	pollInterval = 10 * time.Millisecond
	// tailSize is how much of the log goes into an error.
	tailSize = 4 << 10
)

// process is a program that can be started again.
type process struct {
	program string
	args    []string
	log     string

	running *os.Process
	exited  chan struct{}
}

// start starts the program and asks until it is ready.
func (p *process) start(ctx context.Context, ready func() error) error {
	err := p.launch()
	if err != nil {
		return fmt.Errorf("start dex: %w", err)
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("dex has ended: %w; its log ends with\n%s", err, p.tail())
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("dex is not ready: %w, last: %w; its log ends with\n%s", context.Cause(ctx), err, p.tail())
		case <-ticker.C:
		}
	}
}

func (p *process) launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the program writes through a descriptor of its own
	// Kill ends it, not a context: it is needed for longer than its start.
	command := exec.Command(p.program, p.args...) //nolint:noctx,gosec // see above; it is bin/dex
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = tiedToParent()
	started, exited := make(chan error), make(chan struct{})
	go func() {
		// The kernel ends the child when the thread that started it ends, so this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err != nil {
			return
		}
		_ = command.Wait() // what it died of is in its log
		close(exited)
	}()
	err = <-started
	if err == nil {
		p.running, p.exited = command.Process, exited
	}
	return err
}

// Kill ends dex and returns when it is gone. It does nothing if dex does not run.
func (p *process) Kill() {
	if p.running == nil {
		return
	}
	_ = p.running.Kill() // it may have ended already
	<-p.exited
}

// Suspend makes dex hang: connections are accepted and nothing is answered, until [process.Resume].
func (p *process) Suspend() error { return p.signal(syscall.SIGSTOP) }

// Resume makes a dex that hangs go on.
func (p *process) Resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(signal os.Signal) error {
	err := p.running.Signal(signal)
	if err != nil {
		return fmt.Errorf("signal dex: %w", err)
	}
	return nil
}

func (p *process) tail() []byte {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(errors.Join(errors.New("no log"), err).Error())
	}
	return content[max(0, len(content)-tailSize):]
}

func between(first, last int) int {
	return first + rand.IntN(last-first) //nolint:gosec // a port is no secret
}
