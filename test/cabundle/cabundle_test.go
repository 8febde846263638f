// Package cabundle_test has the program write its CA into webhook configurations of a real API server: what that
// rests on are the server's rules for server-side apply and watches.
package cabundle_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

func TestWritesNothingButCABundle(t *testing.T) {
	w := newWorld(t)
	c := w.manifest("one.gatehouse.dev", "two.gatehouse.dev", "other.example.org")
	c.Webhooks[2].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://other.example.org/")}
	before := w.apply(c, false)
	w.start()
	after := w.get()
	want := []string{
		`Apply webhooks k:{"name":"one.gatehouse.dev"} .`, `Apply webhooks k:{"name":"one.gatehouse.dev"} clientConfig caBundle`, `Apply webhooks k:{"name":"one.gatehouse.dev"} name`,
		`Apply webhooks k:{"name":"two.gatehouse.dev"} .`, `Apply webhooks k:{"name":"two.gatehouse.dev"} clientConfig caBundle`, `Apply webhooks k:{"name":"two.gatehouse.dev"} name`,
	}
	if got := ownFields(after); !slices.Equal(got, want) {
		t.Errorf("we manage\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if after.Generation != before.Generation+1 {
		t.Errorf("the generation went from %d to %d: not one write", before.Generation, after.Generation)
	}
	for i := range after.Webhooks[:2] {
		if string(after.Webhooks[i].ClientConfig.CABundle) != w.ca(t.Context()) {
			t.Errorf("%s has another caBundle", after.Webhooks[i].Name)
		}
		after.Webhooks[i].ClientConfig.CABundle = nil
	}
	if !reflect.DeepEqual(before.Webhooks, after.Webhooks) || !reflect.DeepEqual(before.Labels, after.Labels) {
		t.Errorf("what is not ours was changed:\n%+v\n%+v", before, after)
	}
}

// What another client applies without a caBundle leaves ours in place, and what takes it away is corrected.
func TestOtherClients(t *testing.T) {
	w := newWorld(t)
	c := w.manifest("one.gatehouse.dev", "two.gatehouse.dev")
	w.apply(c, false)
	w.start()
	ca := w.ca(t.Context())
	overwritten := 0.0
	for _, test := range []struct {
		name string
		// who is who did it, as far as managedFields tell, "" if nothing is overwritten. It is reported once a minute.
		who    string
		change func(c *admissionregistrationv1.ValidatingWebhookConfiguration)
	}{
		{"applied without a caBundle", "", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Labels["n"] = "1"
			w.apply(c, true)
		}},
		{"another CA", `"kubectl-replace" (Update)`, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = []byte(strings.Repeat(ca, 2))
			}
			w.replace(c, "kubectl-replace")
		}},
		{"replaced without a caBundle", "-", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { w.replace(c, "kubectl-replace") }},
		{"a placeholder", "-", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = []byte("\n")
			}
			w.apply(c, true)
		}},
	} {
		test.change(c.DeepCopy())
		w.published(ca, ca)
		if len(test.who) > 1 {
			w.logged("RegistrationOverwritten", test.who)
		}
		if test.who != "" {
			overwritten++
		}
		support.Eventually(t, test.name+": the count", func() error {
			n, err := w.server.Metric(t.Context(), "gatehouse_registration_overwritten_total")
			if err == nil && n != overwritten {
				t.Logf("counted %.0f, want %.0f", n, overwritten)
				err = errNotYet
			}
			return err
		})
	}
}

// An API server takes away what is missing in a patch and was in the one before:
// the webhook whose Service was renamed would have no caBundle.
func TestServiceIsRenamed(t *testing.T) {
	w := newWorld(t)
	w.apply(w.manifest("one.gatehouse.dev", "two.gatehouse.dev"), false)
	w.start()
	first := w.ca(t.Context())
	w.published(first, first)
	c := w.get()
	c.Webhooks[0].ClientConfig.Service.Name = "renamed"
	w.replace(c, "kubectl-edit")
	_, err := gatehouse.Run(t.Context(), "certs", "rotate", "--kubeconfig", shared.Get(t).Kubeconfig(), "--secret", w.name+"/ca", "--registration", "")
	if err != nil {
		t.Fatal(err)
	}
	support.Eventually(t, "the rotation", func() error {
		if now := w.ca(t.Context()); strings.Contains(now, first) || strings.Count(now, "BEGIN") != 1 {
			return errNotYet
		}
		return nil
	})
	w.published(first, w.ca(t.Context()))
}
