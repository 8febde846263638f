package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/test/dex"
	"github.com/gatehouse-dev/gatehouse/test/e2e/gatehouse"
)

// What is revoked is refused within the stated time, whatever kind of token it is, and whatever else is wrong with the
// configuration.
func (p *place) testRevocation(t *testing.T) {
	t.Run("access token", func(t *testing.T) {
		t.Parallel()
		begin := time.Now()
		token := p.grant(t, "revoked", "--user", "robot")
		t.Logf("accepted after %s", time.Since(begin).Round(time.Millisecond))
		said, err := gatehouse.Run(t.Context(), "token", "revoke", "--config", p.documents, "revoked")
		must(t, err)
		if !strings.Contains(said, "revoked") || !strings.Contains(said, "robot") {
			t.Errorf("'token revoke' says %q, want which one of whom", said)
		}
		p.refusedSoon(t, token)
	})

	t.Run("JWT", func(t *testing.T) {
		t.Parallel()
		p := p.elsewhere(t)
		token := p.idToken(t, p.issuer, dex.Client, p.rick)
		p.accepted(t, token)
		p.revokeUser(t, "dex:rick@example.org")
		p.refusedSoon(t, token)
		if answer := p.tell(t, token); answer.Outcome != "no" || answer.Reason != "revoked" {
			t.Errorf("got %+v, want that it is revoked", answer)
		}
		// What is issued later is good.
		eventually(t, "a new token", func() error { return yes(p.review(t, p.idToken(t, p.issuer, dex.Client, p.rick))) })
	})

	t.Run("login token", func(t *testing.T) {
		t.Parallel()
		p := p.elsewhere(t)
		token := p.login(t, p.directory.with("rose")).in(t)
		p.accepted(t, token)
		p.revokeUser(t, "ldap:rose")
		p.refusedSoon(t, token)
		p.login(t, map[string]string{"token": token}).out(t, 401, "revoked")
		eventually(t, "a new token", func() error { return yes(p.review(t, p.login(t, p.directory.with("rose")).in(t))) })
	})
}

// grant issues an access token and waits until the API server takes it.
func (p *place) grant(t *testing.T, id string, flags ...string) string {
	t.Helper()
	output, err := gatehouse.Run(t.Context(), append([]string{"token", "issue", "--id", id, "--config", p.documents}, flags...)...)
	must(t, err)
	token := p.secret(strings.TrimSpace(output))
	eventually(t, "a new token", func() error {
		_, err := whoami(t, p.api, token)
		return err
	})
	return token
}

// accepted wants the API server to take a token.
func (p *place) accepted(t *testing.T, token string) {
	t.Helper()
	_, err := whoami(t, p.api, token)
	must(t, err)
}

func (p *place) revokeUser(t *testing.T, user string) {
	t.Helper()
	_, err := gatehouse.Run(t.Context(), "token", "revoke", "--config", p.documents, "--user", user, "--reason", "left")
	must(t, err)
}

// refusedSoon wants the API server to refuse a token within the time that is stated: ten seconds until the server knows,
// and the API server's two caches.
func (p *place) refusedSoon(t *testing.T, token string) {
	t.Helper()
	const bound = 10*time.Second + cacheTTL + 10*time.Second
	begin := time.Now()
	eventually(t, "a token that was revoked", func() error {
		_, err := whoami(t, p.api, token)
		if err == nil {
			return errNotYet
		}
		if !apierrors.IsUnauthorized(err) || err.Error() != "Unauthorized" {
			t.Errorf("got %v, want %q", err, "Unauthorized")
		}
		return nil
	})
	took := time.Since(begin)
	t.Logf("refused after %s", took.Round(time.Millisecond))
	if took > bound {
		t.Errorf("refused after %s, want %s at most", took, bound)
	}
}

// Who revokes something need not mend first what others broke.
func TestRevocationBesideABrokenDocument(t *testing.T) {
	t.Parallel()
	s, d := newDirectorySite(t, "beside", "jane", "bob")
	issue := func(id string) string {
		output, err := gatehouse.Run(t.Context(), "token", "issue", "--id", id, "--user", id, "--config", s.documents)
		must(t, err)
		token := s.secret(strings.TrimSpace(output))
		eventually(t, "a new token", func() error { return yes(s.review(t, token)) })
		return token
	}
	revoked, kept := issue("revoked"), issue("kept")
	jane, bob := s.login(t, d.with("jane")).in(t), s.login(t, d.with("bob")).in(t)

	broken := s.put(t, "broken.yaml", map[string]any{
		"apiVersion": "gatehouse.dev/v1alpha1", "kind": "SidecarProfile", "metadata": map[string]any{"name": "x"},
		"spec": map[string]any{"injektion": "OptOut"},
	})
	// What is added beside it waits for it to be mended.
	late, document := s.issueUnknown(t, "late")
	s.put(t, "token-late.yaml", document)
	_, err := gatehouse.Run(t.Context(), "token", "revoke", "--config", s.documents, "revoked")
	if err == nil || !strings.Contains(err.Error(), "errors in") {
		t.Errorf("'token revoke' says %v, want that there are errors too", err)
	}
	_, err = gatehouse.Run(t.Context(), "token", "revoke", "--config", s.documents, "--user", "ldap:jane")
	if err == nil || !strings.Contains(err.Error(), "errors in") {
		t.Errorf("'token revoke' says %v, want that there are errors too", err)
	}
	begin := time.Now()
	eventually(t, "what was revoked beside a broken document", func() error {
		if s.review(t, revoked).Authenticated || s.review(t, jane).Authenticated {
			return errNotYet
		}
		return nil
	})
	t.Logf("refused after %s", time.Since(begin).Round(time.Millisecond))
	must(t, yes(s.review(t, kept)))
	must(t, yes(s.review(t, bob)))
	if s.review(t, late).Authenticated {
		t.Error("a token that was added beside a broken document is taken")
	}

	must(t, os.Remove(broken))
	eventually(t, "what was added", func() error { return yes(s.review(t, late)) })
	for _, token := range []string{revoked, jane} {
		if s.review(t, token).Authenticated {
			t.Error("what was revoked is taken again once the broken document is gone")
		}
	}
	must(t, yes(s.review(t, bob)))
	left, err := filepath.Glob(filepath.Join(s.documents, "token-revoked*"))
	must(t, err)
	if len(left) != 0 {
		t.Errorf("the document is still there: %q", left)
	}
}
