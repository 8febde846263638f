package slapd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

var errRunning = errors.New("it still runs")

// suspended reports whether all threads of a process have stopped (proc_pid_stat(5)).
func suspended(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		content, err := os.ReadFile(thread) //nolint:gosec // a path of the kernel's
		if err != nil {
			return err
		}
		// The state is behind the name, which is in parentheses and may hold any.
		if !bytes.HasPrefix(content[bytes.LastIndexByte(content, ')')+1:], []byte(" T ")) {
			return errRunning
		}
	}
	return nil
}
