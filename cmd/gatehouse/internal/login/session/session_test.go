package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fake is a Method that says what a test tells it to.
type fake struct {
	id             Identity
	logins, renews atomic.Int32
	login          func(context.Context) (*Credential, error)
	renew          func(*Credential) (*Credential, error)
}

func (f *fake) Identity() Identity { return f.id }

func (f *fake) Login(ctx context.Context) (*Credential, error) {
	f.logins.Add(1)
	return f.login(ctx)
}

func (f *fake) Renew(_ context.Context, old *Credential) (*Credential, error) {
	f.renews.Add(1)
	if f.renew == nil {
		return nil, ErrEnded
	}
	return f.renew(old)
}

func credential(token string, obtained time.Time) *Credential {
	return &Credential{Token: token, ObtainedAt: obtained, ExpiresAt: obtained.Add(time.Hour), User: "jane", Source: "https://issuer.example"}
}

func TestGet(t *testing.T) {
	t.Parallel()
	fresh := credential("fresh", noon)
	old := func(ago time.Duration) *Credential { return credential("old", noon.Add(-ago)) }
	down := errors.New("the server is down")
	cases := []struct {
		name           string
		cached         *Credential
		renew          error // what Renew fails with
		login          error // what Login fails with
		interactive    bool
		anew, again    bool   // what Anew and Renew are
		token          string // empty for an error
		err            string
		logins, renews int32
		kept           string
	}{
		{name: "nothing yet", interactive: true, token: "fresh", logins: 1, kept: "fresh"},
		{name: "nothing yet and nobody there", err: "you have to log in"},
		{name: "from the cache", cached: old(30 * time.Minute), token: "old", kept: "old"},
		{name: "just before the margin", cached: old(time.Hour - 31*time.Second), token: "old", kept: "old"},
		{name: "renewed near the end", cached: old(time.Hour - 30*time.Second), token: "fresh", renews: 1, kept: "fresh"},
		{name: "renewed after the end", cached: old(2 * time.Hour), token: "fresh", renews: 1, kept: "fresh"},
		{name: "renewal fails near the end", cached: old(time.Hour - time.Second), renew: down, interactive: true, token: "old", renews: 1, kept: "old"},
		{name: "renewal fails after the end", cached: old(time.Hour), renew: down, interactive: true, err: "cannot be renewed: the server is down", renews: 1, kept: "old"},
		{name: "session over", cached: old(2 * time.Hour), renew: ErrEnded, interactive: true, token: "fresh", renews: 1, logins: 1, kept: "fresh"},
		{name: "session over and nobody there", cached: old(2 * time.Hour), renew: ErrEnded, err: "you have to log in", renews: 1, kept: "old"},
		{name: "anew", cached: old(time.Minute), anew: true, interactive: true, token: "fresh", logins: 1, kept: "fresh"},
		{name: "anew, and refused", cached: old(time.Minute), anew: true, interactive: true, login: &RefusedError{"credentials", "wrong"}, err: "wrong (reason credentials)", logins: 1, kept: "old"},
		{name: "again", cached: old(time.Minute), again: true, interactive: true, token: "fresh", renews: 1, kept: "fresh"},
		{name: "again, and the server is down", cached: old(time.Minute), again: true, interactive: true, renew: down, token: "old", renews: 1, kept: "old"},
		{name: "again, and revoked", cached: old(time.Minute), again: true, interactive: true, renew: fmt.Errorf("%w: %w", ErrEnded, &RefusedError{"revoked", "gone"}), token: "fresh", renews: 1, logins: 1, kept: "fresh"},
		{name: "renewal refused", cached: old(2 * time.Hour), renew: fmt.Errorf("%w: %w", ErrEnded, &RefusedError{"credentials", "gone"}), err: "to ask you: the login could not be renewed: gone (reason credentials)", renews: 1, kept: "old"},
		{name: "renewal refused to a person", cached: old(2 * time.Hour), renew: fmt.Errorf("%w: %w", ErrEnded, &RefusedError{"credentials", "gone"}), interactive: true, token: "fresh", renews: 1, logins: 1, kept: "fresh"},
		{name: "refused", interactive: true, login: &RefusedError{"credentials", "wrong name or password"}, err: "wrong name or password (reason credentials)", logins: 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			result := func(err error) (*Credential, error) {
				if err != nil {
					return nil, err
				}
				return fresh, nil
			}
			m := &fake{
				login: func(context.Context) (*Credential, error) { return result(c.login) },
				renew: func(*Credential) (*Credential, error) { return result(c.renew) },
			}
			s := newSession(t, m)
			s.Interactive, s.Anew, s.Renew = c.interactive, c.anew, c.again
			e := s.Cache.entry(m.id)
			if c.cached != nil {
				if err := e.write(c.cached); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Get(t.Context())
			switch {
			case c.token == "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("got %+v, %v, want %q", got, err, c.err)
			case c.token != "" && (err != nil || got.Token != c.token):
				t.Errorf("got %+v, %v, want %q", got, err, c.token)
			}
			if m.logins.Load() != c.logins || m.renews.Load() != c.renews {
				t.Errorf("%d logins and %d renewals, want %d and %d", m.logins.Load(), m.renews.Load(), c.logins, c.renews)
			}
			kept, err := e.read()
			if err != nil || (kept == nil) != (c.kept == "") || kept != nil && kept.Token != c.kept {
				t.Errorf("kept %+v, %v, want %q", kept, err, c.kept)
			}
		})
	}
}

// newSession is a session at noon in a directory of its own.
func newSession(t *testing.T, m Method) *Session {
	t.Helper()
	return &Session{
		Method: m, Cache: &Cache{Dir: t.TempDir() + "/gatehouse"}, LockTimeout: 20 * time.Second, Remarks: &logbuffer.Buffer{},
		Now: func() time.Time { return noon },
	}
}

func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		timeout time.Duration
		end     bool
		says    string
	}{
		{"timeout", 20 * time.Millisecond, false, "another login has not finished within 20ms"},
		{"timeout after a remark", 3 * time.Second, false, "another login has not finished within 3s"},
		{"interrupted", time.Minute, true, "context canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &fake{}
			s := newSession(t, m)
			e := s.Cache.entry(m.id)
			if _, err := e.read(); err != nil { // makes the directory
				t.Fatal(err)
			}
			unlock, err := e.lock(t.Context(), time.Minute, func() {})
			if err != nil {
				t.Fatal(err)
			}
			s.Interactive, s.LockTimeout = true, c.timeout
			ctx, cancel := context.WithCancel(t.Context())
			if c.end {
				cancel()
			}
			defer cancel()
			if _, err := s.Get(ctx); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if said := fmt.Sprint(s.Remarks); strings.Contains(said, "waiting for another login to finish, at most 3s") != (c.timeout == 3*time.Second) {
				t.Errorf("said %q", said)
			}
			unlock()
			again, err := e.lock(t.Context(), time.Second, func() {})
			if err != nil {
				t.Fatalf("the lock was left: %v", err)
			}
			again()
		})
	}
}

func TestCheckToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, token string
		expires     time.Time
		says        string
	}{
		{"good", "a.b-c_d", noon.Add(time.Second), ""},
		{"empty", "", noon.Add(time.Hour), "0 bytes"},
		{"line break", "hush\r\nX-Evil: 1", noon.Add(time.Hour), "characters that are not allowed"},
		{"not ASCII", "hüsh", noon.Add(time.Hour), "characters that are not allowed"},
		{"huge", strings.Repeat("x", 64<<10+1), noon.Add(time.Hour), "65537 bytes"},
		{"ended", "hush", noon, "check the clock of this machine"},
	} {
		err := checkToken(c.token, c.expires, noon)
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
}
