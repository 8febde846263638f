package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is a terminal with a program in it.
type screen struct {
	keyboard *os.File
	// tty is the program's side, kept open to look at its state.
	tty  *os.File
	done chan error

	mu   sync.Mutex
	text bytes.Buffer
}

// onScreen runs the program in a terminal of its own, as a person does. With
// redirect, standard output is the file of that name.
func onScreen(t *testing.T, redirect string, args ...string) *screen {
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
	s := &screen{keyboard: keyboard, tty: tty, done: make(chan error, 1)}
	cmd := exec.CommandContext(t.Context(), "gatehouse", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if redirect != "" {
		out, err := os.Create(redirect)
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
	go func() { s.done <- cmd.Wait() }()
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

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// echoes tells whether the terminal shows what is typed.
func (s *screen) echoes(t *testing.T) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// until waits for what a test waits for.
func (s *screen) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) { // polled with a deadline
		if time.Now().After(deadline) {
			t.Fatalf("%s: not seen on\n%s", what, s)
		}
	}
}

// shows waits for a text on the screen.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	s.until(t, text, func() bool { return strings.Contains(s.String(), text) })
}

// types types when a prompt is there, hidden or not.
func (s *screen) types(t *testing.T, prompt string, hidden bool, text string) {
	t.Helper()
	s.shows(t, prompt)
	s.until(t, "the echo", func() bool { return s.echoes(t) != hidden })
	if _, err := s.keyboard.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestLoginOnATerminal(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	cache := filepath.Join(t.TempDir(), "cache")
	s := onScreen(t, "", "login", "--server", l.URL, "--server-ca-data", l.ca(), "--cache-dir", cache)
	s.types(t, "User name at "+l.URL+": ", false, "jane\n")
	s.types(t, "Password of jane at "+l.URL+": ", true, "typo typo\n")
	s.shows(t, "wrong name or password")
	s.until(t, "a second prompt", func() bool { return strings.Count(s.String(), "Password of jane") == 2 })
	s.types(t, "Password of jane", true, janesPassword+"\n")
	if err := <-s.done; err != nil {
		t.Fatalf("%v:\n%s", err, s)
	}
	s.shows(t, "logged in at "+l.URL+" as jane until ")
	for _, secret := range []string{"typo typo", janesPassword, janesToken} {
		if strings.Contains(s.String(), secret) {
			t.Errorf("%q is on the screen:\n%s", secret, s)
		}
	}
	if !s.echoes(t) {
		t.Error("the terminal stays silent")
	}

	s = onScreen(t, "", "login", "--server", l.URL, "--server-ca-data", l.ca(), "--cache-dir", cache, "-o", "token")
	s.shows(t, "standard output is a terminal, where a token stays to be read")
	if err := <-s.done; err == nil || strings.Contains(s.String(), janesToken) {
		t.Errorf("%v:\n%s", err, s)
	}
	file := filepath.Join(t.TempDir(), "token")
	s = onScreen(t, file, "login", "--server", l.URL, "--server-ca-data", l.ca(), "--cache-dir", cache, "-o", "token")
	if err := <-s.done; err != nil {
		t.Fatalf("%v:\n%s", err, s)
	}
	if token, err := os.ReadFile(file); err != nil || string(token) != janesToken+"-1\n" {
		t.Errorf("%q, %v", token, err)
	}
}

// Ctrl-C at a prompt ends the login, and the terminal shows again what is typed.
func TestLoginIsInterrupted(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	s := onScreen(t, "", l.flags(filepath.Join(t.TempDir(), "cache"))...)
	s.types(t, "Password of jane at ", true, "\x03")
	if err := <-s.done; err == nil {
		t.Error("it was not interrupted")
	}
	s.shows(t, "gatehouse: interrupted")
	if !s.echoes(t) || len(l.requests) != 0 {
		t.Errorf("echo: %v, requests: %v", s.echoes(t), l.requests)
	}
}
