package offline

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/testrunner"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// testFlags are the flags of test.
type testFlags struct {
	configFlag
	run, output string
	// compiled is the version of Kubernetes for which the configuration is compiled, "" for not at all.
	compiled   string
	allowEmpty bool
}

// NewTestCommand returns the command "gatehouse test".
func NewTestCommand(s cli.Streams) *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test --config DIR [FILE|DIR]...",
		Short: "Run tests of policies and profiles",
		Long: `Test runs the cases in documents of kind Test. A case is a request and what must
come of it. Test decides it as the server does, with mutating policies, sidecars and
then policies, and prints where the result differs. Use it in CI, and when you
change a policy.

It reads the files and directories that you name, or else the directory of --config.
All policies and profiles of --config apply, unless a test lists its policies; then
mutating policies that it does not list change nothing.

With --compiled, each case must also come out so if the API server decides by what
compile makes of the configuration, and Gatehouse only by the rules that stay with it.
It does not compare warnings, audit annotations, exceptions and patches, which the
API server words otherwise.

Exit codes: 0 every case passed; 1 a case failed; 2 wrong usage or an invalid
document, and no case was run.`,
		Example: `  # the tests in the configuration
  gatehouse test --config ./config

  # some of them
  gatehouse test --config ./config --run '^image-registries/'

  # would they pass without the webhook?
  gatehouse test --config ./config --compiled=1.37

  # for a pipeline
  gatehouse test --config ./config ./tests -o junit > tests.xml`,
		RunE: func(cmd *cobra.Command, paths []string) error {
			selected, err := f.check()
			if err != nil {
				return err
			}
			if len(paths) == 0 {
				paths = []string{f.config}
			}
			return f.test(cmd.Context(), s, paths, selected)
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.run, "run", "", "run only cases whose TEST/CASE this regular expression matches")
	flags.BoolVar(&f.allowEmpty, "allow-empty", false, "accept files and directories without a document of kind Test")
	flags.StringVar(&f.compiled, "compiled", "", "run the cases also against what compile makes for this version of the API server: "+cli.OrList(compileVersions()))
	flags.Lookup("compiled").NoOptDefVal = defaultCompileVersion
	_ = cmd.RegisterFlagCompletionFunc("compiled", cobra.FixedCompletions(compileVersions(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	cli.AddOutputFlag(cmd, &f.output, "text", "json", "junit", "github")
	return cmd
}

// check returns what selects cases.
func (f *testFlags) check() (*regexp.Regexp, error) {
	selected, err := regexp.Compile(f.run)
	if err != nil {
		return nil, fmt.Errorf("--run %q: is not a regular expression: %w", f.run, err)
	}
	if f.compiled != "" && !slices.Contains(compileVersions(), f.compiled) {
		return nil, fmt.Errorf("--compiled=%s: must be %s", cli.OneLine(f.compiled), cli.OrList(compileVersions()))
	}
	return selected, nil
}

func (f *testFlags) test(ctx context.Context, s cli.Streams, paths []string, selected *regexp.Regexp) error {
	c, snapshot, err := f.load()
	if err != nil {
		return err
	}
	resources, err := resourcesOf(c)
	if err != nil {
		return err
	}
	runner := testrunner.Runner{Resources: resources, Compile: newCompiler(c, snapshot), Workers: runtime.GOMAXPROCS(0)}
	all, wrong := testrunner.Load(paths, f.allowEmpty)
	wrong = append(wrong, testrunner.CheckPolicies(&c.Policy, &c.Mutation, all)...)
	wrong = append(wrong, runner.Check(all)...)
	wrong.Sort()
	if err := wrong.Err(); err != nil {
		return fmt.Errorf("the tests cannot be used:\n%w", err)
	}
	some := testrunner.Select(all, selected.MatchString)
	if len(some) == 0 && (len(all) > 0 || !f.allowEmpty) {
		return fmt.Errorf("--run %q: matches none of %s (hint: it is matched against TEST/CASE)", f.run, diagnostic.Count(len(all), "case"))
	}
	results, err := runner.Run(ctx, some)
	if err != nil {
		return err
	}
	for _, warning := range runner.Warnings(some) {
		_, _ = fmt.Fprintf(s.Err, "gatehouse: warning: %s\n", warning) // the result is what counts
	}
	if left := testrunner.LeftOut(&c.Mutation, some); left != "" {
		_, _ = fmt.Fprintln(s.Err, "gatehouse: note: "+left) // as above
	}
	if f.compiled != "" {
		of := compiledTests{c, snapshot, f.compiled, map[testrunner.Variant]*compile.Output{}}
		if err := of.add(ctx, runner, some, results); err != nil {
			return err
		}
	}
	report := newTestReport(results, f.compiled)
	if err := f.write(s, report); err != nil {
		return err
	}
	if report.Failed > 0 {
		return &cli.ExitError{Code: cli.ExitNo}
	}
	return nil
}

// resourcesOf returns the resources that are known with a configuration.
func resourcesOf(c *config.Config) (*request.Resources, error) {
	crds, err := c.Policy.Objects.List(crdKind(), "", labels.Everything())
	if err != nil {
		return nil, err
	}
	return schema.Resources(crds), nil
}

// newCompiler returns what compiles the configuration for a case.
func newCompiler(c *config.Config, snapshot *webhooks.Snapshot) func(testrunner.Variant) (*webhooks.Snapshot, error) {
	return func(v testrunner.Variant) (*webhooks.Snapshot, error) {
		if v.RealTime && v.Inject && v.About == nil && v.Context == nil {
			return snapshot, nil
		}
		compiled, found := config.Compile(configOf(c, snapshot, v), nil)
		return compiled, found.Err()
	}
}

// configOf returns the configuration for a case.
func configOf(c *config.Config, snapshot *webhooks.Snapshot, v testrunner.Variant) *config.Config {
	other := *c
	if v.Context != nil {
		other = *v.Context.Over(c)
	}
	other.Policy = v.About.Select(other.Policy)
	other.Mutation = v.About.SelectMutating(other.Mutation)
	other.Policy.Previous, other.Mutation.Previous = snapshot.Policy, snapshot.Mutation
	if !v.RealTime {
		other.Policy.Now = func() time.Time { return v.Now }
	}
	if !v.Inject {
		other.Sidecar.Profiles = nil
	}
	return &other
}
