package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/dex"
)

// Whoever a real issuer says somebody is, that is who the API server says they are, and nobody else gets in.
func (p *place) testJWT(t *testing.T) {
	good := p.idToken(t, p.issuer, dex.Client, p.jane)

	t.Run("at the API server", func(t *testing.T) {
		t.Parallel()
		name := func(of dex.User) map[string]authenticationv1.ExtraValue {
			return map[string]authenticationv1.ExtraValue{"example.org/name": {of.Name}}
		}
		check(t, p.api, good, authenticationv1.UserInfo{
			Username: "dex:jane@example.org", UID: fmt.Sprint(claimsOf(t, good)["sub"]),
			Groups: []string{"dex:dev", "dex:eng", "system:authenticated"}, Extra: name(p.jane),
		})
		// The prefix makes of the reserved group an ordinary one.
		master := p.idToken(t, p.issuer, dex.Client, p.master)
		check(t, p.api, master, authenticationv1.UserInfo{
			Username: "dex:master@example.org", UID: fmt.Sprint(claimsOf(t, master)["sub"]),
			Groups: []string{"dex:system:masters", "system:authenticated"}, Extra: name(p.master),
		})
		busy, err := whoami(t, p.api, p.idToken(t, p.issuer, dex.Client, p.busy))
		if err != nil || len(busy.Groups) != len(p.busy.Groups)+1 {
			t.Errorf("somebody in %d groups: got %d, %v", len(p.busy.Groups), len(busy.Groups), err)
		}
		check(t, p.api, p.idToken(t, p.issuer, dex.OtherClient, p.jane), authenticationv1.UserInfo{})
		for _, one := range newForger(t).forge(t, good) {
			check(t, p.api, p.jwt(one.token), authenticationv1.UserInfo{})
		}
	})

	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		p := p.elsewhere(t)
		expired := p.idToken(t, p.brief, dex.Client, p.jane)
		support.Eventually(t, "a token of two seconds", func() error {
			if p.review(t, p.jwt(expired)).Authenticated { // /whoami would limit the rate of a poll
				return errNotYet
			}
			return nil
		})
		for _, one := range append(newForger(t).forge(t, good),
			forged{"for another client", p.idToken(t, p.issuer, dex.OtherClient, p.jane), "audience"},
			forged{"by another issuer", p.idToken(t, p.foreign, dex.Client, p.jane), "foreign"},
			forged{"whom a rule blocks", p.idToken(t, p.issuer, dex.Client, p.mallory), "claims"},
			forged{"expired", expired, "expired"},
			forged{"of a reserved group", p.idToken(t, p.plain, dex.Client, p.master), "guard"},
		) {
			t.Run(one.name, func(t *testing.T) {
				status := p.review(t, p.jwt(one.token))
				if status.Authenticated || status.Error != "" || status.User.Username != "" {
					t.Errorf("got %+v, want a definite no", status)
				}
				answer := p.tell(t, one.token)
				if answer.Outcome != "no" || one.reason != "" && answer.Reason != one.reason || answer.Message == "" || answer.User != nil {
					t.Errorf("got %+v, want a no for the reason %q", answer, one.reason)
				}
			})
		}
	})

	t.Run("whoami", func(t *testing.T) {
		t.Parallel()
		answer := p.elsewhere(t).tell(t, good)
		if answer.Outcome != "yes" || answer.Backend != "jwt" || answer.Source != p.issuer.Issuer() || answer.User == nil || answer.User.Username != "dex:jane@example.org" {
			t.Errorf("got %+v", answer)
		}
		if answer.ExpiresAt == nil || time.Until(*answer.ExpiresAt) > time.Hour || answer.IssuedAt == nil {
			t.Errorf("issued at %v, ends at %v, want an hour", answer.IssuedAt, answer.ExpiresAt)
		}
	})
}

// yes tells that a review is answered with a yes.
func yes(status authenticationv1.TokenReviewStatus) error {
	if !status.Authenticated {
		return fmt.Errorf("not authenticated: %+v", status)
	}
	return nil
}

// requests returns how often a dex was asked for its keys.
func requests(t *testing.T, s *dex.Server) int {
	t.Helper()
	n, err := s.Requests(t.Context(), "/keys")
	must(t, err)
	return n
}

// Forged tokens by the thousand, each with a key of its own, do not make of the server somebody who floods the issuer,
// and keep nobody out.
func TestFloodOfUnknownKeys(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	jane := w.person("jane")
	issuer := dex.New(t, dex.Options{Users: []dex.User{jane}})
	s := newSite(t, "flood", map[string]any{"issuers.yaml": upstream(trusting(issuer, "dex:"))})
	good := w.idToken(t, issuer, dex.Client, jane)
	must(t, yes(s.review(t, good)))

	const floods, each = 4, 250
	f := newForger(t)
	tokens := make([]string, floods*each)
	for i := range tokens {
		tokens[i] = f.unknownKey(t, good)
	}
	if got := s.tell(t, f.unknownKey(t, good)); got.Outcome != "no" || got.Reason != "unknown-key" {
		t.Errorf("got %+v, want a no, as long as the issuer can be asked", got)
	}
	before, begin := requests(t, issuer), time.Now()
	flood := make(chan error, floods)
	for part := range slices.Chunk(tokens, each) {
		go func() {
			var errs []error
			for _, token := range part {
				status, err := s.tryReview(t, token)
				if err == nil && status.Authenticated {
					err = errors.New("a forged token is taken")
				}
				errs = append(errs, err)
			}
			flood <- errors.Join(errs...)
		}()
	}
	healthy, slowest := 0, time.Duration(0)
	for done := 0; done < floods; {
		select {
		case err := <-flood:
			must(t, err)
			done++
		default:
			asked := time.Now()
			must(t, yes(s.review(t, good)))
			healthy++
			slowest = max(slowest, time.Since(asked))
		}
	}
	took := time.Since(begin)
	got := requests(t, issuer) - before
	// A burst of 3, one in 10 s, and one of the refresh in 5 min.
	most := 3 + int(took/(10*time.Second)) + 1
	t.Logf("%d forged tokens in %s: the issuer was asked %d times; %d healthy logins, the slowest took %s", len(tokens), took.Round(time.Millisecond), got, healthy, slowest.Round(time.Millisecond))
	if got > most {
		t.Errorf("the issuer was asked %d times, want %d at most", got, most)
	}
	if healthy < 10 {
		t.Errorf("%d healthy logins beside %d forged tokens", healthy, len(tokens))
	}
	if slowest > 7*time.Second { // waiting for the issuer it would take 8
		t.Errorf("a healthy login took %s", slowest)
	}
}

// An issuer that has new keys is believed at once, and what it signed with the old ones no more. One that is away goes
// on to be believed.
func TestIssuerWithNewKeys(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	jane := w.person("jane")
	issuer := dex.New(t, dex.Options{Users: []dex.User{jane}})
	s := newSite(t, "keys", map[string]any{"issuers.yaml": upstream(trusting(issuer, "dex:"))})
	old := w.idToken(t, issuer, dex.Client, jane)
	must(t, yes(s.review(t, old)))
	issuer.Kill()
	must(t, yes(s.review(t, old)))
	must(t, issuer.Start(t.Context()))
	fresh := w.idToken(t, issuer, dex.Client, jane)
	must(t, yes(s.review(t, fresh)))
	if status := s.review(t, old); status.Authenticated || status.Error != "" {
		t.Errorf("a token of a key that is known to be withdrawn: got %+v, want a definite no", status)
	}
	must(t, yes(s.review(t, fresh)))
}

// A server starts without the issuer, and knows it when it is there.
func TestIssuerIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	jane := w.person("jane")
	issuer := dex.New(t, dex.Options{Users: []dex.User{jane}})
	old := w.idToken(t, issuer, dex.Client, jane)
	issuer.Kill()
	s := newSite(t, "late", map[string]any{"issuers.yaml": upstream(trusting(issuer, "dex:"))})
	if status := s.review(t, old); status.Authenticated || status.Error == "" {
		t.Errorf("got %+v, want that nothing can be told", status)
	}
	must(t, issuer.Start(t.Context()))
	fresh := w.idToken(t, issuer, dex.Client, jane)
	support.Eventually(t, "a token of an issuer that is there now", func() error { return yes(s.review(t, fresh)) })
}

// What an issuer or a directory takes back is worth nothing after the time that is stated, even if nobody makes the
// server ask: a key after the interval at which keys are fetched, somebody who leaves after a token's time.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	s := prepareSite(t, "taken")
	jane := s.person("jane")
	issuer := dex.New(t, dex.Options{Users: []dex.User{jane}})
	d := s.newDirectory(t, "leaver", "stayer")
	const interval = 30 * time.Second
	configuration := d.configuration(t, s)
	configuration.JWT.KeyRefreshInterval = &metav1.Duration{Duration: interval}
	s.put(t, "issuers.yaml", upstream(trusting(issuer, "dex:")))
	s.put(t, "configuration.yaml", ours(configuration))
	s.start(t)
	ofIssuer, session := s.idToken(t, issuer, dex.Client, jane), s.login(t, d.with("leaver"))
	must(t, errors.Join(yes(s.review(t, ofIssuer)), yes(s.review(t, session.in(t)))))

	desks := map[string]*desk{}
	for _, name := range []string{"leaver", "stayer"} {
		desks[name] = (&place{site: s, api: s.Cluster}).newDesk(t, "--username", name)
		desks[name].gatehouse(t, "login", "--password-stdin").run(t, d.passwords[name]).says(t, 0, "logged in", "ldap:"+name)
	}

	issuer.Kill()
	must(t, issuer.Start(t.Context()))
	must(t, d.Admin().Del(ldap.NewDelRequest(personDN("leaver"), nil)))
	begin := time.Now()
	s.login(t, map[string]string{"token": session.Token}).out(t, http.StatusUnauthorized, "credentials")
	s.login(t, d.with("leaver")).out(t, http.StatusUnauthorized, "credentials")

	const late = 15 * time.Second // of a busy machine
	for _, wait := range []struct {
		what, token string
		until       time.Time
		reason      string
	}{
		{"a withdrawn key", ofIssuer, begin.Add(interval), "unknown-key"},
		{"somebody who left", session.Token, session.ExpiresAt, "expired"},
	} {
		support.Eventually(t, wait.what+" is refused", func() error {
			if s.review(t, wait.token).Authenticated {
				return errNotYet
			}
			return nil
		})
		if after := time.Since(wait.until); after > late {
			t.Errorf("%s is refused %s too late", wait.what, after)
		}
		t.Logf("%s is refused after %s", wait.what, time.Since(begin).Round(time.Millisecond))
		if answer := s.tell(t, wait.token); answer.Outcome != "no" || answer.Reason != wait.reason {
			t.Errorf("%s: got %+v, want %s", wait.what, answer, wait.reason)
		}
	}
	if left := time.Until(session.ExpiresAt); left > 0 {
		t.Errorf("the token of somebody who left is refused %s before its end", left)
	}
	// Of all this, who stays has noticed nothing, and who left cannot be asked for a password here.
	desks["stayer"].gatehouse(t, "login").run(t, "").says(t, 0, "ldap:stayer")
	desks["leaver"].gatehouse(t, "login").run(t, "").says(t, 2, "somebody has to log in")
}

// While an issuer hangs, tokens with keys that would have to be fetched wait, and nobody else does, however many wait.
func TestIssuerThatHangs(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	jane := w.person("jane")
	hanging := dex.New(t, dex.Options{Users: []dex.User{jane}})
	healthy := dex.New(t, dex.Options{Users: []dex.User{jane}})
	s := newSite(t, "hanging", map[string]any{"issuers.yaml": upstream(trusting(hanging, "hanging:"), trusting(healthy, "healthy:"))})
	ofHanging, ofHealthy := w.idToken(t, hanging, dex.Client, jane), w.idToken(t, healthy, dex.Client, jane)
	must(t, errors.Join(yes(s.review(t, ofHanging)), yes(s.review(t, ofHealthy))))

	must(t, hanging.Suspend())
	t.Cleanup(func() { _ = hanging.Resume() })
	const waiting = 48
	f := newForger(t)
	answers := make(chan error, waiting)
	for range waiting {
		token := f.unknownKey(t, ofHanging)
		go func() {
			begin := time.Now()
			status, err := s.tryReview(t, token)
			switch took := time.Since(begin); {
			case err != nil:
			case status.Authenticated:
				err = errors.New("a forged token is taken")
			case status.Error == "":
				err = errors.New("got a definite no, and nothing can be told while the issuer hangs")
			case took > 20*time.Second: // the server's own deadline is 8 s, and the API server's 30
				err = fmt.Errorf("it took %s to tell that nothing can be told", took)
			}
			answers <- err
		}()
	}
	slowest := time.Duration(0)
	for done := 0; done < waiting; {
		select {
		case err := <-answers:
			done++
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Millisecond):
			begin := time.Now()
			must(t, errors.Join(yes(s.review(t, ofHealthy)), yes(s.review(t, ofHanging))))
			slowest = max(slowest, time.Since(begin))
		}
	}
	t.Logf("two healthy logins took %s at most", slowest.Round(time.Millisecond))
	if slowest > 7*time.Second { // with those who wait it would take 8
		t.Errorf("a healthy login took %s while an issuer hangs", slowest)
	}
}

// An issuer that is taken out of the configuration is gone, and the other is not disturbed.
func TestIssuerRemoved(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	jane := w.person("jane")
	kept := dex.New(t, dex.Options{Users: []dex.User{jane}})
	removed := dex.New(t, dex.Options{Users: []dex.User{jane}})
	both := upstream(trusting(kept, "kept:"), trusting(removed, "removed:"))
	s := newSite(t, "removed", map[string]any{"issuers.yaml": both})
	ofKept, ofRemoved := w.idToken(t, kept, dex.Client, jane), w.idToken(t, removed, dex.Client, jane)
	must(t, errors.Join(yes(s.review(t, ofKept)), yes(s.review(t, ofRemoved))))

	before := requests(t, kept)
	change := func(what string, document any, done func() error) {
		t.Helper()
		s.put(t, "issuers.yaml", document)
		support.Eventually(t, what, func() error {
			must(t, yes(s.review(t, ofKept)))
			return done()
		})
	}
	change("an issuer that is removed", upstream(trusting(kept, "kept:")), func() error {
		status := s.review(t, ofRemoved)
		if status.Authenticated {
			return errNotYet
		}
		if status.Error != "" {
			t.Errorf("got %+v, want a definite no", status)
		}
		return nil
	})
	if got := s.tell(t, ofRemoved); got.Reason != "foreign" {
		t.Errorf("got %+v, want that it is foreign", got)
	}
	change("an issuer that is there again", both, func() error { return yes(s.review(t, ofRemoved)) })
	if after := requests(t, kept); after != before {
		t.Errorf("the issuer that stays was asked for its keys %d times for that", after-before)
	}
}
