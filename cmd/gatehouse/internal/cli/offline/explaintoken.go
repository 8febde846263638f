package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/groups"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/issuers"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// tokenFileFlag is the flag that makes explain explain a token.
const tokenFileFlag = "token-file"

// explainTokenFlags are the flags of explain about a token, and what explaining one needs.
type explainTokenFlags struct {
	file      string
	audiences []string
	fetchKeys bool
	askGroups bool
	canI      string

	now   func() time.Time
	fetch func(context.Context, authn.Issuer) (*jwt.KeySet, error)
}

func newExplainTokenFlags() explainTokenFlags {
	return explainTokenFlags{now: time.Now, fetch: issuers.Fetch}
}

func (f *explainTokenFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.file, tokenFileFlag, "", "file with a bearer token to explain in place of manifests, or - for standard input")
	flags.StringArrayVar(&f.audiences, "audience", nil, "with --token-file, audience for which the token must be valid; repeatable (default the audiences of the API server)")
	flags.BoolVar(&f.fetchKeys, "fetch-keys", false, "with --token-file, fetch the keys of the token's issuer")
	f.addCanI(cmd)
	flags.BoolVar(&f.askGroups, "ask-groups", false, "with --token-file, ask the groupSources of the token's issuer for groups; one with userInfo gets the token")
}

// check refuses flags that do not go together.
func (f *explainTokenFlags) check(flags *pflag.FlagSet) error {
	if f.file == "" {
		if len(f.audiences) > 0 || f.fetchKeys || f.askGroups || f.canI != "" {
			return errors.New("--audience, --can-i, --fetch-keys and --ask-groups are for --token-file")
		}
		return nil
	}
	var problems cli.Problems
	allowed := []string{"config", "output", tokenFileFlag, "audience", canIFlag, "fetch-keys", "ask-groups"}
	flags.Visit(func(given *pflag.Flag) {
		problems.Add(!slices.Contains(allowed, given.Name), "--%s is about manifests and does not go with --%s", given.Name, tokenFileFlag)
	})
	return problems.Err()
}

// refuseTokens refuses a token on the command line, where other users and the shell's history see it. Neither a token nor an
// argument beside --token-file is repeated.
func (f *explainTokenFlags) refuseTokens(next cobra.PositionalArgs, files func() []string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if slices.ContainsFunc(slices.Concat(args, files(), []string{f.file}), cli.LooksLikeToken) || f.file != "" && len(args) > 0 {
			return fmt.Errorf("there is what may be a token on the command line, where others can read it (hint: gatehouse explain --config DIR --%s FILE, or - for standard input; if it is a real one, revoke it)", tokenFileFlag)
		}
		return next(cmd, args)
	}
}

// explain explains the token.
func (f *explainTokenFlags) explain(ctx context.Context, s cli.Streams, dir, output string) error {
	var asked *authorizationv1.SubjectAccessReviewSpec
	if f.canI != "" {
		var err error
		if asked, err = parseAccess(f.canI); err != nil {
			return err
		}
	}
	token, err := cli.ReadToken(s.In, f.file)
	if err != nil {
		return err
	}
	c, found := config.Inspect(dir)
	c.Authn.Now = f.now
	c.Authn.ScopesEnforced = func() error { return nil } // what a server with --authorize answers
	var steps []authn.Step
	if f.fetchKeys && found.Err() == nil { // an invalid configuration makes no calls
		steps = []authn.Step{{Name: "fetch", Found: f.fetchIssuerKeys(ctx, &c.Authn, token)}}
	}
	if f.askGroups && found.Err() == nil {
		end, err := groups.ProvideOnce(c)
		if err != nil {
			return err
		}
		defer end()
	}
	snapshot, found := config.Compile(c, found)
	if err := found.Err(); err != nil {
		return config.InvalidError(dir, err)
	}
	d := snapshot.Authn.Decide(ctx, authn.Input{Token: token, Audiences: f.audiences, Explain: true})
	e := newExplainedToken(&d, append(steps, d.Steps...))
	e.checkAudiences(f.audiences)
	if d.Reason == authn.ReasonKeys && f.fetchKeys {
		e.Hint = "what the issuer answered is the first step; jwt.issuers has a keysFile for an issuer that is not asked"
	}
	if asked != nil {
		e.CanI = explainAccess(snapshot.Authn, &d, f.canI, asked)
	}
	if err := cli.WriteReport(s.Out, output, e, func(out io.Writer) { e.print(out, f.now()) }); err != nil {
		return err
	}
	if e.CanI != nil && e.Outcome == authn.Yes {
		return e.CanI.exit()
	}
	return cli.ExitOutcome(e.Outcome)
}

// fetchIssuerKeys fetches the keys of the token's issuer, if that is configured, and returns what it did.
func (f *explainTokenFlags) fetchIssuerKeys(ctx context.Context, spec *authn.Spec, token string) string {
	parsed, err := jwt.Parse(token)
	if err != nil {
		return "no issuer was asked: the token is not a JWT"
	}
	i := slices.IndexFunc(spec.Issuers, func(i authn.Issuer) bool { return i.Config != nil && i.Config.Issuer.URL == parsed.Issuer() })
	if i < 0 {
		return "no issuer was asked: the token's issuer is not configured"
	}
	issuer := &spec.Issuers[i]
	if issuer.Keys != nil {
		return "the issuer was not asked: its keys are in a keysFile, and the server does not ask it either"
	}
	set, err := f.fetch(ctx, *issuer)
	if err != nil {
		issuer.Keys = failedKeys{errors.New("the issuer's keys could not be fetched")}
		return err.Error()
	}
	issuer.Keys = set
	keys := set.All()
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = fmt.Sprintf("%q", key.ID)
		if key.Algorithm != "" {
			names[i] += " (" + key.Algorithm + ")"
		}
	}
	return fmt.Sprintf("the issuer has %s: %s", diagnostic.Count(len(keys), "key"), strings.Join(names, ", "))
}

// failedKeys are keys that could not be fetched.
type failedKeys struct{ err error }

// Find implements jwt.Keys.
func (k failedKeys) Find(context.Context, string) ([]jwt.Key, error) { return nil, k.err }

// explainedToken is the explanation of a token, without anything that would authenticate.
type explainedToken struct {
	Outcome authn.Outcome `json:"outcome"`
	Reason  authn.Reason  `json:"reason"`
	// Detail is about this token, and Hint about all with this reason.
	Detail  string        `json:"detail,omitempty"`
	Hint    string        `json:"hint,omitempty"`
	Backend authn.Backend `json:"backend,omitempty"`
	Source  string        `json:"source,omitempty"`
	TokenID string        `json:"tokenID,omitempty"`
	// IssuedAt and ExpiresAt are those of a yes, if known.
	IssuedAt  *time.Time `json:"issuedAt,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// Steps is never nil, so that it is a list in JSON.
	Steps []authn.Step `json:"steps"`
	// GroupOrigins are where the groups come from, if not all of them are in the token.
	GroupOrigins []authn.GroupOrigin `json:"groupOrigins,omitempty"`
	// Grants are those that give groups now.
	Grants []authn.ActiveGrant `json:"grants,omitempty"`
	// Status is the answer to the API server. It may be a yes where the outcome is unknown: see checkAudiences.
	Status authenticationv1.TokenReviewStatus `json:"status"`
	// CanI is what the scope of the token says about the request of --can-i.
	CanI *explainedAccess `json:"canI,omitempty"`
}

func newExplainedToken(d *authn.Decision, steps []authn.Step) *explainedToken {
	e := &explainedToken{
		Outcome: d.Outcome, Reason: d.Reason, Detail: d.Detail, Hint: tokenHint(d),
		Backend: d.Backend, Source: d.Source, TokenID: d.TokenID, Steps: append([]authn.Step{}, steps...), GroupOrigins: d.Groups, Grants: d.Grants, Status: d.Status,
	}
	e.IssuedAt, e.ExpiresAt = knownTime(d.IssuedAt), knownTime(d.ExpiresAt)
	return e
}

// knownTime returns a time in UTC, and nil for none.
func knownTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// checkAudiences makes a yes without audiences unknown, if audiences were asked for. Such a token is good for the API server's
// own audiences, which are not known here.
func (e *explainedToken) checkAudiences(asked []string) {
	if e.Outcome != authn.Yes || len(asked) == 0 || len(e.Status.Audiences) > 0 {
		return
	}
	e.Outcome, e.Reason = authn.Unknown, authn.ReasonAudience
	e.Detail = "valid for the API server's own audiences; only the API server knows whether " + cli.OneOf(asked)
	e.Hint = "see --api-audiences of kube-apiserver; a token for another service has to name its audience"
}

// tokenHint returns what to do about a token.
func tokenHint(d *authn.Decision) string {
	switch {
	case d.Reason == authn.ReasonAudience && d.Backend == authn.JWTs:
		return "it was issued for another client: issuer.audiences lists the clients whose tokens Gatehouse accepts"
	case d.Reason == authn.ReasonUnknownKey && d.Backend == authn.LoginTokens:
		return "the key is not among login.keys: it was removed, or the token is of another Gatehouse"
	default:
		return tokenHints[d.Reason]
	}
}

// tokenHints are the hints by reason, without those that tokens never have.
//
//nolint:gochecknoglobals // constant
var tokenHints = map[authn.Reason]string{
	authn.ReasonForeign:      "no issuer that is configured here issued it, nor Gatehouse; kube-apiserver verifies service account tokens and client certificates itself",
	authn.ReasonMalformed:    "copy the whole token, without quotes",
	authn.ReasonTooLarge:     "issue it with fewer groups, or fewer claims",
	authn.ReasonUnknownID:    "its AccessToken document is not in this directory: the token was revoked, or the document has not arrived yet",
	authn.ReasonWrongSecret:  "another document with this id replaced that of the token: issue a token with a new id",
	authn.ReasonExpired:      "log in again, or issue another token",
	authn.ReasonGuard:        "change the name, or give the source a prefix; guard.allowedGroups allows single groups",
	authn.ReasonRevoked:      "log in again: a TokenRevocation ends only what was issued before it",
	authn.ReasonSignature:    "it was changed after it was signed, or another key signed it",
	authn.ReasonAlgorithm:    "the issuer must sign with RSA or ECDSA",
	authn.ReasonNotYetValid:  "compare the clock of the issuer with that of this machine",
	authn.ReasonClaims:       "have the issuer change the claim, or change the mapping or rule in the AuthenticationConfiguration",
	authn.ReasonKeys:         "--fetch-keys fetches the keys from the issuer; a keysFile in jwt.issuers has the keys of an issuer that cannot be reached",
	authn.ReasonGroups:       "--ask-groups asks the group sources; with onUnknown: UseToken, users log in without these groups",
	authn.ReasonDeadline:     "its issuer did not answer in time, or its rules take too long: try again, then check the issuer, and rules that loop over long lists",
	authn.ReasonVersion:      "log in again, and run all replicas with the same version of Gatehouse",
	authn.ReasonSourceGone:   "log in again, with a directory that is configured",
	authn.ReasonAudience:     "--audience names the audiences for which the token must be valid; kube-apiserver asks for its --api-audiences",
	authn.ReasonUnknownScope: "scopes of the AuthenticationConfiguration has none of this name any more: issue another token",
	authn.ReasonUnknownKey:   "the issuer does not have this key, or not any more: log in again",
}

// print writes the explanation for people. Flush of out has the error.
func (e *explainedToken) print(out io.Writer, now time.Time) {
	line := decision.LinePrinter(out)
	title := cmp.Or(string(e.Backend), "foreign token")
	if e.TokenID != "" {
		title += " " + strict.Printable(e.TokenID)
	}
	if e.Source != "" {
		title += " of " + strict.Printable(e.Source)
	}
	line("%s", title)
	steps := e.Steps
	if e.IssuedAt != nil && e.Backend != authn.JWTs { // a JWT's steps have it
		steps = append(slices.Clone(steps), authn.Step{Name: "issued", Found: e.IssuedAt.Format(time.RFC3339) + ", " + duration.HumanDuration(now.Sub(*e.IssuedAt)) + " ago"})
	}
	width := 0
	for _, step := range steps {
		width = max(width, len(step.Name))
	}
	for _, step := range steps {
		line("  %-*s  %s", width, step.Name, cli.OneLine(step.Found))
	}
	e.printVerdict(line, now)
	if e.CanI != nil {
		line("  can-i %s: %s", cli.OneLine(e.CanI.Request), cli.OneLine(e.CanI.text()))
	}
}

// printVerdict writes the answer to the API server.
func (e *explainedToken) printVerdict(line func(string, ...any), now time.Time) {
	if e.Outcome != authn.Yes {
		text := "no: "
		if e.Outcome != authn.No {
			text = "cannot decide: "
		}
		text += string(e.Reason)
		if e.Detail != "" {
			text += ": " + cli.OneLine(e.Detail)
		}
		if e.Hint != "" {
			text += " (hint: " + e.Hint + ")"
		}
		line("  verdict: %s", text)
		if !e.Status.Authenticated {
			return
		}
	}
	until := ""
	if e.ExpiresAt != nil {
		until = ", for another " + duration.HumanDuration(e.ExpiresAt.Sub(now))
	}
	if e.Outcome == authn.Yes {
		line("  verdict: yes%s, and the API server gets", until)
	} else {
		line("  the answer is a yes%s, with", until)
	}
	user := &e.Status.User
	line("    username   %s", strict.Printable(user.Username))
	if user.UID != "" {
		line("    uid        %s", strict.Printable(user.UID))
	}
	for _, group := range user.Groups {
		from := ""
		for i := range e.GroupOrigins {
			if slices.Contains(e.GroupOrigins[i].Groups, group) {
				from = ", from " + e.GroupOrigins[i].Describe(now)
				break
			}
		}
		for i := range e.Grants {
			if from == "" && slices.Contains(e.Grants[i].Groups, group) {
				from = ", by the Grant " + strict.Printable(e.Grants[i].Name) + " for another " + duration.HumanDuration(e.Grants[i].ExpiresAt.Sub(now))
			}
		}
		line("    group      %s%s", strict.Printable(group), from)
	}
	for _, key := range slices.Sorted(maps.Keys(user.Extra)) {
		for _, value := range user.Extra[key] {
			line("    extra      %s = %s", strict.Printable(key), strict.Printable(value))
		}
	}
	if len(e.Grants) > 0 {
		line("    grants     %s", authn.CachedLonger)
	}
	if len(e.Status.Audiences) == 0 {
		line("    audiences  none, which stands for its own (--api-audiences)")
	}
	for _, audience := range e.Status.Audiences {
		line("    audience   %s", strict.Printable(audience))
	}
}
