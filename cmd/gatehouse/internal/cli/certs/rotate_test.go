package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certsource "github.com/gatehouse-dev/gatehouse/certs/source"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
)

// rotateStage is a store with servers, and what was printed.
type rotateStage struct {
	place    *storage
	out, err bytes.Buffer
}

func (r *rotateStage) rotate(ctx context.Context, emergency, wait bool) error {
	f := rotateFlags{
		commonFlags: commonFlags{now: time.Now, hold: rotation.DefaultHold, secret: install.DefaultCASecret},
		emergency:   emergency, wait: wait, timeout: defaultTimeout, output: "text",
	}
	return f.rotate(ctx, r.place, cli.Streams{Out: &r.out, Err: &r.err})
}

// newRotateStage has so many servers, which run until the test ends, and a CA.
func newRotateStage(t *testing.T, servers int) *rotateStage {
	t.Helper()
	r := &rotateStage{place: &storage{store: &certstore.MemoryStore{}, replicas: &certstore.MemoryReplicas{}}}
	for i := range max(servers, 1) {
		config := certsource.SelfSignedConfig{Hosts: []string{"a"}, Store: r.place.store, Replica: fmt.Sprintf("gatehouse-%d", i)}
		if servers > 0 {
			config.Replicas = r.place.replicas
		}
		server, err := certsource.NewSelfSigned(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if servers > 0 {
			go func() { _ = server.Run(t.Context()) }()
		}
	}
	return r
}

// wantCode reports whether an error ends the program with the code.
func wantCode(t *testing.T, err error, code int, text string) {
	t.Helper()
	got := cli.ExitYes
	if err != nil {
		got = cli.ExitUnknown
	}
	if exit, ok := errors.AsType[*cli.ExitError](err); ok {
		got = exit.Code
	}
	if got != code || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("the exit code is %d, want %d with %q: %v", got, code, text, err)
	}
}

func (r *rotateStage) state(t *testing.T) *rotation.State {
	t.Helper()
	return r.read(t.Context(), t)
}

func (r *rotateStage) read(ctx context.Context, t *testing.T) *rotation.State {
	t.Helper()
	record, err := r.place.store.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	state, err := rotation.Decode(record.Data)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// change writes a changed state.
func (r *rotateStage) change(t *testing.T, change func(*rotation.State)) {
	t.Helper()
	record, err := r.place.store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	state := r.state(t)
	change(state)
	state.Generation++
	data, err := rotation.Encode(state, time.Now())
	if err == nil {
		err = r.place.store.Save(t.Context(), record, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// brokenStore cannot be read while it is broken.
type brokenStore struct {
	certstore.Store
	broken atomic.Bool
}

func (s *brokenStore) Load(ctx context.Context) (certstore.Record, error) {
	if s.broken.Load() {
		return certstore.Record{}, errors.New("memory: is gone (hint: wait)")
	}
	return s.Store.Load(ctx)
}

func TestCertsRotate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){
		"nobody serves": func(t *testing.T) {
			r := newRotateStage(t, 0)
			begun := time.Now()
			wantCode(t, r.rotate(t.Context(), false, true), cli.ExitNo, "not done after 30m0s: Stable: the rotation that was requested at 2000-01-01T00:00:00Z begins")
			if took := time.Since(begun); took != defaultTimeout {
				t.Errorf("it took %s", took)
			}
			if !strings.HasPrefix(r.err.String(), "no running server can rotate it: ") || strings.Count(r.err.String(), "\n") != 2 {
				t.Errorf("standard error has\n%s", r.err.String())
			}
		},
		"it is asked for twice": func(t *testing.T) {
			r := newRotateStage(t, 0)
			wantCode(t, r.rotate(t.Context(), false, false), cli.ExitYes, "")
			first := r.state(t).Request.ID
			wantCode(t, r.rotate(t.Context(), false, false), cli.ExitYes, "")
			if got := r.state(t).Request; got.ID != first || !strings.Contains(r.out.String(), "a new CA was requested already, in memory: request "+first) {
				t.Errorf("the request is %+v\n%s", got, r.out.String())
			}
			// An emergency comes first, and stays one.
			wantCode(t, r.rotate(t.Context(), true, false), cli.ExitYes, "")
			wantCode(t, r.rotate(t.Context(), false, false), cli.ExitYes, "")
			if got := r.state(t).Request; got.ID == first || !got.Emergency {
				t.Errorf("the request is %+v", got)
			}
		},
		"there is no CA": func(t *testing.T) {
			r := newRotateStage(t, 0)
			r.place.store = &certstore.MemoryStore{}
			wantCode(t, r.rotate(t.Context(), false, false), cli.ExitUnknown, "nothing was requested: memory: there is no CA in it (hint: ")
		},
		"another request takes its place": func(t *testing.T) {
			r := newRotateStage(t, 0)
			go func() {
				time.Sleep(time.Minute)
				r.change(t, func(s *rotation.State) { s.Request = &rotation.Request{ID: "other", At: time.Now()} })
			}()
			wantCode(t, r.rotate(t.Context(), false, true), cli.ExitUnknown, "the request is not there any more")
		},
		"the store is away for a while": func(t *testing.T) {
			r := newRotateStage(t, 1)
			broken := &brokenStore{Store: r.place.store}
			r.place.store = broken
			go func() {
				time.Sleep(time.Minute)
				broken.broken.Store(true)
				time.Sleep(time.Minute)
				broken.broken.Store(false)
			}()
			wantCode(t, r.rotate(t.Context(), false, true), cli.ExitYes, "")
			if strings.Count(r.err.String(), "cannot decide: memory: is gone (hint: wait)\n") != 1 {
				t.Errorf("standard error has\n%s", r.err.String())
			}
		},
		"the store is away to the end": func(t *testing.T) {
			r := newRotateStage(t, 1)
			broken := &brokenStore{Store: r.place.store}
			r.place.store = broken
			go func() {
				time.Sleep(time.Minute)
				broken.broken.Store(true)
			}()
			wantCode(t, r.rotate(t.Context(), false, true), cli.ExitUnknown, "it is unknown whether it is done after 30m0s: cannot decide: memory: is gone (hint: wait)")
		},
		"it is interrupted": func(t *testing.T) {
			r := newRotateStage(t, 0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			wantCode(t, r.rotate(ctx, false, true), cli.ExitUnknown, ": the servers continue (hint: gatehouse certs status)")
		},
		"a rotation is nearly over": func(t *testing.T) {
			r := newRotateStage(t, 0)
			r.change(t, func(s *rotation.State) {
				s.Phase, s.Previous = rotation.Activate, &rotation.Authority{Cert: s.Current.Cert}
			})
			wantCode(t, r.rotate(t.Context(), false, false), cli.ExitYes, "")
			if !strings.Contains(r.err.String(), "the requested one begins after it\n") {
				t.Errorf("standard error has\n%s", r.err.String())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

// trusts has a registration that trusts the CAs of the state, and what else the
// function says of the state.
func (r *rotateStage) trusts(t *testing.T, entry func(*rotation.State) trustEntry) {
	t.Helper()
	r.place.trusted = func(ctx context.Context) []trustEntry {
		state := r.read(ctx, t)
		e := entry(state)
		e.object, e.webhook = "MutatingWebhookConfiguration/gatehouse", "w"
		if e.problem == "" {
			for _, a := range state.Authorities() {
				e.bundle = append(e.bundle, trusting(a)...)
			}
		}
		return []trustEntry{e}
	}
}

// TestCertsRotateConfirms does not take the servers' word for what registrations
// trust.
func TestCertsRotateConfirms(t *testing.T) {
	t.Parallel()
	const webhook = "MutatingWebhookConfiguration/gatehouse, webhook w"
	for name, test := range map[string]func(t *testing.T, r *rotateStage){
		"the old CA is trusted to the end": func(t *testing.T, r *rotateStage) {
			old := r.state(t).Current
			r.trusts(t, func(*rotation.State) trustEntry { return trustEntry{bundle: trusting(old)} })
			begun := time.Now()
			wantCode(t, r.rotate(t.Context(), true, true), cli.ExitNo,
				"not done after 30m0s: the servers have removed the old CA, and registrations are not up to date: "+webhook+" still trusts the old CA: the servers continue")
			if took := time.Since(begun); took != defaultTimeout || strings.Contains(r.out.String(), "done") {
				t.Errorf("it took %s:\n%s", took, r.out.String())
			}
		},
		"the old CA is trusted for a while": func(t *testing.T, r *rotateStage) {
			old, begun := r.state(t).Current, time.Now()
			r.trusts(t, func(*rotation.State) (e trustEntry) {
				if time.Since(begun) < 2*time.Minute {
					e.bundle = trusting(old)
				}
				return e
			})
			wantCode(t, r.rotate(t.Context(), true, true), cli.ExitYes, "")
			if took := time.Since(begun); took < 2*time.Minute || took > 2*time.Minute+pollInterval {
				t.Errorf("it took %s", took)
			}
			if !strings.HasSuffix(r.out.String(), "\ndone: the old CA is removed, and no registration trusts it any more\n") ||
				strings.Count(r.err.String(), webhook+" still trusts the old CA\n") != 1 {
				t.Errorf("standard output has\n%sstandard error has\n%s", r.out.String(), r.err.String())
			}
		},
		"the new CA is not trusted": func(t *testing.T, r *rotateStage) {
			old := r.state(t).Current
			r.trusts(t, func(*rotation.State) trustEntry { return trustEntry{} })
			all := r.place.trusted
			r.place.trusted = func(ctx context.Context) []trustEntry {
				list := all(ctx)
				if r.read(ctx, t).Current.ID() != old.ID() {
					list[0].bundle = nil
				}
				return list
			}
			wantCode(t, r.rotate(t.Context(), false, true), cli.ExitNo, webhook+" does not trust the new CA")
		},
		"the registration cannot be read": func(t *testing.T, r *rotateStage) {
			r.trusts(t, func(*rotation.State) trustEntry { return trustEntry{problem: "forbidden", unknown: true} })
			wantCode(t, r.rotate(t.Context(), false, true), cli.ExitUnknown, "it is unknown whether it is done after 30m0s: the servers have removed the old CA, and registrations are not up to date: "+webhook+" forbidden")
		},
		"nobody can be asked": func(t *testing.T, r *rotateStage) {
			wantCode(t, r.rotate(t.Context(), false, true), cli.ExitYes, "")
			if !strings.HasSuffix(r.out.String(), "; registrations were not checked, because there is no --registration\n") {
				t.Errorf("standard output has\n%s", r.out.String())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newRotateStage(t, 1)) })
		})
	}
}
