package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

func newGrantListCommand(s cli.Streams) *cobra.Command {
	f := grantListFlags{listFlags{tokenPlace: tokenPlace{grants: true}, now: time.Now}}
	cmd := &cobra.Command{
		Use:   "list (--config DIR | --context NAME)",
		Short: "List Grants and what is left of them",
		Long: `List shows the Grants in a directory or a cluster, by name: the user, the groups, who
granted them, when they end, how long that is from now, and the state:

  active    servers give the groups
  notyet    it begins later
  expired   it has ended
  unused    servers give nothing; standard error shows why (cluster only)
  pending   no server has reported yet whether it uses it (cluster only)

Exit codes: 0 listed; 2 wrong usage, or errors in the directory: the list may then be
incomplete.`,
		Example: `  gatehouse grant list --context prod
  gatehouse grant list --context prod --user jane@example.com -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.list(cmd.Context(), s) },
	}
	f.add(cmd)
	return cmd
}

type grantListFlags struct{ listFlags }

// listedGrant is a Grant as it is listed.
type listedGrant struct {
	Name      string     `json:"name"`
	User      string     `json:"user"`
	Groups    []string   `json:"groups"`
	Reason    string     `json:"reason,omitempty"`
	GrantedBy string     `json:"grantedBy,omitempty"`
	NotBefore *time.Time `json:"notBefore,omitempty"`
	ExpiresAt time.Time  `json:"expiresAt"`
	// LeftSeconds is for how long an active Grant gives its groups from now on.
	LeftSeconds int64  `json:"leftSeconds,omitempty"`
	State       string `json:"state"`
	// File is the file of the document. It is empty for an object of a cluster.
	File string `json:"file,omitempty"`
}

func (f *grantListFlags) list(ctx context.Context, s cli.Streams) error {
	store, err := f.open(s)
	if err != nil {
		return err
	}
	listing, err := store.ListGrants(ctx)
	if err != nil {
		return err
	}
	now := f.now()
	var rows []listedGrant
	for i := range listing.Grants {
		if g := &listing.Grants[i]; f.shows(g.Spec.Subject.User) {
			rows = append(rows, f.listed(&listing, g, now))
		}
	}
	slices.SortFunc(rows, func(a, b listedGrant) int { return strings.Compare(a.Name, b.Name) })
	if err := f.print(s, rows, now); err != nil {
		return err
	}
	for i := range rows {
		if why, unused := listing.Unused[rows[i].Name]; unused {
			_, _ = fmt.Fprintf(s.Err, "Grant/%s gives nothing: %s\n", strict.Printable(rows[i].Name), cli.OneLine(why)) // remarks
		}
	}
	if f.Given() {
		return nil
	}
	return listingError(f.config, &listing, now)
}

func (f *grantListFlags) listed(listing *tokens.Listing, g *authn.Grant, now time.Time) listedGrant {
	row := listedGrant{
		Name: g.Name, User: g.Spec.Subject.User, Groups: g.Spec.Groups, Reason: g.Spec.Reason, GrantedBy: g.Spec.GrantedBy,
		ExpiresAt: g.Spec.ExpiresAt.UTC(), State: strings.ToLower(string(g.Spec.PhaseAt(now))), File: f.file(g.Source),
	}
	if !g.Spec.NotBefore.IsZero() {
		row.NotBefore = new(g.Spec.NotBefore.UTC())
	}
	_, unused := listing.Unused[g.Name]
	switch {
	case unused:
		row.State = string(stateUnused)
	case listing.Pending[g.Name]:
		row.State = string(statePending)
	case g.Spec.PhaseAt(now) == v1alpha1.GrantActive:
		row.LeftSeconds = int64(row.ExpiresAt.Sub(now) / time.Second)
	}
	return row
}

func (f *grantListFlags) print(s cli.Streams, rows []listedGrant, now time.Time) error {
	return writeRows(s, &f.listFlags, rows, []string{"NAME", "USER", "GROUPS", "GRANTED BY", "EXPIRES", "LEFT", "STATE"}, func(row *listedGrant) []string {
		left := "-"
		if row.LeftSeconds > 0 {
			left = duration.HumanDuration(row.ExpiresAt.Sub(now))
		}
		return []string{
			strict.Printable(row.Name), cmp.Or(strict.Printable(row.User), "-"), cmp.Or(joined(row.Groups), "-"), cmp.Or(strict.Printable(row.GrantedBy), "-"),
			cli.FormatTime(&row.ExpiresAt), left, row.State,
		}
	})
}

func newGrantRevokeCommand(s cli.Streams) *cobra.Command {
	f := grantRevokeFlags{tokenPlace: tokenPlace{grants: true}}
	cmd := &cobra.Command{
		Use:   "revoke (--config DIR | --context NAME) NAME...",
		Short: "Revoke Grants by deleting them",
		Long: `Revoke deletes Grants, so that their groups end at once. In a directory it deletes files
that contain nothing else; remove a document from a file with other documents yourself.
An API server that remembers the token of the user uses the groups for
--authentication-token-webhook-cache-ttl longer, 2 minutes by default.

What the user did with the groups stays, such as RoleBindings and tokens of service
accounts.

Exit codes: 0 revoked; 1 there is no such Grant; 2 wrong usage, or one could not be
deleted. Everything else is deleted all the same.`,
		Example: `  gatehouse grant revoke --context prod incident-4711
  gatehouse grant revoke --config ./config incident-4711`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("nothing to revoke: name a Grant (hint: gatehouse grant list shows the names)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.revoke(cmd.Context(), s, args) },
	}
	f.add(cmd, "directory of documents")
	cli.AddDryRunFlag(cmd, &f.dryRun)
	return cmd
}

type grantRevokeFlags struct {
	tokenPlace
	dryRun bool
}

func (f *grantRevokeFlags) revoke(ctx context.Context, s cli.Streams, names []string) error {
	store, err := f.open(s)
	if err != nil {
		return err
	}
	listing, err := store.ListGrants(ctx)
	if err != nil {
		return fmt.Errorf("nothing was revoked: %w", err)
	}
	verb, done := "removed", false
	if f.dryRun {
		verb = "would remove"
	}
	var problems []error
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		place, err := "", tokens.ErrNotFound
		at := slices.IndexFunc(listing.Grants, func(g authn.Grant) bool { return g.Name == name })
		if at >= 0 {
			place, err = store.DeleteGrant(ctx, &listing.Grants[at], f.dryRun)
		}
		switch {
		case errors.Is(err, tokens.ErrNotFound) && listing.Found.Err() != nil:
			problems = append(problems, fmt.Errorf("cannot decide whether there is a Grant %.100q in %s: some documents cannot be read", name, f.config))
		case errors.Is(err, tokens.ErrNotFound):
			problems = append(problems, &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("there is no Grant %.100q in %s (hint: %s grant list%s)", name, f.where(), cli.DisplayName(os.Args[0]), f.flags())})
		case err != nil:
			problems = append(problems, fmt.Errorf("the Grant %q: %w", name, err))
		default:
			done = true
			spec := &listing.Grants[at].Spec
			if _, err := fmt.Fprintf(s.Out, "%s Grant %s of %s to %s, in %s\n", verb, strict.Printable(name), joined(spec.Groups), strict.Printable(spec.Subject.User), f.placeText(place)); err != nil {
				return err
			}
		}
	}
	switch {
	case done && f.dryRun:
		_, _ = io.WriteString(s.Err, "nothing was changed\n") // a remark
	case done:
		_, _ = io.WriteString(s.Err, "servers stop giving the groups within seconds; "+authn.CachedLonger+"\n") // a remark
	}
	return cli.Worst(problems)
}
