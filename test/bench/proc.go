package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// processTime returns the processor time that a process has used, in user and
// kernel mode: the sum over its threads of the first number of
// /proc/PID/task/TID/schedstat, which counts nanoseconds, where
// /proc/PID/stat counts hundredths of a second. A thread that ends takes its
// time with it; Go's run time does not end the threads that it runs goroutines
// on.
func processTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var total time.Duration
	var read int
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a path of the kernel's, made of a process id
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		first, _, _ := bytes.Cut(text, []byte(" "))
		nanoseconds, err := strconv.ParseInt(string(first), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		total += time.Duration(nanoseconds)
		read++
	}
	if read == 0 {
		return 0, fmt.Errorf("process %d: no /proc/%d/task/*/schedstat: it has ended, or this is not Linux", pid, pid)
	}
	return total, nil
}

// memory is how much of a process is resident, in bytes.
type memory struct {
	Resident int64 `json:"resident"` // now
	Peak     int64 `json:"peak"`     // at most, since it started
}

// processMemory reads /proc/PID/status.
func processMemory(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	return parseStatus(string(text))
}

// parseStatus finds VmRSS and VmHWM in the text of /proc/PID/status.
func parseStatus(text string) (memory, error) {
	var m memory
	for _, field := range []struct {
		name  string
		value *int64
	}{{"VmRSS:", &m.Resident}, {"VmHWM:", &m.Peak}} {
		_, rest, found := strings.Cut(text, field.name)
		line, _, _ := strings.Cut(rest, "\n")
		number, isKilobytes := strings.CutSuffix(strings.TrimSpace(line), " kB")
		kilobytes, err := strconv.ParseInt(number, 10, 64)
		if !found || !isKilobytes || err != nil {
			return memory{}, fmt.Errorf("status of a process: no %s in kB", field.name)
		}
		*field.value = kilobytes << 10
	}
	return m, nil
}

// settledTime is processTime once the process has put down its work: the kernel
// brings a thread's time up to date when the thread stops, or at its next tick, 1
// to 4 ms away.
func settledTime(pid int) (time.Duration, error) {
	const settle = 5 * time.Millisecond
	<-time.After(settle)
	return processTime(pid)
}
