package offline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// changeFlags are what the command line of a command that changes manifests
// says about the result.
type changeFlags struct {
	offlineFlags
	output         string
	inPlace, quiet bool
}

// outputs are the values of --output; the first is the default.
func (*changeFlags) outputs() []string { return []string{"yaml", "diff", "patch"} }

func (f *changeFlags) add(cmd *cobra.Command) {
	f.offlineFlags.add(cmd)
	cmd.Flags().BoolVarP(&f.inPlace, "in-place", "i", false, "write the changed files instead of printing them")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "say nothing on standard error but errors")
	cli.AddOutputFlag(cmd, &f.output, f.outputs()...)
}

// check reports everything that is wrong with the flags of a command at once.
func (f *changeFlags) check(cmd *cobra.Command) error {
	var errs []error
	if f.inPlace && cmd.Flags().Changed("output") {
		errs = append(errs, errors.New("-i and -o cannot be given together"))
	}
	switch f.output {
	case "yaml", "diff", "patch":
	default:
		errs = append(errs, cli.OutputError(f.output, f.outputs()...))
	}
	if f.inPlace {
		for _, name := range f.files {
			if name == "-" {
				errs = append(errs, errors.New("--in-place needs files, and - is standard input"))
			}
		}
		if len(f.files) == 0 {
			errs = append(errs, errors.New("--in-place needs files (hint: name them with -f)"))
		}
	}
	return errors.Join(errs...)
}

// finish makes the new texts, writes them where they belong, and then says what
// there is to say. Nothing is written unless all of them could be made. Where
// tells where aliases may have been written out.
func (f *changeFlags) finish(s cli.Streams, sources []source, said *about, where string) error {
	texts := make([][]byte, len(sources))
	var found diagnostic.List
	for i, s := range sources {
		text, err := s.Text()
		if list, ok := errors.AsType[diagnostic.List](err); ok {
			found = append(found, list...)
		} else if err != nil {
			return err
		}
		texts[i] = text
	}
	if err := found.Err(); err != nil {
		return err
	}
	if err := f.write(s.Out, sources, texts); err != nil {
		return err
	}
	if f.inPlace || f.output != "patch" {
		said.writtenOut(sources, where)
	}
	said.sum(sources)
	_, err := s.Err.Write(said.lines.Bytes())
	return err
}

func (f *changeFlags) write(out io.Writer, sources []source, texts [][]byte) error {
	switch {
	case f.inPlace:
		return writeFiles(sources, texts)
	case f.output == "diff":
		return writeDiffs(out, sources, texts)
	case f.output == "patch":
		return writePatches(out, sources, f.namespaceOf)
	default:
		return writeYAML(out, sources, texts)
	}
}

// writeYAML writes all files as one stream of documents.
func writeYAML(out io.Writer, sources []source, texts [][]byte) error {
	buffered := bufio.NewWriter(out)
	for i, text := range texts {
		if i > 0 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
			if len(texts[i-1]) > 0 && !bytes.HasSuffix(texts[i-1], []byte("\n")) {
				_ = buffered.WriteByte('\n') // Flush has the error, here and below
			}
			if sources[i-1].HasContent() && sources[i].HasContent() && !sources[i].Marked() && (!sources[i-1].IsJSON() || !sources[i].IsJSON()) {
				_, _ = buffered.WriteString("---\n")
			}
		}
		_, _ = buffered.Write(text)
	}
	return buffered.Flush()
}

// writeDiffs writes a unified diff of each file that changed, with names that
// patch -p1 and git apply understand.
func writeDiffs(out io.Writer, sources []source, texts [][]byte) error {
	buffered := bufio.NewWriter(out)
	colour := cli.IsTerminal(out)
	for i, s := range sources {
		name := "stdin"
		if s.path != "" {
			name = strings.TrimPrefix(filepath.ToSlash(s.path), "/")
		}
		text := unnumbered(diff.Diff("a/"+name, numbered(s.text), "b/"+name, numbered(texts[i])))
		if colour {
			text = coloured(text)
		}
		_, _ = buffered.Write(text) // Flush has the error
	}
	return buffered.Flush()
}

// endOfNumber stands in no text that can be read.
const endOfNumber = "\x00"

// numbered is a text with the number of its document in front of each line, which
// no change of an object moves. The diff is anchored at lines that occur once,
// and without this, of two like objects in a file few lines would.
func numbered(text []byte) []byte {
	var out bytes.Buffer
	document := 0
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("---")) {
			document++
		}
		out.WriteString(strconv.Itoa(document) + endOfNumber)
		out.Write(line)
	}
	return out.Bytes()
}

// unnumbered is a diff of numbered texts without the numbers.
func unnumbered(text []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		if _, rest, ok := bytes.Cut(line, []byte(endOfNumber)); ok {
			out.WriteByte(line[0])
			line = rest
		}
		out.Write(line)
	}
	return out.Bytes()
}

// coloured is a diff in the colours that every terminal has.
func coloured(text []byte) []byte {
	const (
		bold, red, green, cyan = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m"
		reset                  = "\x1b[0m"
	)
	var out bytes.Buffer
	hunks := false
	for line := range bytes.Lines(text) {
		colour := ""
		switch {
		case bytes.HasPrefix(line, []byte("@@")):
			colour, hunks = cyan, true
		case !hunks:
			colour = bold
		case line[0] == '-':
			colour = red
		case line[0] == '+':
			colour = green
		}
		if colour == "" {
			out.Write(line)
			continue
		}
		content, ended := bytes.CutSuffix(line, []byte("\n"))
		out.WriteString(colour)
		out.Write(content)
		if out.WriteString(reset); ended {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// patchLine is the patch of one object.
type patchLine struct {
	place
	Patch json.RawMessage `json:"patch"`
}

// place is which object is meant.
type place struct {
	File     string `json:"file"`
	Document int    `json:"document"`
	// Item is the place of an object of a list in the document.
	Item      string `json:"item,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func placeOf(s source, o *manifest.Object, namespace string) place {
	return place{File: s.Name, Document: o.Document, Item: o.Item, Kind: o.Kind, Namespace: namespace, Name: o.Name}
}

func writePatches(out io.Writer, sources []source, namespaceOf func(*manifest.Object) string) error {
	buffered := bufio.NewWriter(out)
	lines := json.NewEncoder(buffered)
	lines.SetEscapeHTML(false)
	for _, s := range sources {
		for _, o := range s.Objects {
			if !o.Changed() {
				continue
			}
			if err := lines.Encode(patchLine{placeOf(s, o, namespaceOf(o)), o.Patch()}); err != nil {
				return err
			}
		}
	}
	return buffered.Flush()
}

// writeFiles writes the files that changed.
func writeFiles(sources []source, texts [][]byte) error {
	var errs []error
	for i, s := range sources {
		if !bytes.Equal(s.text, texts[i]) {
			if err := replaceFile(s.path, texts[i]); err != nil {
				errs = append(errs, fmt.Errorf("%s: cannot be written: %w", s.Name, cli.Cause(err)))
			}
		}
	}
	return errors.Join(errs...)
}

// replaceFile puts a file with the same mode in the place of another. Whatever
// happens, one of the two is there and whole. A symbolic link stays, and the file
// that it leads to is replaced.
func replaceFile(path string, text []byte) (err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // what went wrong first is reported
			_ = os.Remove(file.Name())
		}
	}()
	if _, err = file.Write(text); err != nil {
		return err
	}
	if err = file.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if err = file.Sync(); err != nil {
		return err
	}
	if err = file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// violationLine returns a violation on one line, without its effect.
func violationLine(v *policy.Violation) string {
	text := ruleText(v) + ": " + cli.OneLine(v.Message)
	if v.Exception != "" {
		text += " (PolicyException " + strict.Printable(v.Exception) + ")"
	}
	return text
}

// ruleText names the rule and the policy of a violation. Injection can refuse a pod without a profile.
func ruleText(v *policy.Violation) string {
	text := v.Kind + " " + strict.Printable(v.Policy)
	rule := v.Rule
	if v.Kind == admit.InjectionKind && v.Policy == "" {
		text, rule = "sidecar injection", ""
	}
	if v.Binding != "" {
		text += " with binding " + strict.Printable(v.Binding)
	}
	for _, part := range []struct{ what, name string }{{"param ", v.Param}, {"template ", v.Template}, {"", rule}} {
		if part.name != "" {
			text += ", " + part.what + strict.Printable(part.name)
		}
	}
	return text
}
