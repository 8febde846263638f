package offline

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// convertFlags are the flags of convert.
type convertFlags struct {
	manifestFlags
	cluster           cli.ClusterFlags
	output, directory string
	partial           bool
	actions           []string
}

// NewConvertCommand returns the command "gatehouse convert".
func NewConvertCommand(s cli.Streams) *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert FILE|DIR...|--context NAME [-k DIR]...",
		Short: "Convert policies of Kyverno and Gatekeeper",
		Long: `Convert translates policies of Kyverno and Gatekeeper into policies that Gatehouse
decides by. Each rule becomes a ValidatingAdmissionPolicy, an AdmissionPolicy or a
MutatingAdmissionPolicy, and every policy that convert writes compiles.

  Kyverno     ClusterPolicy and Policy with validate and mutate rules, ValidatingPolicy,
              MutatingPolicy, PolicyException, and the tests in kyverno-test.yaml
  Gatekeeper  constraint templates that are written in CEL, with their constraints

Convert leaves nothing out silently. For each rule, standard error says whether it
was converted, where the policy differs, and what has no translation, with its line
and what to write instead. With -o dir it writes a file for each policy and its test
into --directory; -o table and -o json print the report alone.

Exit codes: 0 everything was converted, with differences or without; 1 something was
not; 2 wrong usage, or something cannot be read.`,
		Example: `  # what would become of these policies?
  gatehouse convert policies/ -o table

  # convert them, with their tests, and run the tests
  gatehouse convert policies/ -o dir --directory config
  gatehouse test --config config

  # policies that deny at once, whatever Kyverno did
  gatehouse convert require-labels.yaml --actions Deny > config/require-labels.yaml

  # what is active in a cluster
  gatehouse convert --context prod -o dir --directory config`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := f.options()
			if err != nil {
				return err
			}
			return f.convert(cmd.Context(), s, options)
		},
	}
	f.command = cmd.Name()
	f.namespace = "default"
	addFiles(cmd, &f.files, &f.kustomizations, "policies and tests, or - for standard input (default standard input)")
	flags := cmd.Flags()
	f.cluster.Add(cmd)
	cli.AddOutputFlag(cmd, &f.output, "yaml", "dir", "table", "json")
	flags.StringVar(&f.directory, "directory", "", "directory to write to with -o dir; it is created")
	flags.BoolVar(&f.partial, "partial", false, "also write rules of which a part cannot be converted, if they refuse or warn about more without it, and never less")
	flags.StringSliceVar(&f.actions, "actions", nil, "what a violation leads to, in place of what the policies say: Deny, Warn or Audit; repeatable")
	return cmd
}

// options returns what the flags say.
func (f *convertFlags) options() (convert.Options, error) {
	options := convert.Options{Partial: f.partial}
	allowed := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit}
	for _, name := range f.actions {
		action := admissionregistrationv1.ValidationAction(name)
		if !slices.Contains(allowed, action) || slices.Contains(options.Actions, action) {
			return options, fmt.Errorf("--actions %q: must be of Deny, Warn and Audit, each at most once", cli.OneLine(name))
		}
		options.Actions = append(options.Actions, action)
	}
	switch {
	case slices.Contains(options.Actions, admissionregistrationv1.Deny) && slices.Contains(options.Actions, admissionregistrationv1.Warn):
		return options, errors.New("--actions: Deny and Warn exclude each other: a denial shows the message already")
	case f.output == "dir" && f.directory == "":
		return options, errors.New("--directory is required with -o dir: the directory to write to")
	case f.output != "dir" && f.directory != "":
		return options, errors.New("--directory is for -o dir")
	case f.cluster.Given() && len(f.files)+len(f.kustomizations) > 0:
		return options, errors.New("files and a cluster exclude each other (hint: convert exceptions together with the policies that they name)")
	}
	return options, f.cluster.Check()
}

// convert converts what is read, and writes the result.
func (f *convertFlags) convert(ctx context.Context, s cli.Streams, options convert.Options) error {
	workloads, err := manifest.NewWorkloads()
	if err != nil {
		return err
	}
	options.ReadFile = func(name string) (*manifest.File, error) {
		text, err := cli.ReadFile(filepath.FromSlash(name), maxManifest)
		if err != nil {
			return nil, err
		}
		return manifest.Read(name, text, workloads), nil
	}
	objects, err := f.objects(ctx, s, workloads, &options)
	if err != nil {
		return err
	}
	out := convert.Convert(objects, options)
	if len(out.Results) == 0 {
		return errors.New("there is no policy, constraint template, exception or test of Kyverno or Gatekeeper here (hint: gatehouse lint checks other policies)")
	}
	f.writeSkipped(s.Err)
	if err := f.write(s, out); err != nil {
		return err
	}
	if slices.ContainsFunc(out.Results, func(r convert.Result) bool { return r.Status == convert.Not }) {
		return &cli.ExitError{Code: cli.ExitNo}
	}
	return nil
}

// objects returns what is to be converted, and sets the kinds of the options to those of the cluster.
func (f *convertFlags) objects(ctx context.Context, s cli.Streams, workloads *manifest.Workloads, options *convert.Options) ([]*manifest.Object, error) {
	var read []*manifest.Object
	if f.cluster.Given() {
		access, err := f.cluster.Connect("name files")
		if err != nil {
			return nil, err
		}
		if read, options.Kinds, err = readCluster(ctx, access, workloads); err != nil {
			return nil, err
		}
	} else {
		f.lenient = true
		sources, err := f.read(s.In)
		if err != nil {
			return nil, err
		}
		for _, source := range sources {
			read = append(read, source.Objects...)
		}
	}
	var objects []*manifest.Object
	var unreadable []error
	for _, o := range read {
		if o.Unreadable != nil {
			unreadable = append(unreadable, fmt.Errorf("%s:%d: %s", cli.OneLine(o.File), o.Line(), cli.OneLine(o.Unreadable.Text())))
			continue
		}
		objects = append(objects, o)
	}
	return objects, errors.Join(unreadable...)
}

// write writes the documents and the report.
func (f *convertFlags) write(s cli.Streams, out *convert.Output) error {
	switch f.output {
	case "json":
		return cli.WriteJSON(s.Out, struct {
			Results []convert.Result `json:"results"`
			Others  int              `json:"others"`
		}{out.Results, out.Others})
	case "table":
		return writeConversions(s.Out, out)
	case "dir":
		if err := f.writeDirectory(out); err != nil {
			return err
		}
	default:
		to := bufio.NewWriter(s.Out)
		for i := range out.Documents {
			if i > 0 {
				_, _ = to.WriteString("---\n") // Flush returns errors, here and below
			}
			_, _ = to.Write(withSource(&out.Documents[i]))
		}
		if err := to.Flush(); err != nil {
			return err
		}
	}
	return writeConversions(s.Err, out)
}

// withSource returns a document below a comment with what it was made of.
func withSource(d *convert.Document) []byte {
	return fmt.Appendf(nil, "# converted from %s in %s\n%s", cli.OneLine(d.From), cli.OneLine(d.File), d.Text)
}

// writeDirectory writes a file for each document that was converted, and another for its tests.
func (f *convertFlags) writeDirectory(out *convert.Output) error {
	const (
		directoryMode = 0o755
		fileMode      = 0o644
	)
	if err := os.MkdirAll(f.directory, directoryMode); err != nil { // #nosec G301 -- policies are no secrets
		return fmt.Errorf("--directory: %q cannot be created: %w", f.directory, cli.Cause(err))
	}
	texts := map[string][]byte{}
	var names []string
	for i := range out.Documents {
		d := &out.Documents[i]
		_, name, _ := strings.Cut(d.From, "/")
		if d.Test {
			name += "-test"
		}
		name = fileName(name) + ".yaml"
		if texts[name] == nil {
			names = append(names, name)
		} else {
			texts[name] = append(texts[name], "---\n"...)
		}
		texts[name] = append(texts[name], withSource(d)...)
	}
	for _, name := range names {
		path := filepath.Join(f.directory, name)
		if old, err := os.ReadFile(path); err == nil && !bytes.Equal(old, texts[name]) { // #nosec G304 -- the user names the directory
			return fmt.Errorf("%s: exists with another content (hint: remove it, or name another directory)", cli.OneLine(path))
		}
		if err := os.WriteFile(path, texts[name], fileMode); err != nil { // #nosec G306 -- as above
			return fmt.Errorf("%s: cannot be written: %w", cli.OneLine(path), cli.Cause(err))
		}
	}
	return nil
}

// fileName returns a name without characters that mean something in paths.
func fileName(name string) string {
	const most = 200
	name = strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	return strings.TrimLeft(name[:min(len(name), most)], ".")
}

// writeConversions writes the report for people: a line for each rule, and below it the differences and what has no translation.
func writeConversions(to io.Writer, out *convert.Output) error {
	words := map[convert.Status]string{convert.Converted: "converted", convert.Different: "converted, differs", convert.Not: "NOT converted"}
	counts := map[convert.Status]int{}
	w := bufio.NewWriter(to)
	for i := range out.Results {
		r := &out.Results[i]
		counts[r.Status]++
		of := r.Policy
		if r.Rule != "" {
			of += " rule " + r.Rule
		}
		_, _ = fmt.Fprintf(w, "%s:%d: %s: %s\n", cli.OneLine(r.File), r.Line, words[r.Status], cli.OneLine(of)) // Flush returns errors
		for _, difference := range r.Differences {
			_, _ = fmt.Fprintf(w, "    differs: %s\n", cli.OneLine(difference))
		}
		for _, p := range r.Problems {
			_, _ = fmt.Fprintf(w, "    %s:%d: %s", cli.OneLine(p.File), p.Line, cli.OneLine(p.Construct))
			if p.Instead != "" {
				_, _ = fmt.Fprintf(w, " (instead: %s)", cli.OneLine(p.Instead))
			}
			_, _ = fmt.Fprintln(w)
		}
	}
	_, _ = fmt.Fprintf(w, "%d converted, %d with differences, %d not; %s\n",
		counts[convert.Converted], counts[convert.Different], counts[convert.Not], diagnostic.Count(out.Others, "other document"))
	return w.Flush()
}
