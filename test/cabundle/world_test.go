package cabundle_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

var shared cluster.Shared

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m, shared.Stop)) }

const host = "gatehouse.gatehouse-system.svc"

// authority is a CA and a certificate that it signed.
type authority struct {
	cert *x509.Certificate
	leaf *tls.Certificate
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	t.Helper()
	ca, err := cluster.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(ca.CertPEM())
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	leaf, key, err := ca.Serve(host)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf, key)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, &pair}
}

func bundleOf(list ...authority) string {
	var certificates []*x509.Certificate
	for _, a := range list {
		certificates = append(certificates, a.cert)
	}
	return string(rotation.Bundle(certificates))
}

// authorities are a certs.Authorities of which a test holds the strings.
type authorities struct {
	mu      sync.Mutex
	cert    *tls.Certificate
	list    []*x509.Certificate
	changed chan struct{}
	// late is called by Bundle once it knows what to return.
	late func(call int)
	call int
}

func newAuthorities(list ...authority) *authorities {
	a := &authorities{changed: make(chan struct{})}
	a.set(list...)
	return a
}

// set makes the first the one that signs.
func (a *authorities) set(list ...authority) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cert, a.list = list[0].leaf, nil
	for _, each := range list {
		a.list = append(a.list, each.cert)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// drain returns once the Publisher that reads them has finished whatever it was about
// to write: it reads them first in each round, and again before it writes.
func (a *authorities) drain(t *testing.T) {
	t.Helper()
	for range 3 {
		a.mu.Lock()
		before := a.call
		close(a.changed)
		a.changed = make(chan struct{})
		a.mu.Unlock()
		support.Eventually(t, "the next round of the publisher", func() error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.call == before {
				return fmt.Errorf("authorities read %d times", a.call)
			}
			return nil
		})
	}
}

func (a *authorities) Bundle(context.Context) ([]*x509.Certificate, error) {
	a.mu.Lock()
	a.call++
	list, late, call := a.list, a.late, a.call
	a.mu.Unlock()
	if late != nil {
		late(call)
	}
	return list, nil
}

func (a *authorities) Certificate() *tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cert
}

func (a *authorities) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// replica is a Watcher and a Publisher that run until the test ends.
type replica struct {
	*cabundle.Watcher
	*cabundle.Publisher
	stop func()

	mu     sync.Mutex
	events []certs.Event
}

func (r *replica) notify(e certs.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// reported are the texts of what was reported for a reason.
func (r *replica) reported(reason string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for i := range r.events {
		if r.events[i].Reason == reason {
			list = append(list, fmt.Sprint(r.events[i].Message, r.events[i].Err))
		}
	}
	return list
}

func start(t *testing.T, client kubernetes.Interface, source certs.Authorities, names ...string) *replica {
	t.Helper()
	r := &replica{}
	var list []cabundle.Registration
	for _, name := range names {
		registration, err := cabundle.ParseRegistration(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, registration)
	}
	r.Watcher = cabundle.NewWatcher(cabundle.WatcherConfig{Client: client, Registrations: list, Hosts: []string{host}, Notify: r.notify})
	r.Publisher = cabundle.NewPublisher(cabundle.PublisherConfig{Client: client, Watcher: r.Watcher, Authorities: source, Notify: r.notify})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Watcher.Run(ctx) })
	running.Go(func() { _ = r.Publisher.Run(ctx) })
	r.stop = func() { cancel(); running.Wait() }
	t.Cleanup(r.stop)
	return r
}

// manifest is a configuration as somebody keeps it in Git, without any caBundle.
// Its rules are about resources that do not exist.
func manifest(name string, entries ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "gatehouse"}},
	}
	for _, entry := range entries {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: entry,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: "gatehouse-system", Name: "gatehouse", Path: new("/validate"), Port: new(int32(443)),
			}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"nothing.gatehouse.dev"}, APIVersions: []string{"v1"}, Resources: []string{"nothings"}, Scope: new(admissionregistrationv1.NamespacedScope)},
			}},
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			MatchPolicy:             new(admissionregistrationv1.Equivalent),
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"checked": "yes"}},
			ObjectSelector:          &metav1.LabelSelector{},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(3)),
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}},
		})
	}
	return c
}

// world is the API server as an administrator sees it.
type world struct {
	*testing.T
	client kubernetes.Interface
}

func newWorld(t *testing.T) world {
	t.Helper()
	return world{t, shared.Get(t).Client()}
}

// apply is what a GitOps tool does that applies on the server's side.
func (w world) apply(c *admissionregistrationv1.ValidatingWebhookConfiguration, force bool) *admissionregistrationv1.ValidatingWebhookConfiguration {
	w.Helper()
	text, err := yaml.Marshal(c)
	if err != nil {
		w.Fatal(err)
	}
	applied, err := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(w.Context(), c.Name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "gitops", Force: &force})
	if err != nil {
		w.Fatalf("apply as a GitOps tool: %v", err)
	}
	return applied
}

func (w world) get(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	w.Helper()
	c, err := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w world) delete(name string) {
	w.Helper()
	if err := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// replace is what kubectl replace does: the whole object is as somebody wants it.
func (w world) replace(c *admissionregistrationv1.ValidatingWebhookConfiguration, manager string) {
	w.Helper()
	support.Eventually(w.T, "replace "+c.Name, func() error {
		next := c.DeepCopy()
		next.ResourceVersion = w.get(c.Name).ResourceVersion
		_, err := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(w.Context(), next, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
}

// has is an error if a webhook of the configuration has another caBundle.
func has(c *admissionregistrationv1.ValidatingWebhookConfiguration, bundle string) error {
	var wrong []error
	for i := range c.Webhooks {
		if got := string(c.Webhooks[i].ClientConfig.CABundle); got != bundle {
			wrong = append(wrong, fmt.Errorf("%s has a caBundle of %d bytes that is another one", c.Webhooks[i].Name, len(got)))
		}
	}
	return errors.Join(wrong...)
}

// published waits until all webhooks have the bundle.
func (w world) published(name, bundle string) {
	w.Helper()
	support.Eventually(w.T, "caBundle of "+name, func() error { return has(w.get(name), bundle) })
}

// ownFields are the fields that our manager has, one in a line.
func ownFields(c *admissionregistrationv1.ValidatingWebhookConfiguration) []string {
	var list []string
	for _, m := range c.ManagedFields {
		if m.Manager != cabundle.FieldManager {
			continue
		}
		var set map[string]any
		if err := yaml.Unmarshal(m.FieldsV1.GetRawBytes(), &set); err != nil {
			return []string{err.Error()}
		}
		list = append(list, leaves(string(m.Operation), set)...)
	}
	return list
}

func leaves(path string, set map[string]any) []string {
	if len(set) == 0 {
		return []string{path}
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		inner, _ := set[key].(map[string]any)
		list = append(list, leaves(path+" "+strings.TrimPrefix(key, "f:"), inner)...)
	}
	return list
}

// applyBundleWithoutVersion is our patch without what makes it safe.
func (w world) applyBundleWithoutVersion(name, bundle string, entries ...string) {
	w.Helper()
	patch := map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": map[string]any{"name": name}}
	var hooks []any
	for _, entry := range entries {
		hooks = append(hooks, map[string]any{"name": entry, "clientConfig": map[string]any{"caBundle": []byte(bundle)}})
	}
	patch["webhooks"] = hooks
	text, err := json.Marshal(patch)
	if err != nil {
		w.Fatal(err)
	}
	_, err = w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(w.Context(), name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "control", Force: new(true)})
	if err != nil {
		w.Fatal(err)
	}
}
