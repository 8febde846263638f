package review_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// TestCallsOfTheAPIServer: how often kube-apiserver's own client and cache call for three logins with one token, with its number of
// attempts. It keeps a yes and a no, asks again where it cannot be decided, and repeats no call by itself: a server without room would
// get each of them five times.
func TestCallsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	noRoom := options(nil)
	noRoom.Observe, noRoom.InFlight = nil, review.NewBudget(0)
	for name, c := range map[string]struct {
		token   string
		options review.Options
		ok      bool
		isError bool
		calls   int32
	}{
		"yes":           {"good", options(make(observed, 4)), true, false, 1},
		"no":            {"unknown", options(make(observed, 4)), false, false, 1},
		"cannot decide": {"panic", options(make(observed, 4)), false, true, 3},
		"no room":       {"good", noRoom, false, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			handler := review.Token(known, c.options)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				handler.ServeHTTP(w, r)
			}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			client, err := webhook.New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, "v1", nil, *webhook.DefaultRetryBackoff())
			if err != nil {
				t.Fatal(err)
			}
			cached := cache.New(client, false, time.Hour, time.Hour)
			for range 3 {
				if _, ok, err := cached.AuthenticateToken(t.Context(), c.token); ok != c.ok || (err != nil) != c.isError {
					t.Errorf("got %t, %v", ok, err)
				}
			}
			if n := calls.Load(); n != c.calls {
				t.Errorf("%d calls, want %d", n, c.calls)
			}
		})
	}
}
