// Package cabundle_test runs package cabundle against a real API server: what it
// rests on are the server's rules for server-side apply, watches and RBAC.
package cabundle_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

func TestWritesNothingButCABundle(t *testing.T) {
	w := newWorld(t)
	ca := newAuthority(t, "ca")
	const name = "nothing-else"
	c := manifest(name, "one.gatehouse.dev", "two.gatehouse.dev")
	other := manifest(name, "other.example.org").Webhooks[0]
	other.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://other.example.org/"), CABundle: []byte(bundleOf(newAuthority(t, "other")))}
	c.Webhooks = append(c.Webhooks, other)
	before := w.apply(c, false)
	start(t, w.client, newAuthorities(ca), name)
	support.Eventually(t, "both webhooks", func() error {
		for _, hook := range w.get(name).Webhooks[:2] {
			if string(hook.ClientConfig.CABundle) != bundleOf(ca) {
				return errors.New(hook.Name)
			}
		}
		return nil
	})
	after := w.get(name)
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
		after.Webhooks[i].ClientConfig.CABundle = nil
	}
	if !reflect.DeepEqual(before.Webhooks, after.Webhooks) || !reflect.DeepEqual(before.Labels, after.Labels) {
		t.Errorf("what is not ours was changed:\n%+v\n%+v", before, after)
	}

	statuses, err := cabundle.Read(t.Context(), w.client, []cabundle.Registration{{Name: name}})
	if err != nil || len(statuses) != 1 || len(statuses[0].Entries) != 3 {
		t.Fatalf("read %+v, %v", statuses, err)
	}
	if e := statuses[0].Entries[0]; len(e.Managers) != 1 || e.Managers[0].Name != cabundle.FieldManager || e.Managers[0].Operation != "Apply" || len(e.Bundle) != 1 {
		t.Errorf("of ours read %+v", e)
	}
	if e := statuses[0].Entries[2]; len(e.Managers) != 1 || e.Managers[0].Name != "gitops" {
		t.Errorf("of the other read %+v", e)
	}
}

// The two rules of the API server that make a stale writer lose, and that keep a
// deleted configuration deleted.
func TestResourceVersionDecides(t *testing.T) {
	for _, test := range []struct {
		name string
		// meanwhile happens after the configuration was read and before it is written.
		meanwhile func(w world, name, newer string)
		check     func(w world, name, newer string) error
	}{
		{
			name: "published by another replica",
			meanwhile: func(w world, name, newer string) {
				c := manifest(name, "one.gatehouse.dev", "two.gatehouse.dev")
				for i := range c.Webhooks {
					c.Webhooks[i].ClientConfig.CABundle = []byte(newer)
				}
				w.replace(c, "another-replica")
			},
			check: func(w world, name, newer string) error { return has(w.get(name), newer) },
		},
		{
			name:      "deleted",
			meanwhile: func(w world, name, _ string) { w.delete(name) },
			check: func(w world, name, _ string) error {
				_, err := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(w.Context(), name, metav1.GetOptions{})
				if !apierrors.IsNotFound(err) {
					return fmt.Errorf("want that it is not found, got %w", err)
				}
				return nil
			},
		},
		{
			name: "deleted and made again",
			meanwhile: func(w world, name, newer string) {
				w.delete(name)
				c := manifest(name, "one.gatehouse.dev")
				c.Webhooks[0].ClientConfig.CABundle = []byte(newer)
				w.apply(c, false)
			},
			check: func(w world, name, newer string) error { return has(w.get(name), newer) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			a, b := newAuthority(t, "a"), newAuthority(t, "b")
			name := strings.ReplaceAll(test.name, " ", "-")
			w.apply(manifest(name, "one.gatehouse.dev", "two.gatehouse.dev"), false)
			source := newAuthorities(a)
			reached, done := make(chan struct{}), make(chan struct{})
			source.late = func(call int) {
				switch call {
				case 2: // the one between the read and the write
					close(reached)
					<-done
				case 3:
					t.Log("the write conflicted, and the authorities were asked again")
				}
			}
			r := start(t, w.client, source, name)
			<-reached
			// From now on the authorities know better, but not this call.
			source.set(a, b)
			test.meanwhile(w, name, bundleOf(a, b))
			version := ""
			if test.name != "deleted" {
				version = w.get(name).ResourceVersion
			}
			close(done)
			support.Eventually(t, "the next look at the authorities", func() error {
				source.mu.Lock()
				defer source.mu.Unlock()
				if source.call < 3 {
					return fmt.Errorf("asked %d times", source.call)
				}
				return nil
			})
			source.drain(t)
			if err := test.check(w, name, bundleOf(a, b)); err != nil {
				t.Error(err)
			}
			if version != "" && w.get(name).ResourceVersion != version {
				t.Error("it was written")
			}
			if s := r.Stats(); s.Published != 0 || s.Failed != 0 {
				t.Errorf("counted %+v, reported %q", s, r.reported(certs.ReasonPublishFailed))
			}

			// Without the resourceVersion the same patch is written: the conflict is what
			// saved it.
			if test.name == "published by another replica" {
				w.applyBundleWithoutVersion(name, bundleOf(a), "one.gatehouse.dev", "two.gatehouse.dev")
				if err := has(w.get(name), bundleOf(a)); err == nil {
					return
				}
				// It may have been put right already, which shows as well that it was written.
				w.published(name, bundleOf(a, b))
				if r.Stats().Published == 0 {
					t.Error("a patch without resourceVersion changed nothing: this test shows nothing")
				}
			}
		})
	}
}

// What another client applies without a caBundle leaves ours in place, and what takes it away is corrected.
func TestOtherClients(t *testing.T) {
	for _, test := range []struct {
		name string
		// who is who did it, as far as managedFields tell, "" if nothing is overwritten.
		who    string
		change func(w world, c *admissionregistrationv1.ValidatingWebhookConfiguration)
	}{
		{"gitops", "", func(w world, c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Labels["n"] = "1"
			w.apply(c, true)
		}},
		{"replace", "another client", func(w world, c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			w.replace(c, "kubectl-replace")
		}},
		{"placeholder", `"gitops" (Apply)`, func(w world, c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = []byte("\n")
			}
			w.apply(c, true)
		}},
		{"foreign", `"kubectl-replace" (Update)`, func(w world, c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = []byte(bundleOf(newAuthority(w.T, "foreign")))
			}
			w.replace(c, "kubectl-replace")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			ca := newAuthority(t, "ca")
			name := "changed-by-" + test.name
			c := manifest(name, "one.gatehouse.dev", "two.gatehouse.dev")
			w.apply(c, false)
			r := start(t, w.client, newAuthorities(ca), name)
			w.published(name, bundleOf(ca))
			test.change(w, c)
			w.published(name, bundleOf(ca))
			want := cabundle.Stats{Published: 1}
			if test.who != "" {
				want = cabundle.Stats{Published: 2, Overwritten: 1}
			}
			support.Eventually(t, "the report", func() error {
				told := strings.Join(r.reported(certs.ReasonOverwritten), "\n")
				if (told == "") != (test.who == "") || !strings.Contains(told, test.who) || r.Stats() != want {
					return fmt.Errorf("reported %q, counted %+v", told, r.Stats())
				}
				return nil
			})
		})
	}
}

// An API server takes away what is missing in a patch and was in the one before:
// the webhook whose Service was renamed would have no caBundle.
func TestServiceIsRenamed(t *testing.T) {
	w := newWorld(t)
	a, b := newAuthority(t, "a"), newAuthority(t, "b")
	const name = "renamed"
	w.apply(manifest(name, "one.gatehouse.dev", "two.gatehouse.dev"), false)
	source := newAuthorities(a)
	start(t, w.client, source, "validating/"+name)
	w.published(name, bundleOf(a))
	c := w.get(name)
	c.Webhooks[0].ClientConfig.Service.Name = "renamed"
	w.replace(c, "kubectl-edit")
	source.set(a, b)
	bundles := func(want ...string) func() error {
		return func() error {
			var wrong []error
			for i, hook := range w.get(name).Webhooks {
				one := &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{hook}}
				wrong = append(wrong, has(one, want[i]))
			}
			return errors.Join(wrong...)
		}
	}
	support.Eventually(t, "the other has the new bundle, and this one what it had", bundles(bundleOf(a), bundleOf(a, b)))
	source.set(b)
	support.Eventually(t, "and again", bundles(bundleOf(a), bundleOf(b)))
	source.drain(t)
	if err := bundles(bundleOf(a), bundleOf(b))(); err != nil {
		t.Error(err)
	}
}
