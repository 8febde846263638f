package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

func newTokenListCommand(s cli.Streams) *cobra.Command {
	f := tokenListFlags{listFlags{now: time.Now}}
	cmd := &cobra.Command{
		Use:   "list (--config DIR | --context NAME)",
		Short: "List access tokens",
		Long: `List shows the access tokens in a directory or a cluster: the user, the scope, when
each was issued, when it expires, when it was last used, and its state. A token without
a scope can do what its user may do. With -o json, the rules of a scope are shown, too.
It never shows a hash.

In a cluster, the time of the last use is rounded to the hour. It can be older than
the last use, because an API server does not ask about a token that is in its cache.

  good      servers accept it
  expired   it has expired
  revoked   a TokenRevocation revokes it
  unused    servers reject it; standard error shows why (cluster only)
  pending   no server has reported yet whether it accepts it (cluster only)

Exit codes: 0 listed, 2 wrong usage, or errors in the directory, for which the list
may be incomplete.`,
		Example: `  gatehouse token list --config ./config
  gatehouse token list --context prod

  # revoke the expired tokens
  for id in $(gatehouse token list --config ./config -o json | jq -r 'select(.state == "expired").id'); do
    gatehouse token revoke --config ./config "$id"
  done`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.list(cmd.Context(), s)
		},
	}
	f.add(cmd)
	return cmd
}

// tokenListFlags are what the command line of token list says.
type tokenListFlags struct{ listFlags }

// tokenState is what a token is worth.
type tokenState string

const (
	stateGood    tokenState = "good"
	stateExpired tokenState = "expired"
	stateRevoked tokenState = "revoked"
	// stateUnused is of one that is in a cluster and has errors.
	stateUnused tokenState = "unused"
	// statePending is of one in a cluster that no server has reported of.
	statePending tokenState = "pending"
)

// listedToken is a token as token list shows it.
type listedToken struct {
	ID   string                    `json:"id"`
	User authenticationv1.UserInfo `json:"user"`
	// Scope bounds the token. It is nil for one that may do what its user may do.
	Scope      *v1alpha1.TokenScope `json:"scope,omitempty"`
	Audiences  []string             `json:"audiences,omitempty"`
	IssuedAt   *time.Time           `json:"issuedAt,omitempty"`
	ExpiresAt  time.Time            `json:"expiresAt"`
	LastUsedAt *time.Time           `json:"lastUsedAt,omitempty"`
	State      tokenState           `json:"state"`
	// RevokedBy is the name of the TokenRevocation that ends the token.
	RevokedBy string `json:"revokedBy,omitempty"`
	// File is the file of the document. It is empty for an object of a cluster.
	File string `json:"file,omitempty"`
}

func (f *tokenListFlags) list(ctx context.Context, s cli.Streams) error {
	store, err := f.open(s)
	if err != nil {
		return err
	}
	listing, err := store.List(ctx)
	if err != nil {
		return err
	}
	var rows []listedToken
	now := f.now()
	for i := range listing.Tokens {
		if token := &listing.Tokens[i]; f.shows(token.Spec.User.Username) {
			rows = append(rows, f.listed(&listing, token, now))
		}
	}
	slices.SortFunc(rows, func(a, b listedToken) int { return strings.Compare(a.ID, b.ID) })
	if err := f.print(s, rows); err != nil {
		return err
	}
	if f.Given() {
		return f.remark(s, rows, &listing)
	}
	return listingError(f.config, &listing, now)
}

// remark says of what is in the cluster why it is not used.
func (f *tokenListFlags) remark(s cli.Streams, rows []listedToken, listing *tokens.Listing) error {
	for i := range rows {
		name := strict.Printable(rows[i].ID)
		if why, unused := listing.Unused[rows[i].ID]; unused {
			_, _ = fmt.Fprintf(s.Err, "AccessToken/%s is not used: %s\n", name, cli.OneLine(why)) // remarks
		}
	}
	if err := listing.Found.Err(); err != nil {
		return fmt.Errorf("these TokenRevocations have errors and revoke nothing:\n%w", err)
	}
	return nil
}

func (f *tokenListFlags) listed(listing *tokens.Listing, token *authn.Token, now time.Time) listedToken {
	row := listedToken{
		ID: token.Name, User: token.Spec.User, Scope: token.Spec.Scope, Audiences: token.Spec.Audiences,
		ExpiresAt: token.Spec.ExpiresAt.UTC(), State: stateGood, File: f.file(token.Source),
	}
	if issued := token.CreationTimestamp.UTC(); !issued.IsZero() {
		row.IssuedAt = &issued
	}
	if last := token.Status.LastUsed; last != nil {
		row.LastUsedAt = new(last.UTC())
	}
	revocation, revoked := listing.RevokedBy(&token.AccessToken)
	_, unused := listing.Unused[token.Name]
	switch {
	case unused:
		row.State = stateUnused
	case revoked:
		row.State = stateRevoked
		row.RevokedBy = revocation.Name
	case !now.Before(row.ExpiresAt):
		row.State = stateExpired
	case listing.Pending[token.Name]:
		row.State = statePending
	}
	return row
}

func (f *tokenListFlags) print(s cli.Streams, rows []listedToken) error {
	return writeRows(s, &f.listFlags, rows, []string{"ID", "USER", "GROUPS", "SCOPE", "ISSUED", "EXPIRES", "LAST USED", "STATE"}, func(row *listedToken) []string {
		scope := "-"
		if row.Scope != nil {
			scope = strict.Printable(authz.ScopeText(row.Scope))
		}
		return []string{
			strict.Printable(row.ID), cmp.Or(strict.Printable(row.User.Username), "-"), cmp.Or(joined(row.User.Groups), "-"), scope,
			cli.FormatTime(row.IssuedAt), cli.FormatTime(&row.ExpiresAt), cli.FormatTime(row.LastUsedAt), string(row.State),
		}
	})
}

// joined returns the first items of a list for a cell of a table.
func joined(list []string) string {
	const most = 3
	more := ""
	if len(list) > most {
		more = fmt.Sprintf(",… (%d)", len(list))
		list = list[:most]
	}
	shown := make([]string, len(list))
	for i, text := range list {
		shown[i] = strict.Printable(text)
	}
	return strings.Join(shown, ",") + more
}

// listingError returns an error if there are errors where the tokens are: servers do not
// use what they cannot use whole.
func listingError(dir string, listing *tokens.Listing, now time.Time) error {
	spec := listing.Spec
	spec.Now = func() time.Time { return now }
	_, err := authn.Compile(spec)
	var compiled diagnostic.List
	if err != nil && !errors.As(err, &compiled) {
		return err
	}
	found := slices.DeleteFunc(slices.Concat(listing.Found, compiled), func(one diagnostic.Diagnostic) bool { return one.Severity != diagnostic.Error })
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s in %s: documents that cannot be read are left out, and servers use none of the directory until you fix that (hint: %s lint --config %s):\n  %s",
		diagnostic.Count(len(found), "error"), dir, cli.DisplayName(os.Args[0]), shell.Quote(dir), found[0])
}
