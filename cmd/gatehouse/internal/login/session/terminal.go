package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/term"
)

// maxTypedBytes bounds a name or a password.
const maxTypedBytes = 4 << 10

// Terminal asks on the terminal of the process, whatever its standard streams
// are: kubectl takes the standard output of a plugin.
type Terminal struct{}

// Username implements Prompter.
func (Terminal) Username(ctx context.Context, who string) (string, error) {
	return onTerminal(ctx, "User name at "+who+": ", false)
}

// Password implements Prompter.
func (Terminal) Password(ctx context.Context, who string) (string, error) {
	return onTerminal(ctx, "Password of "+who+": ", true)
}

// Again implements Prompter.
func (Terminal) Again(why string) bool {
	in, out, err := openTerminal()
	if err != nil {
		return false
	}
	defer closeTerminal(in, out)
	_, err = fmt.Fprintln(out, why)
	return err == nil
}

// onTerminal shows a prompt and reads, a secret without showing it. If the context ends, the terminal is put
// back as it was, and the read is left to the end of the process.
func onTerminal(ctx context.Context, prompt string, secret bool) (string, error) {
	in, out, err := openTerminal()
	if err != nil {
		return "", errors.Join(ErrNeedsPerson, err)
	}
	state, err := term.GetState(int(in.Fd()))
	if err != nil {
		closeTerminal(in, out)
		return "", errors.Join(ErrNeedsPerson, err)
	}
	if _, err = io.WriteString(out, prompt); err != nil {
		closeTerminal(in, out)
		return "", err
	}
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		if !secret {
			text, err := readLine(in)
			done <- result{text, err}
			return
		}
		text, err := term.ReadPassword(int(in.Fd()))
		done <- result{string(text), err}
	}()
	select {
	case r := <-done:
		_, _ = io.WriteString(out, "\n")
		closeTerminal(in, out)
		if errors.Is(r.err, io.EOF) {
			r.err = errors.New("nothing was entered")
		}
		return r.text, r.err
	case <-ctx.Done():
		_ = term.Restore(int(in.Fd()), state)
		_, _ = io.WriteString(out, "\n")
		return "", context.Cause(ctx)
	}
}

// openTerminal opens the terminal of the process.
func openTerminal() (in, out *os.File, err error) {
	input, output := "/dev/tty", "/dev/tty"
	if runtime.GOOS == "windows" {
		input, output = "CONIN$", "CONOUT$"
	}
	if in, err = os.OpenFile(input, os.O_RDWR, 0); err != nil {
		return nil, nil, fmt.Errorf("there is no terminal: %w", err)
	}
	if out, err = os.OpenFile(output, os.O_RDWR, 0); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("there is no terminal: %w", err), in.Close())
	}
	return in, out, nil
}

// closeTerminal closes what was only read from and written prompts to.
func closeTerminal(in, out *os.File) {
	_ = in.Close()
	_ = out.Close()
}

// ScriptInput is a Prompter with answers from a script.
type ScriptInput struct {
	// Secret is what the password is read from: its first line.
	Secret io.Reader
}

// Username implements Prompter. A script gives the name by other means.
func (ScriptInput) Username(context.Context, string) (string, error) {
	return "", errors.New("the user name is empty")
}

// Password implements Prompter.
func (g ScriptInput) Password(context.Context, string) (string, error) {
	return readLine(g.Secret)
}

// Again implements Prompter.
func (ScriptInput) Again(string) bool { return false }

// readLine reads a line, or what there is of it, without its end.
func readLine(r io.Reader) (string, error) {
	text, err := bufio.NewReader(io.LimitReader(r, maxTypedBytes+1)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if len(text) > maxTypedBytes {
		return "", fmt.Errorf("a line is longer than %d bytes", maxTypedBytes)
	}
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), nil
}
