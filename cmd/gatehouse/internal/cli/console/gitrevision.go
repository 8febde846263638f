package console

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// The bounds of what is read of a git revision.
const (
	maxGitFiles = 10_000
	maxGitBytes = 64 << 20
)

// repository is a git repository on disk.
type repository struct{ dir string }

// git runs a command that reads objects. It runs no hook and no filter, and fetches nothing.
func (g repository) git(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"--no-pager", "-C", g.dir, "-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false"}, args...)...) // #nosec G204 G702 -- the arguments are fixed, or objects that git has verified
	command.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	out, messages := &limitedBuffer{left: 2 * maxGitBytes}, &limitedBuffer{left: maxForm}
	command.Stdin, command.Stdout, command.Stderr = in, out, messages
	if err := command.Run(); err != nil {
		if text := strings.TrimSpace(messages.String()); text != "" {
			err = errors.New(text)
		}
		return nil, fmt.Errorf("git: %w", err)
	}
	return out.Bytes(), nil
}

// maxForm bounds the messages of a command.
const maxForm = 1 << 20

// repositoryOf returns the repository that holds a directory, and the path of the directory in it.
func repositoryOf(ctx context.Context, dir string) (g repository, below string, err error) {
	g = repository{dir}
	top, err := g.git(ctx, nil, "rev-parse", "--show-toplevel")
	if err != nil {
		return g, "", err
	}
	prefix, err := g.git(ctx, nil, "rev-parse", "--show-prefix")
	if err != nil {
		return g, "", err
	}
	g.dir = strings.TrimRight(string(top), "\r\n")
	return g, path.Clean(strings.TrimRight(string(prefix), "\r\n")), nil
}

// blob is a file of a revision.
type blob struct{ id, path string }

// extract writes the documents of a directory of a revision to a new directory.
func (g repository) extract(ctx context.Context, revision, below, to string) error {
	if !filepath.IsLocal(filepath.FromSlash(below)) {
		return web.BadRequest("%q is not a path in the repository", cli.InertName(below))
	}
	commit, err := g.git(ctx, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return web.NotFound("there is no revision %q in %s", cli.InertName(revision), cli.InertName(g.dir))
	}
	blobs, err := g.list(ctx, strings.TrimSpace(string(commit)), below)
	if err != nil {
		return err
	}
	var ids strings.Builder
	for _, b := range blobs {
		ids.WriteString(b.id + "\n")
	}
	out, err := g.git(ctx, strings.NewReader(ids.String()), "cat-file", "--batch")
	if err != nil {
		return err
	}
	objects := bufio.NewReader(bytes.NewReader(out))
	for _, b := range blobs {
		text, err := nextObject(objects)
		if err != nil {
			return err
		}
		if err := writeBlob(filepath.Join(to, filepath.FromSlash(b.path)), text); err != nil {
			return err
		}
	}
	return nil
}

func writeBlob(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("make a temporary directory: %w", cli.Cause(err))
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("write a temporary file: %w", cli.Cause(err))
	}
	return nil
}

// list returns the regular files below a path of a commit, with paths below it.
func (g repository) list(ctx context.Context, commit, below string) (all []blob, err error) {
	tree := commit
	if below != "." {
		tree += ":" + below
	}
	out, err := g.git(ctx, nil, "ls-tree", "-r", "-l", "-z", "--full-tree", "--end-of-options", tree)
	if err != nil {
		return nil, web.NotFound("there is no directory %q in the revision", cli.InertName(below))
	}
	sum := int64(0)
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		about, name, _ := strings.Cut(entry, "\t")
		fields := strings.Fields(about) // mode, type, id and size
		if len(fields) != 4 || !strings.HasPrefix(fields[0], "100") || !filepath.IsLocal(filepath.FromSlash(name)) {
			continue // a link or another repository
		}
		size, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("git ls-tree: %w", err)
		}
		all = append(all, blob{fields[2], name})
		if sum += size; sum > maxGitBytes || len(all) > maxGitFiles {
			return nil, web.BadRequest("%q has more than %d files or %d MiB (hint: name the directory of the configuration)", cli.InertName(below), maxGitFiles, maxGitBytes>>20)
		}
	}
	return all, nil
}

// nextObject reads an object of "git cat-file --batch".
func nextObject(in *bufio.Reader) ([]byte, error) {
	head, err := in.ReadString('\n')
	fields := strings.Fields(head)
	if err != nil || len(fields) != 3 {
		return nil, errors.New("git cat-file: an object is missing")
	}
	size, err := strconv.Atoi(fields[2])
	if err != nil || size < 0 || size > maxGitBytes {
		return nil, errors.New("git cat-file: an object has no size")
	}
	text := make([]byte, size+1) // and a new line
	if _, err := io.ReadFull(in, text); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	return text[:size], nil
}
