package gatehouse

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

const (
	cgroups = "/sys/fs/cgroup"
	// memoryRatio is the default of --memory-limit-ratio.
	memoryRatio = 0.9
)

// memoryLimit is what a program may use.
type memoryLimit struct {
	bytes int64
	// group is the directory of the cgroup that has the limit, empty where none can be created.
	group string
}

// newMemoryLimit creates a cgroup with a limit below that of this process. In version 2 a cgroup with processes cannot
// pass controllers on, so that one beside it is tried too.
func newMemoryLimit(bytes int64) *memoryLimit {
	limit := &memoryLimit{bytes: bytes}
	v1, v2 := ownGroups()
	type place struct{ parent, file string }
	var places []place
	if v1 != "" {
		places = append(places, place{filepath.Join(cgroups, "memory", v1), "memory.limit_in_bytes"})
	}
	if v2 != "" {
		places = append(places, place{filepath.Join(cgroups, v2), "memory.max"}, place{filepath.Join(cgroups, filepath.Dir(v2)), "memory.max"})
	}
	for _, place := range places {
		group, err := os.MkdirTemp(place.parent, "gatehouse-test-*")
		if err != nil {
			continue
		}
		file := filepath.Join(group, place.file)
		_, err = os.Stat(file) // without the controller, writing would create nothing, or a mere file
		if err == nil {
			err = os.WriteFile(file, strconv.AppendInt(nil, bytes, 10), 0o600)
		}
		if err == nil {
			limit.group = group
			return limit
		}
		_ = os.Remove(group) // a cgroup is removed as an empty directory
	}
	return limit
}

// ownGroups returns the paths of this process's cgroups: that of the memory controller of version 1, and that of version
// 2. Either may be empty.
func ownGroups() (v1, v2 string) {
	file, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return "", "" // this system has none
	}
	defer file.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(file); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[1] == "memory":
			v1 = parts[2]
		case parts[0] == "0" && parts[1] == "":
			v2 = parts[2]
		}
	}
	return v1, v2
}

// apply makes a program respect the limit.
func (l *memoryLimit) apply(program *cluster.ProcessOptions) {
	switch {
	case l == nil:
	case l.group == "":
		program.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", int64(memoryRatio*float64(l.bytes))))
	default:
		// The shell joins the cgroup and becomes the program.
		const join = `echo $$ > "$0" && exec "$@"`
		program.Args = append([]string{"-c", join, filepath.Join(l.group, "cgroup.procs"), program.Path}, program.Args...)
		program.Path = "/bin/sh"
	}
}

// remove removes the cgroup once its process has ended.
func (l *memoryLimit) remove() {
	if l == nil || l.group == "" {
		return
	}
	err := os.Remove(l.group)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(os.Stderr, "the cgroup of a test remains: %v\n", err)
	}
}
