// Package terminal runs the program "gatehouse" in a terminal of its own, in tests.
package terminal

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Screen is a terminal in which the program runs.
type Screen struct {
	// Keyboard is what a person types on.
	Keyboard *os.File
	// tty is the program's side, kept open to look at its state.
	tty *os.File
	// Done receives the result of the program.
	Done chan error

	mu   sync.Mutex
	text bytes.Buffer
}

// OnScreen runs the program "gatehouse" of the test's PATH in a terminal of its own, as a person does. With redirect, standard output is the file of
// that name.
func OnScreen(t *testing.T, redirect string, args ...string) *Screen {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	s := &Screen{Keyboard: keyboard, tty: tty, Done: make(chan error, 1)}
	cmd := exec.CommandContext(t.Context(), "gatehouse", args...) // #nosec G204 -- arguments of a test
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if redirect != "" {
		out, err := os.Create(redirect) // #nosec G304 -- a file of a test
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = out.Close() }() // the program has its own
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.Done <- cmd.Wait() }()
	go func() {
		piece := make([]byte, 4096)
		for {
			n, err := keyboard.Read(piece)
			s.mu.Lock()
			s.text.Write(piece[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *Screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Echoes reports whether the terminal shows what is typed.
func (s *Screen) Echoes(t *testing.T) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// Until polls until a condition holds, for at most a minute.
func (s *Screen) Until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) { // polled with a deadline
		if time.Now().After(deadline) {
			t.Fatalf("%s: not seen on\n%s", what, s)
		}
	}
}

// Shows waits for a string on the screen.
func (s *Screen) Shows(t *testing.T, text string) {
	t.Helper()
	s.Until(t, text, func() bool { return strings.Contains(s.String(), text) })
}

// Types types a text once a prompt is shown. Whether what is typed is hidden must be so by then.
func (s *Screen) Types(t *testing.T, prompt string, hidden bool, text string) {
	t.Helper()
	s.Shows(t, prompt)
	if s.Echoes(t) == hidden {
		t.Errorf("at the prompt %q, what is typed is shown: %t", prompt, hidden)
	}
	if _, err := s.Keyboard.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
