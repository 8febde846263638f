package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// beyondNamespace is where policies do what upstream's do not.
const beyondNamespace = "beyond"

// auditNotes waits until the audit log has an annotation.
func (w *world) auditNotes(t *testing.T, verb, name, key string, fits func(value string) bool) {
	t.Helper()
	support.Eventually(t, "the audit log", func() error {
		annotations, err := w.audited(verb, "configmaps", beyondNamespace, name)
		if err == nil && !fits(annotations[key]) {
			err = fmt.Errorf("the annotations are %q", annotations)
		}
		return err
	})
}

func is(want string) func(string) bool { return func(value string) bool { return value == want } }

// Policies of our own do on the real API server what upstream's do not.
func TestBeyondUpstream(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	w.newNamespace(t, beyondNamespace, nil)
	must(t, w.apply(t.Context(), readDocuments(t, "beyond/definition.yaml")))
	var before []apiRequest
	readTable(t, "beyond/before.yaml", &before)
	for i := range before {
		_, err := before[i].send(t, w, beyondNamespace, true)
		must(t, err)
	}
	documents := readDocuments(t, "beyond/documents.yaml") + verbosePolicy("chatty", "Warn, Audit") + verbosePolicy("verbose", "Deny")
	b := &beyond{w.servePolicies(t, "beyond", documents, "", beyondNamespace)}
	support.Eventually(t, "the registration", func() error {
		return refusal(b.create(t, "quota", "x", true, "a=1", "b=2"), 422, "at most 1")
	})

	var cases []policyCase
	readTable(t, "beyond/requests.yaml", &cases)
	for i := range cases {
		t.Run(cases[i].Name, func(t *testing.T) {
			t.Parallel()
			cases[i].run(t, w, beyondNamespace)
		})
	}
	for name, test := range map[string]func(*testing.T){
		"audit annotations": b.annotations, "deleting": b.deleting, "expiry": b.expiry, "warnings": b.warnings, "long refusals": b.refusals,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// beyond is what the parts of TestBeyondUpstream share.
type beyond struct{ *policyServer }

// create creates a ConfigMap that one policy matches.
func (b *beyond) create(t *testing.T, policy, name string, dry bool, data ...string) error {
	t.Helper()
	options := metav1.CreateOptions{}
	if dry {
		options = dryRun
	}
	_, err := b.Client().CoreV1().ConfigMaps(beyondNamespace).Create(t.Context(), configMap(name, map[string]string{"beyond": policy}, data...), options)
	return err
}

// update changes a stored ConfigMap.
func (b *beyond) update(t *testing.T, name string, dry bool, edit func(*corev1.ConfigMap)) error {
	t.Helper()
	stored := b.Client().CoreV1().ConfigMaps(beyondNamespace)
	c, err := stored.Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	edit(c)
	options := metav1.UpdateOptions{}
	if dry {
		options.DryRun = dryRun.DryRun
	}
	_, err = stored.Update(t.Context(), c, options)
	return err
}

// annotations in the audit log name exceptions, refusals and existing violations.
func (b *beyond) annotations(t *testing.T) {
	must(t, b.create(t, "quota", "legacy-real", false, "a=1", "b=2"))
	b.auditNotes(t, "create", "legacy-real", failing+"excepted-by", is("gatehouse-system/quota-legacy:quota/validations[0]"))
	if err := refusal(b.create(t, "quota", "new-real", false, "a=1", "secret=2"), 422, "2 violations"); err != nil {
		t.Error(err)
	}
	b.auditNotes(t, "create", "new-real", failing+"denied-by", is("quota"))
	must(t, b.update(t, "owned", false, func(c *corev1.ConfigMap) { c.Labels["note"] = "harmless" }))
	b.auditNotes(t, "update", "owned", failing+"existing-violations", is("owners/validations[0]"))
	log, err := os.ReadFile(b.server.Log())
	must(t, err)
	if !strings.Contains(string(log), `exceptions in \"beyond\" do nothing`) {
		t.Error("the log does not say that an exception does nothing")
	}
}

// expiry ends an exception at its second.
func (b *beyond) expiry(t *testing.T) {
	create := func() error { return b.create(t, "quota", "expiring-1", true, "a=1", "b=2") }
	if err := refusal(create(), 422, "at most 1"); err != nil {
		t.Fatal(err)
	}
	// A busy machine may take longer than that to read the exception: then another one lasts longer.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for lasts := 3 * time.Second; lasts < deadline; lasts *= 2 {
		expires := time.Now().Add(lasts).Truncate(time.Second)
		must(t, os.WriteFile(filepath.Join(b.config, "expiring.yaml"), fmt.Appendf(nil, `
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: expiring, namespace: gatehouse-system}
spec: {policies: [{name: quota}], match: {names: ["expiring-*"]}, reason: for a test, expiresAt: %q}
`, expires.UTC().Format(time.RFC3339)), 0o600))
		active := false
		for {
			asked := time.Now()
			err := create()
			answered := time.Now()
			switch {
			case err == nil && !asked.Before(expires):
				t.Fatalf("asked %s after its expiry the exception is active", asked.Sub(expires))
			case err != nil && active && answered.Before(expires):
				t.Fatalf("%s before its expiry the exception is not active any more: %v", expires.Sub(answered), err)
			case err != nil && refusal(err, 422, "at most 1") != nil:
				t.Fatal(err)
			}
			active = active || err == nil
			if !asked.Before(expires) {
				break
			}
			<-tick.C // others want the processor, too
		}
		if active {
			return
		}
	}
	t.Fatal("the exception has never been active")
}

// deleting an object that violates rules goes on to its end.
func (b *beyond) deleting(t *testing.T) {
	stored := b.Client().CoreV1().ConfigMaps(beyondNamespace)
	untier := func(c *corev1.ConfigMap) { delete(c.Labels, "tier") }
	release := func(c *corev1.ConfigMap) { c.Finalizers = nil }
	if err := refusal(b.update(t, "held", true, untier), 422, "no tier"); err != nil {
		t.Errorf("before the deletion: %v", err)
	}
	for _, name := range []string{"held", "held-always"} {
		must(t, stored.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	if err := refusal(b.update(t, "held", true, untier), 422, "no tier"); err != nil {
		t.Errorf("labels of what is being deleted: %v", err)
	}
	if err := refusal(b.update(t, "held", true, func(c *corev1.ConfigMap) { c.Data["owner"] = "mallory" }), 422, "not an owner: mallory"); err != nil {
		t.Errorf("data of what is being deleted: %v", err)
	}
	if err := refusal(b.update(t, "held-always", false, release), 422, "never an owner: eve"); err != nil {
		t.Errorf("the finalizer, where all violations count: %v", err)
	}
	must(t, b.update(t, "held", false, release))
	_, err := stored.Get(t.Context(), "held", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	must(t, b.update(t, "held-always", false, func(c *corev1.ConfigMap) { c.Data["owner"], c.Finalizers = "ann", nil }))
}
