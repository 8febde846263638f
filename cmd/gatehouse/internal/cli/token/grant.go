package token

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// NewGrantCommand returns the command "gatehouse grant".
func NewGrantCommand(s cli.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grant",
		Short: "Create, list and revoke Grants, which give groups for a time",
		Long: `A Grant gives a user groups until a time. While it is valid, Gatehouse adds the groups
to the identity that it answers, and the API server's own rules do the rest. Deleting
the Grant takes the groups back.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newGrantCreateCommand(s), newGrantListCommand(s), newGrantRevokeCommand(s))
	return cmd
}

func newGrantCreateCommand(s cli.Streams) *cobra.Command {
	f := grantFlags{tokenPlace: tokenPlace{grants: true}, now: time.Now, random: rand.Reader}
	cmd := &cobra.Command{
		Use:   "create --user NAME --group NAME --ttl DURATION",
		Short: "Create a Grant, which gives a user groups for a time",
		Long: `Create writes a Grant: a user, groups, and when they end.

  --config DIR  writes the document to DIR/grant-<name>.yaml
  a cluster     (--context, --kubeconfig or --in-cluster) creates it as a custom
                resource, and waits until every replica uses it, at most 30 seconds
  neither       writes the document to standard output

In a cluster you need the verb grant on groups.gatehouse.dev with the name of each
group, which 'kubectl auth can-i grant groups.gatehouse.dev/NAME' shows, besides the
right to create grants. The API server checks that itself. The Grant has your user name
as grantedBy.

Groups that are reserved by Kubernetes, such as system:masters, are rejected. The
AuthenticationConfiguration of the servers may bound the duration, and may forbid Grants
to yourself.

The groups end at the time that is shown. An API server that remembers the token uses
them for --authentication-token-webhook-cache-ttl longer, 2 minutes by default.

Exit codes: 0 created; 1 rejected; 2 wrong usage, the document cannot be written, or
not every replica uses it yet.`,
		Example: `  # four hours for an incident, in the cluster of a context
  gatehouse grant create --user jane@example.com --group shop-oncall --ttl 4h --reason "incident 4711" --context prod

  # a document for a Git repository
  gatehouse grant create --user jane@example.com --group shop-oncall --not-before 2026-12-01T09:00:00Z --ttl 8h >grant.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.create(cmd.Context(), s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "name of the Grant: lower-case letters, digits and dashes (default 12 random characters)")
	flags.StringVar(&f.user, "user", "", "user who gets the groups; the name as the API server sees it, with its prefix (required)")
	flags.StringArrayVar(&f.groups, "group", nil, "group that the user gets; repeatable (required)")
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the groups are given, such as 4h or 2d (required)")
	flags.StringVar(&f.notBefore, "not-before", "", "time from which they are given, such as 2026-12-01T09:00:00Z (default now)")
	flags.StringVar(&f.reason, "reason", "", "reason to store in the Grant")
	flags.BoolVar(&f.wait, "wait", true, "in a cluster, wait until every replica uses the Grant")
	f.add(cmd, "directory of documents: grant-<name>.yaml is written to it, and its bounds check the Grant")
	cli.AddOutputFlag(cmd, &f.output, "yaml", "json")
	cli.AddDryRunFlag(cmd, &f.dryRun)
	for _, required := range []string{"user", "group", "ttl"} {
		_ = cmd.MarkFlagRequired(required) // the flags exist
	}
	return cmd
}

// grantFlags are the flags of grant create, and what it needs of the world.
type grantFlags struct {
	name, user, notBefore, reason, output string
	groups                                []string
	ttl                                   time.Duration
	wait, dryRun                          bool
	tokenPlace

	now    func() time.Time
	random io.Reader
}

func (f *grantFlags) create(ctx context.Context, s cli.Streams) error {
	grant, err := f.make()
	if err != nil {
		return err
	}
	directory := tokens.Directory{Dir: f.config}
	var known tokens.Listing
	if f.config != "" {
		if known, err = directory.ListGrants(ctx); err != nil {
			return err
		}
	}
	if err := f.judge(s, known, grant); err != nil {
		return err
	}
	var store tokens.GrantStore = directory
	where := directory.GrantFile(grant.Name)
	switch {
	case f.Given():
		where = "Grant/" + grant.Name + " in the cluster"
	case f.config == "":
		return f.write(s.Out, grant)
	}
	if f.dryRun {
		if err := f.write(s.Out, grant); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(s.Err, "dry run: would create %s; nothing was granted\n", where) // a remark
		return nil
	}
	var cluster *tokens.Cluster
	if f.Given() {
		if cluster, err = f.cluster(s); err != nil {
			return err
		}
		store = cluster
	}
	place, err := store.CreateGrant(ctx, grant)
	if err != nil {
		return f.notCreated(err, place, grant.Name)
	}
	if f.output == "json" {
		err = f.write(s.Out, grant)
	} else {
		_, err = fmt.Fprintf(s.Out, "granted %s to %s until %s, by %s\n", joined(grant.Spec.Groups), strict.Printable(grant.Spec.Subject.User), grant.Spec.ExpiresAt.UTC().Format(time.RFC3339), where)
	}
	_, _ = fmt.Fprintln(s.Err, authn.CachedLonger) // a remark
	if err != nil || cluster == nil {
		return err
	}
	if f.wait {
		return await(ctx, s, awaited{what: "the Grant", done: "was created", accepts: "uses", resource: "grants " + grant.Name}, func(ctx context.Context) (tokens.Acceptance, error) {
			return cluster.GrantAcceptance(ctx, grant.Name)
		})
	}
	return nil
}

// make makes the document. Its error has everything that is wrong with the flags.
func (f *grantFlags) make() (*v1alpha1.Grant, error) {
	var problems cli.Problems
	problems.Add(f.ttl < time.Second, "--ttl %s: must be a second or more", f.ttl)
	problems.Add(f.name != "" && len(validation.IsDNS1123Label(f.name)) > 0, "--name %.100q: must be lower-case letters, digits and dashes, at most 63", f.name)
	begins := f.now().UTC().Truncate(time.Second)
	var notBefore metav1.Time
	if f.notBefore != "" {
		at, err := time.Parse(time.RFC3339, f.notBefore)
		problems.Add(err != nil, "--not-before %.100q: must be a time such as 2026-12-01T09:00:00Z", f.notBefore)
		begins, notBefore = at.UTC(), metav1.NewTime(at.UTC())
		problems.Add(err == nil && f.ttl >= time.Second && !begins.Add(f.ttl).After(f.now()),
			"--not-before and --ttl: %s has passed, so that nothing would be given", begins.Add(f.ttl).Format(time.RFC3339))
	}
	if f.config != "" || f.Given() {
		problems = append(problems, f.one())
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	name := f.name
	if name == "" {
		var err error
		if name, err = randomID(f.random); err != nil {
			return nil, err
		}
	}
	return &v1alpha1.Grant{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Grant"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.GrantSpec{
			Subject: v1alpha1.GrantSubject{User: f.user}, Groups: f.groups, Reason: f.reason,
			NotBefore: notBefore, ExpiresAt: metav1.NewTime(begins.Add(f.ttl)),
		},
	}, nil
}

// judge compiles the Grant as a server will, beside what is known, and refuses it if there is anything wrong with it, or with the other
// documents of the directory, of which a server would use none then. Warnings about the Grant are remarks.
func (f *grantFlags) judge(s cli.Streams, listing tokens.Listing, grant *v1alpha1.Grant) error {
	source, known := "the new Grant", listing.Spec
	known.Grants, known.Now = append(known.Grants, authn.Grant{Source: source, Grant: *grant}), f.now
	if c := known.Configuration; c != nil && c.Grants.MaxDuration != nil && grant.Spec.NotBefore.IsZero() {
		// A document begins at its notBefore.
		grant.Spec.NotBefore = metav1.NewTime(f.now().UTC().Truncate(time.Second))
		known.Grants[len(known.Grants)-1].Grant = *grant
	}
	found, err := diagnose(known, source)
	switch {
	case err != nil:
		return err
	case found.Err() != nil:
		return f.refused(found.Err())
	}
	if f.config != "" {
		listing.Spec = known
		if err := listingError(f.config, &listing, f.now()); err != nil {
			return fmt.Errorf("%s: %w", f.words().nothing, err)
		}
	}
	for _, one := range found {
		_, _ = fmt.Fprintln(s.Err, "warning:", one.String()) // a remark
	}
	return nil
}

// write writes the document.
func (f *grantFlags) write(out io.Writer, grant *v1alpha1.Grant) error {
	shown := *grant
	shown.ObjectMeta = metav1.ObjectMeta{Name: grant.Name}
	return writeDocument(out, f.output, shown, shown)
}
