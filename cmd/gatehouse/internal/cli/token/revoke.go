package token

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

func newTokenRevokeCommand(s cli.Streams) *cobra.Command {
	f := tokenRevokeFlags{now: time.Now, random: rand.Reader}
	cmd := &cobra.Command{
		Use:   "revoke (--config DIR | --context NAME) [ID...]",
		Short: "Revoke access tokens, or all tokens of a user",
		Long: `Revoke deletes the documents of access tokens. It deletes files that contain nothing
else; remove a document from a file with other documents yourself.

With --user it deletes all access tokens of the user and creates a TokenRevocation,
revocation-<random>.yaml: everything that was issued to the user before now is
rejected, including JWTs and login tokens. The user can log in again: to prevent
that, also remove the user from the directory or the issuer. Revoke rejects a name
that no user can have, such as one without the prefix of a directory, unless
--unknown-user is set.

With --kubeconfig, --context or --in-cluster it deletes the custom resources of that
cluster and creates the TokenRevocation there. It cannot check there which names the
directories and issuers give; the servers warn about a name that no user can have.

An id can also be given as a whole access token, for example one that leaked.

With --dry-run nothing changes. With -o json standard output has an object with the
deleted tokens and the TokenRevocation.

Exit codes: 0 revoked, 1 there is no such token or user, 2 bad usage, or something
could not be deleted, or some documents cannot be read and may contain the token.
Everything else is deleted all the same.`,
		Example: `  gatehouse token revoke --config ./config ci
  gatehouse token revoke --config ./config --user jane --reason "laptop stolen, INC-4711"

  gatehouse token revoke --context prod ci

  # show what would be deleted
  gatehouse token revoke --config ./config --user jane --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args, cmd.Flags().Changed("user")); err != nil {
				return err
			}
			return f.revoke(cmd.Context(), s)
		},
	}
	flags := cmd.Flags()
	f.add(cmd, "directory of documents")
	flags.StringVar(&f.user, "user", "", "revoke everything that was issued to this user; the name as the API server sees it, with its prefix")
	flags.BoolVar(&f.unknownUser, "unknown-user", false, "with --user, accept a name that no user can have by the documents in --config")
	flags.StringVar(&f.reason, "reason", "", "reason to store in the TokenRevocation, with --user")
	cli.AddDryRunFlag(cmd, &f.dryRun)
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

// tokenRevokeFlags are what the command line of token revoke says, and what it
// needs of the world.
type tokenRevokeFlags struct {
	tokenPlace
	user, reason, output string
	unknownUser          bool
	dryRun               bool
	ids                  []string
	// report is what was done.
	report revokeReport

	now    func() time.Time
	random io.Reader
}

// revokeReport is what token revoke says as JSON. With DryRun it is what would be
// done.
type revokeReport struct {
	DryRun bool `json:"dryRun"`
	// Revocation is the TokenRevocation that was written.
	Revocation *writtenRevocation `json:"revocation,omitempty"`
	Removed    []removedToken     `json:"removed"`
}

type writtenRevocation struct {
	Name string `json:"name"`
	// User has a name and nothing else.
	User         authenticationv1.UserInfo `json:"user"`
	IssuedBefore time.Time                 `json:"issuedBefore"`
	// File is empty in a dry run, and in a cluster.
	File string `json:"file,omitempty"`
}

type removedToken struct {
	ID   string                    `json:"id"`
	User authenticationv1.UserInfo `json:"user"`
	// File is empty in a cluster.
	File string `json:"file,omitempty"`
}

// check reports everything that is wrong with the command line, and keeps the
// ids. What may be a token is never repeated.
func (f *tokenRevokeFlags) check(args []string, ofUser bool) error {
	var problems cli.Problems
	problems.Add(ofUser && f.user == "", `--user "": must not be empty`)
	problems.Add(ofUser && f.user != "" && len(args) > 0, "ids and --user exclude each other: --user revokes all tokens of the user")
	problems.Add(!ofUser && len(args) == 0, "nothing to revoke (hint: the ids of tokens, as '%s token list' shows them, or --user)", cli.DisplayName(os.Args[0]))
	problems.Add(f.reason != "" && !ofUser, "--reason needs --user: a deleted token stores no reason")
	problems.Add(f.unknownUser && !ofUser, "--unknown-user needs --user")
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "gatehouse_"):
			id, err := authn.ParseToken(arg)
			if err != nil {
				problems = append(problems, fmt.Errorf("argument %d: %w", i+1, err))
				continue
			}
			arg = id
		case cli.LooksLikeToken(arg):
			problems = append(problems, fmt.Errorf("argument %d: this may be a login token or a JWT, which have no document (hint: --user NAME revokes all tokens of the user)", i+1))
			continue
		}
		if !slices.Contains(f.ids, arg) {
			f.ids = append(f.ids, arg)
		}
	}
	return append(problems, f.one()).Err()
}

// revoke revokes, and reports what was done, however it ends.
func (f *tokenRevokeFlags) revoke(ctx context.Context, s cli.Streams) error {
	store, err := f.open(s)
	if err != nil {
		return err
	}
	err = f.withdraw(ctx, s, store)
	if f.output != "json" {
		return err
	}
	f.report.DryRun = f.dryRun
	if f.report.Removed == nil {
		f.report.Removed = []removedToken{} // nothing is no null
	}
	return errors.Join(cli.WriteJSONLine(s.Out, &f.report), err)
}

// say says on one line what was done, unless the report does.
func (f *tokenRevokeFlags) say(s cli.Streams, format string, args ...any) error {
	if f.output == "json" {
		return nil
	}
	_, err := fmt.Fprintf(s.Out, format, args...)
	return err
}

func (f *tokenRevokeFlags) withdraw(ctx context.Context, s cli.Streams, store tokens.Store) error {
	// The revocation comes first: it ends whatever the rest fails at.
	if f.user != "" {
		if err := f.checkUser(ctx, store); err != nil {
			return err
		}
		if err := f.revokeUser(ctx, s, store); err != nil {
			return err
		}
	}
	removed, listing, err := f.remove(ctx, s, store)
	problems := []error{err}
	if f.user != "" || removed > 0 {
		_, _ = io.WriteString(s.Err, f.effect()) // a remark
		if !f.dryRun && !f.Given() {
			problems = append(problems, listingErrorAfter(f.config, listing))
		}
	}
	return cli.Worst(problems)
}

// remove removes the tokens, and returns what is left.
func (f *tokenRevokeFlags) remove(ctx context.Context, s cli.Streams, store tokens.Store) (removed int, listing *tokens.Listing, err error) {
	before, err := store.List(ctx)
	if err != nil {
		return 0, nil, err
	}
	wanted := slices.DeleteFunc(slices.Clone(before.Tokens), func(t authn.Token) bool { return !f.wants(&t) })
	slices.SortFunc(wanted, func(a, b authn.Token) int { return strings.Compare(a.Name, b.Name) })
	var problems []error
	missing, verb := slices.Clone(f.ids), "removed"
	if f.dryRun {
		verb = "would remove"
	}
	for i, r := range store.Delete(ctx, wanted, f.dryRun) {
		if errors.Is(r.Err, tokens.ErrNotFound) {
			continue // somebody else was faster
		}
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == r.ID })
		if r.Err != nil {
			problems = append(problems, fmt.Errorf("AccessToken %q: %w", r.ID, r.Err))
			continue
		}
		removed++
		user := wanted[i].Spec.User
		f.report.Removed = append(f.report.Removed, removedToken{ID: r.ID, User: user, File: f.file(r.Place)})
		if err := f.say(s, "%s AccessToken %s of %s, in %s\n", verb, strict.Printable(r.ID), strict.Printable(user.Username), f.placeText(r.Place)); err != nil {
			return removed, nil, err
		}
	}
	for _, id := range missing {
		problems = append(problems, f.notThere(id, &before))
	}
	if f.user != "" && removed == 0 && len(problems) == 0 {
		_, _ = fmt.Fprintf(s.Err, "%s has no access token\n", strict.Printable(f.user)) // a remark
	}
	after, err := store.List(ctx)
	return removed, &after, errors.Join(append(problems, err)...)
}

// notThere returns the error for an id of which no document can be read. It is a plain
// no if there is nothing that cannot be read: servers may have the token from
// before.
func (f *tokenRevokeFlags) notThere(id string, listing *tokens.Listing) error {
	program, shown := cli.DisplayName(os.Args[0]), strconv.Quote(id)
	if len(validation.IsDNS1123Label(id)) > 0 { // no id, so it may be anything
		shown = "of this id"
	}
	if !f.Given() && slices.ContainsFunc(listing.Found, mayHideTokens) {
		return fmt.Errorf("cannot decide whether there is an AccessToken %s in %s: some documents cannot be read, and servers may still accept the token "+
			"(hint: %s lint --config %s; or %s token revoke --config %s --user NAME, which revokes all tokens of its user)", shown, f.config, program, shell.Quote(f.config), program, shell.Quote(f.config))
	}
	return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("there is no AccessToken %s in %s (hint: %s token list%s)", shown, f.where(), program, f.flags())}
}

// mayHideTokens reports whether an error is about what may be an access token, and
// cannot be read.
func mayHideTokens(one diagnostic.Diagnostic) bool {
	kind, _, known := strings.Cut(one.Object, "/")
	return one.Severity == diagnostic.Error && (!known || kind == "AccessToken" || strings.HasSuffix(kind, "List"))
}

func (f *tokenRevokeFlags) wants(t *authn.Token) bool {
	if f.user != "" {
		return t.Spec.User.Username == f.user
	}
	return slices.Contains(f.ids, t.Name)
}

// checkUser refuses a name that nobody can have: its revocation would look like a
// success and end nothing. In a cluster the servers tell.
func (f *tokenRevokeFlags) checkUser(ctx context.Context, store tokens.Store) error {
	if f.unknownUser || f.Given() {
		return nil
	}
	listing, err := store.List(ctx)
	if err != nil {
		return err
	}
	problem, hint := authn.NoSuchUser(&listing.Spec, f.user)
	if problem == "" {
		return nil
	}
	if listing.Found.Err() != nil {
		problem += ", as far as " + f.config + " can be read"
	}
	return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("nothing was revoked: --user: %s (hint: %s; --unknown-user revokes it anyway)", problem, hint)}
}

// revokeUser writes the revocation of all that the user has.
func (f *tokenRevokeFlags) revokeUser(ctx context.Context, s cli.Streams, store tokens.Store) error {
	id, err := randomID(f.random)
	if err != nil {
		return err
	}
	// Tokens say the second in which they were issued, so that of this one ends
	// too.
	before := metav1.NewTime(f.now().UTC().Truncate(time.Second).Add(time.Second))
	revocation := &v1alpha1.TokenRevocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TokenRevocation"},
		ObjectMeta: metav1.ObjectMeta{Name: "revocation-" + id[:8]},
		Spec:       v1alpha1.TokenRevocationSpec{User: f.user, IssuedBefore: before, Reason: f.reason},
	}
	_, err = authn.Compile(authn.Spec{
		Revocations: []authn.Revocation{{Source: "the revocation", TokenRevocation: *revocation}}, Now: f.now,
	})
	if list, ok := errors.AsType[diagnostic.List](err); ok {
		return fmt.Errorf("nothing was revoked:\n%w", list)
	}
	if err != nil {
		return err
	}
	verb := "would write"
	report := &writtenRevocation{Name: revocation.Name, User: authenticationv1.UserInfo{Username: f.user}, IssuedBefore: before.UTC()}
	place, err := store.Revoke(ctx, revocation, f.dryRun)
	if errors.Is(err, tokens.ErrRefused) {
		return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("nothing was revoked:\n%w", err)}
	}
	if err != nil {
		return fmt.Errorf("nothing was revoked: %w", err)
	}
	if !f.dryRun {
		verb, report.File = "wrote", f.file(place)
	}
	f.report.Revocation = report
	return f.say(s, "%s a TokenRevocation, in %s: everything issued to %s before %s is rejected, including JWTs and login tokens\n",
		verb, f.placeText(place), strict.Printable(f.user), before.Format(time.RFC3339))
}

// placeText returns the place of a document in a sentence.
func (f *tokenRevokeFlags) placeText(place string) string {
	if f.Given() {
		return f.where()
	}
	return place
}

// effect says from when on what was revoked is refused.
func (f *tokenRevokeFlags) effect() string {
	servers := "servers that read " + f.config
	switch {
	case f.dryRun:
		return "nothing was changed\n"
	case f.Given():
		servers = "servers with --custom-resources"
	}
	return servers + " reject the revoked tokens within seconds; API servers keep cached answers for\n" +
		"--authentication-token-webhook-cache-ttl (default 2m) and 10s more\n"
}

// listingErrorAfter tells that servers may not use what was changed. Removals and
// revocations they take over all the same, but not where nothing can be told of
// the directory as a whole.
func listingErrorAfter(dir string, listing *tokens.Listing) error {
	if listing == nil {
		return nil
	}
	at := slices.IndexFunc(listing.Found, func(one diagnostic.Diagnostic) bool { return one.Severity == diagnostic.Error })
	if at < 0 {
		return nil
	}
	first := listing.Found[at]
	if first.Source == dir {
		return fmt.Errorf("%s: servers keep the previous configuration, INCLUDING WHAT WAS REVOKED, until you fix the directory or restart them", first)
	}
	return fmt.Errorf("there are errors in %s: tokens in documents that cannot be read are not revoked, and stay valid while servers use the previous configuration (hint: %s lint --config %s):\n  %s", dir, cli.DisplayName(os.Args[0]), shell.Quote(dir), first)
}
