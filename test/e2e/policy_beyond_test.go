package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

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
	documents := readDocuments(t, "beyond/documents.yaml")
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
		"audit annotations": b.annotations, "deleting": b.deleting, "deleting a collection": b.deletingCollection,
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

// deletingCollection deletes all objects, as the end of a namespace does: a review for each of them, without a name in the request.
func (b *beyond) deletingCollection(t *testing.T) {
	for _, name := range []string{"spare-1", "spare-2"} {
		must(t, b.create(t, "undeletable", name, false))
	}
	stored, all := b.Client().CoreV1().ConfigMaps(beyondNamespace), metav1.ListOptions{LabelSelector: "beyond=undeletable"}
	must(t, stored.DeleteCollection(t.Context(), metav1.DeleteOptions{}, all))
	left, err := stored.List(t.Context(), all)
	must(t, err)
	if len(left.Items) > 0 {
		t.Errorf("%d objects are left", len(left.Items))
	}
	must(t, b.create(t, "undeletable", "stock", false))
	if err := refusal(stored.DeleteCollection(t.Context(), metav1.DeleteOptions{}, all), 422, "nobody deletes this"); err != nil {
		t.Error(err)
	}
	support.Eventually(t, "the log", func() error {
		log, err := os.ReadFile(b.server.Log())
		if err == nil && !strings.Contains(string(log), `"stock"`) && !strings.Contains(string(log), "=stock") {
			err = errors.New("it does not name the object")
		}
		return err
	})
}
