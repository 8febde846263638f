package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// offlineFlags are what the command line of a command that reads manifests says.
type offlineFlags struct {
	files, workloads []string
	namespace        string
	config           string
}

// add adds the flags to a command.
func (f *offlineFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file or directory of manifests, or - for standard input, which is read without this; repeatable")
	flags.StringArrayVar(&f.workloads, "workload", nil, "further kind that holds a pod, KIND.GROUP=PATH, as in Rollout.argoproj.io=spec.template; repeatable")
	flags.StringVar(&f.namespace, "namespace", "default", "namespace of objects that do not say theirs")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json") // the flag exists, here and below
	_ = cmd.RegisterFlagCompletionFunc("workload", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
}

// addConfig adds the flag for the configuration.
func (f *offlineFlags) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", "directory of documents (required)")
	_ = cmd.MarkFlagRequired("config") // the flag exists
	_ = cmd.MarkFlagDirname("config")
}

// decider is what tells what becomes of a pod.
type decider func(sidecar.Input) sidecar.Decision

// decider is that of the configuration.
func (f *offlineFlags) decider() (decider, error) {
	_, snapshot, found := examine(f.config)
	if err := found.Err(); err != nil {
		return nil, unusable(f.config, err)
	}
	return snapshot.Sidecar.Decide, nil
}

// source is a file of manifests.
type source struct {
	*manifest.File
	// path is where it was read from, and empty for standard input.
	path string
	text []byte
}

// stdinName is what standard input is called in messages.
const stdinName = "standard input"

// maxManifest is the size of the largest file that is read. The largest ones in
// use, all custom resource definitions of an operator in one file, have a few
// MiB.
const maxManifest = 64 << 20

// read reads all manifests. Everything that is wrong with any of them is in the
// error.
func (f *offlineFlags) read(stdin io.Reader) ([]source, error) {
	workloads, err := manifest.NewWorkloads(f.workloads)
	if err != nil {
		return nil, fmt.Errorf("--workload: %w", err)
	}
	paths, err := f.paths(stdin)
	if err != nil {
		return nil, err
	}
	var (
		sources []source
		found   finding.List
		errs    []error
	)
	for _, path := range paths {
		s := source{path: path}
		name := filepath.ToSlash(path)
		if path == "" {
			name = stdinName
			s.text, err = readMost(stdin)
		} else {
			s.text, err = readFile(path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		s.File, err = manifest.Parse(name, s.text, workloads)
		if list, ok := errors.AsType[finding.List](err); ok {
			found = append(found, list...)
		} else if err != nil {
			errs = append(errs, err)
		}
		sources = append(sources, s)
	}
	if err := found.Err(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return sources, nil
}

// paths are the files that are to be read, each once. Standard input is an empty
// one.
func (f *offlineFlags) paths(stdin io.Reader) ([]string, error) {
	names := f.files
	if len(names) == 0 {
		if isTerminalReader(stdin) {
			return nil, errors.New("there is nothing to read (hint: name a file with -f, or pipe manifests to standard input)")
		}
		names = []string{"-"}
	}
	var (
		all  []string
		errs []error
	)
	for _, name := range names {
		if name == "-" {
			all = append(all, "")
			continue
		}
		paths, err := filesOf(name)
		if err != nil {
			errs = append(errs, err)
		}
		all = append(all, paths...)
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(all, func(path string) bool {
		again := seen[path]
		seen[path] = true
		return again
	}), errors.Join(errs...)
}

// filesOf are the files of that name: the file, or those in and below the
// directory, by name. Files and directories whose name begins with a dot are
// left out, and so are directories behind symbolic links.
func filesOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	name = filepath.Clean(name)
	if !info.IsDir() {
		return []string{name}, nil
	}
	var paths []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != name && strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return filepath.SkipDir
		case strings.HasPrefix(entry.Name(), "."), entry.IsDir(), !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))):
			return nil
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return err
		}
		paths = append(paths, path)
		return nil
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: there is no file that ends in .yaml, .yml or .json in or below this directory", name)
	}
	return paths, err
}

func readFile(path string) (text []byte, err error) {
	file, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, errors.Unwrap(err) // which names the path again
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return readMost(file)
}

func readMost(in io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("is larger than %d MiB", maxManifest>>20)
	}
	return text, err
}

// isTerminalReader tells whether a person would have to type.
func isTerminalReader(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && isTerminal(file)
}

// input is what is decided about an object, which holds a pod.
func (f *offlineFlags) input(o *manifest.Object) sidecar.Input {
	namespace := f.namespaceOf(o)
	return sidecar.Input{Namespace: namespace, Pod: o.Pod(namespace), Workload: o.Workload}
}

func (f *offlineFlags) namespaceOf(o *manifest.Object) string {
	if o.Namespace != "" {
		return o.Namespace
	}
	return f.namespace
}

// about is what a command says on standard error, one line an object.
type about struct {
	lines bytes.Buffer
	quiet bool
}

func (a *about) say(o *manifest.Object, format string, args ...any) {
	if !a.quiet {
		_, _ = fmt.Fprintf(&a.lines, "%s: %s: %s\n", o.Source, o.Title(), fmt.Sprintf(format, args...)) // to memory
	}
}

// sum says how many objects were changed.
func (a *about) sum(sources []source) {
	if a.quiet {
		return
	}
	var changed, left, other int
	for _, s := range sources {
		for _, o := range s.Objects {
			switch {
			case o.Changed():
				changed++
			case o.OfKind:
				left++
			default:
				other++
			}
		}
	}
	_, _ = fmt.Fprintf(&a.lines, "%s changed, %d left as they are, %d without a pod\n", count(changed, "object"), left, other) // to memory
}

// noPod says of an object why it holds no pod, where that may surprise.
func (a *about) noPod(o *manifest.Object) {
	switch {
	case o.OfKind:
		a.say(o, "left as it is: %s", o.NoPod)
	case o.Suggestion != "":
		a.say(o, "left as it is: its kind is not known to hold a pod (hint: --workload %s)", o.Suggestion)
	}
}
