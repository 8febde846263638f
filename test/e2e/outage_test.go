package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// outageConfig is a configuration that is about nearly everything.
func (w *world) outageConfig(t *testing.T) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config")
	must(t, os.CopyFS(config, os.DirFS("testdata/outage")))
	profile, err := os.ReadFile(exampleProfile)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(config, "profile.yaml"), profile, 0o600))
	return config
}

// unregister takes a server out of the API server's way, which can always be done, and waits until it is.
func (w *world) unregister(t *testing.T, name string, gone func(context.Context) error) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	registrations := w.Client().AdmissionregistrationV1()
	for _, err := range []error{
		registrations.MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{}),
		registrations.ValidatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	support.Eventually(t, "the API server asks no more", func() error { return gone(ctx) })
}

// outageGone returns an error while a server with the outage's configuration is asked about a namespace.
func (w *world) outageGone(namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.Client().CoreV1().ConfigMaps(namespace).Create(ctx, forbidden("canary"), dryRun)
		if err != nil {
			return err
		}
		created, err := w.Client().CoreV1().Pods(namespace).Create(ctx, pod("canary"), dryRun)
		if err == nil && injected(created) != 0 {
			err = errors.New("a pod is injected")
		}
		return err
	}
}

func forbidden(name string) *corev1.ConfigMap {
	return configMap(name, map[string]string{"forbidden": "true"})
}

// While Gatehouse is dead, what fails closed is refused, what fails open is admitted, and what a cluster needs to live
// goes on.
func TestOutage(t *testing.T) {
	w := sharedWorld(t)
	config := w.outageConfig(t)
	server, err := w.serve(t.Context(), "outage", config)
	must(t, err)
	client := w.Client()
	_, err = client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	must(t, err)
	lease, err := client.CoordinationV1().Leases("outage").Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "lease"}}, metav1.CreateOptions{})
	must(t, err)
	token := w.issue(t, "outage")
	w.eventuallyKnown(t, token)
	for _, namespace := range []string{"outage", "kube-system"} {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("changed", nil), metav1.CreateOptions{})
		must(t, err)
	}
	must(t, w.register(t.Context(), "outage", config, server))
	t.Cleanup(func() { w.unregister(t, "outage", w.outageGone("outage")) })

	// Tried over and over, so all are dry runs or repeatable.
	create := func(namespace string, p *corev1.Pod) (*corev1.Pod, error) {
		return client.CoreV1().Pods(namespace).Create(t.Context(), p.DeepCopy(), dryRun)
	}
	update := func(namespace string) error {
		c := configMap("changed", nil, "at="+time.Now().String())
		_, err := client.CoreV1().ConfigMaps(namespace).Update(t.Context(), c, metav1.UpdateOptions{DryRun: dryRun.DryRun})
		return err
	}
	asksAndGets := func() error {
		created, err := create("outage", pod("p", asking))
		if err == nil && injected(created) != 1 {
			err = errors.New("an asking pod is not injected")
		}
		return err
	}
	refuses := func() error {
		_, err := client.CoreV1().ConfigMaps("outage").Create(t.Context(), forbidden("no"), dryRun)
		return refusal(err, 422, "forbidden, says the label")
	}
	support.Eventually(t, "the registration", func() error { return errors.Join(asksAndGets(), refuses()) })
	secret := &corev1.Secret{
		ObjectMeta: forbidden("no").ObjectMeta,
		StringData: map[string]string{"password": w.secret("correct horse battery staple")},
	}
	w.secret(base64.StdEncoding.EncodeToString([]byte(secret.StringData["password"])))
	_, err = client.CoreV1().Secrets("outage").Create(t.Context(), secret, dryRun)
	err = refusal(err, 422, "ignore.validate.gatehouse.dev", "forbidden, says the label")
	if err != nil {
		t.Error(err)
	}

	server.Kill()
	for _, test := range []struct {
		name string
		try  func() error
		want string // the webhook that cannot be called; "" goes on
	}{
		{"silent pod", func() error {
			created, err := create("outage", pod("p"))
			if err == nil && injected(created) != 0 {
				err = errors.New("it was injected")
			}
			return err
		}, ""},
		{"declining pod", func() error {
			_, err := create("outage", pod("p", saying("false")))
			return err
		}, ""},
		{"asking pod", asksAndGets, "asked.mutate.gatehouse.dev"},
		{"pod that asks by name", func() error {
			_, err := create("outage", pod("p", saying(shipper)))
			return err
		}, "asked.mutate.gatehouse.dev"},
		{"create what fails closed", func() error {
			_, err := client.CoreV1().ConfigMaps("outage").Create(t.Context(), configMap("new", nil), dryRun)
			return err
		}, "fail.validate.gatehouse.dev"},
		{"update what fails closed", func() error { return update("outage") }, "fail.validate.gatehouse.dev"},
		{"create what fails open", func() error {
			_, err := client.CoreV1().Secrets("outage").Create(t.Context(), secret, dryRun)
			return err
		}, ""},
		{"update in kube-system", func() error { return update("kube-system") }, ""},
		{"asking pod in kube-system", func() error {
			_, err := create("kube-system", pod("p", asking))
			return err
		}, ""},
		{"node's labels", func() error {
			_, err := client.CoreV1().Nodes().Patch(t.Context(), "node", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"true"}}}`), metav1.PatchOptions{})
			return err
		}, ""},
		{"node's status", func() error {
			patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
			_, err := client.CoreV1().Nodes().Patch(t.Context(), "node", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		}, ""},
		{"lease", func() error {
			changed := lease.DeepCopy()
			changed.Spec.HolderIdentity = new("me")
			_, err := client.CoordinationV1().Leases("outage").Update(t.Context(), changed, metav1.UpdateOptions{})
			return err
		}, ""},
		{"login", func() error {
			_, err := whoami(t, w.Cluster, token) // by the server that lives
			return err
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.try()
			if test.want == "" {
				must(t, err)
				return
			}
			err = refusal(err, 500, fmt.Sprintf("failed calling webhook %q", test.want))
			if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("the API server comes up", func(t *testing.T) {
		must(t, w.APIServer().Kill())
		must(t, w.APIServer().Start(t.Context()))
		support.Eventually(t, "it knows the registration", func() error {
			return refusal(update("outage"), 500, "failed calling webhook")
		})
	})

	_, err = w.serve(t.Context(), "outage", config, slices.Concat(w.serving, []string{"--listen", server.Reviews.String()})...)
	must(t, err)
	support.Eventually(t, "the server that was started again", func() error { return errors.Join(asksAndGets(), refuses(), update("outage")) })
}

// readiness returns what a server's /readyz answers.
func readiness(t *testing.T, s *gatehouse.Server) string {
	t.Helper()
	_, body, err := s.Get(t.Context(), "/readyz")
	must(t, err)
	return body
}
