package configuration

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// handed are custom resources that a test hands over.
type handed struct {
	list    atomic.Pointer[[]*config.Resource]
	changed chan struct{}
}

func (h *handed) Changed() <-chan struct{} { return h.changed }

func (h *handed) All() []*config.Resource { return *h.list.Load() }

func (h *handed) Wait(context.Context) error { return nil }

func (h *handed) hand(all ...*config.Resource) {
	h.list.Store(&all)
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// TestTokensEndWhileItRests: somebody who edits policies without end, so that it rests
// between two activations, keeps no token alive that was deleted.
func TestTokensEndWhileItRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text, hash := authn.NewToken("ci", [25]byte{1})
		token := custom(t, 1, `
kind: AccessToken
metadata: {name: ci, creationTimestamp: "1999-12-31T00:00:00Z"}
spec: {sha256: `+hash+`, user: {username: ci}, expiresAt: "2000-02-01T00:00:00Z"}
`)
		log := slog.New(slog.DiscardHandler)
		metrics := telemetry.New(log, "v")
		providers := NewIdentityProviders(log, metrics, 2)
		defer providers.Close()
		resources := &handed{changed: make(chan struct{}, 1)}
		resources.hand(token, customPolicy(t, 1, "p", "true"))
		current := &Active{Log: log, Metrics: metrics, Seed: maphash.MakeSeed()}
		c := &Reconciler{Current: current, Providers: providers, Resources: resources}
		loaded, found := c.Read()
		loaded.Authn.Now = time.Now
		if err := c.Start(t.Context(), loaded, found); err != nil {
			t.Fatal(err)
		}
		good := func() bool {
			return current.Snapshot.Load().Authn.Decide(t.Context(), authn.Input{Token: text}).Outcome == authn.Yes
		}
		if !good() {
			t.Fatal("the token is not good")
		}

		c.restUntil = time.Now().Add(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx, loaded.State)
		}()
		resources.hand(token, customPolicy(t, 2, "p", "!false"))
		time.Sleep(time.Second)
		if !good() {
			t.Error("the token ends with a policy that changes")
		}
		resources.hand(customPolicy(t, 2, "p", "!false"))
		time.Sleep(time.Second)
		if good() {
			t.Error("the token is good a second after it was deleted")
		}
		cancel()
		<-ended
	})
}

// custom is a custom resource as an API server gives it.
func custom(t *testing.T, generation int, text string) *config.Resource {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte("apiVersion: gatehouse.dev/v1alpha1\n"+text), &fields); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGeneration(int64(generation))
	u.SetUID("uid-of-" + types.UID(u.GetName()))
	return config.ReadResource(u)
}

func customPolicy(t *testing.T, generation int, name, expression string) *config.Resource {
	t.Helper()
	return custom(t, generation, fmt.Sprintf(`
kind: AdmissionPolicy
metadata: {name: %s}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: %q}]
`, name, expression))
}
