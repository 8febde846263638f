package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// rotateStage is a store with servers, and what was printed.
type rotateStage struct {
	place    *certsPlace
	out, err bytes.Buffer
}

func (r *rotateStage) rotate(ctx context.Context, emergency, wait bool) error {
	f := certsRotateFlags{
		certsFlags: certsFlags{now: time.Now, hold: rotation.DefaultHold, secret: defaultCertsSecret},
		emergency:  emergency, wait: wait, timeout: certsPatience, output: "text",
	}
	return f.rotate(ctx, r.place, streams{out: &r.out, err: &r.err})
}

// newRotateStage has so many servers, which run until the test ends, and a CA.
func newRotateStage(t *testing.T, servers int) *rotateStage {
	t.Helper()
	r := &rotateStage{place: &certsPlace{store: &certs.MemoryStore{}, replicas: &certs.MemoryReplicas{}}}
	for i := range max(servers, 1) {
		config := certs.SelfSignedConfig{Hosts: []string{"a"}, Store: r.place.store, Replica: fmt.Sprintf("gatehouse-%d", i)}
		if servers > 0 {
			config.Replicas = r.place.replicas
		}
		server, err := certs.NewSelfSigned(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if servers > 0 {
			go func() { _ = server.Run(t.Context()) }()
		}
	}
	return r
}

// wantCode tells whether an error ends the program with the code.
func wantCode(t *testing.T, err error, code int, text string) {
	t.Helper()
	got := exitYes
	if err != nil {
		got = exitUnknown
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		got = exit.code
	}
	if got != code || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("the exit code is %d, want %d with %q: %v", got, code, text, err)
	}
}

func TestCertsRotateWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		emergency bool
		most      time.Duration
		hold      string
	}{
		"with care": {false, 11 * time.Minute, "10m"},
		"in haste":  {true, 30 * time.Second, "10s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRotateStage(t, 2)
				old := r.state(t).Current.ID()
				begun := time.Now()
				wantCode(t, r.rotate(t.Context(), test.emergency, true), exitYes, "")
				state := r.state(t)
				if state.Current.ID() == old || state.Phase != rotation.Stable {
					t.Errorf("there is no new CA: %+v", state)
				}
				if took := time.Since(begun); took > test.most {
					t.Errorf("it took %s", took)
				}
				if text := r.out.String(); !strings.HasPrefix(text, "requested a new CA, in memory: request ") || !strings.HasSuffix(text, "\ndone: the old CA is forgotten\n") {
					t.Errorf("standard output has\n%s", text)
				}
				// Steps are shown when they change, and not at each look.
				const most = 4
				shown := r.err.String()
				if !strings.Contains(shown, " Hold: the new CA signs at ") || !strings.Contains(shown, ", when the hold of "+test.hold+" ends\n") || strings.Count(shown, "\n") > most {
					t.Errorf("standard error has\n%s", shown)
				}
			})
		})
	}
}

func (r *rotateStage) state(t *testing.T) *rotation.State {
	t.Helper()
	record, err := r.place.store.Load(t.Context())
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
	certs.Store
	broken atomic.Bool
}

func (s *brokenStore) Load(ctx context.Context) (certs.Record, error) {
	if s.broken.Load() {
		return certs.Record{}, errors.New("memory: is gone (hint: wait)")
	}
	return s.Store.Load(ctx)
}

func TestCertsRotate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){
		"nobody serves": func(t *testing.T) {
			r := newRotateStage(t, 0)
			begun := time.Now()
			wantCode(t, r.rotate(t.Context(), false, true), exitNo, "not done after 30m0s: Stable: the rotation that was requested at 2000-01-01T00:00:00Z begins")
			if took := time.Since(begun); took != certsPatience {
				t.Errorf("it took %s", took)
			}
			if !strings.HasPrefix(r.err.String(), "no server runs that would do it: ") || strings.Count(r.err.String(), "\n") != 2 {
				t.Errorf("standard error has\n%s", r.err.String())
			}
		},
		"it is asked for twice": func(t *testing.T) {
			r := newRotateStage(t, 0)
			wantCode(t, r.rotate(t.Context(), false, false), exitYes, "")
			first := r.state(t).Request.ID
			wantCode(t, r.rotate(t.Context(), false, false), exitYes, "")
			if got := r.state(t).Request; got.ID != first || !strings.Contains(r.out.String(), "a new CA was requested already, in memory: request "+first) {
				t.Errorf("the request is %+v\n%s", got, r.out.String())
			}
			// An emergency comes first, and stays one.
			wantCode(t, r.rotate(t.Context(), true, false), exitYes, "")
			wantCode(t, r.rotate(t.Context(), false, false), exitYes, "")
			if got := r.state(t).Request; got.ID == first || !got.Emergency {
				t.Errorf("the request is %+v", got)
			}
		},
		"the CA is somebody else's": func(t *testing.T) {
			r := newRotateStage(t, 0)
			r.change(t, func(s *rotation.State) { s.Current = &rotation.Authority{Cert: s.Current.Cert} })
			wantCode(t, r.rotate(t.Context(), false, false), exitNo, "nothing was requested: memory: the CA is somebody else's")
			if r.state(t).Request != nil {
				t.Error("something was requested")
			}
		},
		"there is no CA": func(t *testing.T) {
			r := newRotateStage(t, 0)
			r.place.store = &certs.MemoryStore{}
			wantCode(t, r.rotate(t.Context(), false, false), exitUnknown, "nothing was requested: memory: there is no CA in it (hint: ")
		},
		"another request takes its place": func(t *testing.T) {
			r := newRotateStage(t, 0)
			go func() {
				time.Sleep(time.Minute)
				r.change(t, func(s *rotation.State) { s.Request = &rotation.Request{ID: "other", At: time.Now()} })
			}()
			wantCode(t, r.rotate(t.Context(), false, true), exitUnknown, "the request is not there any more")
		},
		"another rotation follows at once": func(t *testing.T) {
			r := newRotateStage(t, 0)
			go func() {
				time.Sleep(time.Minute)
				r.change(t, func(s *rotation.State) { s.Done, s.Request, s.Phase = s.Request.ID, nil, rotation.Activate })
				time.Sleep(time.Minute)
				r.change(t, func(s *rotation.State) { s.Done = "other" })
			}()
			wantCode(t, r.rotate(t.Context(), false, true), exitYes, "")
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
			wantCode(t, r.rotate(t.Context(), false, true), exitYes, "")
			if strings.Count(r.err.String(), "could not tell: memory: is gone (hint: wait)\n") != 1 {
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
			wantCode(t, r.rotate(t.Context(), false, true), exitUnknown, "whether it is done after 30m0s cannot be told: memory: is gone (hint: wait)")
		},
		"it is interrupted": func(t *testing.T) {
			r := newRotateStage(t, 0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			wantCode(t, r.rotate(ctx, false, true), exitUnknown, "interrupted: the servers go on with it (hint: gatehouse certs status)")
		},
		"a rotation is nearly over": func(t *testing.T) {
			r := newRotateStage(t, 0)
			r.change(t, func(s *rotation.State) {
				s.Phase, s.Previous = rotation.Activate, &rotation.Authority{Cert: s.Current.Cert}
			})
			wantCode(t, r.rotate(t.Context(), false, false), exitYes, "")
			if !strings.Contains(r.err.String(), "what was requested begins when that is over\n") {
				t.Errorf("standard error has\n%s", r.err.String())
			}
		},
		"a registration lags behind": func(t *testing.T) {
			r := newRotateStage(t, 0)
			r.place.trusted = func(context.Context) []trustEntry {
				return []trustEntry{{object: "MutatingWebhookConfiguration/gatehouse", webhook: "default.mutate.gatehouse.dev", bundle: []cabundle.Certificate{}}}
			}
			go func() {
				time.Sleep(time.Minute)
				pending := testCA(t, 2, time.Now())
				// A key that can be written down.
				r.change(t, func(s *rotation.State) {
					s.Done, s.Request, s.Phase, s.Pending, s.Since = s.Request.ID, nil, rotation.Publish, pending, time.Now()
				})
			}()
			wantCode(t, r.rotate(t.Context(), false, true), exitNo,
				"not done after 30m0s: Publish: the hold begins, when every registration trusts the new CA; waits for MutatingWebhookConfiguration/gatehouse, webhook default.mutate.gatehouse.dev: the servers go on")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

// TestTrustOf takes over what was read of a configuration.
func TestTrustOf(t *testing.T) {
	t.Parallel()
	const object = "ValidatingWebhookConfiguration/gatehouse"
	one := cabundle.Certificate{Subject: "CN=a", ID: "ab"}
	status := func(change func(*cabundle.Status)) *cabundle.Status {
		s := &cabundle.Status{
			Kind: "ValidatingWebhookConfiguration", Name: "gatehouse", Read: true, Found: true,
			Entries: []cabundle.Entry{{Name: "w", Bundle: []cabundle.Certificate{one}, Managers: []cabundle.Manager{{Name: cabundle.FieldManager}}}},
		}
		change(s)
		return s
	}
	for name, test := range map[string]struct {
		status *cabundle.Status
		want   trustEntry
	}{
		"a bundle of ours": {status(func(*cabundle.Status) {}), trustEntry{object: object, webhook: "w", bundle: []cabundle.Certificate{one}}},
		"written by somebody else": {
			status(func(s *cabundle.Status) { s.Entries[0].Managers[0].Name = "helm" }),
			trustEntry{object: object, webhook: "w", bundle: []cabundle.Certificate{one}, author: "helm"},
		},
		"with something else in it": {
			status(func(s *cabundle.Status) { s.Entries[0].Remark = "half of it" }),
			trustEntry{object: object, webhook: "w", bundle: []cabundle.Certificate{one}, remark: "half of it"},
		},
		"no bundle": {
			status(func(s *cabundle.Status) { s.Entries[0].Bundle, s.Entries[0].Remark = nil, "no caBundle" }),
			trustEntry{object: object, webhook: "w", problem: "trusts nothing of ours: no caBundle"},
		},
		"cert-manager's": {
			status(func(s *cabundle.Status) { s.Injector = "cert-manager.io/inject-ca-from" }),
			trustEntry{
				object: object, webhook: "w", bundle: []cabundle.Certificate{one},
				remedy: "cert-manager's cainjector writes it, by the annotation cert-manager.io/inject-ca-from: see its log, or take the annotation away",
			},
		},
		"not there": {
			status(func(s *cabundle.Status) { s.Found, s.Entries = false, nil }),
			trustEntry{object: object, problem: "is not there: the API server does not call for it", remedy: "apply the output of gatehouse manifests, or name another with --registration"},
		},
		"empty": {
			status(func(s *cabundle.Status) { s.Entries = nil }),
			trustEntry{object: object, problem: "has no webhooks: the API server does not call for it", remedy: "apply the output of gatehouse manifests, or name another with --registration"},
		},
		"not read": {
			status(func(s *cabundle.Status) {
				s.Read, s.Found, s.Problem = false, false, "ValidatingWebhookConfiguration gatehouse: cannot be read: forbidden"
			}),
			trustEntry{object: object, problem: "cannot be read: forbidden", unknown: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := trustOf(test.status)
			if len(got) != 1 || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", test.want) || !slices.Equal(got[0].bundle, test.want.bundle) {
				t.Errorf("is %+v, want %+v", got, test.want)
			}
		})
	}
}
