package replay_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

var token, tokenHash = authn.NewToken("ci", [25]byte{1})

// wrongToken has the id of token and another secret.
var wrongToken, _ = authn.NewToken("ci", [25]byte{2})

const (
	later   = "2027-01-01T00:00:00Z"
	earlier = "2026-11-19T00:00:00Z"
	revoked = `apiVersion: gatehouse.dev/v1alpha1
kind: TokenRevocation
metadata: {name: ci}
spec: {user: ci, issuedBefore: "2026-11-10T00:00:00Z"}`
	guardRules = `apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
guard: {prefixes: [{source: "https://issuer.example", username: "x:a", groups: ""}]}`
	issuer = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt: [{issuer: {url: "https://issuer.example", audiences: [a]}, claimMappings: {username: {claim: sub, prefix: "x:"}}}]`
)

func TestLogins(t *testing.T) {
	t.Parallel()
	ci := accessToken("ci", later, "builders")
	for _, tt := range []struct {
		name, token, before, after string
		changes                    []replay.Change
		undecided                  string
	}{
		{name: "unchanged", token: token, before: ci, after: ci},
		{name: "the token is gone", token: token, before: ci, after: shop, changes: []replay.Change{replay.NewlyRefused}},
		{name: "another group", token: token, before: ci, after: accessToken("ci", later, "admins"), changes: []replay.Change{replay.ChangedIdentity}},
		{name: "another user", token: token, before: ci, after: accessToken("cd", later, "builders"), changes: []replay.Change{replay.ChangedIdentity}},
		{name: "has expired", token: token, before: ci, after: accessToken("ci", earlier), changes: []replay.Change{replay.NewlyRefused}},
		{name: "had expired", token: token, before: accessToken("ci", earlier), after: ci, changes: []replay.Change{replay.NewlyAdmitted}},
		{name: "is revoked", token: token, before: ci, after: documents(ci, revoked), changes: []replay.Change{replay.NewlyRefused}},
		{name: "was revoked", token: token, before: documents(ci, revoked), after: ci, changes: []replay.Change{replay.NewlyAdmitted}},
		{name: "wrong secret", token: wrongToken, before: ci, after: ci},
		{name: "wrong secret of a token that differs", token: wrongToken, before: ci, after: accessToken("ci", "2028-01-01T00:00:00Z"), undecided: "the secret of the access token was wrong"},
		{name: "wrong secret of a token that is gone", token: wrongToken, before: ci, after: shop},
		{name: "unknown token", token: token, before: shop, after: shop},
		{name: "unknown token that is there now", token: token, before: shop, after: ci, undecided: "the access token was not known when it was recorded"},
		{name: "foreign", token: "abc", before: ci, after: ci},
		{name: "foreign, with a new issuer", token: "abc", before: ci, after: documents(ci, issuer), undecided: "issuers or directories differ"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.before)
			if strings.Contains(tt.before, "2026-11-19") {
				s.now = time.Date(2026, 11, 19, 1, 0, 0, 0, time.UTC)
			}
			s.login(tt.token)
			report, all := run(t, replay.Options{Sources: s.recording(), Candidate: load(t, tt.after)})
			if len(all) != 1 || len(report.Problems) > 0 {
				t.Fatalf("%d results, problems %q", len(all), report.Problems)
			}
			if r := all[0]; !slices.Equal(r.Changes, tt.changes) || !strings.HasPrefix(r.Undecided, tt.undecided) || tt.undecided == "" && r.Undecided != "" {
				t.Errorf("changes %q, undecided %q; want %q, %q; before %+v, after %+v", r.Changes, r.Undecided, tt.changes, tt.undecided, r.Before, r.After)
			}
			_, all = run(t, replay.Options{Sources: sources(t, s.dir), Candidate: replay.Recorded()})
			if len(all[0].Changes) > 0 {
				t.Errorf("under the recorded configuration: %+v", all[0])
			}
		})
	}
}

// TestIssuedTokens replays logins by JWTs and login tokens, of which a recording holds the outcome
// alone.
func TestIssuedTokens(t *testing.T) {
	t.Parallel()
	const (
		url       = "https://issuer.example"
		directory = `apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
directories: [{name: corp}]`
	)
	jwt, login := record.Token{Backend: "jwt", Source: url, ID: "j1"}, record.Token{Backend: "login-token", Source: "corp", ID: "l1"}
	revokedUser := strings.ReplaceAll(revoked, "user: ci", `user: "x:banna"`)
	for _, tt := range []struct {
		name          string
		token         record.Token
		decision      review.Decision
		before, after string
		changes       []replay.Change
		undecided     string
	}{
		{name: "same issuer", token: jwt, decision: review.Allowed, before: issuer, after: documents(issuer, shop)},
		{name: "the issuer is gone", token: jwt, decision: review.Allowed, before: issuer, after: shop, changes: []replay.Change{replay.NewlyRefused}},
		{name: "the issuer differs", token: jwt, decision: review.Allowed, before: issuer, after: strings.Replace(issuer, "claim: sub", "claim: email", 1), undecided: `Issuer "https://issuer.example" differs`},
		{name: "the configuration is not there", token: jwt, decision: review.Allowed, after: issuer, undecided: "configuration-d1.yaml, the configuration that has decided, is not beside the recording"},
		{name: "the guard refuses it", token: jwt, decision: review.Allowed, before: issuer, after: documents(issuer, guardRules), changes: []replay.Change{replay.NewlyRefused}},
		{name: "a revocation of an earlier time", token: jwt, decision: review.Allowed, before: issuer, after: documents(issuer, revokedUser), undecided: "whether a token is revoked depends on when it was issued"},
		{name: "the same revocation", token: jwt, decision: review.Allowed, before: documents(issuer, revokedUser), after: documents(issuer, revokedUser)},
		{name: "a later revocation", token: jwt, decision: review.Allowed, before: issuer, after: documents(issuer, strings.Replace(revokedUser, "2026-11-10", "2026-11-21", 1)), changes: []replay.Change{replay.NewlyRefused}},
		{name: "refused", token: jwt, decision: review.Denied, before: issuer, after: issuer},
		{name: "refused, and the guard differs", token: jwt, decision: review.Denied, before: issuer, after: documents(issuer, guardRules), undecided: "the guard or revocations differ"},
		{name: "refused, and the issuer is gone", token: jwt, decision: review.Denied, before: issuer, after: shop},
		{name: "the directory is gone", token: login, decision: review.Allowed, before: directory, after: shop, changes: []replay.Change{replay.NewlyRefused}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			one := record.Review{ID: "1", Time: recordedAt, Endpoint: "authenticate", Config: "d1", Decision: tt.decision, Token: &tt.token}
			if tt.decision == review.Allowed {
				one.Response = json.RawMessage(`{"status":{"authenticated":true,"user":{"username":"x:banna","groups":["g"]}}}`)
			}
			dir := t.TempDir()
			if tt.before != "" {
				if err := os.WriteFile(filepath.Join(dir, record.ConfigurationName("d1")), []byte(tt.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, all := run(t, replay.Options{Sources: []replay.Source{file(t, "a", dir, "k1", &record.Line{Review: &one})}, Candidate: load(t, tt.after)})
			if len(all) != 1 {
				t.Fatalf("%d results", len(all))
			}
			if r := all[0]; !slices.Equal(r.Changes, tt.changes) || !strings.HasPrefix(r.Undecided, tt.undecided) || tt.undecided == "" && r.Undecided != "" {
				t.Errorf("changes %q, undecided %q; want %q, %q", r.Changes, r.Undecided, tt.changes, tt.undecided)
			}
		})
	}
}
