package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// What is revoked is refused soon, whatever kind of token it is.
func (p *place) testRevocation(t *testing.T) {
	p = p.fromNewAddress(t)
	begin := time.Now()
	access := p.grant(t, "revoked", "--user", "robot")
	t.Logf("an access token is accepted after %s", time.Since(begin).Round(time.Millisecond))
	jwt, login := p.idToken(t, p.issuer, dexClient, p.rick), p.login(t, p.directory.with("rose")).accepted(t)
	for _, token := range []string{access, jwt, login} {
		_, err := whoami(t, p.api, token)
		must(t, err)
	}

	revoke := func(args ...string) string {
		said, err := gatehouse.Run(t.Context(), append([]string{"token", "revoke", "--config", p.documents}, args...)...)
		must(t, err)
		return said
	}
	begin = time.Now()
	said := revoke("revoked")
	if !strings.Contains(said, "revoked") || !strings.Contains(said, "robot") {
		t.Errorf("'token revoke' says %q, want which one of whom", said)
	}
	revoke("--user", "dex:rick@example.org", "--reason", "left")
	revoke("--user", "ldap:rose", "--reason", "left")

	for kind, token := range map[string]string{"access token": access, "JWT": jwt, "login token": login} {
		support.Eventually(t, "a token that was revoked", func() error {
			_, err := whoami(t, p.api, token)
			if err == nil {
				return errNotYet
			}
			if !apierrors.IsUnauthorized(err) || err.Error() != "Unauthorized" {
				t.Errorf("%s: got %v, want %q", kind, err, "Unauthorized")
			}
			return nil
		})
		t.Logf("%s: refused %s after it was revoked, at the latest", kind, time.Since(begin).Round(time.Millisecond))
	}
	for _, token := range []string{jwt, login} {
		if answer := p.explain(t, token); answer.Outcome != "no" || answer.Reason != "revoked" {
			t.Errorf("got %+v, want that it is revoked", answer)
		}
	}
	p.login(t, map[string]string{"token": login}).rejected(t, http.StatusUnauthorized, "revoked")
	// What is issued later is good.
	must(t, isAuthenticated(p.review(t, p.idToken(t, p.issuer, dexClient, p.rick))))
	must(t, isAuthenticated(p.review(t, p.login(t, p.directory.with("rose")).accepted(t))))
}

// issueHere issues an access token that the site learns of by its documents.
func (s *site) issueHere(t *testing.T, id string, flags ...string) string {
	t.Helper()
	output, err := gatehouse.Run(t.Context(), append([]string{"token", "issue", "--id", id, "--config", s.documents}, flags...)...)
	must(t, err)
	return s.secret(strings.TrimSpace(output))
}

// grant is issueHere, and waits until the API server takes the token.
func (p *place) grant(t *testing.T, id string, flags ...string) string {
	t.Helper()
	token := p.issueHere(t, id, flags...)
	support.Eventually(t, "a new token", func() error {
		_, err := whoami(t, p.api, token)
		return err
	})
	return token
}
