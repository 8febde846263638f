package incluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// An install from before there were custom resources becomes the one of today, its documents become custom resources, the
// installer becomes Helm, and all of that is undone, while the API server asks all the time: no call fails, the CA stays,
// and pods are injected as before.
//
// The manifests are those of the version before; the program is the one of today, with the command line that was printed then.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{})
	for _, namespace := range []string{shop, mall} {
		must(t, s.CreateNamespace(t.Context(), namespace, nil))
	}
	before := previous(t)
	s.applyInstall(t, before)
	s.waitUntilAnswered(t)
	ca, bundles, pods := s.authority(t), s.bundles(t), s.made(t)
	l := s.traffic(t)

	failed := int64(0)
	unchanged := func(t *testing.T) {
		t.Helper()
		s.waitForReplicas(t, 2)
		waitForSuccesses(t, l.Load)
		if now := l.Failed(); now > failed {
			t.Errorf("%d of %d calls failed: %s", now-failed, l.Calls(), l.Why())
			failed = now
		}
		if now := s.authority(t); now != ca {
			t.Error("the CA is another")
		}
		now := s.bundles(t)
		for webhook, bundle := range bundles {
			if now[webhook] != bundle {
				t.Errorf("the caBundle of %s is another", webhook)
			}
		}
		for webhook, bundle := range now {
			if bundle == "" {
				t.Errorf("the caBundle of %s is empty", webhook)
			}
		}
		if now := s.made(t); !slices.Equal(now, pods) {
			t.Errorf("pods are made\n%s\nand were\n%s", strings.Join(now, "\n"), strings.Join(pods, "\n"))
		}
	}

	today := twoReplicas(t, s.kustomized(t))
	t.Run("today's install", func(t *testing.T) {
		s.applyInstall(t, today)
		unchanged(t)
	})
	t.Run("custom resources beside the documents", func(t *testing.T) {
		must(t, s.apply(t.Context(), workloadPolicies))
		s.condition(t, "Compiled", "False", "profiles.yaml", "policies.yaml")
		unchanged(t)
	})
	t.Run("custom resources instead of the documents", func(t *testing.T) {
		// The kubelet of this test writes mounted files when a pod begins.
		must(t, s.Client().CoreV1().ConfigMaps(system).Delete(t.Context(), "gatehouse-config", metav1.DeleteOptions{}))
		s.restart(t)
		s.condition(t, "Ready", "True")
		unchanged(t)
	})
	t.Run("from kustomize to Helm", func(t *testing.T) {
		generation, running := s.generation(t), s.names()
		rendered, err := s.helm(t.Context(), t.TempDir(), "template", "gatehouse", chart, "--namespace", system, "--set", "namespace.create=true")
		must(t, err)
		s.applyInstall(t, twoReplicas(t, rendered))
		unchanged(t)
		if now := s.generation(t); now != generation {
			t.Errorf("the Deployment is of generation %d, was %d", now, generation)
		}
		if now := s.names(); !slices.Equal(now, running) {
			t.Errorf("the replicas are %q, were %q", now, running)
		}
	})
	t.Run("back to the manifests of before", func(t *testing.T) {
		// Server-side apply does not remove a webhook in which somebody else has written caBundle, and fails for what is left of it.
		_, err := s.kubectl(t.Context(), "", "patch", "validatingwebhookconfiguration", "gatehouse", "--type=json", "--patch",
			`[{"op":"test","path":"/webhooks/1/name","value":"documents.validate.gatehouse.dev"},{"op":"remove","path":"/webhooks/1"}]`)
		must(t, err)
		// The ServiceAccount of today gives pods no token unless they ask for it, as those of before do not: it goes first.
		rights, err := os.ReadFile(filepath.Join("testdata", "previous", "registration.yaml"))
		must(t, err)
		_, err = s.kubectl(t.Context(), string(rights), "apply", "--server-side", "--filename", "-")
		must(t, err)
		support.Eventually(t, "a token for pods of the ServiceAccount", func() error {
			pod := restricted(asking("token"))
			pod.Spec.ServiceAccountName = "gatehouse"
			made, err := s.Client().CoreV1().Pods(system).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if len(made.Spec.Volumes) == 0 {
				return errors.New("it has no volume with a token")
			}
			return nil
		})
		s.applyInstall(t, before)
		unchanged(t)
	})
	l.noneFailed(t, 5_000)
}

// previous are the manifests of the version before custom resources, and the Deployment that somebody had with them.
func previous(t *testing.T) string {
	t.Helper()
	var documents []string
	for _, name := range []string{"deployment.yaml", "registration.yaml"} {
		content, err := os.ReadFile(filepath.Join("testdata", "previous", name))
		must(t, err)
		documents = append(documents, string(content))
	}
	return strings.Join(documents, "---\n")
}

// authority is the CA that the replicas share, with its key.
func (s *site) authority(t *testing.T) string {
	t.Helper()
	secret, err := s.Client().CoreV1().Secrets(system).Get(t.Context(), "gatehouse-ca", metav1.GetOptions{})
	must(t, err)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(secret.Data)) {
		fmt.Fprintf(&text, "%s: %s\n", name, secret.Data[name])
	}
	if text.Len() == 0 {
		t.Fatal("the Secret of the CA is empty")
	}
	return text.String()
}

// bundles are the caBundles by the name of the webhook.
func (s *site) bundles(t *testing.T) map[string]string {
	t.Helper()
	bundles := map[string]string{}
	configurations := s.Client().AdmissionregistrationV1()
	mutating, err := configurations.MutatingWebhookConfigurations().Get(t.Context(), "gatehouse", metav1.GetOptions{})
	must(t, err)
	for _, webhook := range mutating.Webhooks {
		bundles[webhook.Name] = string(webhook.ClientConfig.CABundle)
	}
	validating, err := configurations.ValidatingWebhookConfigurations().Get(t.Context(), "gatehouse", metav1.GetOptions{})
	must(t, err)
	for _, webhook := range validating.Webhooks {
		bundles[webhook.Name] = string(webhook.ClientConfig.CABundle)
	}
	return bundles
}

// made are the pods that come of those of the load, without what differs from one time to the next.
func (s *site) made(t *testing.T) []string {
	t.Helper()
	client, err := rest.HTTPClientFor(s.Config())
	must(t, err)
	var made []string
	for _, e := range requests() {
		if !strings.HasSuffix(e.path, "/pods") {
			continue
		}
		made = append(made, podOf(t, client, s.Config().Host+e.path+"?dryRun=All", e.object))
	}
	return made
}

// podOf is the pod that would be created.
func podOf(t *testing.T, client *http.Client, url, object string) string {
	t.Helper()
	answer, err := load.Create(t.Context(), client, url, object)
	must(t, err)
	var pod corev1.Pod
	must(t, json.Unmarshal(answer, &pod))
	pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Annotations: pod.Annotations, Labels: pod.Labels}
	// The ServiceAccount's volume has a name that is drawn.
	pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access-") })
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(m.Name, "kube-api-access-") })
		}
	}
	text, err := json.Marshal(pod)
	must(t, err)
	return string(text)
}

// condition waits until a condition of all workloadPolicies is this one, and is about what is said of it, each text at least once.
func (s *site) condition(t *testing.T, kind, status string, about ...string) {
	t.Helper()
	objects := []string{"sidecarprofile/logs", "sidecarprofile/always", "admissionpolicy/replicas"}
	support.Eventually(t, fmt.Sprintf("the condition %s is %s", kind, status), func() error {
		var said []string
		for _, object := range objects {
			text, err := s.kubectl(t.Context(), "", "get", object, "--output",
				`jsonpath={.metadata.generation} {.status.conditions[?(@.type=="`+kind+`")].observedGeneration} {.status.conditions[?(@.type=="`+kind+`")].status} {.status.conditions[?(@.type=="`+kind+`")].message}`)
			if err != nil {
				return err
			}
			fields := strings.Fields(text)
			if len(fields) < 3 || fields[0] != fields[1] || fields[2] != status {
				return fmt.Errorf("%s: got %q", object, text)
			}
			said = append(said, text)
		}
		for _, text := range about {
			if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, text) }) {
				return fmt.Errorf("%q is not said: %q", text, said)
			}
		}
		return nil
	})
}

// generation is that of the Deployment.
func (s *site) generation(t *testing.T) int64 {
	t.Helper()
	deployment, err := s.Client().AppsV1().Deployments(system).Get(t.Context(), "gatehouse", metav1.GetOptions{})
	must(t, err)
	return deployment.Generation
}

// names are those of the replicas that run.
func (s *site) names() []string {
	var names []string
	for _, pod := range s.kubelet.Pods() {
		names = append(names, pod.Name)
	}
	return names
}
