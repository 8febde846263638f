package active

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgramPages unmaps the pages of the program file. Most of them are needed only to
// start and to compile. The kernel maps a page again, from its page cache, when it is next
// used. Errors are ignored: the memory stays as it was, and nothing else depends on it.
func releaseProgramPages() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer file.Close() //nolint:errcheck // only read
	for _, m := range unmodifiedMappings(file, program) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unmodifiedMappings returns the mappings of a file that are not writable and have no modified
// pages, whose content MADV_DONTNEED would lose. A read-only mapping has modified pages where
// a dynamic linker has relocated addresses or a debugger has set breakpoints. There are none if
// not all is read.
func unmodifiedMappings(smaps io.Reader, file string) []mapping {
	var (
		found      []mapping
		last       mapping
		ofFile     bool // the last one is of the file, and not writable
		unmodified bool // and none of its pages in memory is modified
	)
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"): // start-end permissions offset device inode path
			start, end, _ := strings.Cut(fields[0], "-")
			from, err := strconv.ParseUint(start, 16, strconv.IntSize)
			to, invalid := strconv.ParseUint(end, 16, strconv.IntSize)
			last, unmodified = mapping{uintptr(from), uintptr(to)}, false
			ofFile = err == nil && invalid == nil && strings.HasPrefix(fields[1], "r-") && strings.Join(fields[5:], " ") == file
		case len(fields) >= 2 && fields[0] == "Anonymous:":
			unmodified = fields[1] == "0"
		case len(fields) >= 2 && fields[0] == "Swap:" && fields[1] == "0" && ofFile && unmodified:
			found = append(found, last)
		}
	}
	if lines.Err() != nil {
		return nil
	}
	return found
}
