package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// changed is a stored ConfigMap after a change.
func (b *beyond) changed(t *testing.T, name string, edit func(*corev1.ConfigMap)) *corev1.ConfigMap {
	t.Helper()
	c, err := b.client.CoreV1().ConfigMaps(beyondNamespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	edit(c)
	return c
}

// existing violations do not stand in the way of updates that make nothing worse.
func (b *beyond) existing(t *testing.T) {
	const passed = "AdmissionPolicy 'owners': not an owner: eve (let pass: this was so before the update)"
	relabel := func(c *corev1.ConfigMap) { c.Labels["note"] = "harmless" }
	for _, c := range []struct {
		name, object string
		edit         func(*corev1.ConfigMap)
		wants        string // "" is admitted
		warnings     []string
	}{
		{"harmless", "owned", relabel, "", []string{passed}},
		{"harmless, where all count", "owned-always", relabel, "AdmissionPolicy 'owners-always' denied request: never an owner: eve", nil},
		{"another setting", "owned", func(c *corev1.ConfigMap) { c.Data["a"] = "2" }, "", []string{passed}},
		{"worse", "owned", func(c *corev1.ConfigMap) { c.Data["owner"] = "mallory" }, "AdmissionPolicy 'owners' denied request: not an owner: mallory", nil},
		{"by another rule", "owned", func(c *corev1.ConfigMap) { c.Data["b"] = "1" }, "AdmissionPolicy 'owners' denied request: too many settings", []string{passed}},
		{"repaired", "owned", func(c *corev1.ConfigMap) { c.Data["owner"] = "ann" }, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, warnings := b.warned(t)
			_, err := client.CoreV1().ConfigMaps(beyondNamespace).Update(t.Context(), b.changed(t, c.object, c.edit), metav1.UpdateOptions{DryRun: dryRun.DryRun})
			if got := admittedOrNot(err); got != c.wants || got == "" && err != nil {
				t.Errorf("got %v, want %q", err, c.wants)
			}
			if !slices.Equal(warnings(), c.warnings) {
				t.Errorf("got the warnings %q, want %q", warnings(), c.warnings)
			}
		})
	}
	_, err := b.client.CoreV1().ConfigMaps(beyondNamespace).Update(t.Context(), b.changed(t, "owned", relabel), metav1.UpdateOptions{})
	must(t, err)
	b.noted(t, "update", "owned", failing+"existing-violations", is("owners/validations[0]"))
	err = b.createConfigMap(configMap("new", map[string]string{"beyond": "owners", "tier": "1"}, "owner=eve"), dryRun)
	if err := refusal(err, 422, "not an owner: eve"); err != nil {
		t.Error(err)
	}
}

// guarded are rules about who may update, and whether anybody may: that somebody may not is no violation that was there
// before.
func (b *beyond) guarded(t *testing.T) {
	for _, c := range []struct{ name, object, user, wants string }{
		{"who may", "guarded", "beyond-guard", ""},
		{"who may not", "guarded", "beyond-thief", "AdmissionPolicy 'guarded' denied request: only for the guard, not for beyond-thief"},
		{"nobody may", "frozen", "beyond-guard", "AdmissionPolicy 'frozen' denied request: nobody changes this"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := b.Config()
			config.Impersonate = rest.ImpersonationConfig{UserName: c.user, Groups: []string{"system:masters"}}
			client, err := kubernetes.NewForConfig(config)
			must(t, err)
			_, err = client.CoreV1().ConfigMaps(beyondNamespace).Update(t.Context(), b.changed(t, c.object, func(c *corev1.ConfigMap) {
				c.Data["a"] = "2"
			}), metav1.UpdateOptions{DryRun: dryRun.DryRun})
			if got := admittedOrNot(err); got != c.wants || got == "" && err != nil {
				t.Errorf("got %v, want %q", err, c.wants)
			}
		})
	}
}

// deleting an object that violates rules goes on to its end.
func (b *beyond) deleting(t *testing.T) {
	stored := b.client.CoreV1().ConfigMaps(beyondNamespace)
	update := func(name string, options metav1.UpdateOptions, edit func(*corev1.ConfigMap)) error {
		_, err := stored.Update(t.Context(), b.changed(t, name, edit), options)
		return err
	}
	dry := metav1.UpdateOptions{DryRun: dryRun.DryRun}
	untier := func(c *corev1.ConfigMap) { delete(c.Labels, "tier") }
	release := func(c *corev1.ConfigMap) { c.Finalizers = nil }
	if err := refusal(update("held", dry, untier), 422, "no tier"); err != nil {
		t.Errorf("before the deletion: %v", err)
	}
	for _, name := range []string{"held", "held-always"} {
		must(t, stored.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	if err := refusal(update("held", dry, untier), 422, "no tier"); err != nil {
		t.Errorf("labels of what is being deleted: %v", err)
	}
	if err := refusal(update("held", dry, func(c *corev1.ConfigMap) { c.Data["owner"] = "mallory" }), 422, "not an owner: mallory"); err != nil {
		t.Errorf("data of what is being deleted: %v", err)
	}
	if err := refusal(update("held-always", metav1.UpdateOptions{}, release), 422, "never an owner: eve"); err != nil {
		t.Errorf("the finalizer, where all violations count: %v", err)
	}
	must(t, update("held", metav1.UpdateOptions{}, release))
	_, err := stored.Get(t.Context(), "held", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	must(t, update("held-always", metav1.UpdateOptions{}, func(c *corev1.ConfigMap) { c.Data["owner"], c.Finalizers = "ann", nil }))
}
