package tokens

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// A revocation is one object however often it is asked for, goes when it is not needed any
// more, and nobody else's does.
func TestLogouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, log := newCluster(), &logbuffer.Buffer{}
		l := &Logouts{cluster: NewCluster(client), keep: 24 * time.Hour, log: slog.New(slog.NewTextHandler(log, nil)), most: maxLogouts}
		client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			made := action.(clienttesting.CreateAction).GetObject().(metav1.Object) //nolint:forcetypeassert // it is one
			made.SetCreationTimestamp(metav1.Now())
			return false, nil, nil
		})
		names := func() (all []string) {
			list, err := client.Resource(v1alpha1.GroupVersion.WithResource(revocationResource)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				all = append(all, list.Items[i].GetName())
			}
			return all
		}
		session := v1alpha1.TokenRevocationSpec{Issuer: "https://issuer.example", SessionID: "s-1"}
		subject := v1alpha1.TokenRevocationSpec{Issuer: "https://issuer.example", Subject: "s-1", IssuedBefore: metav1.Now()}
		for _, spec := range []v1alpha1.TokenRevocationSpec{session, session, subject} {
			if err := l.Revoke(t.Context(), &spec); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.cluster.Revoke(t.Context(), &v1alpha1.TokenRevocation{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TokenRevocation"}}, false); err != nil {
			t.Fatal(err)
		}
		if all := names(); len(all) != 3 || !strings.HasPrefix(all[1], "logout-") {
			t.Errorf("there are %v", all)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		time.Sleep(23 * time.Hour)
		if all := names(); len(all) != 3 {
			t.Errorf("after 23 hours there are %v", all)
		}
		time.Sleep(150 * time.Minute)
		if all := names(); !slices.Equal(all, []string{"by-hand"}) {
			t.Errorf("after 25.5 hours there are %v", all)
		}
		client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
		if err := l.Revoke(t.Context(), &session); err == nil {
			t.Error("a failure is lost")
		}
		time.Sleep(time.Hour)
		cancel()
		synctest.Wait()
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "refused") {
			t.Errorf("the log has %s", text)
		}
	})
}

// TestLogoutsAreBounded: beyond a number none is stored, until a sweep finds fewer. The same one again, and one that failed, count once and
// not at all.
func TestLogoutsAreBounded(t *testing.T) {
	t.Parallel()
	client := newCluster()
	l := &Logouts{cluster: NewCluster(client), keep: time.Hour, log: slog.New(slog.DiscardHandler), most: 3}
	age := time.Duration(0)
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made := action.(clienttesting.CreateAction).GetObject().(metav1.Object) //nolint:forcetypeassert // it is one
		if strings.Contains(fmt.Sprint(made), "fails") {
			return true, nil, errors.New("refused")
		}
		made.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-age)))
		return false, nil, nil
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	revoke := func(session string) error {
		return l.Revoke(t.Context(), &v1alpha1.TokenRevocationSpec{Issuer: "https://issuer.example", SessionID: session})
	}
	for _, session := range []string{"a", "a", "b"} {
		must(revoke(session))
	}
	if err := revoke("fails"); err == nil || errors.Is(err, ErrTooManyLogouts) {
		t.Errorf("a failure: %v", err)
	}
	age = 2 * time.Hour
	must(revoke("c"))
	if err := revoke("d"); !errors.Is(err, ErrTooManyLogouts) || !strings.Contains(err.Error(), "already: 3 (hint: ") {
		t.Errorf("the fourth: %v", err)
	}
	// The last one is old, and another replica has stored one.
	other := &Logouts{cluster: l.cluster, keep: time.Hour, most: 3}
	age = 0
	must(other.Revoke(t.Context(), &v1alpha1.TokenRevocationSpec{Issuer: "https://issuer.example", SessionID: "other"}))
	must(l.sweep(t.Context()))
	if n := l.stored.Load(); n != 3 {
		t.Errorf("after a sweep %d are counted", n)
	}
	if err := revoke("d"); !errors.Is(err, ErrTooManyLogouts) {
		t.Errorf("after a sweep that found as many: %v", err)
	}
	l.keep = -time.Hour
	must(l.sweep(t.Context()))
	must(revoke("d"))
}
