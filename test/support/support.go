// Package support holds what all suites share: the repository's root, the programs below bin, and one way to wait. The
// packages below it run the servers that Gatehouse works with.
package support

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	// Deadline bounds every wait for something that comes about by itself, on a busy machine too.
	Deadline = 2 * time.Minute
	// interval is short against what is waited for, and long against the cost of a question.
	interval = 25 * time.Millisecond
)

// Eventually waits until a condition holds. The test fails with the condition's last error if it does not hold within
// [Deadline]. It waits in a cleanup too, where the test's own context is already canceled.
func Eventually(t testing.TB, what string, condition func() error) {
	t.Helper()
	err := Poll(context.WithoutCancel(t.Context()), condition)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Poll waits until a condition holds, the context ends or [Deadline] has passed. It returns the condition's last error.
func Poll(ctx context.Context, condition func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Deadline, fmt.Errorf("gave up after %s", Deadline))
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// Throughout asks for a time whether a condition holds. The test fails as soon as it does not.
func Throughout(t testing.TB, what string, lasts time.Duration, condition func() error) {
	t.Helper()
	end := time.After(lasts)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := condition()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-end:
			return
		case <-tick.C:
		}
	}
}

// Root returns the repository's root. It walks up from the working directory, which for a test is that of its package.
// The nearest go.mod is not enough: other modules live inside this one.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository's root: %w", err)
	}
	for directory := start; ; directory = filepath.Dir(directory) {
		_, err := os.Stat(filepath.Join(directory, "test", "controlplane", "VERSION"))
		if err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("no test/controlplane/VERSION above %s (hint: run inside the repository)", start)
		}
	}
}

// Built returns the path of what a target of the Makefile writes below bin. A missing file is an error: a test that needs
// it must fail, not skip, because a skipped test looks like a passed one.
func Built(target string, path ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	found := filepath.Join(append([]string{root, "bin"}, path...)...)
	_, err = os.Stat(found)
	if err != nil {
		return "", fmt.Errorf("%w (hint: run 'make %s')", err, target)
	}
	return found, nil
}

// Counter is a reader of the bytes 0, 1, 2 and so on, in place of random ones.
type Counter byte

// Read fills p.
func (c *Counter) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(*c)
		*c++
	}
	return len(p), nil
}
