//go:build upgrade

package incluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// moreResources are custom resources of the kinds that workloadPolicies do not have, with fields that both releases know.
const moreResources = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: labels, labels: {team: platform}}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  matchConditions: [{name: labelled, expression: has(object.metadata.labels)}]
  variables: [{name: limit, expression: int(params.data.limit)}]
  validations: [{expression: size(object.metadata.labels) <= variables.limit, message: too many labels, reason: Forbidden}]
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicyBinding
metadata: {name: labels}
spec:
  policyName: labels
  paramRef: {name: labels, namespace: shop, parameterNotFoundAction: Allow}
  validationActions: [Warn]
---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: mall, namespace: gatehouse-system}
spec:
  policies: [{name: replicas, rules: ["validations[0]"]}]
  match: {namespaces: [mall]}
  reason: sales
  expiresAt: "2100-01-01T00:00:00Z"
---
apiVersion: gatehouse.dev/v1alpha1
kind: AccessToken
metadata: {name: robot}
spec:
  sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  user: {username: robot, groups: [robots]}
  expiresAt: "2099-01-01T00:00:00Z"
---
apiVersion: gatehouse.dev/v1alpha1
kind: TokenRevocation
metadata: {name: lost}
spec: {user: jane, issuedBefore: "2026-01-01T00:00:00Z", reason: lost laptop}
`

// namedPolicy has a field that the previous release does not know: the name of a validation.
const namedPolicy = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: named}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [statefulsets]}]
  validationActions: [Deny]
  validations: [{name: few-replicas, expression: object.spec.replicas <= 5, message: too many replicas}]
`

// The chart of the previous release, with its program, becomes this one and the previous one again, while the API server calls it all
// the time: no call fails, and the custom resources that were written under either schema stay as they are.
func TestPreviousRelease(t *testing.T) {
	t.Parallel()
	_, err := support.Built("previous", "previous", "gatehouse")
	must(t, err)
	charts, err := filepath.Glob(filepath.Join("testdata", "previous", "gatehouse-*.tgz"))
	if err != nil || len(charts) != 1 {
		t.Fatalf("the charts of the previous release are %q, want one: %v", charts, err)
	}
	s := newSite(t)
	helm := func(command string, args ...string) {
		t.Helper()
		_, err := s.helm(t.Context(), t.TempDir(), append([]string{command, "gatehouse", "--namespace", system}, args...)...)
		must(t, err)
		s.rolledOut(t)
		s.waitForReplicas(t, 2)
	}
	helm("install", charts[0], "--create-namespace", "--set", "replicaCount=2,minReadySeconds=2,image.repository="+previousImage)
	s.createWorkloads(t)
	must(t, s.apply(t.Context(), moreResources))
	revisions, ca, before, pods := s.revisions(t), s.authority(t), s.customResources(t), s.made(t)
	if len(before) != 8 {
		t.Fatalf("there are %d custom resources, want 8: %q", len(before), slices.Sorted(maps.Keys(before)))
	}
	l := s.traffic(t)

	// unchanged checks what no upgrade may change. That every call has its result is the load's to check.
	failed := int64(0)
	unchanged := func(t *testing.T, want map[string]string) {
		t.Helper()
		waitForSuccesses(t, l.Load)
		if now := l.Failed(); now > failed {
			t.Errorf("%d of %d calls failed: %s", now-failed, l.Calls(), l.Why())
			failed = now
		}
		if s.authority(t) != ca {
			t.Error("the CA is another")
		}
		got := s.customResources(t)
		for name, object := range want {
			if got[name] != object {
				t.Errorf("%s is\n%s\nand was\n%s", name, got[name], object)
			}
		}
		if now := s.made(t); !slices.Equal(now, pods) {
			t.Errorf("pods are made\n%s\nand were\n%s", strings.Join(now, "\n"), strings.Join(pods, "\n"))
		}
	}

	t.Run("to this version", func(t *testing.T) {
		helm("upgrade", chart, "--reset-then-reuse-values", "--set", "webhooks.manage=false,image.repository=registry.example/gatehouse")
		if s.revisions(t) == revisions {
			t.Errorf("the definitions have the revisions of before, %s: this test is of no change of schema", revisions)
		}
		s.resourcesReady(t)
		unchanged(t, before)
		must(t, s.apply(t.Context(), namedPolicy))
		if object := s.customResources(t)["AdmissionPolicy/named"]; !strings.Contains(object, `"name":"few-replicas"`) {
			t.Errorf("the field of this version is not in %s", object)
		}
	})
	t.Run("back to the previous release", func(t *testing.T) {
		known := s.customResources(t)
		known["AdmissionPolicy/named"] = strings.Replace(known["AdmissionPolicy/named"], `,"name":"few-replicas"`, "", 1)
		helm("rollback", "1")
		if now := s.revisions(t); now != revisions {
			t.Errorf("the definitions have the revisions %s, want %s", now, revisions)
		}
		s.resourcesReady(t)
		unchanged(t, known)
	})
	t.Run("to this version again", func(t *testing.T) {
		known := s.customResources(t)
		helm("rollback", "2")
		s.resourcesReady(t)
		unchanged(t, known)
	})
	t.Run("to a registration that Gatehouse manages", func(t *testing.T) {
		helm("upgrade", chart, "--reset-then-reuse-values", "--set", "webhooks.manage=true")
		s.resourcesReady(t)
		unchanged(t, s.customResources(t))
	})
	t.Run("to the same again", func(t *testing.T) {
		helm("upgrade", chart, "--reset-then-reuse-values", "--set", "logLevel=debug")
		s.resourcesReady(t)
		unchanged(t, s.customResources(t))
	})
	l.noneFailed(t)
	// As docs/registration.md says: Helm would leave half of a webhook that it does not know and whose rules Gatehouse wrote.
	t.Run("back from there", func(t *testing.T) {
		_, err := s.kubectl(t.Context(), "", "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "gatehouse")
		must(t, err)
		helm("rollback", "1")
		s.resourcesReady(t)
		support.Eventually(t, "that pods are made as before", func() error {
			if now := s.made(t); !slices.Equal(now, pods) {
				return fmt.Errorf("pods are made\n%s", strings.Join(now, "\n"))
			}
			return nil
		})
	})
}

// revisions are those of the schemas of the custom resources.
func (s *site) revisions(t *testing.T) string {
	t.Helper()
	text, err := s.kubectl(t.Context(), "", "get", "customresourcedefinitions", "--output",
		`jsonpath={range .items[*]}{.metadata.name}={.metadata.annotations.gatehouse\.dev/schema-revision} {end}`)
	must(t, err)
	return text
}

// customResources are the objects of gatehouse.dev as the API server serves them, by kind and name: labels, annotations and what users
// wrote.
func (s *site) customResources(t *testing.T) map[string]string {
	t.Helper()
	text, err := s.kubectl(t.Context(), "", "get", "gatehouse", "--all-namespaces", "--output", "json")
	must(t, err)
	var list unstructured.UnstructuredList
	must(t, list.UnmarshalJSON([]byte(text)))
	found := map[string]string{}
	for i := range list.Items {
		object := &list.Items[i]
		content, err := json.Marshal([]any{object.GetUID(), object.GetGeneration(), object.GetLabels(), object.GetAnnotations(), object.Object["spec"]})
		must(t, err)
		found[fmt.Sprintf("%s/%s", object.GetKind(), object.GetName())] = string(content)
	}
	return found
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

// resourcesReady waits until all workloadPolicies have the condition Ready.
func (s *site) resourcesReady(t *testing.T) {
	t.Helper()
	support.Eventually(t, "the custom resources are ready", func() error {
		for _, object := range []string{"sidecarprofile/logs", "sidecarprofile/always", "admissionpolicy/replicas"} {
			text, err := s.kubectl(t.Context(), "", "get", object, "--output",
				`jsonpath={.metadata.generation} {.status.conditions[?(@.type=="Ready")].observedGeneration} {.status.conditions[?(@.type=="Ready")].status}`)
			if err != nil {
				return err
			}
			if fields := strings.Fields(text); len(fields) != 3 || fields[0] != fields[1] || fields[2] != "True" {
				return fmt.Errorf("%s: got %q", object, text)
			}
		}
		return nil
	})
}

// traffic is calls without an end.
type traffic struct {
	*load.Load
	site *site
	// failedOpen is what the API server had let pass unanswered when the calls began.
	failedOpen float64
}

// traffic begins to make calls. It ends with the test.
func (s *site) traffic(t *testing.T) *traffic {
	t.Helper()
	l := &traffic{site: s, failedOpen: s.failedOpen(t)}
	c := s.caller(t)
	callers := make([]int, load.Callers)
	l.Load = load.Start(t.Context(), func(ctx context.Context, caller int) error {
		callers[caller]++ // each has its own
		return c.call(ctx, caller+callers[caller])
	})
	t.Cleanup(func() { l.End() })
	return l
}

// noneFailed ends the calls, of which none may have failed.
func (l *traffic) noneFailed(t *testing.T) {
	t.Helper()
	l.End()
	t.Log(l.Load)
	if l.Failed() > 0 {
		t.Errorf("%d of %d calls failed: %s", l.Failed(), l.Calls(), l.Why())
	}
	if n := l.site.failedOpen(t) - l.failedOpen; n > 0 {
		t.Errorf("the API server let %.0f requests pass because Gatehouse did not answer", n)
	}
}

// failedOpen is how many requests the API server has let pass because a webhook that fails open did not answer.
func (s *site) failedOpen(t *testing.T) float64 {
	t.Helper()
	text, err := s.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	n, err := gatehouse.Sum(string(text), "apiserver_admission_webhook_fail_open_count")
	must(t, err)
	return n
}
