package e2e

import (
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// ephemeral containers come through a subresource.
func (b *beyond) ephemeral(t *testing.T) {
	pods := b.client.CoreV1().Pods(beyondNamespace)
	for image, want := range map[string]string{
		"registry.example/debug:1": "",
		"other.example/debug:1":    "AdmissionPolicy 'images' denied request: not from our registry: debugger",
	} {
		p, err := pods.Get(t.Context(), "plain", metav1.GetOptions{})
		must(t, err)
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: image}}}
		_, err = pods.UpdateEphemeralContainers(t.Context(), "plain", p, metav1.UpdateOptions{DryRun: dryRun.DryRun})
		if got := admittedOrNot(err); got != want || got == "" && err != nil {
			t.Errorf("%s: got %v, want %q", image, err, want)
		}
	}
}

// connections are decided by their options. There is no kubelet, so that an admitted one fails for another reason.
func (b *beyond) connections(t *testing.T) {
	for name, c := range map[string]struct {
		subresource string
		options     runtime.Object
		wants       string
	}{
		"exec":                 {"exec", &corev1.PodExecOptions{Container: "app", Command: []string{"id"}}, ""},
		"exec, refused":        {"exec", &corev1.PodExecOptions{Container: "app", Command: []string{"sh", "-i"}, TTY: true, Stdin: true}, "AdmissionPolicy 'connections' denied request: no terminal in plain for sh -i"},
		"attach":               {"attach", &corev1.PodAttachOptions{Container: "app", Stdout: true}, ""},
		"attach, refused":      {"attach", &corev1.PodAttachOptions{Container: "app", Stdin: true}, "AdmissionPolicy 'connections' denied request: do not type into app"},
		"portforward":          {"portforward", &corev1.PodPortForwardOptions{Ports: []int32{8080}}, ""},
		"portforward, refused": {"portforward", &corev1.PodPortForwardOptions{Ports: []int32{8080, 22}}, "AdmissionPolicy 'connections' denied request: no system ports"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := b.client.CoreV1().RESTClient().Post().Namespace(beyondNamespace).Resource("pods").Name("plain").SubResource(c.subresource).
				VersionedParams(c.options, scheme.ParameterCodec).Do(t.Context()).Error()
			if got := admittedOrNot(err); got != c.wants || err != nil && strings.Contains(err.Error(), "webhook") != (c.wants != "") {
				t.Errorf("got %v, want %q", err, c.wants)
			}
		})
	}
}

// deletions are decided by the old object, also those of a whole collection.
func (b *beyond) deletions(t *testing.T) {
	stored := b.client.CoreV1().ConfigMaps(beyondNamespace)
	kept := map[string]string{"beyond": "kept"}
	must(t, b.createConfigMap(configMap("needed", kept, "keep=yes"), metav1.CreateOptions{}))
	must(t, b.createConfigMap(configMap("not-needed", kept, "keep=no"), metav1.CreateOptions{}))
	if err := refusal(stored.Delete(t.Context(), "needed", metav1.DeleteOptions{}), 422, "still needed: needed"); err != nil {
		t.Error(err)
	}
	err := stored.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "beyond=kept"})
	if err := refusal(err, 422, "AdmissionPolicy 'kept' denied request: still needed: needed"); err != nil {
		t.Error(err)
	}
	_, err = stored.Get(t.Context(), "needed", metav1.GetOptions{})
	must(t, err)
	err = stored.Delete(t.Context(), "not-needed", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // it may have gone with the collection
		t.Error(err)
	}
}

// subresources are requests of their own.
func (b *beyond) subresources(t *testing.T) {
	deployments := b.client.AppsV1().Deployments(beyondNamespace)
	scale := func(replicas int32) error {
		_, err := deployments.UpdateScale(t.Context(), "scaled", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "scaled", Namespace: beyondNamespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
		}, metav1.UpdateOptions{DryRun: dryRun.DryRun})
		return err
	}
	patch := func(text string, subresources ...string) error {
		_, err := deployments.Patch(t.Context(), "scaled", types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dryRun.DryRun}, subresources...)
		return err
	}
	must(t, scale(3))
	if err := refusal(scale(4), 422, "AdmissionPolicy 'subresources' denied request: 4 are too many"); err != nil {
		t.Error(err)
	}
	if err := refusal(patch(`{"spec":{"replicas":5}}`, "scale"), 422, "5 are too many"); err != nil {
		t.Error(err)
	}
	must(t, patch(`{"spec":{"replicas":5}}`)) // the rules are about the subresources alone
	must(t, patch(`{"status":{"replicas":7}}`, "status"))
	if err := refusal(patch(`{"status":{"replicas":7,"readyReplicas":7,"availableReplicas":7}}`, "status"), 422, "more than were asked for"); err != nil {
		t.Error(err)
	}
}
