package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// The example is admitted where the restricted Pod Security Standard is enforced, and what the API server's own plugins
// give to containers reaches the sidecar too.
func TestAppliedTwice(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	document, err := os.ReadFile(examples + "/log-shipper/pod.yaml")
	must(t, err)
	must(t, w.apply(t.Context(), string(document)))
	created, err := w.Client().CoreV1().Pods("shop").Get(t.Context(), "checkout", metav1.GetOptions{})
	must(t, err)
	if injected(created) != 1 {
		t.Fatalf("the example's pod is %v", created)
	}
	sidecar := created.Spec.InitContainers[0]
	mounted := slices.ContainsFunc(sidecar.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount"
	})
	if !mounted {
		t.Errorf("the sidecar lacks the service account's token: %v", sidecar.VolumeMounts)
	}
	if sidecar.RestartPolicy == nil || *sidecar.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Errorf("the sidecar is no native one: %v", sidecar)
	}

	// Applied once more, nothing changes.
	must(t, w.apply(t.Context(), string(document)))
	again, err := w.Client().CoreV1().Pods("shop").Get(t.Context(), "checkout", metav1.GetOptions{})
	must(t, err)
	if again.ResourceVersion != created.ResourceVersion {
		t.Errorf("applied again, the pod has become %v", again)
	}
}

// Other webhooks add a container to pods before Gatehouse is called, after it, and both. The API server then calls Gatehouse
// again: the pod has each thing once, and a container that another webhook adds is treated as the pod's own.
func TestInjectionAmongOtherWebhooks(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	// Mutating webhooks are called in the order of their configurations' names.
	hooks := map[string]string{
		"aaa-before": "initContainers", "zzz-after": "initContainers", "aaa-app-before": "containers", "zzz-app-after": "containers",
	}
	for name, list := range hooks {
		w.addContainers(t, name, "order", list, metav1.LabelSelector{MatchLabels: map[string]string{name: "wanted"}})
	}
	for name, test := range map[string]struct {
		hooks            []string
		declines         bool
		init, containers []string
	}{
		"alone":      {nil, false, []string{shipper}, []string{"app"}},
		"before":     {[]string{"aaa-before"}, false, []string{shipper, "aaa-before"}, []string{"app"}},
		"after":      {[]string{"zzz-after"}, false, []string{"zzz-after", shipper}, []string{"app"}},
		"both":       {[]string{"aaa-before", "zzz-after"}, false, []string{"zzz-after", shipper, "aaa-before"}, []string{"app"}},
		"declined":   {[]string{"aaa-before", "zzz-after"}, true, []string{"zzz-after", "aaa-before"}, []string{"app"}},
		"app-before": {[]string{"aaa-app-before"}, false, []string{shipper}, []string{"aaa-app-before", "app"}},
		"app-after":  {[]string{"zzz-app-after"}, false, []string{shipper}, []string{"zzz-app-after", "app"}},
		"app-both":   {[]string{"aaa-app-before", "zzz-app-after"}, false, []string{shipper}, []string{"zzz-app-after", "aaa-app-before", "app"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod(name)
			for _, hook := range test.hooks {
				p.Labels[hook] = "wanted"
			}
			want := 1
			if test.declines {
				p.Annotations[injectAnnotation], want = "false", 0
			}
			pods := w.Client().CoreV1().Pods("order")
			check := func(p *corev1.Pod) error {
				if init, containers := names(p.Spec.InitContainers), names(p.Spec.Containers); !slices.Equal(init, test.init) || !slices.Equal(containers, test.containers) {
					return fmt.Errorf("the pod has the containers %q and %q, want %q and %q", init, containers, test.init, test.containers)
				}
				return nil
			}
			// The API server learns of the other webhooks by a watch.
			support.Eventually(t, "the other webhooks", func() error {
				tried, err := pods.Create(t.Context(), p.DeepCopy(), dryRun)
				if err == nil {
					err = check(tried)
				}
				return err
			})
			created, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
			must(t, err)
			must(t, check(created))
			if injected(created) != want {
				t.Errorf("injected %d times, want %d", injected(created), want)
			}
			for i := range created.Spec.Containers {
				c := &created.Spec.Containers[i]
				mounts := slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return m.Name != "logs" })
				path := "/spec/containers/name=" + c.Name + "/volumeMounts/"
				if len(mounts) != want || strings.Count(created.Annotations[statusAnnotation], path) != want {
					t.Errorf("container %q has the mounts %v, and the status is %s", c.Name, c.VolumeMounts, created.Annotations[statusAnnotation])
				}
			}
			if name == "after" {
				support.Eventually(t, "the audit log", func() error {
					annotations, err := w.audited("create", "pods", "order", name)
					if err == nil && annotations["default.mutate.gatehouse.dev/profiles-again"] == "" {
						err = fmt.Errorf("it has no second call: %q", annotations)
					}
					return err
				})
			}
		})
	}
}

// A debug container joins a pod with sidecars as any other, and stays as it was asked for.
func TestEphemeralContainersAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	pods := w.Client().CoreV1().Pods("inject")
	created, err := pods.Create(t.Context(), pod("debugged"), metav1.CreateOptions{})
	must(t, err)
	changed := created.DeepCopy()
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "registry.example/debug:1",
		VolumeMounts: []corev1.VolumeMount{{Name: "logs", MountPath: "/logs"}},
	}}}
	_, err = pods.UpdateEphemeralContainers(t.Context(), created.Name, changed, metav1.UpdateOptions{})
	must(t, err)
	debugged, err := pods.Get(t.Context(), created.Name, metav1.GetOptions{})
	must(t, err)
	if injected(debugged) != 1 || debugged.Annotations[statusAnnotation] != created.Annotations[statusAnnotation] {
		t.Errorf("the pod has become %v", debugged)
	}
	c := debugged.Spec.EphemeralContainers
	if len(c) != 1 || c[0].Name != "debugger" || len(c[0].Env) > 0 || len(c[0].VolumeMounts) != 1 || c[0].VolumeMounts[0].MountPath != "/logs" {
		t.Errorf("the debug container is %v", c)
	}
}

// What cannot be decided goes by the failurePolicy: a pod that asks is refused, and with any other the API server goes on,
// here to what fails closed for the same reason.
func TestUnknownNamespace(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const namespace = "kube-public" // There is no document about it.
	pods := w.Client().CoreV1().Pods(namespace)
	_, err := pods.Create(t.Context(), pod("asking", asking), dryRun)
	err = refusal(err, 500, `failed calling webhook "asked.mutate.gatehouse.dev"`)
	if err != nil {
		t.Error(err)
	}
	_, err = pods.Create(t.Context(), pod("silent"), dryRun)
	err = refusal(err, 422, `admission webhook "fail.validate.gatehouse.dev" denied the request`, `namespace "kube-public" is not known`)
	if err != nil {
		t.Errorf("a silent pod: %v", err)
	}
}

func names(containers []corev1.Container) []string {
	var list []string
	for i := range containers {
		list = append(list, containers[i].Name)
	}
	return list
}

var errNotYet = errors.New("not yet")
