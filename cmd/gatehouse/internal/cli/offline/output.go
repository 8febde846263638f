package offline

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// changeFlags are the flags of a command that changes manifests.
type changeFlags struct {
	manifestFlags
	output         string
	inPlace, quiet bool
}

func (f *changeFlags) add(cmd *cobra.Command, outputs ...string) {
	f.manifestFlags.add(cmd)
	cmd.Flags().BoolVarP(&f.inPlace, "in-place", "i", false, "write the result into the files in place of printing it")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print only errors on standard error")
	cli.AddOutputFlag(cmd, &f.output, append([]string{"yaml", "diff"}, outputs...)...)
}

// notes returns what notes are written to.
func (f *changeFlags) notes(s cli.Streams) io.Writer {
	if f.quiet {
		return io.Discard
	}
	return s.Err
}

// check returns everything that is wrong with the flags.
func (f *changeFlags) check(cmd *cobra.Command) error {
	var errs cli.Problems
	rendered := len(f.kustomizations) > 0
	errs.Add(f.inPlace && cmd.Flags().Changed("output"), "-i and -o cannot be given together")
	errs.Add(rendered && (f.inPlace || f.output == "diff"), "-i and -o diff are for files, and not for what -k renders")
	errs.Add(!rendered && f.inPlace && len(f.files) == 0, "--in-place needs files (hint: name them with -f)")
	errs.Add(!rendered && f.inPlace && slices.Contains(f.files, "-"), "--in-place needs files, and - is standard input")
	return errs.Err()
}

// finish writes the changed texts, and then the log. Nothing is written unless all texts could be made.
func (f *changeFlags) finish(s cli.Streams, sources []source, log *changeLog) error {
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
	err := found.Err()
	switch {
	case err != nil:
	case f.inPlace:
		err = writeFiles(sources, texts)
	case f.output == "diff":
		err = writeDiffs(s.Out, sources, texts)
	default:
		err = writeYAML(s.Out, sources, texts)
	}
	if err != nil {
		return err
	}
	log.addSum(sources)
	_, err = f.notes(s).Write(log.lines.Bytes())
	return err
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
	for i, s := range sources {
		name := "stdin"
		if s.path != "" {
			name = strings.TrimPrefix(filepath.ToSlash(s.path), "/")
		}
		_, _ = buffered.Write(diff.Diff("a/"+name, s.text, "b/"+name, texts[i])) // Flush has the error
	}
	return buffered.Flush()
}

// place identifies an object of a file.
type place struct {
	File string `json:"file"`
	// Rendered reports whether File is a template of Helm. Lines count in what it renders to.
	Rendered bool `json:"rendered,omitempty"`
	Document int  `json:"document"`
	// Item is the place of an object of a list in the document.
	Item      string `json:"item,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func placeOf(o *manifest.Object, namespace string) place {
	if o.Odd {
		namespace = "" // it is no object
	}
	return place{File: o.File, Rendered: o.Rendered, Document: o.Document, Item: o.Item, Kind: o.Kind, Namespace: namespace, Name: o.Name}
}

// writeFiles writes the files that changed.
func writeFiles(sources []source, texts [][]byte) error {
	var errs []error
	for i, s := range sources {
		if !bytes.Equal(s.text, texts[i]) {
			if err := cli.ReplaceFile(s.path, texts[i]); err != nil {
				errs = append(errs, fmt.Errorf("%s: cannot be written: %w", cli.OneLine(s.Name), cli.Cause(err)))
			}
		}
	}
	return errors.Join(errs...)
}

// changeLog is what a command that changes manifests writes to standard error, a line for each object.
type changeLog struct {
	lines bytes.Buffer
	// anyObject is for a command that changes objects without a pod, too.
	anyObject bool
}

func (l *changeLog) add(o *manifest.Object, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	for _, part := range []string{cmp.Or(o.Title(), o.Item), o.Source} {
		if part != "" {
			line = part + ": " + line
		}
	}
	l.lines.WriteString(cli.OneLine(line) + "\n")
}

// addSum adds how many objects were changed.
func (l *changeLog) addSum(sources []source) {
	var changed, left, other int
	for o := range objectsIn(sources) {
		switch {
		case o.Changed():
			changed++
		case mayHoldPod(o), l.anyObject:
			left++
		default:
			other++
		}
	}
	are := "left as they are"
	if left == 1 {
		are = "left as it is"
	}
	_, _ = fmt.Fprintf(&l.lines, "%s changed, %d %s", diagnostic.Count(changed, "object"), left, are) // to memory, here and below
	if !l.anyObject {
		_, _ = fmt.Fprintf(&l.lines, ", %d without a pod", other)
	}
	l.lines.WriteByte('\n')
}

// mayHoldPod reports whether it may be a surprise that an object holds no pod.
func mayHoldPod(o *manifest.Object) bool { return o.OfKind || o.Odd || o.LooksLikeWorkload }

// addNoPod adds why an object holds no pod, where that may be a surprise.
func (l *changeLog) addNoPod(o *manifest.Object) {
	if mayHoldPod(o) {
		l.add(o, "left as it is: %s", noPod(o))
	}
}

// noPod returns why an object holds no pod.
func noPod(o *manifest.Object) string {
	if o.LooksLikeWorkload {
		return podHint
	}
	return o.NoPod
}

// titleOf returns the name of an object in output, or the place of what is no object.
func titleOf(o *manifest.Object) string {
	return cmp.Or(o.Title(), o.Item, "document "+strconv.Itoa(o.Document))
}
