package issuers

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

const otherURL = "https://other.example.com"

// startBoth is Issuers with two providers.
func startBoth(t *testing.T) (i *Issuers, one, other *provider) {
	t.Helper()
	one, other = newProvider(example, signing("a")), newProvider(otherURL, signing("o"))
	i, _ = start(t)
	i.connect = func(*x509.CertPool) *http.Client {
		return &http.Client{Transport: byHost{"issuer.example.com": direct{one}, "other.example.com": direct{other}}}
	}
	return i, one, other
}

type byHost map[string]direct

func (b byHost) RoundTrip(r *http.Request) (*http.Response, error) {
	return b[r.URL.Hostname()].RoundTrip(r)
}

func TestIssuersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, one, other := startBoth(t)
		first := specOf(at(example))
		_, v := provide(t, i, first)
		i.Keep(v)

		second := specOf(at(otherURL), at(example))
		_, v2 := provide(t, i, second)
		i.Keep(v2)
		if second.Issuers[1].Keys != first.Issuers[0].Keys {
			t.Error("an issuer that did not change was begun anew")
		}
		if n := one.fetches(); n != 1 {
			t.Errorf("an issuer that did not change was fetched %d times, want 1", n)
		}
		if !finds(t, second.Issuers[0].Keys, "o") {
			t.Error("no key of the new issuer")
		}

		third := specOf(at(otherURL))
		_, v3 := provide(t, i, third)
		i.Keep(v3)
		gone, calls := second.Issuers[1].Keys, one.calls()
		if !finds(t, gone, "a") {
			t.Error("a token that is being checked by the old configuration does not find its key")
		}
		cannotTell(t, gone, "b", errStopped)
		time.Sleep(time.Hour)
		if one.calls() != calls {
			t.Error("an issuer that is not configured any more is asked")
		}
		if n := other.fetches(); n < 12 {
			t.Errorf("%d fetches of the other in an hour", n)
		}
		if n := value(t, i, "gatehouse_issuer_keys", example) + value(t, i, "gatehouse_issuer_key_fetches_total", example, "ok"); n != -2 {
			t.Error("metrics of an issuer that is not configured any more")
		}
		if n := value(t, i, "gatehouse_issuer_keys", otherURL); n != 1 {
			t.Errorf("metric counts %v keys, want 1", n)
		}
	})
}

// An operator who changes an interval during an outage locks nobody out.
func TestChangeDuringAnOutageKeepsTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(example, signing("a"))
		i, _ := startAt(t, p)
		_, v := provide(t, i, specOf(at(example)))
		i.Keep(v)
		p.lie(hang)
		time.Sleep(time.Hour)
		begin := time.Now()
		keys, v2 := provide(t, i, every(specOf(at(example)), time.Minute, 2*time.Hour))
		i.Keep(v2)
		if d := time.Since(begin); d != 0 {
			t.Errorf("waited %s for an issuer whose keys are known", d)
		}
		if !finds(t, keys, "a") {
			t.Error("the last good key is gone")
		}
		if n := value(t, i, "gatehouse_issuer_key_fetches_total", example, "ok"); n != 1 {
			t.Errorf("metric counts %v fetches, want the one before the outage", n)
		}
		time.Sleep(2 * time.Hour)
		if _, err := keys.Find(t.Context(), "a"); err == nil {
			t.Error("the key is younger by the change")
		}
	})
}

// Keys that a CA vouched for which is not trusted any more are not kept.
func TestOtherOriginKeepsNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(example, signing("a"))
		i, _ := startAt(t, p)
		_, v := provide(t, i, specOf(at(example)))
		i.Keep(v)
		p.lie(down)
		moved := at(example)
		moved.Config.Issuer.DiscoveryURL = "https://moved.example.com" + discoveryPath
		keys, _ := provide(t, i, specOf(moved))
		cannotTell(t, keys, "a", errUnreachable)
	})
}

// keySet is that of a keys file.
func keySet(t *testing.T, keys ...jose.JSONWebKey) *jwt.KeySet {
	t.Helper()
	set, err := jwt.ParseKeySet(setOf(t, keys...))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestStaticKeysAreNeverFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(example, signing("elsewhere"))
		i, _ := startAt(t, p)
		configured := at(example)
		configured.Keys = keySet(t, signing("a"), signing("b"))
		keys, v := provide(t, i, specOf(configured))
		i.Keep(v)
		if !finds(t, keys, "a") || len(ids(t, keys, "")) != 2 || finds(t, keys, "elsewhere") {
			t.Error("not the keys of the file")
		}
		time.Sleep(48 * time.Hour)
		if !finds(t, keys, "a") {
			t.Error("the key is gone")
		}
		if n := p.calls(); n != 0 {
			t.Errorf("%d calls", n)
		}
		if n := value(t, i, "gatehouse_issuer_keys", example); n != 2 {
			t.Errorf("metric counts %v keys, want 2", n)
		}
		configured.Keys = keySet(t, signing("c"))
		keys, _ = provide(t, i, specOf(configured))
		if !finds(t, keys, "c") || finds(t, keys, "a") {
			t.Error("not the keys of the file after it changed")
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, one, other := startBoth(t)
		one.lie(down)
		other.lie(hang)
		v := i.Provide(specOf(at(example), at(otherURL)))
		begin := time.Now()
		err := v.Wait(within(t, 5*time.Second))
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), otherURL) || strings.Contains(err.Error(), example) {
			t.Errorf("error %v, want one that names the issuer that does not answer", err)
		}
		if err := v.Wait(t.Context()); err != nil || time.Since(begin) != fetchTime {
			t.Errorf("error %v after %s, want none after %s", err, time.Since(begin), fetchTime)
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	p, server := served(t, signing("a"))
	i, logged := start(t)
	keys, _ := provide(t, i, specOf(trusting(server)))
	arrived, asked := make(chan struct{}), make(chan error, 1)
	p.lie(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		hang(w, r)
	})
	go func() {
		_, err := keys.Find(context.WithoutCancel(t.Context()), "b")
		asked <- err
	}()
	<-arrived
	i.Close()
	if err := <-asked; err == nil {
		t.Error("a no by a fetch that was ended")
	}
	cannotTell(t, keys, "b", errStopped)
	if !finds(t, keys, "a") {
		t.Error("what is in memory is gone")
	}
	if logged.Count("cannot fetch") > 0 {
		t.Errorf("a fetch that was ended is in the log:\n%s", logged)
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, i, keys := started(t, "a", "b")
		for range 10 {
			_, _ = keys.Find(t.Context(), "forged")
		}
		p.lie(down)
		time.Sleep(askEvery)
		_, _ = keys.Find(t.Context(), "forged")
		p.lie(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
		time.Sleep(askEvery)
		_, _ = keys.Find(t.Context(), "forged")
		want := `
# HELP gatehouse_issuer_key_fetches_total Fetches of the keys of an issuer, by result (ok, failed). A failed one leaves the keys as they were.
# TYPE gatehouse_issuer_key_fetches_total counter
gatehouse_issuer_key_fetches_total{issuer="https://issuer.example.com",result="failed"} 2
gatehouse_issuer_key_fetches_total{issuer="https://issuer.example.com",result="ok"} 4
# HELP gatehouse_issuer_keys Keys of an issuer that are in use. 0 while no token of the issuer can be checked.
# TYPE gatehouse_issuer_keys gauge
gatehouse_issuer_keys{issuer="https://issuer.example.com"} 2
# HELP gatehouse_issuer_keys_fetched_timestamp_seconds When the keys that are known of an issuer were fetched. Absent before, and for keys that come from a file.
# TYPE gatehouse_issuer_keys_fetched_timestamp_seconds gauge
gatehouse_issuer_keys_fetched_timestamp_seconds{issuer="https://issuer.example.com"} 9.466848e+08
`
		if err := testutil.CollectAndCompare(i, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		lintMetrics(t, i)
	})
}
