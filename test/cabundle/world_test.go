package cabundle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

var shared cluster.Shared

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m, shared.Stop)) }

var errNotYet = errors.New("not yet")

// manager is the field manager of the program.
const manager = "gatehouse"

// world is the API server as an administrator sees it, and a configuration that the program writes into.
type world struct {
	*testing.T
	client kubernetes.Interface
	// name is that of the configuration, and of the namespace of the Secret.
	name   string
	server *gatehouse.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := shared.Get(t)
	return &world{T: t, client: c.Client(), name: c.NewNamespace(t, nil)}
}

// start starts the program, and waits until it is ready: it has written its CA. It ends with the test.
func (w *world) start() {
	w.Helper()
	const config = "../../manifests/examples/log-shipper"
	var err error
	w.server, err = gatehouse.Start(w.Context(), filepath.Join(w.TempDir(), "log"),
		"--config", config, "--listen", net.JoinHostPort(cluster.ListenAddress(), "0"), "--ops-listen", "127.0.0.1:0",
		"--kubeconfig", shared.Get(w.T).Kubeconfig(), "--self-signed", "gatehouse."+w.name+".svc", "--self-signed-secret", w.name+"/ca",
		"--registration", w.name, "--replica", "replica", "--rotation-hold", "1s")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(w.server.Kill)
}

// ca is the bundle that the program publishes.
func (w *world) ca(ctx context.Context) string {
	w.Helper()
	secret, err := w.client.CoreV1().Secrets(w.name).Get(ctx, "ca", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return string(secret.Data["ca.crt"])
}

// manifest is the configuration as somebody keeps it in Git, without any caBundle.
// Its rules are about resources that do not exist.
func (w *world) manifest(entries ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: map[string]string{"app": "gatehouse"}},
	}
	for _, entry := range entries {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: entry,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: w.name, Name: "gatehouse", Path: new("/validate"), Port: new(int32(443)),
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

func (w *world) configurations() typedv1.ValidatingWebhookConfigurationInterface {
	return w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// apply is what a GitOps tool does that applies on the server's side.
func (w *world) apply(c *admissionregistrationv1.ValidatingWebhookConfiguration, force bool) *admissionregistrationv1.ValidatingWebhookConfiguration {
	w.Helper()
	text, err := yaml.Marshal(c)
	if err != nil {
		w.Fatal(err)
	}
	applied, err := w.configurations().Patch(w.Context(), c.Name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "gitops", Force: &force})
	if err != nil {
		w.Fatalf("apply as a GitOps tool: %v", err)
	}
	return applied
}

func (w *world) get() *admissionregistrationv1.ValidatingWebhookConfiguration {
	w.Helper()
	c, err := w.configurations().Get(w.Context(), w.name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// replace is what kubectl replace does: the whole object is as somebody wants it.
func (w *world) replace(c *admissionregistrationv1.ValidatingWebhookConfiguration, manager string) {
	w.Helper()
	support.Eventually(w.T, "replace "+c.Name, func() error {
		next := c.DeepCopy()
		next.ResourceVersion = w.get().ResourceVersion
		_, err := w.configurations().Update(w.Context(), next, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
}

// published waits until the webhooks have the bundles.
func (w *world) published(bundles ...string) {
	w.Helper()
	support.Eventually(w.T, "caBundle", func() error {
		var wrong []error
		for i, hook := range w.get().Webhooks[:len(bundles)] {
			if got := string(hook.ClientConfig.CABundle); got != bundles[i] {
				wrong = append(wrong, fmt.Errorf("%s has a caBundle of %d bytes that is another one", hook.Name, len(got)))
			}
		}
		return errors.Join(wrong...)
	})
}

// logged waits until the log has a line with all of these words.
func (w *world) logged(words ...string) {
	w.Helper()
	support.Eventually(w.T, "the log", func() error {
		text, err := os.ReadFile(w.server.Log())
		if err != nil {
			return err
		}
		for line := range strings.Lines(strings.ReplaceAll(string(text), `\"`, `"`)) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return nil
			}
		}
		return fmt.Errorf("no line has %q:\n%s", words, text)
	})
}

// ownFields are the fields that the program manages, one in a line.
func ownFields(c *admissionregistrationv1.ValidatingWebhookConfiguration) []string {
	var list []string
	for _, m := range c.ManagedFields {
		if m.Manager != manager {
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
