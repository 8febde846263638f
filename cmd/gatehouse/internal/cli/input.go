package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/patherr"
)

// IsTerminalInput reports whether a person would have to type the input.
func IsTerminalInput(r io.Reader) bool {
	file, ok := r.(*os.File)
	return ok && IsTerminal(file)
}

// StdinName is the name of standard input in messages.
const StdinName = "standard input"

// ReadFile returns the content of a file of at most so many MiB. The error does not name the file.
func ReadFile(path string, mib int64) (data []byte, err error) {
	file, err := os.Open(path) // #nosec G304 G703 -- the user names the file
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", Cause(err))
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return ReadInput(file, mib)
}

// ReadInput is ReadFile for what is open.
func ReadInput(in io.Reader, mib int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, mib<<20+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", Cause(err))
	}
	if int64(len(data)) > mib<<20 {
		return nil, fmt.Errorf("is larger than %d MiB", mib)
	}
	return data, nil
}

// ReadToken returns the token in the file of --token-file, or in standard input for "-". No error has the name of the file: who gives
// the token itself, where others can read it, need not find it in a log too. Nothing of the content is in an error either.
func ReadToken(stdin io.Reader, path string) (string, error) {
	const hint = "the name of a file, or - for standard input"
	var data []byte
	var err error
	switch {
	case LooksLikeToken(path):
		return "", errors.New("--token-file: must be the name of a file, and not a token, which others can read on a command line (hint: - for standard input; if it is a real one, revoke it)")
	case path == "-" && IsTerminalInput(stdin):
		return "", errors.New("there is nothing to read (hint: pipe the token to standard input; what is typed would be shown)")
	case path == "-":
		data, err = ReadInput(stdin, 1)
	default:
		data, err = ReadFile(path, 1)
	}
	token := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "", fmt.Errorf("--token-file: %w (hint: %s)", err, hint)
	case len(data) == 0:
		return "", errors.New("--token-file: is empty: must hold one token (hint: did the command that wrote it fail?)")
	case strings.HasPrefix(token, "{"):
		return "", errors.New("--token-file: holds JSON and not a token alone (hint: jq -r .status.token, for what a credential plugin prints)")
	case token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("--token-file: must hold one token, without white space in it")
	}
	return token, nil
}

// Cause is patherr.Cause.
func Cause(err error) error { return patherr.Cause(err) }

// CheckDir returns an error if the value of a flag is not a directory.
func CheckDir(flag, dir string) error {
	info, err := os.Stat(dir) // #nosec G703 -- the user names the directory
	if err != nil {
		return fmt.Errorf("%s: %q cannot be read: %w (hint: name an existing directory)", flag, dir, Cause(err))
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %q is not a directory", flag, dir)
	}
	return nil
}
