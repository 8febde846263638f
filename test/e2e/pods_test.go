package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// podCase is a pod that is created, and what becomes of it.
type podCase struct {
	Name, Namespace string
	// Pod is a strategic merge patch of a pod with one container, which the restricted Pod Security Standard admits if
	// Restricted is set.
	Pod        json.RawMessage
	Restricted bool
	// Containers are all but the pod's own.
	Containers []string
	// Reasons are found in the audit log, each as profile=reason.
	Reasons []string
	// Refused is a part of the refusal, and Warned has a part of each warning.
	Refused string
	Warned  []string
	// Has is in the JSON of the pod, and Lacks is not.
	Has, Lacks string
}

// Profiles are applied, or not, as annotations, namespaces, parameters and the rest of the pod say. The audit log has the
// reason, and the client is warned where the pod gets less than it asks for.
func TestPods(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	var cases []podCase
	readTable(t, "pods.yaml", &cases)
	for _, reason := range sidecar.Reasons() {
		if reason == sidecar.NamespaceUnknown || reason == sidecar.Unknown {
			continue // The answer is an error, and holds nothing else.
		}
		tested := slices.ContainsFunc(cases, func(c podCase) bool {
			return slices.ContainsFunc(c.Reasons, func(r string) bool { return strings.HasSuffix(r, "="+string(reason)) })
		})
		if !tested {
			t.Errorf("no case has the reason %q", reason)
		}
	}
	for i := range cases {
		t.Run(cases[i].Namespace+"/"+cases[i].Name, func(t *testing.T) {
			t.Parallel()
			cases[i].run(t, w)
		})
	}
}

func (c *podCase) run(t *testing.T, w *world) {
	p := pod(c.Name)
	if c.Restricted {
		restricted(p)
	}
	if c.Pod != nil {
		base, err := json.Marshal(p)
		must(t, err)
		patched, err := strategicpatch.StrategicMergePatch(base, c.Pod, corev1.Pod{})
		must(t, err)
		p = &corev1.Pod{}
		must(t, json.Unmarshal(patched, p))
	}
	client, warnings := w.impersonating(t, nil)
	created, err := client.CoreV1().Pods(c.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if got := warnings(); !slices.EqualFunc(got, c.Warned, strings.Contains) {
		t.Errorf("got the warnings %q, want %q", got, c.Warned)
	}
	if len(c.Reasons) > 0 {
		support.Eventually(t, "the audit log", func() error { return w.auditedReasons(c.Namespace, c.Name, c.Reasons...) })
	}
	if c.Refused != "" {
		err = refusal(err, 422, c.Refused, `admission webhook "`, `.mutate.gatehouse.dev" denied the request`)
		if err != nil {
			t.Error(err)
		}
		return
	}
	must(t, err)
	if c.Containers != nil {
		var got []string
		for _, container := range slices.Concat(created.Spec.InitContainers, created.Spec.Containers) {
			if container.Name != "app" {
				got = append(got, container.Name)
			}
		}
		if want := min(1, len(c.Containers)); !slices.Equal(got, c.Containers) || injected(created) != want {
			t.Errorf("got the containers %q, want %q; injected %d times, want %d", got, c.Containers, injected(created), want)
		}
	}
	created.ManagedFields = nil
	text, err := json.Marshal(created)
	must(t, err)
	if !strings.Contains(string(text), c.Has) || c.Lacks != "" && strings.Contains(string(text), c.Lacks) {
		t.Errorf("want %s and not %s in %s", c.Has, c.Lacks, text)
	}
}

// auditedReasons returns an error unless the audit log has the reasons about the creation of a pod.
func (w *world) auditedReasons(namespace, name string, want ...string) error {
	annotations, err := w.audited("create", "pods", namespace, name)
	if err != nil {
		return err
	}
	var got []string
	for _, hook := range []string{"default", "asked"} {
		for _, key := range []string{sidecar.AuditKey, sidecar.AuditKeyAgain} {
			got = append(got, strings.Split(annotations[hook+".mutate.gatehouse.dev/"+key], ",")...)
		}
	}
	for _, reason := range want {
		if !slices.Contains(got, reason) {
			return fmt.Errorf("the audit log says %q of %s, want %q in it", got, name, reason)
		}
	}
	return nil
}
