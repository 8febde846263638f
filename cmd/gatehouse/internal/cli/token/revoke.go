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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
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
		Long: `Revoke deletes the documents of access tokens, which you name by their ids or by the
tokens themselves. In a directory it deletes only files without other documents.
With --user it instead rejects everything that was issued to the user until now,
login tokens and JWTs too: it creates a TokenRevocation.

The user can log in again afterwards. To prevent that, also lock the account in the
directory or at the issuer.

Exit codes: 0 revoked, 1 there is no such token, 2 wrong usage, something could not
be deleted, or a document that may hold the token cannot be read. Everything else is
revoked all the same.`,
		Example: `  gatehouse token revoke --config ./config ci
  gatehouse token revoke --config ./config --user jane --reason "laptop stolen, INC-4711"

  gatehouse token revoke --context prod ci`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args, cmd.Flags().Changed("user")); err != nil {
				return err
			}
			return f.revoke(cmd.Context(), s)
		},
	}
	flags := cmd.Flags()
	f.add(cmd, "directory of documents")
	flags.StringVar(&f.user, "user", "", "revoke everything that was issued to this user, named as in kubectl auth whoami, with its prefix")
	flags.StringVar(&f.reason, "reason", "", "with --user, reason to store in the TokenRevocation")
	cli.AddDryRunFlag(cmd, &f.dryRun)
	return cmd
}

// tokenRevokeFlags are what the command line of token revoke says, and what it
// needs of the world.
type tokenRevokeFlags struct {
	tokenPlace
	user, reason string
	dryRun       bool
	ids          []string

	now    func() time.Time
	random io.Reader
}

// check reports everything that is wrong with the command line, and keeps the
// ids. What may be a token is never repeated.
func (f *tokenRevokeFlags) check(args []string, ofUser bool) error {
	var problems cli.Problems
	problems.Add(ofUser && f.user == "", `--user "": must not be empty`)
	problems.Add(ofUser && f.user != "" && len(args) > 0, "ids and --user exclude each other: --user revokes all tokens of the user")
	problems.Add(!ofUser && len(args) == 0, "nothing to revoke (hint: the ids of tokens, as '%s token list' shows them, or --user)", cli.DisplayName(os.Args[0]))
	problems.Add(f.reason != "" && !ofUser, "--reason needs --user: a deleted token stores no reason")
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

// revoke revokes, and says from when on that has effect.
func (f *tokenRevokeFlags) revoke(ctx context.Context, s cli.Streams) error {
	store, err := f.open(s)
	if err != nil {
		return err
	}
	var before tokens.Listing
	if f.user == "" || !f.Given() {
		if before, err = store.List(ctx); err != nil {
			return fmt.Errorf("nothing was revoked: %w", err)
		}
	}
	revoke := f.remove
	if f.user != "" {
		revoke = f.revokeUser
	}
	done, err := revoke(ctx, s, store, &before)
	switch {
	case !done:
		return err
	case f.dryRun:
		_, _ = io.WriteString(s.Err, "nothing was changed\n") // a remark
		return err
	case f.Given():
		f.effect(s, "servers with --custom-resources")
		return err
	}
	f.effect(s, "servers that read "+f.config)
	after, listErr := store.List(ctx)
	if listErr == nil {
		listErr = listingError(f.config, &after, f.now())
	}
	return cli.Worst([]error{err, listErr})
}

// effect says from when on what was revoked is refused.
func (*tokenRevokeFlags) effect(s cli.Streams, servers string) {
	_, _ = io.WriteString(s.Err, servers+" reject the revoked tokens within seconds; API servers keep cached answers for\n"+
		"--authentication-token-webhook-cache-ttl (default 2m) and 10s more\n") // a remark
}

// remove removes the tokens of the ids, and reports whether any was.
func (f *tokenRevokeFlags) remove(ctx context.Context, s cli.Streams, store tokens.Store, listing *tokens.Listing) (done bool, err error) {
	verb := "removed"
	if f.dryRun {
		verb = "would remove"
	}
	var problems []error
	for _, id := range f.ids {
		at := slices.IndexFunc(listing.Tokens, func(t authn.Token) bool { return t.Name == id })
		if at < 0 {
			problems = append(problems, f.notThere(id, listing))
			continue
		}
		token := &listing.Tokens[at]
		place, err := store.Delete(ctx, token, f.dryRun)
		if errors.Is(err, tokens.ErrNotFound) {
			problems = append(problems, f.notThere(id, listing))
			continue
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("AccessToken %q: %w", id, err))
			continue
		}
		done = true
		if _, err := fmt.Fprintf(s.Out, "%s AccessToken %s of %s, in %s\n", verb, strict.Printable(id), strict.Printable(token.Spec.User.Username), f.placeText(place)); err != nil {
			return done, err
		}
	}
	return done, cli.Worst(problems)
}

// notThere returns the error for an id of which there is no document. It is a plain no if
// there is nothing that cannot be read: servers may have the token from before.
func (f *tokenRevokeFlags) notThere(id string, listing *tokens.Listing) error {
	shown := strconv.Quote(id)
	if len(validation.IsDNS1123Label(id)) > 0 { // no id, so it may be anything
		shown = "of this id"
	}
	if err := listing.Found.Err(); err != nil && !f.Given() {
		return fmt.Errorf("cannot decide whether there is an AccessToken %s in %s: some documents cannot be read, and servers may still accept the token (hint: %s lint --config %s; or revoke all tokens of its user with --user NAME)",
			shown, f.config, cli.DisplayName(os.Args[0]), shell.Quote(f.config))
	}
	return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("there is no AccessToken %s in %s (hint: %s token list%s)", shown, f.where(), cli.DisplayName(os.Args[0]), f.flags())}
}

// revokeUser writes the revocation of all that the user has.
func (f *tokenRevokeFlags) revokeUser(ctx context.Context, s cli.Streams, store tokens.Store, listing *tokens.Listing) (done bool, err error) {
	id, err := randomID(f.random)
	if err != nil {
		return false, err
	}
	// Tokens say the second in which they were issued, so that of this one ends
	// too.
	before := metav1.NewTime(f.now().UTC().Truncate(time.Second).Add(time.Second))
	revocation := &v1alpha1.TokenRevocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TokenRevocation"},
		ObjectMeta: metav1.ObjectMeta{Name: "revocation-" + id[:8]},
		Spec:       v1alpha1.TokenRevocationSpec{User: f.user, IssuedBefore: before, Reason: f.reason},
	}
	if err := f.judge(s, listing.Spec, revocation); err != nil {
		return false, err
	}
	place, err := store.Revoke(ctx, revocation, f.dryRun)
	if errors.Is(err, tokens.ErrRefused) {
		return false, &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("nothing was revoked:\n%w", err)}
	}
	if err != nil {
		return false, fmt.Errorf("nothing was revoked: %w", err)
	}
	verb := "would write"
	if !f.dryRun {
		verb = "wrote"
		sleep.Context(ctx, before.Sub(f.now())) // what is issued next is good
	}
	_, err = fmt.Fprintf(s.Out, "%s a TokenRevocation, in %s: everything issued to %s before %s is rejected, including JWTs and login tokens\n",
		verb, f.placeText(place), strict.Printable(f.user), before.Format(time.RFC3339))
	return true, err
}

// judge compiles a revocation as the server will, beside what is known. Its warnings are remarks.
func (f *tokenRevokeFlags) judge(s cli.Streams, known authn.Spec, revocation *v1alpha1.TokenRevocation) error {
	source := "the revocation"
	known.Revocations, known.Now = []authn.Revocation{{Source: source, TokenRevocation: *revocation}}, f.now
	found, err := diagnose(known, source)
	for _, one := range found {
		if one.Severity == diagnostic.Error {
			return fmt.Errorf("nothing was revoked:\n%w", diagnostic.List{one})
		}
		_, _ = fmt.Fprintln(s.Err, one.String()) // a remark
	}
	return err
}
