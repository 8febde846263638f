package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// SourceFlags say which policies and profiles of a cluster a command decides by: those that are active there, those of a
// directory in their place, or both.
type SourceFlags struct {
	ClusterFlags
	// WithCluster is for a directory beside what is active in the cluster, and Native adds the cluster's own policies.
	WithCluster, Native bool
	// optional reports whether the command does without a cluster.
	optional bool
}

// Add adds the flags.
func (f *SourceFlags) Add(cmd *cobra.Command) {
	f.ClusterFlags.Add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.WithCluster, "with-cluster", false, "decide by what is active in the cluster too, beside --config; a document replaces an object of its kind and name")
	flags.BoolVar(&f.Native, "native", false, "decide by the ValidatingAdmissionPolicies of the cluster too")
}

// ClusterFlagNames are the names of the flags that name a cluster.
func ClusterFlagNames() []string { return []string{"in-cluster", "kubeconfig", "context"} }

// AddBeside adds the flags to a command that needs a directory or a cluster. value is --config.
func (f *SourceFlags) AddBeside(cmd *cobra.Command, value *string) {
	AddConfigFlag(cmd, value, "directory of documents; with a cluster, it decides in place of what is active there (required)", ClusterFlagNames()...)
	_ = cmd.MarkFlagRequired(configFlag) // the flag exists
	f.optional = true
	f.Add(cmd)
}

// Check returns what is wrong with the flags beside a directory, "" for none.
func (f *SourceFlags) Check(dir string) error {
	err := f.ClusterFlags.Check()
	if (f.WithCluster || f.Native) && !f.Given() && f.optional {
		err = errors.Join(err, errors.New("--with-cluster and --native need a cluster (hint: --context NAME)"))
	}
	if f.WithCluster && dir == "" {
		err = errors.Join(err, errors.New("--with-cluster is for --config: without a directory what is active in the cluster decides"))
	}
	return err
}

// Describe says by what is decided, for people.
func (f *SourceFlags) Describe(dir string) string {
	where := "the cluster"
	if name := f.ContextName(); name != "" {
		where = "cluster context " + InertName(name)
	}
	text := "what is active in " + where
	switch {
	case dir != "" && f.WithCluster:
		text = InertName(dir) + " beside " + text
	case dir != "":
		text = InertName(dir) + " in " + where
	}
	if f.Native {
		text += ", with its ValidatingAdmissionPolicies"
	}
	return text
}

// ContextName returns the name of the context, "" if there is none.
func (f *SourceFlags) ContextName() string {
	if f.InCluster {
		return ""
	}
	if f.Context != "" {
		return f.Context
	}
	raw, err := f.ContextFlags.Config().RawConfig()
	if err != nil {
		return ""
	}
	return raw.CurrentContext
}

// Source is an open connection to a cluster, and the documents of the directory.
type Source struct {
	// Access is how the API server is reached, and Once what is looked up there.
	Access *rest.Config
	Once   *cluster.Once
	// Documents are those of the directory, and Found is what is wrong with them.
	Documents *config.Config
	Found     diagnostic.List

	flags *SourceFlags
	dir   string
	close func()
}

// Open reads the documents of the directory, "" for none, and prepares a connection, which Close ends. It sends no request.
func (f *SourceFlags) Open(ctx context.Context, dir string) (*Source, error) {
	if dir != "" {
		if err := CheckDir("--config", dir); err != nil {
			return nil, err
		}
	}
	access, err := f.Connect("--in-cluster in a pod")
	if err != nil {
		return nil, err
	}
	access.UserAgent = "gatehouse/" + build.Version()
	c, err := cluster.New(access, build.Version(), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	out := &Source{Access: access, Once: c.Once(ctx), flags: f, dir: dir, close: c.Close}
	inspect := config.InspectBeside
	if dir != "" && !f.WithCluster && !f.Native {
		inspect = config.Inspect
	}
	out.Documents, out.Found = inspect(dir)
	return out, nil
}

// Close ends the connection.
func (s *Source) Close() { s.close() }

// Load reads what is active in the cluster and compiles the configuration. Prepare, which may be nil, is called before it
// is compiled.
func (s *Source) Load(prepare func(*config.Config)) (*resolve.CommandConfig, error) {
	loaded, err := resolve.ForCommand(resolve.CommandSources{
		Dir: s.dir, Documents: s.Documents, Found: s.Found, Cluster: s.Once,
		Custom: s.dir == "" || s.flags.WithCluster, Native: s.flags.Native, Prepare: prepare,
	})
	return loaded, s.Explain(err)
}

// Explain adds the address of the API server to an error of reaching it.
func (s *Source) Explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[diagnostic.List](err); ok {
		return err
	}
	if apierr.Classify(err).IsDenied() {
		return fmt.Errorf("the API server %s refuses the user of the kubeconfig: %w (hint: kubectl auth whoami)", s.Access.Host, err)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("the API server %s cannot be reached: %w", s.Access.Host, failed.Err)
	}
	return err
}

// Unread returns what of the active configuration is not known, an error for each: what could not be read so far, and objects
// that have errors.
func (s *Source) Unread(loaded *resolve.CommandConfig) []error {
	var errs []error
	problems, more := s.Once.Problems()
	for i := range problems {
		errs = append(errs, fmt.Errorf("cannot read what is active in the cluster: %s", problems[i].String()))
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("cannot read what is active in the cluster: and %s", diagnostic.Count(more, "more problem")))
	}
	for _, name := range loaded.LeftOut {
		errs = append(errs, fmt.Errorf(LeftOutFormat, name))
	}
	return errs
}

// LeftOutFormat is the format of what is said about an object of the cluster that has errors.
const LeftOutFormat = "%s has errors, so that nothing can be decided by it"

// CheckDeciding returns an error if nothing would be decided.
func (s *Source) CheckDeciding(loaded *resolve.CommandConfig) error {
	if resolve.Deciding(loaded.Config) > 0 {
		return nil
	}
	if problems, _ := s.Once.Problems(); len(problems) > 0 {
		return fmt.Errorf("cannot read what is active in the cluster: %s", problems[0].String())
	}
	text, hint := "0 policies and 0 profiles are active", "a policy needs validationActions or a binding"
	switch {
	case s.dir != "" && !s.flags.WithCluster:
		return fmt.Errorf("%s: %s (hint: %s)", InertName(s.dir), text, hint)
	case !loaded.Installed:
		hint = "the cluster has no custom resources of Gatehouse; name the directory of the servers with --config DIR, or judge the ValidatingAdmissionPolicies of the cluster with --native"
	case len(loaded.Config.Policy.AdmissionPolicies) == 0:
		hint = "apply policies, or name a candidate with --config DIR"
	}
	return fmt.Errorf("%s in the cluster (hint: %s)", text, hint)
}
