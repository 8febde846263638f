package active

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
)

// TestProgramPagesAreReleased maps the program once more and reads all of it. After an
// activation it is not resident any more, and can be read again. A mapping that was modified
// before it became read-only, as dynamic linkers do, keeps its content.
func TestProgramPagesAreReleased(t *testing.T) {
	content, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	read := mapProgram(t, len(content), unix.PROT_READ)
	modified := mapProgram(t, len(content), unix.PROT_READ|unix.PROT_WRITE)
	modified[0]++
	must(t, unix.Mprotect(modified, unix.PROT_READ))
	if !bytes.Equal(read, content) || residentSize(t, read) == "0 kB" {
		t.Fatal("the mapping is not the program, or not resident")
	}
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		u := Active{Log: log, Metrics: telemetry.New(log, "v1")}
		u.activate(configured(t, "good", "true"))
		time.Sleep(releaseDelay)
		synctest.Wait()
	})

	if size := residentSize(t, read); size != "0 kB" {
		t.Errorf("%s of the mapping are resident, want none", size)
	}
	if !bytes.Equal(read, content) {
		t.Error("the content of the program has changed")
	}
	if modified[0] != content[0]+1 || !bytes.Equal(modified[1:], content[1:]) {
		t.Error("a modified mapping has lost its content")
	}
}

// Writable mappings, modified ones, also in swap, those of other files, and those of which not all is read are not released.
func TestUnmodifiedMappings(t *testing.T) {
	const smaps = `00400000-00402000 r-xp 00000000 fe:00 42                                 /opt/my programs/gatehouse
Size:                  8 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
00402000-00403000 r--p 00002000 fe:00 42                                 /opt/my programs/gatehouse
Anonymous:             4 kB
Swap:                  0 kB
00403000-00404000 r--p 00003000 fe:00 42                                 /opt/my programs/gatehouse
Anonymous:             0 kB
Swap:                  4 kB
00404000-00405000 rw-p 00004000 fe:00 42                                 /opt/my programs/gatehouse
Anonymous:             0 kB
Swap:                  0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 42                         /opt/my programs/gatehouse
Anonymous:             0 kB
Swap:                  0 kB
7f0000001000-7f0000002000 r--p 00000000 fe:00 43                         /lib/libc.so.6
Anonymous:             0 kB
Swap:                  0 kB
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
Anonymous:             4 kB
Swap:                  0 kB
`
	want := []mapping{{0x400000, 0x402000}, {0x7f0000000000, 0x7f0000001000}}
	if got := unmodifiedMappings(strings.NewReader(smaps), "/opt/my programs/gatehouse"); !slices.Equal(got, want) {
		t.Errorf("mappings %x, want %x", got, want)
	}
	withoutAnonymous, _, _ := strings.Cut(smaps, "Anonymous:")
	withoutSwap, _, _ := strings.Cut(smaps, "Swap:")
	for _, incomplete := range []string{withoutAnonymous, withoutSwap, smaps + strings.Repeat("x", bufio.MaxScanTokenSize)} {
		if got := unmodifiedMappings(strings.NewReader(incomplete), "/opt/my programs/gatehouse"); got != nil {
			t.Errorf("%.40q…: mappings %x, want none", incomplete, got)
		}
	}
}

// residentSize returns how much of a mapping is resident, as the kernel writes it.
func residentSize(t *testing.T, mapping []byte) string {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	must(t, err)
	_, after, _ := strings.Cut("\n"+string(smaps), fmt.Sprintf("\n%08x-", uintptr(unsafe.Pointer(&mapping[0]))))
	_, after, _ = strings.Cut(after, "\nRss:")
	size, _, found := strings.Cut(after, "\n")
	if !found {
		t.Fatal("the mapping is not listed")
	}
	return strings.TrimSpace(size)
}

// mapProgram maps the program file privately until the test ends.
func mapProgram(t *testing.T, size, protection int) []byte {
	t.Helper()
	file, err := os.Open("/proc/self/exe")
	must(t, err)
	defer file.Close() //nolint:errcheck // only read
	m, err := unix.Mmap(int(file.Fd()), 0, size, protection, unix.MAP_PRIVATE)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Munmap(m)) })
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
