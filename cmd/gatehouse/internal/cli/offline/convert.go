package offline

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// convertFlags are the flags of convert.
type convertFlags struct {
	manifestFlags
	cluster           cli.ClusterFlags
	output, directory string
	partial           bool
	actions           []string
	// unread are documents that cannot be read.
	unread []convert.Problem
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
into --directory, and lints them; -o table and -o json print the report alone.

A policy that occurs twice is written once. Of different policies with one name, all
but the first get a part of their path in their names; bindings and the exceptions and
tests that are nearest to them follow. A document of a directory that cannot be read
is named, and the others are converted: for a Helm chart, pipe what helm template
renders to, and for a kustomization, use -k.

Exit codes: 0 everything was converted, with differences or without; 1 something was
not, or lint finds an error; 2 wrong usage, or a file that you name cannot be read.`,
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
	var errs cli.Problems
	for _, name := range f.actions {
		action := admissionregistrationv1.ValidationAction(name)
		errs.Add(!slices.Contains(allowed, action) || slices.Contains(options.Actions, action), "--actions %q: must be of Deny, Warn and Audit, each at most once", cli.OneLine(name))
		options.Actions = append(options.Actions, action)
	}
	errs.Add(slices.Contains(options.Actions, admissionregistrationv1.Deny) && slices.Contains(options.Actions, admissionregistrationv1.Warn),
		"--actions: Deny and Warn exclude each other: a denial shows the message already")
	errs.Add(f.output == "dir" && f.directory == "", "--directory is required with -o dir: the directory to write to")
	errs.Add(f.output != "dir" && f.directory != "", "--directory is for -o dir")
	errs.Add(f.cluster.Given() && len(f.files)+len(f.kustomizations) > 0,
		"files and a cluster exclude each other (hint: convert exceptions together with the policies that they name)")
	return options, append(errs, f.cluster.Check()).Err()
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
	objects, unnamed, err := f.objects(ctx, s, workloads, &options)
	if err != nil {
		return err
	}
	out := convert.Convert(objects, options) //nolint:contextcheck // limits end it
	if len(out.Results)+len(f.unread) == 0 {
		return cmp.Or(unnamed, errors.New("there is no policy, constraint template, exception or test of Kyverno or Gatekeeper here (hint: gatehouse lint checks other policies)"))
	}
	f.writeSkipped(s.Err)
	found, err := f.write(s, out)
	switch {
	case err != nil || unnamed != nil:
		return cmp.Or(err, unnamed)
	case found || len(f.unread) > 0 || slices.ContainsFunc(out.Results, func(r convert.Result) bool { return len(r.Problems) > 0 }):
		return cli.Exit(cli.ExitNo)
	default:
		return nil
	}
}

// objects returns what is to be converted, and sets the kinds of the options to those of the cluster. unnamed is about files that the
// command names and that cannot be read.
func (f *convertFlags) objects(ctx context.Context, s cli.Streams, workloads *manifest.Workloads, options *convert.Options) (objects []*manifest.Object, unnamed, err error) {
	var sources []source
	if f.cluster.Given() {
		access, failed := f.cluster.Connect("name files")
		if failed == nil {
			objects, options.Kinds, failed = readCluster(ctx, access, workloads)
		}
		return objects, nil, failed
	}
	f.lenient = true
	f.keep = func(o *manifest.Object) bool {
		return convert.IsTest(o) || o.Unreadable != nil && filepath.Ext(o.File) != ".json" // some programs read JSON with comments
	}
	f.missed = func(name string, err error) {
		f.unread = append(f.unread, convert.Problem{Construct: err.Error(), File: name, Line: 1})
	}
	sources, unnamed = f.read(s.In)
	for _, source := range sources {
		readable := len(source.Objects) == 0
		chart := chartOf(source.Name)
		if at := bytes.Index(source.text, []byte("{{")); chart != "" && at >= 0 { // what can be read of it says something else when it is rendered
			f.unread = append(f.unread, convert.Problem{
				Construct: "a template of a Helm chart", File: source.Name, Line: 1 + bytes.Count(source.text[:at], []byte("\n")), Instead: f.helmWords(shell.Quote(chart)),
			})
			continue
		}
		for _, o := range source.Objects {
			if o.Unreadable == nil {
				objects, readable = append(objects, o), true
				continue
			}
			f.unread = append(f.unread, convert.Problem{Construct: o.Unreadable.Message, File: o.File, Line: cmp.Or(o.Unreadable.Line, o.Line()), Instead: o.Unreadable.Hint})
		}
		if !readable && (source.path == "" || slices.ContainsFunc(f.files, func(name string) bool { return filepath.Clean(name) == source.path })) {
			unnamed = errors.Join(unnamed, fmt.Errorf("%s: cannot be read", cli.OneLine(source.Name)))
		}
	}
	return objects, unnamed, nil
}

// write writes the documents and the report. It reports whether lint finds an error in the documents.
func (f *convertFlags) write(s cli.Streams, out *convert.Output) (bool, error) {
	report := f.report(out)
	var err error
	switch f.output {
	case "json":
		return false, cli.WriteJSON(s.Out, report)
	case "table":
		return false, report.write(s.Out)
	case "dir":
		err = f.writeDirectory(out)
	default:
		_, err = s.Out.Write(texts(out, func(*convert.Document) string { return "" })[""])
	}
	if err != nil {
		return false, err
	}
	if err := report.write(s.Err); err != nil || f.output != "dir" || len(out.Documents) == 0 {
		return false, err
	}
	of := lintFlags{configFlag: configFlag{f.directory}, allowEmpty: true}
	linted := of.lintPaths([]string{f.directory}, nil)
	for i := range linted.findings {
		if d := &linted.findings[i]; d.Severity == diagnostic.Error {
			_, _ = fmt.Fprintln(s.Err, d.text()) // best effort, here and below
		}
	}
	if linted.errors > 0 {
		_, _ = fmt.Fprintln(s.Err, linted.summary())
	}
	return linted.errors > 0, nil
}

// texts returns the documents by the names of their files, each below a comment with what it was made of.
func texts(out *convert.Output, file func(*convert.Document) string) map[string][]byte {
	all := map[string][]byte{}
	for i := range out.Documents {
		d := &out.Documents[i]
		name := file(d)
		if all[name] != nil {
			all[name] = append(all[name], "---\n"...)
		}
		all[name] = fmt.Appendf(all[name], "# converted from %s in %s\n%s", cli.OneLine(d.From), cli.OneLine(d.File), d.Text)
	}
	return all
}

// notInFile matches what means something in paths.
var notInFile = regexp.MustCompile(`^\.+|[^-.0-9A-Za-z]`)

// writeDirectory writes a file for each document that was converted, and another for its tests.
func (f *convertFlags) writeDirectory(out *convert.Output) error {
	const (
		directoryMode = 0o755
		fileMode      = 0o644
		mostOfName    = 200
	)
	if err := os.MkdirAll(f.directory, directoryMode); err != nil { // #nosec G301 -- policies are no secrets
		return fmt.Errorf("--directory: %q cannot be created: %w", f.directory, cli.Cause(err))
	}
	files := texts(out, func(d *convert.Document) string {
		_, name, _ := strings.Cut(d.From, "/")
		if d.Kind == "Test" {
			name += "-test"
		}
		name = notInFile.ReplaceAllString(name, "-")
		return name[:min(len(name), mostOfName)] + ".yaml"
	})
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(f.directory, name)
		if old, err := os.ReadFile(path); err == nil && !bytes.Equal(old, files[name]) { // #nosec G304 -- the user names the directory
			return fmt.Errorf("%s: exists with another content (hint: remove it, or name another directory)", cli.OneLine(path))
		}
		if err := os.WriteFile(path, files[name], fileMode); err != nil { // #nosec G306 -- as above
			return fmt.Errorf("%s: cannot be written: %w", cli.OneLine(path), cli.Cause(err))
		}
	}
	return nil
}

// conversionReport is what became of the rules.
type conversionReport struct {
	Results []convert.Result `json:"results"`
	// Unread are documents that cannot be read, and Reasons why rules and tests were not converted, the most frequent first.
	Unread  []convert.Problem  `json:"unread"`
	Reasons []*conversionCount `json:"reasons"`
	Others  int                `json:"others"`
	// Next are the next steps.
	Next []string `json:"next"`
}

// conversionCount is how often something was not converted for the same reason.
type conversionCount struct {
	Count   int    `json:"count"`
	Reason  string `json:"reason"`
	Instead string `json:"instead,omitempty"`
}

// named matches what distinguishes constructs of one kind.
var named = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|: .*")

// report returns the report.
func (f *convertFlags) report(out *convert.Output) *conversionReport {
	r := &conversionReport{
		Results: append([]convert.Result{}, out.Results...), Unread: append([]convert.Problem{}, f.unread...), // [] and not null
		Reasons: []*conversionCount{}, Others: out.Others, Next: []string{},
	}
	counts := map[string]*conversionCount{}
	for i := range out.Results {
		for _, p := range out.Results[i].Problems {
			reason := strings.TrimRight(named.ReplaceAllString(p.Construct, "…"), " …")
			of := counts[reason]
			if of == nil {
				of = &conversionCount{0, reason, p.Instead}
				counts[reason], r.Reasons = of, append(r.Reasons, of)
			}
			if of.Count++; of.Instead != p.Instead {
				of.Instead = ""
			}
		}
	}
	slices.SortStableFunc(r.Reasons, func(a, b *conversionCount) int { return cmp.Compare(b.Count, a.Count) })
	if len(out.Documents) == 0 {
		return r
	}
	dir, warn := shell.Quote(cmp.Or(f.directory, "DIR")), "convert with --actions Warn, "
	if slices.Contains(f.actions, string(admissionregistrationv1.Warn)) {
		warn = ""
	}
	if f.directory == "" {
		r.Next = []string{"-o dir --directory DIR writes each policy into a file"}
	}
	r.Next = append(r.Next, "gatehouse lint --config "+dir+" finds likely mistakes")
	if slices.ContainsFunc(out.Documents, func(d convert.Document) bool { return d.Kind == "Test" }) {
		r.Next = append(r.Next, "gatehouse test --config "+dir+" runs the tests")
	}
	r.Next = append(r.Next, warn+"let these warn beside the other program, and record requests", "gatehouse replay --config "+dir+" RECORDING shows what would be refused; then deny")
	return r
}

// write writes the report for people: a line for each rule, and below it the differences and what has no translation.
func (r *conversionReport) write(to io.Writer) error {
	words := map[convert.Status]string{
		convert.Converted: "converted", convert.Different: "converted, differs", convert.Not: "NOT converted", convert.Repeated: "converted once",
	}
	counts := map[convert.Status]int{}
	w := bufio.NewWriter(to)
	line := func(format string, args ...any) {
		_, _ = fmt.Fprintln(w, cli.OneLine(fmt.Sprintf(format, args...))) // Flush returns errors
	}
	problem := func(of convert.Problem, prefix string) {
		line("%s%s:%d: %s%s", prefix, of.File, of.Line, of.Construct, instead(of.Instead))
	}
	for i := range r.Results {
		of := &r.Results[i]
		counts[of.Status]++
		line("%s", strings.TrimSuffix(fmt.Sprintf("%s:%d: %s: %s rule %s", of.File, of.Line, words[of.Status], of.Policy, of.Rule), " rule "))
		if of.SameAs != "" {
			line("    the same as %s", of.SameAs)
		}
		for _, difference := range of.Differences {
			line("    differs: %s", difference)
		}
		for _, p := range of.Problems {
			problem(p, "    ")
		}
	}
	for _, p := range r.Unread {
		problem(p, "NOT read: ")
	}
	more := ""
	if n := counts[convert.Repeated]; n > 0 {
		more = fmt.Sprintf(", %d the same as others", n)
	}
	if len(r.Unread) > 0 {
		more += fmt.Sprintf(", %s not read", diagnostic.Count(len(r.Unread), "document"))
	}
	line("%d converted, %d with differences, %d not%s; %s", counts[convert.Converted], counts[convert.Different], counts[convert.Not], more,
		diagnostic.Count(r.Others, "other document"))
	for _, of := range r.Reasons {
		if len(r.Reasons) == 1 && of.Count == 1 {
			break // it is said above
		}
		line("  %d not: %s%s", of.Count, of.Reason, instead(of.Instead))
	}
	for i, step := range r.Next {
		line("next %d: %s", i+1, step)
	}
	return w.Flush()
}

// instead returns what to write in place of something, in brackets.
func instead(text string) string {
	if text == "" {
		return ""
	}
	return " (instead: " + text + ")"
}
