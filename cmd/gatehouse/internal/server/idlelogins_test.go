package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// idleCall is a call whose body never arrives. Its read is interrupted by a deadline in the past.
type idleCall struct {
	*httptest.ResponseRecorder

	interrupted chan struct{}
	once        sync.Once
}

func (c *idleCall) SetReadDeadline(deadline time.Time) error {
	if deadline.Before(time.Now()) {
		c.once.Do(func() { close(c.interrupted) })
	}
	return nil
}

func (c *idleCall) Read([]byte) (int, error) {
	<-c.interrupted
	return 0, context.DeadlineExceeded
}

// TestIdleLogins has 200 addresses begin logins whose bodies do not arrive: a login that arrives is answered, with its body.
func TestIdleLogins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := newReviews(t, webhooks.Spec{}, func(o *server.ReviewOptions) {
			o.Login = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err == nil {
					_, _ = w.Write(body)
				}
			})
		})
		serve := func(w http.ResponseWriter, r *http.Request) {
			defer func() { _ = recover() }() // as net/http does
			handler.ServeHTTP(w, r)
		}
		var running sync.WaitGroup
		var idle []*idleCall
		for i := range 2000 {
			c := &idleCall{ResponseRecorder: httptest.NewRecorder(), interrupted: make(chan struct{})}
			idle = append(idle, c)
			r := httptest.NewRequest(http.MethodPost, "/login", c)
			r.RemoteAddr, r.ContentLength = fmt.Sprintf("198.51.%d.1:1", i%200), 10
			running.Go(func() { serve(c, r) })
		}
		synctest.Wait()
		const body = `{"directory":"staff"}`
		w := httptest.NewRecorder()
		serve(w, httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(body)))
		if w.Body.String() != body {
			t.Errorf("beside %d idle logins one is answered %d %q", len(idle), w.Code, w.Body)
		}
		for _, c := range idle {
			_ = c.SetReadDeadline(time.Unix(1, 0)) // never fails
		}
		running.Wait()
	})
}
