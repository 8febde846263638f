package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// faultyAPI stands in front of the API server and answers as it is told to.
type faultyAPI struct {
	// behave answers a request in the API server's place. Nil stands for the API server.
	behave atomic.Pointer[func(http.ResponseWriter, *http.Request, http.Handler)]
	url    string
	// cut is closed, and made anew, to end what goes on.
	cut atomic.Pointer[context.CancelFunc]
	now atomic.Pointer[context.Context]
}

func newFaultyAPI(t *testing.T, w *world) *faultyAPI {
	t.Helper()
	access := rest.CopyConfig(w.Config())
	access.CertData, access.KeyData = nil, nil // everybody is who the token says
	transport, err := rest.TransportFor(access)
	must(t, err)
	to, err := url.Parse(access.Host)
	must(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	}
	f := &faultyAPI{}
	f.setBehavior(nil)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(*f.now.Load(), cancel)() //nolint:contextcheck // either ends it
		r = r.WithContext(ctx)
		if behave := f.behave.Load(); behave != nil {
			(*behave)(rw, r, proxy)
			return
		}
		proxy.ServeHTTP(rw, r)
	}))
	cert, key, err := w.authority.Serve("127.0.0.1")
	must(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	must(t, err)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		f.setBehavior(nil)
		server.CloseClientConnections()
		server.Close()
	})
	f.url = server.URL
	return f
}

// setBehavior ends all that goes on, and behaves so from now on.
func (f *faultyAPI) setBehavior(behave func(http.ResponseWriter, *http.Request, http.Handler)) {
	if behave == nil {
		f.behave.Store(nil)
	} else {
		f.behave.Store(&behave)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.now.Store(&ctx)
	if before := f.cut.Swap(&cancel); before != nil {
		(*before)()
	}
}

func says(code int, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		_, _ = io.WriteString(rw, body)
	}
}

// Whatever the API server does, the verdicts stay; what changes meanwhile counts soon after it recovers, and nothing grows.
func TestCustomResourcesThroughAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	f := newFaultyAPI(t, w)
	must(t, w.apply(t.Context(), policyNamed("red", "object.metadata.name != 'red'", "")+profileNamed("logs")))
	c := newResourceInstall(t, w, resourceOptions{namespace: system, name: "gatehouse", reach: f.url}).start(t)
	w.refuses(t, "red", "no red")
	r := c.reviewer(t)
	color, number := "red", 0
	// through goes through one trouble: while it lasts, the verdicts are those of before, and after it a change counts.
	through := func(name string, lasts time.Duration, begin, end func()) {
		t.Helper()
		before := len(c.lines(t))
		begin()
		support.Throughout(t, name, lasts, func() error {
			for pod, want := range map[string]bool{color: true, "green": false} {
				if got, err := r.ask(t.Context(), pod); err != nil || (got != "") != want {
					return fmt.Errorf("%s is judged %q, %w", pod, got, err)
				}
			}
			if code, text, err := c.server.Get(t.Context(), "/readyz"); err != nil || code != http.StatusOK {
				return fmt.Errorf("/readyz says %d %s, %w", code, text, err)
			}
			return nil
		})
		end()
		number++
		old := color
		color = fmt.Sprintf("red-%d", number)
		support.Eventually(t, "a change once "+name+" is over", func() error {
			return w.apply(t.Context(), policyNamed("red", "object.metadata.name != '"+color+"'", ""))
		})
		began := time.Now()
		support.Eventually(t, "the change counts after "+name, func() error {
			for pod, want := range map[string]bool{color: true, old: false} {
				if got, err := r.ask(t.Context(), pod); err != nil || (got != "") != want {
					return fmt.Errorf("%s is judged %q, %w", pod, got, err)
				}
			}
			return nil
		})
		lines := 0
		for _, line := range c.lines(t)[before:] {
			if line.Message != "review" {
				lines++
			}
		}
		t.Logf("after %s a change counted within %v; %d lines were logged", name, time.Since(began), lines)
		if most := 70; lines > most {
			t.Errorf("through %s it logs %d lines", name, lines)
		}
	}
	goroutines := func() float64 {
		t.Helper()
		n, err := c.server.Metric(t.Context(), "go_goroutines")
		must(t, err)
		return n
	}
	before := goroutines()
	memory, err := c.server.Metric(t.Context(), "process_resident_memory_bytes")
	must(t, err)

	const lasts = 2 * time.Second
	heal := func() { f.setBehavior(nil) }
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`
	for _, trouble := range []struct {
		name   string
		behave func(http.ResponseWriter, *http.Request, http.Handler)
	}{
		{"answers of 500", says(http.StatusInternalServerError, fmt.Sprintf(status, "InternalError", 500))},
		{"answers of 429", says(http.StatusTooManyRequests, fmt.Sprintf(status, "TooManyRequests", 429))},
		{"truncated JSON", says(http.StatusOK, `{"kind":"AdmissionPolicyList","apiVersion":"gatehouse.dev/v1alpha1","items":[{"metadata":`)},
		{"garbage", says(http.StatusOK, strings.Repeat("\x00\xffgarbage", 1000))},
		{"lists of nothing that are none", says(http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)},
		{"watches that break off", func(rw http.ResponseWriter, r *http.Request, upstream http.Handler) {
			if r.URL.Query().Get("watch") == "" {
				upstream.ServeHTTP(rw, r)
				return
			}
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, `{"type":"ADDED","object":{"apiVersion":`)
		}},
	} {
		through(trouble.name, lasts, func() { f.setBehavior(trouble.behave) }, heal)
	}
	through("an API server that hangs", 3*lasts, func() { must(t, w.APIServer().Signal(syscall.SIGSTOP)) }, func() { must(t, w.APIServer().Signal(syscall.SIGCONT)) })
	through("an API server that is gone", 3*lasts, func() { must(t, w.APIServer().Kill()) }, func() {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		must(t, w.APIServer().Start(ctx))
	})

	w.hasConditions(t, "admissionpolicy", "", "red", "Compiled=True/Compiled", inUse)
	support.Eventually(t, "what it began is over", func() error {
		if n := goroutines(); n > before+20 {
			return fmt.Errorf("there are %v goroutines, and were %v", n, before)
		}
		return nil
	})
	now, err := c.server.Metric(t.Context(), "process_resident_memory_bytes")
	must(t, err)
	t.Logf("%.0f goroutines before, %.0f after; %.1f MiB before, %.1f MiB after", before, goroutines(), memory/(1<<20), now/(1<<20))
	if now > memory+(64<<20) {
		t.Error("it holds on to memory")
	}
}

// A server that could not read the custom resources since its start cannot decide what they refuse, and says so to who
// asks all the same: failurePolicy decides, and no login is answered without the revocations.
func TestAskedBeforeCustomResourcesAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	must(t, w.apply(t.Context(), policyNamed("red", "object.metadata.name != 'red'", "")))
	f := newFaultyAPI(t, w)
	broken := says(http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"InternalError","code":500}`)
	f.setBehavior(func(rw http.ResponseWriter, r *http.Request, upstream http.Handler) {
		if strings.HasPrefix(r.URL.Path, "/apis/gatehouse.dev/") {
			broken(rw, r, upstream)
			return
		}
		upstream.ServeHTTP(rw, r)
	})
	c := newResourceInstall(t, w, resourceOptions{namespace: system, name: "gatehouse", reach: f.url})
	ops := c.launched(t)
	var r *reviewer
	support.Eventually(t, "the CA in the registration", func() error {
		found, err := c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if r = c.newReviewer(found.Webhooks[0].ClientConfig.CABundle, c.reviews(t), "shop"); len(found.Webhooks[0].ClientConfig.CABundle) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	validate := r.url
	for _, path := range []string{"/validate", "/mutate"} {
		r.url = strings.TrimSuffix(validate, "/validate") + path
		for _, pod := range []string{"red", "green"} {
			if got, err := r.ask(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "500 ") {
				t.Errorf("%s answers about %s %q, %v; want no answer", path, pod, got, err)
			}
		}
	}
	if code, text, err := readyz(t.Context(), ops); err != nil || code == http.StatusOK {
		t.Errorf("/readyz says %d %s, %v", code, text, err)
	}
	r.url = validate
	f.setBehavior(nil)
	support.Eventually(t, "the verdicts once they are read", func() error {
		for pod, want := range map[string]bool{"red": true, "green": false} {
			if got, err := r.ask(t.Context(), pod); err != nil || (got != "") != want {
				return fmt.Errorf("%s is judged %q, %w", pod, got, err)
			}
		}
		return nil
	})
}
