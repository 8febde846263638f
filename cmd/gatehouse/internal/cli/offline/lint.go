package offline

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/scopes"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/kustomize"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/github"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// lintFlags are the flags of lint.
type lintFlags struct {
	configFlag
	// files and kustomizations have documents that are read with those of --config.
	files, kustomizations []string

	cluster    cli.SourceFlags
	output     string
	allowEmpty bool
	// explain is the code to explain, "" for none.
	explain string
	// failOn is the severity from which on the exit code is 1.
	failOn string
	// profile is what else is linted than documents of Gatehouse, "" for nothing else.
	profile string
}

// staticProfile is the value of --profile for a directory from which kube-apiserver reads policies or webhooks.
const staticProfile = "static"

// outputs returns the values of --output; the first is the default.
func (*lintFlags) outputs() []string { return []string{"text", "json", "sarif", "github"} }

// NewLintCommand returns the command "gatehouse lint".
func NewLintCommand(s cli.Streams) *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:   "lint --config DIR|--context NAME|FILE|DIR... [-k DIR]...",
		Short: "Find mistakes in policies, profiles and other configuration",
		Long: `Lint finds mistakes in policies, profiles and other documents before a server reads
them. It prints every error for which a server would reject a document, and warns
about likely mistakes in documents that compile: fields that may be absent, rules
that never match, costs above the limits of the API server. A note names what a correct
document needs elsewhere, such as a setting of the API server. All files and
directories that you name are one configuration together. With --context,
--kubeconfig or --in-cluster, lint reads what is active in a cluster.

With --profile static, each directory is one from which kube-apiserver reads policies
or webhooks (staticManifestsDir), and lint prints every error for which it would not
start.

A line begins with file:line:column, as editors expect it. A warning or note ends with a
code: --explain CODE prints what it means and what to do, and the annotation
gatehouse.dev/lint-ignore of a document suppresses it there.

Exit codes: 0 no error; 1 an error, or a warning with --fail-on warning; 2 wrong
usage, something cannot be read, or no policy or profile is active.`,
		Example: `  gatehouse lint --config manifests/examples/policies
  gatehouse lint policies/images.yaml policies/exceptions
  gatehouse lint --context prod
  gatehouse lint --config . -o json | jq -r '.findings[] | "\(.file):\(.line)"'

  # a directory of kube-apiserver
  gatehouse lint --profile static /etc/kubernetes/policies/validating

  # what does this warning mean?
  gatehouse lint --explain optional-field

  # in a pipeline
  gatehouse lint --config . -o sarif > gatehouse.sarif`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed(explainFlag) {
				return f.explainCode(s.Out)
			}
			r, err := f.lint(cmd.Context())
			if err != nil {
				return err
			}
			return f.write(s.Out, r)
		},
	}
	f.cluster.AddBeside(cmd, &f.config, explainFlag, cli.UnlessArguments, "filename", "kustomize")
	addFiles(cmd, &f.files, &f.kustomizations, "documents")
	cli.AddOutputFlag(cmd, &f.output, f.outputs()...)
	cmd.Flags().BoolVar(&f.allowEmpty, "allow-empty", false, "accept a configuration in which no policy and no profile is active")
	cmd.Flags().StringVar(&f.failOn, "fail-on", string(diagnostic.Error), "lowest severity for which the exit code is 1: error or warning")
	cmd.Flags().StringVar(&f.profile, "profile", "", "lint directories of kube-apiserver in place of documents of Gatehouse: "+staticProfile)
	cmd.Flags().StringVar(&f.explain, explainFlag, "", "print what a code means, with an example and what to do; needs no --config")
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
	// where names the cluster that was linted, "" for none.
	where string
	// inactive is why a configuration without errors decides nothing, or what of the cluster cannot be read.
	inactive error
}

// lint returns the report. The error is about a file or directory itself, or the cluster.
func (f *lintFlags) lint(ctx context.Context) (*lintReport, error) {
	paths, err := f.files, f.cluster.Check(f.config)
	if f.failOn != string(diagnostic.Error) && f.failOn != string(diagnostic.Warning) {
		err = errors.Join(err, fmt.Errorf("--fail-on %q: must be error or warning", f.failOn))
	}
	if f.profile != "" && f.profile != staticProfile {
		err = errors.Join(err, fmt.Errorf("--profile %q: must be %s", f.profile, staticProfile))
	}
	if f.profile != "" && (f.cluster.Given() || len(f.kustomizations) > 0) {
		err = errors.Join(err, errors.New("--profile is for directories, and neither for -k nor for a cluster"))
	}
	if f.cluster.Given() && len(f.files)+len(f.kustomizations) > 0 {
		err = errors.Join(err, errors.New("files and a cluster cannot be given together (hint: --config DIR --with-cluster)"))
	}
	for _, name := range f.files {
		if _, failed := os.Stat(name); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: cannot be read: %w", cli.OneLine(name), cli.Cause(failed)))
		}
	}
	rendered := map[string][]byte{}
	for _, dir := range f.kustomizations {
		text, failed := buildKustomization(dir)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", cli.OneLine(dir), failed))
		}
		rendered[filepath.ToSlash(kustomize.File(dir))] = text
	}
	if f.config != "" {
		err = errors.Join(err, cli.CheckDir("--config", f.config))
		paths = append([]string{f.config}, f.files...)
	}
	switch {
	case err != nil:
		return nil, err
	case f.profile == staticProfile:
		return lintStatic(paths)
	case f.cluster.Given():
		return f.lintCluster(ctx)
	default:
		return f.lintPaths(paths, rendered), nil
	}
}

// lintStatic returns the report of directories from which kube-apiserver reads policies or webhooks.
func lintStatic(dirs []string) (*lintReport, error) {
	r := &lintReport{config: &config.Config{}}
	for _, dir := range dirs {
		if err := cli.CheckDir("--profile "+staticProfile, dir); err != nil {
			return nil, err
		}
		files, found, err := lint.Static(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot be read: %w", cli.OneLine(dir), cli.Cause(err))
		}
		r.config.Files += files
		r.add(found, dir)
	}
	return r, nil
}

// add adds diagnostics whose sources are below a directory.
func (r *lintReport) add(found diagnostic.List, dir string) {
	at := newPositions(dir)
	for _, d := range found {
		shown := at.locate(&d)
		r.findings = append(r.findings, finding{d, shown})
		switch d.Severity {
		case diagnostic.Error:
			r.errors++
		case diagnostic.Warning:
			r.warnings++
		case diagnostic.Note: // It asks for nothing in the documents.
		}
	}
	sortByPosition(r.findings)
}

// lintPaths returns the report of files and directories, and of texts by their names, which are one configuration. A single directory
// has something active.
func (f *lintFlags) lintPaths(paths []string, texts map[string][]byte) *lintReport {
	c, found, dir := (*config.Config)(nil), diagnostic.List(nil), ""
	if len(paths) == 1 && len(texts) == 0 && cli.CheckDir("", paths[0]) == nil {
		dir = paths[0]
		c, found = config.Inspect(dir)
	} else {
		c, found = config.InspectPaths(paths, texts)
	}
	_, all := config.Compile(c, found)
	r := newLintReport(c, all, dir, nil)
	switch {
	case dir != "":
		r.inactive = f.checkActive(c, dir)
	case c.Documents == 0:
		r.inactive = fmt.Errorf("there is no document of Gatehouse in %s (hint: gatehouse check judges manifests)", cli.OneLine(strings.Join(append(paths, f.kustomizations...), ", ")))
	}
	return r
}

// lintCluster returns the report of what is active in a cluster, or of a directory there.
func (f *lintFlags) lintCluster(ctx context.Context) (*lintReport, error) {
	source, err := f.cluster.Open(ctx, f.config)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	loaded, err := source.Load(ctx, nil)
	if err != nil {
		if f.config != "" {
			if r := f.lintPaths([]string{f.config}, nil); r.errors > 0 {
				return r, nil
			}
		}
		return nil, err
	}
	r := newLintReport(loaded.Config, loaded.Found, f.config, func() error { return scopesEnforced(ctx, source.Access) })
	r.where = f.cluster.Describe(f.config)
	r.inactive = errors.Join(source.Unread(loaded)...)
	// What is active in a cluster may be logins alone, as what is in a directory.
	if r.inactive == nil && !f.allowEmpty && !configures(loaded.Config) {
		r.inactive = source.CheckDeciding(loaded)
	}
	return r, nil
}

// scopesTimeout bounds asking an API server whether it enforces the scopes of tokens.
const scopesTimeout = 10 * time.Second

// scopesEnforced asks an API server whether it enforces the scopes of tokens.
func scopesEnforced(ctx context.Context, access *rest.Config) error {
	client, err := scopes.Client(access)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, scopesTimeout)
	defer cancel()
	return scopes.Check(ctx, client)
}

// write writes the report, and returns the error for the exit code.
func (f *lintFlags) write(to io.Writer, r *lintReport) error {
	var err error
	out := bufio.NewWriter(to)
	switch f.output {
	case "json":
		err = r.json(out)
	case "sarif":
		err = writeSARIF(out, r.results(), r.errors > 0 || r.inactive == nil)
	case "github":
		err = github.Write(out, r.results(), r.summary())
	default:
		r.print(out)
	}
	if err = cmp.Or(err, out.Flush()); err != nil {
		return err
	}
	if r.errors > 0 || r.warnings > 0 && f.failOn == string(diagnostic.Warning) {
		return &cli.ExitError{Code: cli.ExitNo}
	}
	return r.inactive
}

// configures reports whether a configuration is of use without policies and profiles: for logins, or for what custom resources do.
func configures(c *config.Config) bool {
	a, p := &c.Authn, &c.Policy
	return len(a.Tokens)+len(a.Revocations)+len(a.Grants)+len(a.Issuers)+len(a.Directories)+len(p.Exceptions) > 0 || a.Configuration != nil || p.Configuration != nil
}

// checkActive returns an error if a configuration has nothing that is active.
func (f *lintFlags) checkActive(c *config.Config, dir string) error {
	if f.allowEmpty || configures(c) {
		return nil
	}
	return checkActive(c, dir, "gatehouse check judges manifests")
}

// newLintReport lints a configuration, about which reading and compiling it have found something. Sources are below the directory, and
// the last parameter is as in lint.Input.
func newLintReport(c *config.Config, found diagnostic.List, dir string, scopesEnforced func() error) *lintReport {
	if c.Recording != nil {
		_, ofRecording := record.CompileRules(c.Recording.Source, &c.Recording.RecordingConfiguration)
		found = append(found, ofRecording...)
	}
	found = append(found, lintDocuments(c, found, scopesEnforced)...)
	hintMutating(c, found)
	found.Sort()
	r := &lintReport{config: c}
	r.add(found, dir)
	return r
}

// hintMutating says of exceptions that name a mutating policy what to do in place.
func hintMutating(c *config.Config, found diagnostic.List) {
	for i := range c.Mutation.Policies {
		name := c.Mutation.Policies[i].Name
		for k := range found {
			if d := &found[k]; strings.HasPrefix(d.Object, "PolicyException/") && d.Message == fmt.Sprintf("there is no policy %q", name) {
				d.Message = fmt.Sprintf("%q is a mutating policy, from which there are no exceptions", name)
				d.Hint = "exclude the objects in the policy, by a match condition or excludeResourceRules"
			}
		}
	}
}

// lintDocuments returns what only lint reports, about documents that could be read and fields that compile.
func lintDocuments(c *config.Config, errs diagnostic.List, scopesEnforced func() error) diagnostic.List {
	found, err := lint.Lint(lint.Input{
		Policy: c.Policy, Mutating: c.Mutation, Profiles: c.Sidecar.Profiles, Authn: c.Authn, ScopesEnforced: scopesEnforced, Now: time.Now(),
	})
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
	return slices.DeleteFunc(found, func(f diagnostic.Diagnostic) bool { return broken[place{f.Source, f.Field}] })
}

// print writes the report for people. Flush of out has the error.
func (r *lintReport) print(out io.Writer) {
	for i := range r.findings {
		_, _ = fmt.Fprintln(out, r.findings[i].text())
	}
	_, _ = fmt.Fprintln(out, r.summary())
}

// summary returns how many errors and warnings there are.
func (r *lintReport) summary() string {
	return fmt.Sprintf("%s, %s in %s", diagnostic.Count(r.errors, "error"), diagnostic.Count(r.warnings, "warning"), cmp.Or(r.where, diagnostic.Count(r.config.Files, "file")))
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
func (r *lintReport) results() (all []report.Result) {
	for i := range r.findings {
		f := &r.findings[i]
		d := f.Redacted()
		result := report.Result{
			Rule: d.Code, Level: report.Warning, Message: f.message(),
			File: d.File, Line: d.Line, Column: d.Column, Object: d.Object,
		}
		switch {
		case d.Severity == diagnostic.Error:
			result.Level = report.Error
			result.Rule = "invalid"
			result.Description = "The document is invalid, and serve rejects the configuration."
		case d.Code == "":
			result.Rule = "no-effect"
			result.Description = "Something in the document has no effect, or not the one that its author may expect."
		case d.Severity == diagnostic.Note:
			result.Level, result.Description = report.Note, "What a document needs elsewhere: "+lint.Summary(lint.Code(d.Code))+"."
		default:
			result.Description = "A likely mistake: " + lint.Summary(lint.Code(d.Code)) + "."
		}
		all = append(all, result)
	}
	return all
}
