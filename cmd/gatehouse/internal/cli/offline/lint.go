package offline

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/github"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// lintFlags are the flags of lint.
type lintFlags struct {
	configFlag
	output     string
	allowEmpty bool
	// explain is the code to explain, "" for none.
	explain string
}

// outputs returns the values of --output; the first is the default.
func (*lintFlags) outputs() []string { return []string{"text", "json", "sarif", "github"} }

// NewLintCommand returns the command "gatehouse lint".
func NewLintCommand(s cli.Streams) *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:   "lint --config DIR",
		Short: "Find mistakes in a configuration",
		Long: `Lint reads and compiles every document below the directory, as serve does, and
prints all errors and warnings, as editors read them: file:line:column: message.
Mistakes in expressions are underlined.

It also warns about likely mistakes in policies and profiles that compile: unknown
or optional fields, rules that never match, costs above the API server's limits, and
more. Such a warning ends with a code; --explain CODE prints what it means, an
example and what to do. The annotation gatehouse.dev/lint-ignore of a policy,
exception or profile lists codes to suppress.

  -o text    for people and editors (the default)
  -o json    one document, for programs; -o yaml is the same in YAML
  -o sarif   for code hosting services
  -o github  workflow commands, which GitHub Actions shows beside the lines

Exit codes: 0 no error; 1 an error; 2 bad usage, the directory cannot be read, or
no policy or profile is active.`,
		Example: `  gatehouse lint --config manifests/examples/policies
  gatehouse lint --config . -o json | jq -r '.findings[] | "\(.file):\(.line)"'

  # what does this warning mean?
  gatehouse lint --explain optional-field

  # in a pipeline
  gatehouse lint --config . -o sarif > gatehouse.sarif`,
		Args: cli.NoArgs(func(arg string) string {
			return "the directory is given with --config (hint: gatehouse lint --config " + shell.Quote(arg) + ")"
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed(explainFlag) {
				return f.explainCode(s.Out)
			}
			r, err := f.lint()
			if err != nil {
				return writeFailure(s.Out, f.output, cmd.Name(), err)
			}
			return f.write(s.Out, r)
		},
	}
	// Not the one of configFlag: --explain does without a directory.
	cli.AddConfigFlag(cmd, &f.config, "directory of documents (required)", explainFlag)
	_ = cmd.MarkFlagRequired("config") // the flag exists
	cli.AddOutputFlag(cmd, &f.output, f.outputs()...)
	cmd.Flags().BoolVar(&f.allowEmpty, "allow-empty", false, "accept a configuration without active policies and profiles")
	cmd.Flags().StringVar(&f.explain, explainFlag, "", "print what a code means, an example and what to do; no --config is needed then")
	_ = cmd.RegisterFlagCompletionFunc(explainFlag, cobra.FixedCompletions(codeNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// explainFlag is the name of the flag for the meaning of a code.
const explainFlag = "explain"

// codeNames returns the codes that --explain takes.
func codeNames() []string {
	var names []string
	for _, code := range lint.Codes() {
		names = append(names, string(code))
	}
	return names
}

// explainCode writes what the code of --explain means.
func (f *lintFlags) explainCode(out io.Writer) error {
	text := lint.Explain(lint.Code(f.explain))
	if text == "" {
		hint := cmp.Or(diagnostic.DidYouMean(f.explain, codeNames()...), "the codes are "+strings.Join(codeNames(), ", "))
		return fmt.Errorf("--%s %q: is not the code of a warning (hint: %s)", explainFlag, f.explain, hint)
	}
	_, err := io.WriteString(out, text)
	return err
}

// finding is a diagnostic with what shows it.
type finding struct {
	diagnostic.Diagnostic
	// shown is the line of the mistake in an expression, and a caret below it.
	shown []string
}

// lintReport is what lint reports.
type lintReport struct {
	findings         []finding
	errors, warnings int
	config           *config.Config
	dir              string
}

// lint returns the report. The error is about the directory itself.
func (f *lintFlags) lint() (*lintReport, error) {
	info, err := os.Stat(f.config)
	const hint = "(hint: --config takes a directory of YAML and JSON documents)"
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w %s", cli.OneLine(f.config), cli.Cause(err), hint)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: is not a directory %s", cli.OneLine(f.config), hint)
	}
	return newLintReport(f.config), nil
}

// write writes the report, and returns the error for the exit code.
func (f *lintFlags) write(to io.Writer, r *lintReport) error {
	var err error
	inactive := f.checkActive(r)
	out := bufio.NewWriter(to)
	switch f.output {
	case "json":
		err = r.json(out)
	case "sarif":
		found := r.results()
		err = found.writeSARIF(out, failureNotifications(inactive))
	case "github":
		err = github.Write(out, append(r.results().list, failureResults(inactive)...))
	default:
		r.print(out)
	}
	if err = cmp.Or(err, out.Flush()); err != nil {
		return err
	}
	if r.errors > 0 {
		return &cli.ExitError{Code: cli.ExitNo}
	}
	return inactive
}

// checkActive returns an error if a configuration without errors has nothing that is active.
func (f *lintFlags) checkActive(r *lintReport) error {
	if r.errors > 0 {
		return nil
	}
	// A directory may configure logins, or what custom resources do.
	a, p := &r.config.Authn, &r.config.Policy
	if f.allowEmpty || len(a.Tokens)+len(a.Revocations)+len(a.Issuers)+len(a.Directories)+len(p.Exceptions) > 0 || a.Configuration != nil || p.Configuration != nil {
		return nil
	}
	return checkActive(r.config, f.config)
}

// newLintReport lints a configuration.
func newLintReport(dir string) *lintReport {
	c, read := config.Inspect(dir)
	_, found := config.Compile(c, read)
	if c.Recording != nil {
		_, ofRecording := record.CompileRules(c.Recording.Source, &c.Recording.RecordingConfiguration)
		found = append(found, ofRecording...)
	}
	found = append(found, lintDocuments(c, read, found)...)
	found.Sort()
	r := &lintReport{config: c, dir: dir}
	at := newPositions(dir)
	for _, d := range found {
		shown := at.locate(&d)
		r.findings = append(r.findings, finding{d, shown})
		if d.Severity == diagnostic.Error {
			r.errors++
		} else {
			r.warnings++
		}
	}
	sortByPosition(r.findings)
	return r
}

// lintDocuments returns what only lint reports, about documents that could be read and fields that compile.
func lintDocuments(c *config.Config, read, errs diagnostic.List) diagnostic.List {
	found, err := lint.Lint(lint.Input{Policy: c.Policy, Profiles: c.Sidecar.Profiles, Now: time.Now()})
	if err != nil {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Warning, Message: "policies are compiled, but not checked further: " + err.Error()})
	}
	type place struct{ source, field string }
	broken := map[place]bool{}
	for _, e := range errs {
		if e.Severity == diagnostic.Error {
			broken[place{e.Source, e.Field}] = true
		}
	}
	return slices.DeleteFunc(found.WithoutFollowers(read), func(f diagnostic.Diagnostic) bool { return broken[place{f.Source, f.Field}] })
}

// print writes the report for people. Flush of out has the error.
func (r *lintReport) print(out io.Writer) {
	for i := range r.findings {
		_, _ = fmt.Fprintln(out, r.findings[i].text())
	}
	_, _ = fmt.Fprintf(out, "%s, %s in %s\n", diagnostic.Count(r.errors, "error"), diagnostic.Count(r.warnings, "warning"), diagnostic.Count(r.config.Files, "file"))
}

func (r *lintReport) json(out io.Writer) error {
	found := make(diagnostic.List, len(r.findings)) // [] and not null
	for i := range r.findings {
		found[i] = r.findings[i].Diagnostic
	}
	return cli.WriteJSON(out, struct {
		Findings diagnostic.List `json:"findings"`
		Errors   int             `json:"errors"`
		Warnings int             `json:"warnings"`
		Files    int             `json:"files"`
		// Digest names the configuration, as the log of serve does.
		Digest string `json:"digest"`
	}{found, r.errors, r.warnings, r.config.Files, r.config.Digest})
}

// results returns the report for programs. What has no code is an error or a warning of serve, too.
func (r *lintReport) results() results {
	var all results
	for i := range r.findings {
		f := &r.findings[i]
		d := f.Redacted()
		result := report.Result{
			Rule: d.Code, HelpURI: build.DocsURL("lint", "codes"), Level: report.Warning, Message: f.message(),
			File: d.File, Line: d.Line, Column: d.Column, Object: d.Object,
		}
		switch {
		case d.Severity == diagnostic.Error:
			result.Level = report.Error
			result.Rule, result.HelpURI = "invalid", build.DocsURL("configuration", "lint")
			result.Description = "The document is invalid, and serve rejects the configuration."
		case d.Code == "":
			result.Rule, result.HelpURI = "no-effect", build.DocsURL("configuration", "lint")
			result.Description = "Something in the document has no effect, or not the one that its author may expect."
		default:
			result.Description = "A likely mistake: " + lint.Summary(lint.Code(d.Code)) + "."
		}
		all.add(result, d.Object, d.Field, d.Text())
	}
	return all
}
