package offline

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// compiledHead is the first line of a file that compile has written. No line of three dashes follows: it would make the comment a document of its
// own, which the API server refuses in files.
const compiledHead = "# compiled by gatehouse compile: change its source\n"

// compiledSeparator is between the documents of a file.
const compiledSeparator = "---\n"

// The directories below -o DIR with --static: each plugin of the API server reads one of its own.
const (
	validatingDirectory = "validating-policies"
	mutatingDirectory   = "mutating-policies"
)

// files returns the files of -o DIR: one for each source, with the name of its first document.
func (f *compileFlags) files(out *compile.Output) (map[string][]byte, error) {
	paths, documents := map[string]string{}, map[string][]compile.Document{}
	for i := range out.Documents {
		d := out.Documents[i]
		directory := ""
		if f.static {
			if directory = validatingDirectory; d.MutatingPolicy != nil || d.MutatingBinding != nil {
				directory = mutatingDirectory
			}
		}
		key := directory + "/" + d.From
		if paths[key] == "" {
			paths[key] = filepath.Join(f.output, directory, d.PolicyName()+".yaml")
		}
		documents[paths[key]] = append(documents[paths[key]], d)
	}
	texts := map[string][]byte{}
	for path, of := range documents {
		text, err := compiledText(of)
		if err != nil {
			return nil, err
		}
		texts[path] = append([]byte(compiledHead), text...)
	}
	return texts, nil
}

// directory writes the files that would change, or says with --check which these are and fails. It says what an earlier run wrote and this one
// does not.
func (f *compileFlags) directory(s cli.Streams, out *compile.Output, now time.Time) error {
	texts, err := f.files(out)
	if err != nil {
		return err
	}
	before, err := f.written(texts)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, format+"\n", args...) } // the exit code says it, too
	changed, kept := 0, map[string]bool{}
	for i := range out.Documents {
		kept[compiledName(out.Documents[i].Object())] = true
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		if old, is := before[path]; is && bytes.Equal(old, texts[path]) {
			continue
		}
		changed++
		if !f.check {
			if err := writeCompiledFile(path, texts[path]); err != nil {
				return err
			}
			continue
		}
		why := "would change"
		if before[path] == nil {
			why = "is missing"
		}
		for _, o := range compiledObjects(before[path]) {
			expires := o.GetAnnotations()[compile.ExpiresAnnotation]
			if at, err := time.Parse(time.RFC3339, expires); err == nil && !now.Before(at) {
				why = "has an exception that ended at " + expires
			}
		}
		say("%s: %s", cli.OneLine(path), why)
	}
	var gone []string
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if texts[path] == nil {
			changed++
			say("%s: is no longer made: remove it", cli.OneLine(path))
			if f.static {
				gone = append(gone, shell.Quote(path))
			}
		}
		if f.static || bytes.Equal(texts[path], before[path]) {
			continue
		}
		for _, o := range compiledObjects(before[path]) {
			if name := compiledName(o); !kept[name] {
				gone = append(gone, shell.Quote(name))
			}
		}
	}
	switch {
	case f.prune && len(gone) > 0:
		if _, err := fmt.Fprintln(s.Out, strings.Join(gone, "\n")); err != nil {
			return err
		}
	case len(gone) > 0 && !f.static:
		say("%s no longer made: kubectl delete %s", diagnostic.Count(len(gone), "object"), strings.Join(gone, " "))
	}
	if changed == 0 || !f.check {
		return nil
	}
	say("%s is not up to date: run %s, then commit or apply the files", cli.OneLine(f.output), f.words())
	return &cli.ExitError{Code: cli.ExitNo}
}

// words returns the command that writes the files.
func (f *compileFlags) words() string {
	words := "gatehouse compile --config " + shell.Quote(f.config) + " -o " + shell.Quote(f.output)
	if f.kubernetes != defaultCompileVersion {
		words += " --kubernetes " + f.kubernetes
	}
	if !slices.Equal(f.excluded, install.ExcludedNamespaces()) {
		words += " --exclude-namespace " + shell.Quote(strings.Join(f.excluded, ","))
	}
	if f.static {
		words += " --static"
	}
	if f.until != "" {
		words += " --until " + shell.Quote(f.until)
	}
	return words
}

// written returns the files that an earlier run wrote. It is an error if another file is where one is to be written.
func (f *compileFlags) written(texts map[string][]byte) (map[string][]byte, error) {
	out := map[string][]byte{}
	directories := []string{f.output}
	if f.static {
		directories = []string{filepath.Join(f.output, validatingDirectory), filepath.Join(f.output, mutatingDirectory)}
	}
	var problems cli.Problems
	if info, err := os.Stat(f.output); err == nil {
		problems.Add(!info.IsDir(), "--output: %q is a file (hint: -o yaml writes to standard output, and -o DIR into a directory)", f.output)
	}
	for _, directory := range directories {
		entries, err := os.ReadDir(directory)
		problems.Add(len(problems) == 0 && err != nil && !errors.Is(err, fs.ErrNotExist), "--output: %q cannot be read: %w", directory, cli.Cause(err))
		for _, entry := range entries {
			path := filepath.Join(directory, entry.Name())
			if filepath.Ext(path) != ".yaml" {
				continue
			}
			text, err := os.ReadFile(path) // #nosec G304 -- the user names the directory
			switch {
			case err == nil && bytes.HasPrefix(text, []byte(compiledHead)):
				out[path] = text
			case texts[path] == nil:
			case err != nil:
				problems.Add(true, "%s: cannot be read: %w", cli.OneLine(path), cli.Cause(err))
			default:
				problems.Add(true, "%s: was not made by gatehouse compile (hint: name another directory)", cli.OneLine(path))
			}
		}
	}
	return out, problems.Err()
}

// writeCompiledFile writes a file, and the directories in which it is.
func writeCompiledFile(path string, text []byte) error {
	const (
		directoryMode = 0o755
		fileMode      = 0o644
	)
	if err := os.MkdirAll(filepath.Dir(path), directoryMode); err != nil { // #nosec G301 -- policies are no secrets
		return fmt.Errorf("--output: %q cannot be created: %w", filepath.Dir(path), cli.Cause(err))
	}
	if err := os.WriteFile(path, text, fileMode); err != nil { // #nosec G306 -- as above
		return fmt.Errorf("%s: cannot be written: %w", cli.OneLine(path), cli.Cause(err))
	}
	return nil
}

// compiledName returns the name of an object as kubectl takes it.
func compiledName(o metav1.Object) string {
	t, _ := meta.TypeAccessor(o) // it has a type
	return strings.ToLower(t.GetKind()) + "/" + o.GetName()
}

// compiledObjects returns the objects in a file. Those that somebody has broken are left out.
func compiledObjects(text []byte) (out []*metav1.PartialObjectMetadata) {
	for document := range bytes.SplitSeq(text, []byte("\n"+compiledSeparator)) {
		o := &metav1.PartialObjectMetadata{}
		if yaml.Unmarshal(document, o) == nil && o.Kind != "" {
			out = append(out, o)
		}
	}
	return out
}
