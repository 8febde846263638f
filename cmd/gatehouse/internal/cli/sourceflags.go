package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
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
	// Servers reports whether the documents of the servers' own directories belong to what is active in the cluster, and partial
	// accepts that they are not known.
	Servers, partial bool
	// optional reports whether the command does without a cluster. It decides as the cluster does: by the cluster's
	// ValidatingAdmissionPolicies too.
	optional bool
	// isNative reports whether --native was given.
	isNative func() bool
}

// active reports whether what is active in the cluster decides, and not documents in its place.
func (f *SourceFlags) active(dir string) bool { return dir == "" || f.WithCluster }

// native reports whether the ValidatingAdmissionPolicies of the cluster decide.
func (f *SourceFlags) native(dir string) bool {
	return f.Native || f.optional && f.active(dir) && !f.isNative()
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

// AddBeside adds the flags to a command that needs a directory or a cluster, unless something else is given. value is --config.
func (f *SourceFlags) AddBeside(cmd *cobra.Command, value *string, unless ...string) {
	AddConfigFlag(cmd, value, "directory of documents; with a cluster, it decides in place of what is active there (required)", append(unless, ClusterFlagNames()...)...)
	_ = cmd.MarkFlagRequired(configFlag) // the flag exists
	f.optional, f.Servers = true, true
	f.Add(cmd)
	flags := cmd.Flags()
	flags.Lookup("native").Usage = "decide by the ValidatingAdmissionPolicies of the cluster too (default: unless --config decides in place of what is active)"
	f.isNative = func() bool { return flags.Changed("native") }
	flags.BoolVar(&f.partial, "partial", false, "decide although the documents of the servers' own --config cannot be read from the cluster")
}

// Check returns what is wrong with the flags beside a directory, "" for none.
func (f *SourceFlags) Check(dir string) error {
	err := f.ClusterFlags.Check()
	if (f.WithCluster || f.Native) && !f.Given() && f.optional {
		err = errors.Join(err, errors.New("--with-cluster and --native need a cluster (hint: --context NAME)"))
	}
	if f.partial && !f.Given() {
		err = errors.Join(err, errors.New("--partial is for a cluster (hint: --context NAME)"))
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
	if f.native(dir) {
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
	// unconsidered is what was not read of the servers' own documents, nil for nothing.
	unconsidered error
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
	if dir != "" && !f.WithCluster && !f.native(dir) {
		inspect = config.Inspect
	}
	out.Documents, out.Found = inspect(dir)
	return out, nil
}

// Close ends the connection.
func (s *Source) Close() { s.close() }

// Load reads what is active in the cluster and compiles the configuration. Prepare, which may be nil, is called before it
// is compiled.
func (s *Source) Load(ctx context.Context, prepare func(*config.Config)) (*resolve.CommandConfig, error) {
	documents := s.Documents
	if s.flags.Servers && s.flags.active(s.dir) && s.Found.Err() == nil {
		documents = s.withServers(ctx)
	}
	loaded, err := resolve.ForCommand(resolve.CommandSources{
		Dir: s.dir, Documents: documents, Found: s.Found, Cluster: s.Once,
		Custom: s.flags.active(s.dir), Native: s.flags.native(s.dir), Prepare: prepare,
	})
	return loaded, s.Explain(err)
}

// serversTimeout bounds reading the documents of all servers.
const serversTimeout = 20 * time.Second

// withServers returns the documents with those of the servers' own directories.
func (s *Source) withServers(ctx context.Context) *config.Config {
	ctx, cancel := context.WithTimeout(ctx, serversTimeout)
	defer cancel()
	own, err := readServers(ctx, s.Access)
	if err != nil {
		s.unconsidered = fmt.Errorf("the documents of the servers' own --config are not considered: %w", err)
		return s.Documents
	}
	return resolve.Beside(s.Documents, own)
}

// readServers returns the documents of the servers' own directories.
func readServers(ctx context.Context, access *rest.Config) (*config.Config, error) {
	servers, err := replicas.NewCluster(access)
	if err != nil {
		return nil, err
	}
	text, err := servers.Configuration(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gatehouse-servers-")
	if err != nil {
		return nil, patherr.Cause(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it has no secret
	if err := os.WriteFile(filepath.Join(dir, "servers.yaml"), text, 0o600); err != nil {
		return nil, patherr.Cause(err)
	}
	own, found := config.InspectBeside(dir)
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("this version of the command cannot read them: %w", err)
	}
	return own, nil
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
	if s.unconsidered != nil && !s.flags.partial {
		hint := ""
		if s.flags.optional {
			hint = " (hint: --partial decides without them)"
		}
		errs = append(errs, fmt.Errorf("%w%s", s.unconsidered, hint))
	}
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

// Unconsidered returns what --partial leaves out, nil for nothing.
func (s *Source) Unconsidered() error {
	if !s.flags.partial {
		return nil
	}
	return s.unconsidered
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
