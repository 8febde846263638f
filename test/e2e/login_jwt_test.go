package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// Whoever a real issuer says somebody is, that is who the API server says they are, and nobody else gets in.
func (p *place) testJWT(t *testing.T) {
	good := p.idToken(t, p.issuer, dexClient, p.jane)

	t.Run("at the API server", func(t *testing.T) {
		t.Parallel()
		name := func(of dexUser) map[string]authenticationv1.ExtraValue {
			return map[string]authenticationv1.ExtraValue{"example.org/name": {of.Name}}
		}
		check(t, p.api, good, authenticationv1.UserInfo{
			Username: "dex:jane@example.org", UID: fmt.Sprint(decodePart(t, good, 1)["sub"]),
			Groups: []string{"dex:dev", "dex:eng", "system:authenticated"}, Extra: name(p.jane),
		})
		// The prefix makes of the reserved group an ordinary one.
		master := p.idToken(t, p.issuer, dexClient, p.master)
		check(t, p.api, master, authenticationv1.UserInfo{
			Username: "dex:master@example.org", UID: fmt.Sprint(decodePart(t, master, 1)["sub"]),
			Groups: []string{"dex:system:masters", "system:authenticated"}, Extra: name(p.master),
		})
		busy, err := whoami(t, p.api, p.idToken(t, p.issuer, dexClient, p.busy))
		if err != nil || len(busy.Groups) != len(p.busy.Groups)+1 {
			t.Errorf("somebody in %d groups: got %d, %v", len(p.busy.Groups), len(busy.Groups), err)
		}
		check(t, p.api, p.idToken(t, p.issuer, otherDexClient, p.jane), authenticationv1.UserInfo{})
		for _, one := range forge(t, good) {
			check(t, p.api, p.jwt(one.token), authenticationv1.UserInfo{})
		}
	})

	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		p := p.fromNewAddress(t)
		expired := p.idToken(t, p.brief, dexClient, p.jane)
		support.Eventually(t, "a token of two seconds", func() error {
			if p.review(t, p.jwt(expired)).Authenticated { // /whoami would limit the rate of a poll
				return errNotYet
			}
			return nil
		})
		for _, one := range append(forge(t, good),
			forged{"for another client", p.idToken(t, p.issuer, otherDexClient, p.jane), "audience"},
			forged{"by another issuer", p.idToken(t, p.foreign, dexClient, p.jane), "foreign"},
			forged{"whom a rule blocks", p.idToken(t, p.issuer, dexClient, p.mallory), "claims"},
			forged{"expired", expired, "expired"},
			forged{"of a reserved group", p.idToken(t, p.plain, dexClient, p.master), "guard"},
		) {
			t.Run(one.name, func(t *testing.T) {
				status := p.review(t, p.jwt(one.token))
				if status.Authenticated || status.Error != "" || status.User.Username != "" {
					t.Errorf("got %+v, want a definite no", status)
				}
				answer := p.explain(t, one.token)
				if answer.Outcome != "no" || one.reason != "" && answer.Reason != one.reason || answer.Message == "" || answer.User != nil {
					t.Errorf("got %+v, want a no for the reason %q", answer, one.reason)
				}
			})
		}
	})

	t.Run("whoami", func(t *testing.T) {
		t.Parallel()
		answer := p.fromNewAddress(t).explain(t, good)
		if answer.Outcome != "yes" || answer.Backend != "jwt" || answer.Source != p.issuer.Issuer() || answer.User == nil || answer.User.Username != "dex:jane@example.org" {
			t.Errorf("got %+v", answer)
		}
		if answer.ExpiresAt == nil || time.Until(*answer.ExpiresAt) > time.Hour || answer.IssuedAt == nil {
			t.Errorf("issued at %v, ends at %v, want an hour", answer.IssuedAt, answer.ExpiresAt)
		}
	})
}

// isAuthenticated returns an error unless a review is answered with a yes.
func isAuthenticated(status authenticationv1.TokenReviewStatus) error {
	if !status.Authenticated {
		return fmt.Errorf("not authenticated: %+v", status)
	}
	return nil
}

// An issuer that has new keys is believed at once, and what it signed with the old ones no more. One that is away goes
// on to be believed.
func TestIssuerWithNewKeys(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	jane := w.person("jane")
	issuer := newDex(t, dexOptions{Users: []dexUser{jane}})
	s := newSite(t, "keys", map[string]any{"issuers.yaml": issuersDocument(issuerOf(issuer, "dex:"))})
	old := w.idToken(t, issuer, dexClient, jane)
	must(t, isAuthenticated(s.review(t, old)))
	issuer.Kill()
	must(t, isAuthenticated(s.review(t, old)))
	must(t, issuer.Start(t.Context()))
	fresh := w.idToken(t, issuer, dexClient, jane)
	must(t, isAuthenticated(s.review(t, fresh)))
	if status := s.review(t, old); status.Authenticated || status.Error != "" {
		t.Errorf("a token of a key that is known to be withdrawn: got %+v, want a definite no", status)
	}
	must(t, isAuthenticated(s.review(t, fresh)))
}

// While an issuer hangs, tokens with keys that would have to be fetched wait, and nobody else does, however many wait.
func TestIssuerThatHangs(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	jane := w.person("jane")
	hanging := newDex(t, dexOptions{Users: []dexUser{jane}})
	healthy := newDex(t, dexOptions{Users: []dexUser{jane}})
	s := newSite(t, "hanging", map[string]any{"issuers.yaml": issuersDocument(issuerOf(hanging, "hanging:"), issuerOf(healthy, "healthy:"))})
	ofHanging, ofHealthy := w.idToken(t, hanging, dexClient, jane), w.idToken(t, healthy, dexClient, jane)
	must(t, errors.Join(isAuthenticated(s.review(t, ofHanging)), isAuthenticated(s.review(t, ofHealthy))))

	must(t, hanging.Suspend())
	t.Cleanup(func() { _ = hanging.Resume() })
	const waiting = 48
	answers := make(chan error, waiting)
	for range waiting {
		token := unknownKey(t, ofHanging)
		go func() {
			status, err := s.tryReview(t, token)
			if err == nil && (status.Authenticated || status.Error == "") {
				err = fmt.Errorf("got %+v, want that the server cannot decide", status)
			}
			answers <- err
		}()
	}
	for range waiting {
		must(t, errors.Join(isAuthenticated(s.review(t, ofHealthy)), isAuthenticated(s.review(t, ofHanging))))
	}
	for range waiting {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}
