package certificates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

// Whatever somebody does to the Secret, in whatever phase of a rotation, replicas put back what clients trust, in time and
// without a failed call.
func TestSecretHeals(t *testing.T) {
	for _, test := range []struct {
		phase rotation.Phase
		// reach brings the state there, to stay.
		reach func(*testing.T, *hook)
	}{
		{rotation.Stable, func(*testing.T, *hook) {}},
		{rotation.Hold, func(t *testing.T, h *hook) { h.requestRotation(t, false) }},
		{rotation.Activate, func(t *testing.T, h *hook) {
			h.reportOldCertificate(t)
			h.requestRotation(t, true)
		}},
	} {
		t.Run(string(test.phase), func(t *testing.T) {
			h := newHook(t)
			rs := h.replicate(t, 3, func(_ int, c *replicaConfig) { c.Hold, c.EmergencyWait = time.Hour, time.Hour })
			test.reach(t, h)
			want := h.inPhase(t, test.phase)
			l := h.load(t, rs.work)
			var slowest time.Duration
			heals := func(name string, damage func(context.Context) error) {
				if t.Failed() {
					return // what comes next needs a Secret that is whole
				}
				t.Run(name, func(t *testing.T) {
					must(t, damage(t.Context()))
					took, err := within(t.Context(), healing, func() error { return h.healed(t.Context(), want) })
					if err != nil {
						t.Error(err)
					}
					slowest = max(slowest, took)
				})
			}
			heals("deleted", h.deleteSecret)
			heals("without data", func(ctx context.Context) error {
				return h.changeSecret(ctx, func(s *corev1.Secret) { s.Data = nil })
			})
			heals("foreign state", func(ctx context.Context) error {
				return h.changeSecret(ctx, func(s *corev1.Secret) { s.Data = foreignState(t, time.Now()) })
			})
			heals("foreign pair", func(ctx context.Context) error {
				return h.changeSecret(ctx, func(s *corev1.Secret) {
					foreign := foreignState(t, time.Now())
					s.Data[rotation.KeyCurrentCert], s.Data[rotation.KeyCurrentKey] = foreign[rotation.KeyCurrentCert], foreign[rotation.KeyCurrentKey]
				})
			})
			heals("older state of our own", func(ctx context.Context) error {
				older := *want
				older.Generation, older.Phase, older.Pending, older.Previous = 1, rotation.Stable, nil, nil
				data, err := rotation.Encode(&older, time.Now())
				if err != nil {
					return err
				}
				return h.changeSecret(ctx, func(s *corev1.Secret) { s.Data = data })
			})
			data, err := rotation.Encode(want, time.Now())
			must(t, err)
			for _, key := range slices.Sorted(maps.Keys(data)) {
				for _, kind := range damages() {
					heals(key+" "+kind.name, func(ctx context.Context) error {
						return h.changeSecret(ctx, func(s *corev1.Secret) {
							kind.do(s.Data, key)
							if whole(s.Data, want) == nil {
								t.Errorf("%s %s is not seen to be damaged", key, kind.name)
							}
						})
					})
				}
			}
			t.Logf("what took longest to heal took %s", slowest.Round(time.Millisecond))
			l.noneFailed(t, enough/10)
			now, err := h.state(t.Context())
			must(t, err)
			must(t, h.trusts(t.Context(), now))
		})
	}
}

type damage struct {
	name string
	do   func(data map[string][]byte, key string)
}

func damages() []damage {
	return []damage{
		{"removed", func(data map[string][]byte, key string) { delete(data, key) }},
		{"emptied", func(data map[string][]byte, key string) { data[key] = nil }},
		{"truncated", func(data map[string][]byte, key string) { data[key] = data[key][:len(data[key])/2] }},
		{"garbled", func(data map[string][]byte, key string) {
			data[key] = bytes.Clone(data[key])
			data[key][len(data[key])/2] = 0
		}},
		{"swapped", func(data map[string][]byte, key string) {
			for _, other := range slices.Sorted(maps.Keys(data)) {
				if !bytes.Equal(data[key], data[other]) {
					data[key], data[other] = data[other], data[key]
					return
				}
			}
		}},
	}
}

// healed reports whether the Secret holds what it held before.
func (h *hook) healed(ctx context.Context, want *rotation.State) error {
	found, err := h.secret(ctx)
	if err != nil {
		return err
	}
	return whole(found.Data, want)
}

// whole reports whether data is the state that is wanted, or the same in a later generation. In the midst of a rotation the
// CA of somebody else may be there besides, until the end of that.
func whole(data map[string][]byte, want *rotation.State) error {
	s, err := decode(data)
	if err != nil {
		return err
	}
	if s.Lineage != want.Lineage || s.Phase != want.Phase {
		return fmt.Errorf("it is in phase %s of %s, and not in phase %s of %s", s.Phase, s.Lineage, want.Phase, want.Lineage)
	}
	for _, a := range []struct {
		name      string
		got, want *rotation.Authority
	}{{"current", s.Current, want.Current}, {"pending", s.Pending, want.Pending}, {"previous", s.Previous, want.Previous}} {
		switch {
		case a.want == nil && (a.got == nil || want.Phase == rotation.Hold):
		case a.want == nil || a.got == nil || !a.got.Cert.Equal(a.want.Cert):
			return fmt.Errorf("the %s CA is another one", a.name)
		}
	}
	return nil
}

// reportOldCertificate is a replica that is away, with a certificate of the CA of now.
func (h *hook) reportOldCertificate(t *testing.T) {
	t.Helper()
	s := h.inPhase(t, rotation.Stable)
	away := store.NewLeases(store.LeasesConfig{Client: h.Client(), Namespace: h.name, Group: secret, Replica: "away", Now: time.Now})
	must(t, away.Report(t.Context(), &rotation.Report{
		Replica: "away", Issuer: s.Current.ID(), SHA256: s.Current.ID(), NotAfter: time.Now().Add(time.Hour), Version: "test",
	}))
}

// foreignState is what somebody writes who knows nothing of our CA, and found nothing at that time.
func foreignState(t *testing.T, at time.Time) map[string][]byte {
	t.Helper()
	data, err := rotation.Encode(&rotation.State{
		Lineage: "0123456789abcdef0123456789abcdef", Created: at, Generation: 7, Phase: rotation.Stable, Since: at,
		Current: newCA(t, "foreign", at.AddDate(0, 0, -1)),
	}, time.Now())
	must(t, err)
	return data
}

func (h *hook) deleteSecret(ctx context.Context) error {
	return h.Client().CoreV1().Secrets(h.name).Delete(ctx, secret, metav1.DeleteOptions{})
}

// changeSecret changes the Secret as somebody does with an editor.
func (h *hook) changeSecret(ctx context.Context, change func(*corev1.Secret)) error {
	for {
		s, err := h.secret(ctx)
		if err != nil {
			return err
		}
		change(s)
		_, err = h.Client().CoreV1().Secrets(h.name).Update(ctx, s, metav1.UpdateOptions{FieldManager: "somebody"})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// A Secret from a backup, older than what replicas remember, and of another lineage, comes into use by a rotation: what
// clients trust meanwhile is what replicas serve.
func TestOlderLineageTakesOver(t *testing.T) {
	h := newHook(t)
	rs := h.replicate(t, 3)
	before := h.inPhase(t, rotation.Stable)
	l := h.load(t, rs.work)
	l.more(t, enough/10)
	older := foreignState(t, time.Now().AddDate(0, -1, 0))
	foreign, err := rotation.Decode(older)
	must(t, err)
	must(t, h.changeSecret(t.Context(), func(s *corev1.Secret) { s.Data = older }))
	support.Eventually(t, "the rotation", func() error {
		s, err := h.state(t.Context())
		if err == nil && (s.Phase != rotation.Stable || !s.Current.Cert.Equal(foreign.Current.Cert)) {
			err = errNotYet
		}
		return errors.Join(err, h.trusts(t.Context(), s))
	})
	l.last(t, lag)
	l.noneFailed(t, enough)
	served(t, rs, before.Current, foreign.Current)
}
