package cabundle_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

// Two that publish different CAs into one configuration wait for each other, and
// say so. What a GitOps tool takes away meanwhile is there again within a second.
func TestTwoInstallationsInOneConfiguration(t *testing.T) {
	w := newWorld(t)
	a, b := newAuthority(t, "a"), newAuthority(t, "b")
	const name = "two-installations"
	c := manifest(name, "one.gatehouse.dev", "two.gatehouse.dev")
	w.apply(c, false)
	one := start(t, w.client, newAuthorities(a), "validating/"+name)
	w.published(name, bundleOf(a), deadline)
	before := w.get(name).Generation
	two := start(t, w.client, newAuthorities(b), "validating/"+name)
	w.published(name, bundleOf(b), deadline)
	support.Eventually(t, "both say what is wrong", func() error {
		for _, r := range []*replica{one, two} {
			if told := r.reported(certs.ReasonPublishFailed); len(told) == 0 || !strings.Contains(told[0], "another Gatehouse with another CA publishes into this configuration: use one Secret for all replicas") {
				return fmt.Errorf("reported %q", told)
			}
		}
		return nil
	})
	support.Eventually(t, "both write", func() error {
		if n := w.get(name).Generation - before; n < 2 {
			return fmt.Errorf("written %d times", n)
		}
		return nil
	})
	for _, r := range []*replica{one, two} {
		if told := r.reported(certs.ReasonOverwritten); len(told) > 0 {
			t.Errorf("blamed %q", told)
		}
	}

	placeholder := c.DeepCopy()
	for i := range placeholder.Webhooks {
		placeholder.Webhooks[i].ClientConfig.CABundle = []byte("\n")
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for range 10 {
		<-ticker.C
		w.apply(placeholder, true)
		within(t, soon, "put right", func() error {
			found := w.get(name)
			if has(found, bundleOf(b)) == nil {
				return nil
			}
			return has(found, bundleOf(a))
		})
	}

	two.stop()
	w.published(name, bundleOf(a), 2*time.Minute)
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
	w.published(name, bundleOf(a), deadline)
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

// Two that serve different webhooks of one configuration leave each other's alone.
func TestTwoInstallationsWithWebhooksOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	const (
		name   = "webhooks-of-their-own"
		second = "second.gatehouse-system.svc"
	)
	a, next, b := newAuthority(t, "a"), newAuthority(t, "next"), newAuthorityFor(t, "b", second)
	c := manifest(name, "one.gatehouse.dev", "two.gatehouse.dev")
	c.Webhooks[1].ClientConfig.Service.Name = "second"
	before := w.apply(c, false).Generation
	source := newAuthorities(a)
	start(t, w.client, source, "validating/"+name)
	others := newAuthorities(b)
	startFor(t, w.client, others, second, "validating/"+name)
	bundles := func(one, two string) func() error {
		return func() error {
			hooks := w.get(name).Webhooks
			if string(hooks[0].ClientConfig.CABundle) != one || string(hooks[1].ClientConfig.CABundle) != two {
				return errors.New("another one")
			}
			return nil
		}
	}
	support.Eventually(t, "both have their own", bundles(bundleOf(a), bundleOf(b)))
	source.set(a, next)
	support.Eventually(t, "one has a new one", bundles(bundleOf(a, next), bundleOf(b)))
	source.drain(t)
	others.drain(t)
	if n := w.get(name).Generation - before; n != 3 {
		t.Errorf("written %d times, want 3", n)
	}
}
