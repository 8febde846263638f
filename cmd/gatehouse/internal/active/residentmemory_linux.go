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
// a dynamic linker has relocated addresses or a debugger has set breakpoints.
func unmodifiedMappings(smaps io.Reader, file string) []mapping {
	var found []mapping
	ofFile := false // the sizes that follow are of the last mapping found
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"): // start-end permissions offset device inode path
			start, end, _ := strings.Cut(fields[0], "-")
			from, err := strconv.ParseUint(start, 16, strconv.IntSize)
			to, invalid := strconv.ParseUint(end, 16, strconv.IntSize)
			ofFile = err == nil && invalid == nil && strings.HasPrefix(fields[1], "r-") && strings.Join(fields[5:], " ") == file
			if ofFile {
				found = append(found, mapping{uintptr(from), uintptr(to)})
			}
		case ofFile && len(fields) >= 2 && (fields[0] == "Anonymous:" || fields[0] == "Swap:") && fields[1] != "0":
			found, ofFile = found[:len(found)-1], false
		}
	}
	return found
}
