package ldap_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/ldap"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/slapd"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// login is all that a login asks of a directory.
func login(ctx context.Context, d *ldap.Directory) error {
	jane, err := d.Find(ctx, "jane")
	if err != nil {
		return err
	}
	err = d.Verify(ctx, jane, password)
	if err != nil {
		return err
	}
	_, err = d.Groups(ctx, jane)
	return err
}

func within(c *v1alpha1.Directory, timeout time.Duration) *v1alpha1.Directory {
	c.Timeout = &metav1.Duration{Duration: timeout}
	return c
}

// TestCertificates talks to nobody whose certificate is not right.
func TestCertificates(t *testing.T) {
	t.Parallel()
	good := slapd.New(t, slapd.Options{LDIF: tree})
	stranger, err := cluster.NewAuthority("stranger")
	if err != nil {
		t.Fatal(err)
	}
	misnamed := slapd.New(t, slapd.Options{LDIF: tree, Hosts: []string{"ldap.example.org"}})
	for name, test := range map[string]struct {
		server    *slapd.Server
		url       func(*slapd.Server) string
		authority string
		want      string
	}{
		"LDAPS":               {good, ldaps, good.CertificateAuthority, ""},
		"StartTLS":            {good, startTLS, good.CertificateAuthority, ""},
		"other host name":     {good, func(s *slapd.Server) string { return strings.Replace(s.TLS, "127.0.0.1", "LOCALHOST", 1) }, good.CertificateAuthority, ""},
		"LDAPS, wrong CA":     {good, ldaps, string(stranger.CertPEM()), "unknown authority"},
		"StartTLS, wrong CA":  {good, startTLS, string(stranger.CertPEM()), "unknown authority"},
		"LDAPS, system's CAs": {good, ldaps, "", "unknown authority"},
		"StartTLS, system's":  {good, startTLS, "", "unknown authority"},
		"LDAPS, wrong name":   {misnamed, ldaps, misnamed.CertificateAuthority, "127.0.0.1"},
		"StartTLS, wrong":     {misnamed, startTLS, misnamed.CertificateAuthority, "127.0.0.1"},
		"LDAPS, plain port":   {good, func(s *slapd.Server) string { return strings.Replace(s.Plain, "ldap:", "ldaps:", 1) }, good.CertificateAuthority, "begin TLS"},
		"StartTLS, TLS port":  {good, func(s *slapd.Server) string { return strings.Replace(s.TLS, "ldaps:", "ldap:", 1) }, good.CertificateAuthority, "begin TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := within(config(test.server), 2*time.Second)
			c.Servers, c.CertificateAuthority = []string{test.url(test.server)}, test.authority
			d := open(t, c)
			err := login(t.Context(), d)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !isUnknown(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("jane's login is %v, want an error with %s", err, test.want)
			}
			err = d.Verify(t.Context(), &authn.Account{DN: janeDN}, password)
			if !isUnknown(err) {
				t.Errorf("jane's password is %v", err)
			}
		})
	}
	t.Cleanup(func() {
		if got := binds(misnamed); len(got) > 0 {
			t.Errorf("a server with the wrong name was given passwords: %q", got)
		}
		if got := count(good, `mech=SIMPLE bind_ssf=0 ssf=0`); got > 0 {
			t.Errorf("%d passwords went without TLS", got)
		}
	})
}

func ldaps(s *slapd.Server) string    { return s.TLS }
func startTLS(s *slapd.Server) string { return s.Plain }

// TestSecondServer goes on with another server when one is gone, and comes back to
// the first when it must.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	first, second := slapd.New(t, slapd.Options{LDIF: tree}), slapd.New(t, slapd.Options{LDIF: tree})
	d := open(t, config(first, second))
	mustLogin := func(when string) {
		t.Helper()
		err := login(t.Context(), d)
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	mustLogin("both")
	if got := binds(second); len(got) > 0 {
		t.Errorf("the second server is asked without need: %q", got)
	}
	first.Stop()
	mustLogin("the first is gone")
	mustLogin("the first is still gone")
	if got := binds(second); !slices.Equal(got, []string{searchDN, janeDN, searchDN, searchDN, janeDN, searchDN}) {
		t.Errorf("binds to the second as %q", got)
	}
	if s := d.Servers()[0]; s.Failures != 1 || !s.PassedOver || s.Open != 0 {
		t.Errorf("of the first server, the numbers are %+v: it is tried once and passed over", s)
	}
	second.Stop()
	err := login(t.Context(), d)
	if !isUnknown(err) || !strings.Contains(err.Error(), first.TLS) || !strings.Contains(err.Error(), second.TLS) || strings.Contains(err.Error(), "\n") {
		t.Errorf("without servers, the login is %v", err)
	}
	first.Start()
	mustLogin("the first is back, and the second gone")
	if s := d.Servers()[0]; s.PassedOver {
		t.Errorf("a server that answers is passed over: %+v", s)
	}
}

// TestSuspendedServer has a server that takes connections and does not answer. A
// login gets through by the other one in its time.
func TestSuspendedServer(t *testing.T) {
	t.Parallel()
	first, second := slapd.New(t, slapd.Options{LDIF: tree}), slapd.New(t, slapd.Options{LDIF: tree})
	d := open(t, within(config(first, second), 4*time.Second))
	first.Pause()
	defer first.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := login(ctx, d); err != nil {
		t.Error(err)
	}
	start := time.Now()
	err := login(t.Context(), d)
	if took := time.Since(start); err != nil || took > 1900*time.Millisecond { // by way of the first it would be 2 s
		t.Errorf("the next login takes %s, %v", took, err)
	}
}

// TestTimeout ends in time when nobody answers, and when the caller leaves.
func TestTimeout(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree})
	c := within(config(s), 500*time.Millisecond)
	d := open(t, c)
	jane, err := eventuallyKnown(t, d, "jane")
	if err != nil {
		t.Fatal(err)
	}
	before := d.Servers()[0].Failures
	s.Pause()
	for name, ask := range map[string]func(context.Context) error{
		"find":   func(ctx context.Context) error { _, err := d.Find(ctx, "jane"); return err },
		"verify": func(ctx context.Context) error { return d.Verify(ctx, jane, password) },
		"groups": func(ctx context.Context) error { _, err := d.Groups(ctx, jane); return err },
	} {
		start := time.Now()
		err := ask(t.Context())
		if took := time.Since(start); !isUnknown(err) || !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			t.Errorf("%s: %v after %s", name, err, took)
		}
		if errors.Is(err, authn.ErrPasswordSent) {
			t.Errorf("%s: a password is counted that was not sent: %v", name, err)
		}
		if strings.Contains(err.Error(), password) {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}

	failures := d.Servers()[0].Failures - before
	patient := open(t, within(config(s), time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = patient.Find(ctx, "jane")
	if !isUnknown(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the caller left: %v", err)
	}
	if got := patient.Servers()[0]; got.Failures != 0 || got.PassedOver {
		t.Errorf("a caller who leaves is counted as the server's failure: %+v", got)
	}
	if failures != 3 {
		t.Errorf("%d failures are counted, want 3", failures)
	}
	s.Resume()
	err = login(t.Context(), d)
	for end := time.Now().Add(time.Minute); isUnknown(err) && time.Now().Before(end); {
		err = login(t.Context(), d)
	}
	if err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

// TestBindOnce does not try a password again that may have been counted already,
// on this server or another one.
func TestBindOnce(t *testing.T) {
	t.Parallel()
	second := slapd.New(t, slapd.Options{LDIF: tree})
	var asked atomic.Bool
	first := newFake(t, func(f *fakeConn, m message) {
		if m.operation == bindRequest && m.dn == janeDN {
			asked.Store(true)
			f.hang()
			return
		}
		f.answerLikeAServer(m)
	})
	var (
		d      *ldap.Directory
		err    error
		before int
	)
	// A busy machine may not come as far as the password in a second, and then it may be tried elsewhere.
	for timeout := time.Second; !asked.Load(); timeout *= 2 {
		if timeout > time.Minute {
			t.Fatal("the first server is never asked")
		}
		c := within(config(second), timeout)
		c.Servers = append([]string{first.url}, c.Servers...)
		c.CertificateAuthority += first.authority
		d, before = open(t, c), len(binds(second))
		err = d.Verify(t.Context(), &authn.Account{DN: janeDN}, password)
	}
	if !isUnknown(err) {
		t.Errorf("a password without an answer: %v", err)
	}
	if got := binds(second)[before:]; len(got) > 0 {
		t.Errorf("the password was tried elsewhere, as %q", got)
	}
	if s := d.Servers()[0]; s.Failures != 1 || !s.PassedOver {
		t.Errorf("the server that did not answer has %+v", s)
	}
}

// TestManyAtOnce has more logins than connections.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: tree + group("dev", janeDN)})
	c := within(config(s), 30*time.Second)
	c.MaxConnections = 3
	d := open(t, c)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if open := d.Servers()[0].Open; open > 3 {
				t.Errorf("%d connections are open, more than 3", open)
				return
			}
		}
	})
	var logins sync.WaitGroup
	for range 24 {
		logins.Go(func() {
			err := login(t.Context(), d)
			if err != nil {
				t.Error(err)
			}
		})
	}
	logins.Wait()
	close(done)
	watch.Wait()
	if got := d.Servers()[0]; got.Open != 0 {
		t.Errorf("afterwards, the numbers are %+v", got)
	}
}
