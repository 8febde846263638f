package offline

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/active"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// NewLintCommand returns the command "gatehouse lint".
func NewLintCommand(s cli.Streams) *cobra.Command {
	var f configFlag
	var output string
	var allowEmpty bool
	cmd := &cobra.Command{
		Use:   "lint --config DIR",
		Short: "Find mistakes in a configuration",
		Long: `Lint reads and compiles every document below the directory, as serve does, and
prints all errors and warnings, one a line.

It also warns about likely mistakes in policies that compile: unknown or optional
fields, rules that never match, expressions that other versions of Kubernetes
evaluate differently, and more. Such a warning ends with a code, which docs/lint.md
explains. The annotation gatehouse.dev/lint-ignore of a policy, binding or
exception lists codes to suppress.

Exit codes: 0 no error, 1 an error, 2 the directory cannot be read.`,
		Example: `  gatehouse lint --config manifests/examples/policies
  gatehouse lint --config . -o json | jq -r '.findings[].source'`,
		Args: cli.NoArgs(func(arg string) string {
			return "the directory is given with --config (hint: gatehouse lint --config " + arg + ")"
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if output != "text" && output != "json" {
				return cli.OutputError(output, "text", "json")
			}
			return runLint(s.Out, f.config, output, allowEmpty)
		},
	}
	f.add(cmd)
	cli.AddOutputFlag(cmd, &output, "text", "json")
	cmd.Flags().BoolVar(&allowEmpty, "allow-empty", false, "accept a configuration without active policies and profiles")
	return cmd
}

// lintReport is the JSON output of lint.
type lintReport struct {
	Findings diagnostic.List `json:"findings"`
	Errors   int             `json:"errors"`
	Warnings int             `json:"warnings"`
	Files    int             `json:"files"`
	// Digest names the configuration, as the log of serve does.
	Digest string `json:"digest"`

	config *config.Config
}

func runLint(out io.Writer, dir, output string, allowEmpty bool) error {
	info, err := os.Stat(dir)
	const hint = "(hint: --config takes a directory of YAML and JSON documents)"
	if err != nil {
		return fmt.Errorf("%s: cannot be read: %w %s", dir, cli.Cause(err), hint)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: is not a directory %s", dir, hint)
	}
	report := newLintReport(dir)
	if output == "json" {
		err = cli.WriteJSON(out, report)
	} else {
		err = report.print(out)
	}
	if err != nil {
		return err
	}
	if report.Errors > 0 {
		return &cli.ExitError{Code: cli.ExitNo}
	}
	// A directory may configure logins, or what custom resources do.
	a, p := &report.config.Authn, &report.config.Policy
	if allowEmpty || len(a.Tokens)+len(a.Revocations)+len(a.Issuers)+len(a.Directories)+len(p.Exceptions) > 0 || a.Configuration != nil || p.Configuration != nil {
		return nil
	}
	return checkActive(report.config, dir)
}

// newLintReport lints a configuration.
func newLintReport(dir string) lintReport {
	c, read := config.Inspect(dir)
	_, found := active.Compile(c, read)
	found = append(found, withoutFollowers(found, read, lintPolicies(c, time.Now()))...)
	found.Sort()
	if found == nil {
		found = diagnostic.List{} // [] and not null
	}
	report := lintReport{Findings: found, Files: c.Files, Digest: c.Digest, config: c}
	for _, f := range found {
		if f.Severity == diagnostic.Error {
			report.Errors++
		} else {
			report.Warnings++
		}
	}
	return report
}

// withoutFollowers returns the diagnostics of lint that do not follow from errors: about documents that could be read, and
// fields that compile.
func withoutFollowers(errs, read, found diagnostic.List) diagnostic.List {
	type place struct{ source, field string }
	broken, unread := map[place]bool{}, map[string]bool{}
	for _, f := range errs {
		if f.Severity == diagnostic.Error {
			broken[place{f.Source, f.Field}] = true
		}
	}
	for _, f := range read {
		unread[f.Source] = unread[f.Source] || f.Severity == diagnostic.Error
	}
	return slices.DeleteFunc(found, func(f diagnostic.Diagnostic) bool {
		return unread[f.Source] || broken[place{f.Source, f.Field}]
	})
}

// lintPolicies returns what only lint reports about policies.
func lintPolicies(c *config.Config, now time.Time) diagnostic.List {
	namespaces := make([]*corev1.Namespace, len(c.Sidecar.Known))
	for i, known := range c.Sidecar.Known {
		namespaces[i] = known.Namespace
	}
	found, err := lint.Lint(lint.Input{Policy: c.Policy, Namespaces: namespaces, Now: now})
	if err != nil {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Warning, Message: "policies are compiled and not looked at further: " + err.Error()})
	}
	return found
}

// print writes the report for people.
func (r lintReport) print(out io.Writer) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(out, "%s: %s\n", f.Severity, f); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%s, %s in %s\n", diagnostic.Count(r.Errors, "error"), diagnostic.Count(r.Warnings, "warning"), diagnostic.Count(r.Files, "file"))
	return err
}
