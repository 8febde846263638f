package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// SourceFlags say which policies and profiles of a cluster a command decides by: those that are active there, those of a
// directory in their place, or both. Active are custom resources, the documents of the servers' own directories, and the
// MutatingAdmissionPolicies and ValidatingAdmissionPolicies of the cluster; for a program that adds no flags, custom resources alone.
type SourceFlags struct {
	ClusterFlags
	// WithCluster is for a directory beside what is active in the cluster.
	WithCluster bool
	// partial accepts that the documents of the servers are not known.
	partial bool
	// with are directories from which API servers read policies.
	with []string
	// hasFlags is false for a program that adds no flags.
	hasFlags bool
	// optional reports whether the command does without a cluster.
	optional bool
}

// active reports whether what is active in the cluster decides, and not documents in its place.
func (f *SourceFlags) active(dir string) bool { return dir == "" || f.WithCluster }

// native reports whether the cluster's own admission policies decide.
func (f *SourceFlags) native(dir string) bool { return f.hasFlags && f.active(dir) }

// Add adds the flags.
func (f *SourceFlags) Add(cmd *cobra.Command) {
	f.ClusterFlags.Add(cmd)
	f.hasFlags = true
	cmd.Flags().BoolVar(&f.WithCluster, "with-cluster", false, "decide by --config and by what is active in the cluster; a document replaces an object of the same kind and name")
	cmd.Flags().StringArrayVar(&f.with, "with", nil, "directory from which the API servers read policies (staticManifestsDir), which their API does not show: these decide too; repeatable")
	cmd.Flags().BoolVar(&f.partial, "partial", false, "decide even if the documents of the servers' own --config cannot be read")
}

// ClusterFlagNames are the names of the flags that name a cluster.
func ClusterFlagNames() []string { return []string{"in-cluster", "kubeconfig", "context"} }

// AddBeside adds the flags to a command that needs a directory or a cluster, unless something else is given. value is --config.
func (f *SourceFlags) AddBeside(cmd *cobra.Command, value *string, unless ...string) {
	AddConfigFlag(cmd, value, "directory of documents; with a cluster, they replace what is active there (required)", append(unless, ClusterFlagNames()...)...)
	_ = cmd.MarkFlagRequired(configFlag) // the flag exists
	f.optional = true
	f.Add(cmd)
}

// Check returns what is wrong with the flags beside a directory, "" for none.
func (f *SourceFlags) Check(dir string) error {
	err := f.ClusterFlags.Check()
	if (f.WithCluster || f.partial || len(f.with) > 0) && !f.Given() && f.optional {
		err = errors.Join(err, errors.New("--with-cluster, --with and --partial need a cluster (hint: --context NAME)"))
	}
	if len(f.with) > 0 && !f.native(dir) {
		err = errors.Join(err, errors.New("--with is for what is active in the cluster, and --config replaces that (hint: --with-cluster)"))
	}
	if f.WithCluster && dir == "" {
		err = errors.Join(err, errors.New("--with-cluster is for --config: without a directory what is active in the cluster decides"))
	}
	return err
}

// Arguments returns the flags for another command, with those of withCluster.
func (f *SourceFlags) Arguments(withCluster bool) []string {
	words := f.ClusterFlags.Arguments()
	if withCluster {
		words = append(words, "--with-cluster")
	}
	for _, dir := range f.with {
		words = append(words, "--with", dir)
	}
	if f.partial {
		words = append(words, "--partial")
	}
	return words
}

// Words returns the flags, for a command in a hint.
func (f *SourceFlags) Words() string { return quoted(f.Arguments(f.WithCluster)) }

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
	for _, with := range f.with {
		text += " with " + InertName(with)
	}
	return text
}

// Unseen says what may decide too and is not known, "" for nothing: it is not among what is active in the cluster.
func (f *SourceFlags) Unseen(dir string) string {
	if !f.native(dir) || len(f.with) > 0 || f.optional && !f.Given() {
		return ""
	}
	return "policies and webhooks that API servers read from files (Kubernetes 1.37) are not considered, because their API does not show them (hint: --with DIR takes such policies)"
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
	if !f.active(dir) {
		inspect = config.Inspect
	}
	out.Documents, out.Found = inspect(dir)
	for _, with := range f.with {
		if err := CheckDir("--with", with); err != nil {
			out.Close()
			return nil, err
		}
		others, found := config.Inspect(with)
		if found.Err() != nil {
			out.Close()
			return nil, config.InvalidError(with, found.Err())
		}
		out.Documents = out.Documents.Beside(others)
	}
	return out, nil
}

// Close ends the connection.
func (s *Source) Close() { s.close() }

// Load reads what is active in the cluster and compiles the configuration. Prepare, which may be nil, is called before it
// is compiled.
func (s *Source) Load(ctx context.Context, prepare func(*config.Config)) (*resolve.CommandConfig, error) {
	documents := s.Documents
	if s.flags.native(s.dir) && s.Found.Err() == nil {
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
	return s.Documents.Beside(own)
}

// readServers returns the documents of the servers' own directories.
func readServers(ctx context.Context, access *rest.Config) (*config.Config, error) {
	servers, err := replicas.Find(ctx, access)
	if err != nil {
		return nil, err
	}
	text, err := servers.Configuration(ctx)
	if err != nil {
		return nil, err
	}
	own, found := config.InspectText("the servers' own --config", text)
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
	return cmp.Or(apierr.Unreached(err), err)
}

// Unread returns what of the active configuration is not known, an error for each: what could not be read so far, and objects
// that have errors.
func (s *Source) Unread(loaded *resolve.CommandConfig) []error {
	var errs []error
	if s.unconsidered != nil && !s.flags.partial {
		errs = append(errs, fmt.Errorf("%w (hint: --partial decides without them)", s.unconsidered))
	}
	problems, more := s.Once.Problems()
	errs = append(errs, problems...)
	if more > 0 {
		errs = append(errs, fmt.Errorf("and %s of looking up objects", diagnostic.Count(more, "more problem")))
	}
	for _, name := range loaded.LeftOut {
		errs = append(errs, fmt.Errorf("%s has errors, so that nothing can be decided by it", name))
	}
	return errs
}

// Describe says by what is decided, for people.
func (s *Source) Describe() string {
	text := s.flags.Describe(s.dir)
	if s.unconsidered != nil {
		text += ", without the documents of the servers' own --config"
	}
	return text
}

// Unconsidered returns what of the active configuration is left out because flags say so.
func (s *Source) Unconsidered() (left []error) {
	if s.flags.partial && s.unconsidered != nil {
		left = append(left, s.unconsidered)
	}
	return left
}

// WriteUnconsidered writes what flags leave out.
func (s *Source) WriteUnconsidered(out io.Writer) {
	for _, left := range s.Unconsidered() {
		_, _ = fmt.Fprintln(out, "note: "+OneLine(left.Error())) // best effort
	}
}

// CheckDeciding returns an error if nothing would be decided.
func (s *Source) CheckDeciding(loaded *resolve.CommandConfig) error {
	if resolve.Deciding(loaded.Config) > 0 {
		return nil
	}
	if unread := s.Unread(loaded); len(unread) > 0 {
		return errors.Join(unread...)
	}
	text, hint := "no policy and no profile is active", "a policy needs validationActions or a binding"
	switch {
	case s.dir != "" && !s.flags.WithCluster:
		return fmt.Errorf("%s: %s (hint: %s)", InertName(s.dir), text, hint)
	case !loaded.Installed:
		hint = "the cluster has no custom resources of Gatehouse; apply policies, or name a directory with --config DIR"
	case len(loaded.Config.Policy.AdmissionPolicies) == 0:
		hint = "apply policies, or name a candidate with --config DIR"
	}
	return fmt.Errorf("%s in the cluster (hint: %s)", text, hint)
}
