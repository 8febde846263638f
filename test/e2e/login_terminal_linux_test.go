package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// terminal is a pseudo-terminal with somebody at it.
type terminal struct {
	person, program *os.File

	mu sync.Mutex
	// shown is everything that is to be seen.
	shown bytes.Buffer
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { _ = person.Close() })
	connection, err := person.SyscallConn()
	must(t, err)
	var number int
	var failure error
	must(t, connection.Control(func(descriptor uintptr) {
		failure = unix.IoctlSetPointerInt(int(descriptor), unix.TIOCSPTLCK, 0)
		if failure == nil {
			number, failure = unix.IoctlGetInt(int(descriptor), unix.TIOCGPTN)
		}
	}))
	must(t, failure)
	program, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = program.Close() })
	screen := &terminal{person: person, program: program}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := person.Read(buffer)
			screen.mu.Lock()
			screen.shown.Write(buffer[:n])
			screen.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return screen
}

// seen returns everything that is to be seen.
func (s *terminal) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// answer waits until the last line asks for something, and types.
func (s *terminal) answer(t *testing.T, question, text string) {
	t.Helper()
	support.Eventually(t, "a question", func() error {
		if !strings.HasSuffix(s.seen(), question) {
			return fmt.Errorf("no %q in %q", question, s.seen())
		}
		return nil
	})
	_, err := s.person.WriteString(text + "\n")
	must(t, err)
}

// terminalTests are those that need a terminal, which only some systems let tests make.
func (p *place) terminalTests() []loginTest { return []loginTest{{"terminal", p.testTerminal}} }

// Who runs kubectl without having logged in is asked at the terminal, and gets what they asked kubectl for.
func (p *place) testTerminal(t *testing.T) {
	d := p.newWorkstation(t)
	screen := newTerminal(t)
	kubectl := d.kubectl(t, "auth", "whoami")
	kubectl.command.Stdin, kubectl.command.Stderr = screen.program, screen.program
	kubectl.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, kubectl.command.Start())
	server := "https://" + p.server.Reviews.String()
	screen.answer(t, "User name at "+server+": ", "jane")
	screen.answer(t, "Password of jane at "+server+": ", p.directory.passwords["jane"])
	kubectl.wait(t).says(t, 0, "ldap:jane")
	if strings.Contains(screen.seen(), p.directory.passwords["jane"]) {
		t.Errorf("the password is to be seen: %q", screen.seen())
	}
	d.isKnownAs(t, "ldap:jane", "ldap:dev", "ldap:eng", "ldap:friends", "ldap:staff")
}
