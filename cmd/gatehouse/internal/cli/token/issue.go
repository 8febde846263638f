package token

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// defaultTokenTTL is how long a token lives unless told otherwise.
const defaultTokenTTL = 30 * 24 * time.Hour

func newTokenIssueCommand(s cli.Streams) *cobra.Command {
	f := tokenFlags{now: time.Now, random: rand.Reader}
	cmd := &cobra.Command{
		Use:   "issue --user NAME",
		Short: "Issue an access token and write its document",
		Long: `Issue creates an access token and its AccessToken document, which has a hash of the
token and no secret. It shows the token once; nothing stores it. Anyone who may
create AccessTokens can issue tokens for every user that Kubernetes does not reserve
for itself.

  --config DIR  writes the document to DIR/token-<id>.yaml, and the token to standard
                output
  a cluster     (--context, --kubeconfig or --in-cluster) creates the document as a
                custom resource, and writes the token to standard output as soon as every
                replica accepts it, at most 30 seconds later
  neither       writes the document to standard output, the token to standard error

With --scope, the token can do what the scope includes, as far as its user may do it:
view (get, list and watch everything but Secrets), edit (also write what workloads
consist of), or a scope of the AuthenticationConfiguration. --scope-file takes rules for
this token alone, from a file with what spec.scope of an AccessToken has:

  rules:
  - {apiGroups: [apps], resources: [deployments], verbs: [get, patch], namespaces: [shop]}

Servers accept such a token only if the API server asks them about scopes: see
'gatehouse probe'.

Exit codes: 0 issued; 1 rejected, such as a user that Kubernetes reserves; 2 wrong
usage, the document cannot be written, or servers do not accept the token yet: only
then the token is shown.`,
		Example: `  # a token for a pipeline that is valid for 30 days, for the server that reads ./config
  TOKEN=$(gatehouse token issue --id ci --user ci-bot --group deployers --ttl 30d --config ./config)
  kubectl --token "$TOKEN" auth whoami

  # write the document to a file, for a Git repository, and show the token
  gatehouse token issue --user jane --group dev >access-token.yaml

  # a token for a program that may look into one namespace for an hour
  TOKEN=$(gatehouse token issue --user jane --scope view --namespace shop --ttl 1h --context prod)

  # a token that may only do what the rules in a file include
  TOKEN=$(gatehouse token issue --user jane --scope-file deploy.yaml --ttl 1h --context prod)

  # a token for the cluster of a context; every replica accepts it when it is shown
  TOKEN=$(gatehouse token issue --id ci --user ci-bot --group deployers --ttl 24h --context prod)`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.issue(cmd.Context(), s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.id, "id", "", "id of the token and name of its document, not a secret: lower-case letters, digits and dashes (default 12 random characters)")
	flags.StringVar(&f.user, "user", "", "name of the user that the token authenticates (required)")
	flags.StringVar(&f.uid, "uid", "", "uid of the user")
	flags.StringArrayVar(&f.groups, "group", nil, "group of the user; repeatable")
	flags.StringArrayVar(&f.extra, "extra", nil, "extra attribute of the user, KEY=VALUE; repeatable, also for several values of a key")
	flags.StringVar(&f.scope, "scope", "", "scope that bounds the token: view, edit, or one of the AuthenticationConfiguration (default: all rights of the user)")
	flags.StringVar(&f.scopeFile, "scope-file", "", "file with a scope for this token alone: rules, as spec.scope of an AccessToken has them")
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "with --scope or --scope-file, namespace to which the scope is narrowed; repeatable (default: all)")
	cli.RefuseEmpty(flags, "scope", "scope-file", "namespace")
	flags.StringArrayVar(&f.audiences, "audience", nil, "audience for which the token is valid; repeatable (default the audiences of the API server)")
	flags.DurationVar(&f.ttl, "ttl", defaultTokenTTL, "how long the token is valid, such as 12h or 30d")
	flags.BoolVar(&f.wait, "wait", true, "in a cluster, wait until every replica accepts the token")
	f.add(cmd, "directory of documents to which token-<id>.yaml is written, and whose guard checks the user")
	cli.AddOutputFlag(cmd, &f.output, "yaml", "json")
	cli.AddDryRunFlag(cmd, &f.dryRun)
	_ = cmd.MarkFlagRequired("user") // the flags exist
	return cmd
}

// tokenFlags are what the command line of token issue says, and what it needs
// of the world.
type tokenFlags struct {
	id, user, uid            string
	groups, extra, audiences []string
	scope, scopeFile         string
	namespaces               []string
	ttl                      time.Duration
	output                   string
	wait                     bool
	dryRun                   bool
	tokenPlace

	now    func() time.Time
	random io.Reader
}

// issuedToken is what token issue says as JSON.
type issuedToken struct {
	// Token is empty in a dry run.
	Token    string               `json:"token,omitempty"`
	Document v1alpha1.AccessToken `json:"document"`
}

func (f *tokenFlags) issue(ctx context.Context, s cli.Streams) error {
	issued, err := f.make()
	if err != nil {
		return err
	}
	if f.Given() {
		return f.issueInCluster(ctx, s, &issued)
	}
	store := tokens.Directory{Dir: f.config}
	var known tokens.Listing
	if f.config != "" {
		if known, err = store.List(ctx); err != nil {
			return err
		}
	}
	if err := f.judge(known.Spec, &issued); err != nil {
		return err
	}
	switch {
	case f.dryRun && f.config != "":
		return f.printDryRun(s, "would write "+store.TokenFile(issued.Document.Name), issued)
	case f.dryRun:
		return f.printDryRun(s, "would print the document", issued)
	case f.config == "":
		return f.print(s, "", issued, true)
	}
	file, err := store.Create(ctx, &issued.Document)
	if err != nil {
		return f.notCreated(err, file, issued.Document.Name)
	}
	listing, err := store.List(ctx)
	if err == nil {
		err = listingError(f.config, &listing, f.now())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("no token was issued: %w", err), os.Remove(file))
	}
	if err := f.print(s, file+" written", issued, true); err != nil {
		// Nobody has the token, so nobody needs its document.
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// make makes the token and its document, without judging either. Its error has everything that is
// wrong with the flags.
func (f *tokenFlags) make() (issued issuedToken, err error) {
	extra, err := parseExtra(f.extra)
	scope, scopeErr := f.readScope()
	problems := cli.Problems{err, scopeErr}
	problems.Add(f.ttl < time.Second, "--ttl %s: must be a second or more", f.ttl)
	if f.config != "" || f.Given() {
		problems = append(problems, f.one())
	}
	if err := problems.Err(); err != nil {
		return issued, err
	}
	var random [25]byte
	if _, err := io.ReadFull(f.random, random[:]); err != nil {
		return issued, fmt.Errorf("random bytes: %w", err)
	}
	id := f.id
	if id == "" {
		if id, err = randomID(f.random); err != nil {
			return issued, err
		}
	}
	text, hash := authn.NewToken(id, random)
	issued.Token = text
	now := f.now().UTC().Truncate(time.Second)
	issued.Document = v1alpha1.AccessToken{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AccessToken"},
		ObjectMeta: metav1.ObjectMeta{Name: id, CreationTimestamp: metav1.NewTime(now)},
		Spec: v1alpha1.AccessTokenSpec{
			SHA256:    hash,
			User:      authenticationv1.UserInfo{Username: f.user, UID: f.uid, Groups: f.groups, Extra: extra},
			ExpiresAt: metav1.NewTime(now.Add(f.ttl).Truncate(time.Second)),
			Audiences: f.audiences,
		},
	}
	issued.Document.Spec.Scope = scope
	return issued, nil
}

// readScope returns the scope that the flags name, nil for none.
func (f *tokenFlags) readScope() (*v1alpha1.TokenScope, error) {
	switch {
	case f.scope != "" && f.scopeFile != "":
		return nil, errors.New("--scope and --scope-file exclude each other")
	case f.scope != "":
		return &v1alpha1.TokenScope{Name: f.scope, Namespaces: f.namespaces}, nil
	case f.scopeFile == "" && len(f.namespaces) > 0:
		return nil, errors.New("--namespace needs --scope or --scope-file: it narrows the scope")
	case f.scopeFile == "":
		return nil, nil
	}
	text, err := cli.ReadFile(f.scopeFile, 1)
	if err != nil {
		return nil, fmt.Errorf("--scope-file: %q %w", f.scopeFile, err)
	}
	scope, err := config.DecodeScope(f.scopeFile, text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--scope-file: must have what spec.scope of an AccessToken has, such as rules:\n%w", err)
	case len(f.namespaces) == 0:
		return scope, nil
	case len(scope.Namespaces) > 0:
		return nil, fmt.Errorf("--namespace: %q has namespaces already", f.scopeFile)
	}
	scope.Namespaces = f.namespaces
	return scope, nil
}

// judge compiles the document as the server will, beside what is known and behind its guard, and
// refuses it if there is anything wrong with it. What is wrong with other documents is no error.
func (f *tokenFlags) judge(known authn.Spec, issued *issuedToken) error {
	// The last of the tokens, so that what two have in common is its fault.
	source := "the new token"
	known.Tokens = append(known.Tokens, authn.Token{Source: source, AccessToken: issued.Document})
	known.Now = f.now
	return f.tokenPlace.judge(known, source)
}

// print shows the token where it was asked for. It is the one place that does. What
// became of the document is "" if it is to be shown too.
func (f *tokenFlags) print(s cli.Streams, done string, issued issuedToken, good bool) error {
	if f.output == "json" || done == "" {
		if err := f.writeDocument(s.Out, &issued); err != nil || f.output == "json" {
			return err
		}
		_, err := fmt.Fprintln(s.Err, issued.Token)
		return err
	}
	if _, err := fmt.Fprintln(s.Out, issued.Token); err != nil {
		return err
	}
	until := "valid until"
	if !good {
		until = "not valid yet, expires at"
	}
	scope := ""
	if of := issued.Document.Spec.Scope; of != nil && of.Name != "" {
		scope = ", has the scope " + authz.ScopeText(of)
	} else if of != nil {
		scope = ", has a scope of " + authz.ScopeText(of)
	}
	// A remark; the token is out, so nothing hangs on it.
	_, _ = fmt.Fprintf(s.Err, "%s; the token is %s %s%s and is not shown again\n",
		done, until, issued.Document.Spec.ExpiresAt.Format(time.RFC3339), scope)
	return nil
}

// printDryRun shows the document without its token, which nobody can use.
func (f *tokenFlags) printDryRun(s cli.Streams, what string, issued issuedToken) error {
	issued.Token = ""
	if err := f.writeDocument(s.Out, &issued); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.Err, "dry run: %s; no token was issued\n", what) // a remark
	return nil
}

// writeDocument writes the document alone, or as JSON with the token.
func (f *tokenFlags) writeDocument(out io.Writer, issued *issuedToken) error {
	return writeDocument(out, f.output, issued.Document, issued)
}

// parseExtra reads KEY=VALUE flags.
func parseExtra(flags []string) (map[string]authenticationv1.ExtraValue, error) {
	var extra map[string]authenticationv1.ExtraValue
	var problems []error
	for _, flag := range flags {
		key, value, found := strings.Cut(flag, "=")
		if !found {
			problems = append(problems, fmt.Errorf("--extra %q: must be KEY=VALUE (hint: --extra example.org/team=blue)", flag))
			continue
		}
		if extra == nil {
			extra = map[string]authenticationv1.ExtraValue{}
		}
		extra[key] = append(extra[key], value)
	}
	return extra, errors.Join(problems...)
}

// randomID returns an id of 12 characters: 60 bits, so that nobody meets another's.
func randomID(random io.Reader) (string, error) {
	var data [8]byte
	if _, err := io.ReadFull(random, data[:]); err != nil {
		return "", fmt.Errorf("random bytes: %w", err)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(data[:]))[:12], nil
}
