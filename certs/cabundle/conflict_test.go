package cabundle

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// Two that share a configuration and not a CA: a rolling update to another Secret,
// or from one source to another, for as long as it lasts.
func TestTwoInstallationsWearNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t)
		a, b := newCA(t, "a", nil), newCA(t, "b", nil)
		server.put("validating/x", webhooks("", map[string]string{"one": service, "two": service}))
		// Of each several: what one replica does counts for all.
		var olds []*replica
		for range 3 {
			olds = append(olds, startReplica(t, server, newAuthorities(a.serve(t, service), a), "validating/x"))
		}
		time.Sleep(soon)
		for _, old := range olds {
			old.reported.take()
		}
		source := newAuthorities(b.serve(t, service), b)
		newer := startReplica(t, server, source, "validating/x")
		startReplica(t, server, source, "validating/x")

		// The first to come publishes at once: it may be meant to.
		time.Sleep(firstPause / 4)
		wantBundles(t, server, "validating/x", b.pem(), b.pem())
		time.Sleep(firstPause)
		synctest.Wait()
		patches := func(d time.Duration) int {
			before := server.Requests("patch")
			time.Sleep(d)
			return server.Requests("patch") - before
		}
		if n := patches(time.Minute); n < 4 || n > 16 {
			t.Errorf("%d patches in the first minute", n)
		}
		for _, r := range []*replica{olds[0], newer} {
			if list, s := r.reported.take(), r.Stats(); len(list) > 8 || s.Failed <= 3 {
				t.Errorf("reported %d times in the first minute, of %+v", len(list), s)
			}
		}
		const hour = 60
		if n := patches(hour * time.Minute); n < hour/2 || n > 4*hour {
			t.Errorf("%d patches in an hour", n)
		}
		for _, r := range []*replica{olds[0], newer} {
			list := r.reported.take()
			var conflicts []certs.Event
			for _, e := range list {
				if e.Reason == certs.ReasonPublishFailed {
					conflicts = append(conflicts, e)
				} else {
					t.Errorf("reported %+v", e)
				}
			}
			if len(conflicts) < 10 || len(conflicts) > 2*hour {
				t.Fatalf("reported %d times in an hour", len(conflicts))
			}
			stranger := map[bool]string{true: "a", false: "b"}[r == newer]
			wantError(t, conflicts[0].Err, "ValidatingWebhookConfiguration x: another Gatehouse with another CA publishes into this configuration: "+
				"use one Secret for all replicas, or separate webhook configurations for each installation", `(it wrote the caBundle of webhook "one", with the CA "CN=`+stranger+`", SHA-256 `)
			if conflicts[0].Object.Name != "x" || conflicts[0].Message != "" {
				t.Errorf("reported %+v", conflicts[0])
			}
			if s := r.Stats(); s.Failed < int64(len(conflicts)) {
				t.Errorf("counted %+v, and reported %d", s, len(conflicts))
			}
		}

		// Once they agree there is nothing to do for anybody, and it does not wait.
		for _, old := range olds {
			old.cfg.Authorities.(*authorities).set(b.serve(t, service), a, b)
		}
		source.set(b.serve(t, service), a, b)
		time.Sleep(soon)
		wantBundles(t, server, "validating/x", bundleOf(a, b), bundleOf(a, b))
		if n := patches(time.Hour); n != 0 {
			t.Errorf("%d patches after they agreed", n)
		}
	})
}

// overwriteAsAnother writes as another Gatehouse does.
func overwriteAsAnother(server *apiServer, bundle string) {
	server.put("validating/x", func(o *configuration) {
		var names []string
		for i := range o.Webhooks {
			o.Webhooks[i].ClientConfig.CABundle = []byte(bundle)
			names = append(names, o.Webhooks[i].Name)
		}
		o.ManagedFields = nil
		manage(o, names)
	})
}

// What anybody else overwrites is put right at once, however long the other
// Gatehouse is being waited for.
func TestOthersAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, overwrite := range map[string]func(o *configuration){
		"another manager": func(o *configuration) {
			o.Webhooks[0].ClientConfig.CABundle = []byte("\n")
			o.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager: "argocd-controller", Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.Now()),
				FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{"k:{\"name\":\"one\"}":{"f:clientConfig":{"f:caBundle":{}}}}}`),
			}}
			manage(o, []string{"two"})
		},
		"taken away": func(o *configuration) { o.Webhooks[0].ClientConfig.CABundle = nil },
		"replaced":   webhooks("", map[string]string{"one": service, "two": service}),
		"another entry": func(o *configuration) {
			o.Webhooks = append(o.Webhooks, *o.Webhooks[0].DeepCopy())
			o.Webhooks[2].Name = "three"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer(t)
				a, b := newCA(t, "a", nil), newCA(t, "b", nil)
				server.put("validating/x", webhooks("", map[string]string{"one": service, "two": service}))
				startReplica(t, server, newAuthorities(a.serve(t, service), a), "validating/x")
				time.Sleep(soon)
				for range 8 {
					overwriteAsAnother(server, b.pem())
					time.Sleep(2 * longestPause)
				}
				overwriteAsAnother(server, b.pem())
				time.Sleep(soon)
				wantBundles(t, server, "validating/x", b.pem(), b.pem())
				for range 5 {
					server.put("validating/x", overwrite)
					time.Sleep(spread + 50*time.Millisecond)
					for i, bundle := range server.bundles("validating/x") {
						if bundle != a.pem() {
							t.Fatalf("webhook %d is not put right", i)
						}
					}
					server.put("validating/x", webhooks(a.pem(), map[string]string{"one": service, "two": service}))
					time.Sleep(soon)
				}
			})
		})
	}
}

// A step of a rotation is written at once too, in place of what another Gatehouse
// wrote.
func TestRotationIsNotHeldUpByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t)
		a, b, other := newCA(t, "a", nil), newCA(t, "b", nil), newCA(t, "other", nil)
		leaf := a.serve(t, service)
		source := newAuthorities(leaf, a)
		server.put("validating/x", webhooks("", map[string]string{"one": service}))
		startReplica(t, server, source, "validating/x")
		time.Sleep(soon)
		for range 8 {
			overwriteAsAnother(server, other.pem())
			time.Sleep(2 * longestPause)
		}
		overwriteAsAnother(server, other.pem())
		time.Sleep(soon)
		wantBundles(t, server, "validating/x", other.pem())
		source.set(leaf, a, b)
		time.Sleep(soon)
		wantBundles(t, server, "validating/x", bundleOf(a, b))
	})
}

// Another replica that knows something newer is no other installation: what it
// wrote stays, and nobody is told of anything.
func TestNewerStateOfOursIsNoConflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t)
		a, b := newCA(t, "a", nil), newCA(t, "b", nil)
		leaf := a.serve(t, service)
		server.put("validating/x", webhooks("", map[string]string{"one": service}))
		behind, ahead := newAuthorities(leaf, a), newAuthorities(leaf, a)
		r := startReplica(t, server, behind, "validating/x")
		startReplica(t, server, ahead, "validating/x")
		time.Sleep(soon)
		r.reported.take()
		for i := range 20 {
			// What is kept is there for both, but only one is told so at once.
			list := [][]*authority{{a, b}, {a}}[i%2]
			behind.mu.Lock()
			behind.list = nil
			for _, each := range list {
				behind.list = append(behind.list, each.cert)
			}
			behind.mu.Unlock()
			ahead.set(leaf, list...)
			time.Sleep(soon)
			wantBundles(t, server, "validating/x", bundleOf(list...))
		}
		if n := server.Requests("patch"); n != 21 {
			t.Errorf("%d patches were written, want 21", n)
		}
		r.reported.none(t)
	})
}
