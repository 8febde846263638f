package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

func TestInjection(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	for _, test := range []struct {
		name, namespace string
		pod             *corev1.Pod
		// containers are those besides the pod's own, refused is what a refusal says, warned what a warning does.
		containers      []string
		refused, warned string
	}{
		{name: "silent pod", pod: pod("silent"), containers: []string{shipper}},
		{name: "asking pod", pod: pod("asking", asking), containers: []string{shipper}},
		{name: "asking pod, two profiles", pod: pod("two", asking, labelled("agent", "wanted")), containers: []string{shipper, "agent"}},
		{name: "silent pod, one of the two is for those who ask", pod: pod("one", labelled("agent", "wanted")), containers: []string{shipper}},
		{name: "declining pod", pod: pod("declining", saying("false"))},
		{name: "pod elsewhere", namespace: "default", pod: pod("elsewhere")},
		{name: "asking pod elsewhere", namespace: "default", pod: pod("asking-elsewhere", asking), warned: "has no effect"},
		{name: "misspelt wish", pod: pod("misspelt", saying("yes")), refused: `metadata.annotations[sidecar.gatehouse.dev/inject]: "yes" is not the name of a sidecar profile: allowed are "true", "false", or names of profiles`},
		{name: "name taken", pod: pod("taken", func(p *corev1.Pod) { p.Spec.Containers[0].Name = shipper }), refused: `spec.containers[0].name: "log-shipper" is the name of a container that sidecar profile "log-shipper" adds`},
		{name: "port taken", pod: pod("port", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 2020}} }), refused: "spec.containers[0].ports[0].containerPort: "},
		{name: "volume of the same name", pod: pod("volume", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/log"}}}}
		}), refused: "spec.volumes[0].name: "},
		{name: "equal volume", pod: pod("equal", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}), containers: []string{shipper}},
		{name: "pod that ends", pod: pod("ends", asking, labelled("agent", "wanted"), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }), containers: []string{shipper}, warned: `sidecar profile "agent" is not applied: its container "agent" would keep the pod from ending`},
		{name: "pod on the host's network", pod: pod("host", asking, func(p *corev1.Pod) { p.Spec.HostNetwork = true }), warned: "hostNetwork"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.namespace == "" {
				test.namespace = "inject"
			}
			client, warnings := w.impersonating(t, nil)
			pods := client.CoreV1().Pods(test.namespace)
			_, err := pods.Create(t.Context(), test.pod, metav1.CreateOptions{})
			if test.refused != "" {
				err := refusal(err, 422, test.refused, `admission webhook "`, `.mutate.gatehouse.dev" denied the request`)
				if err != nil {
					t.Error(err)
				}
				return
			}
			must(t, err)
			created, err := pods.Get(t.Context(), test.pod.Name, metav1.GetOptions{})
			must(t, err)
			var got []string
			for _, c := range slices.Concat(created.Spec.InitContainers, created.Spec.Containers) {
				if c.Name != "app" {
					got = append(got, c.Name)
				}
			}
			if !slices.Equal(got, test.containers) {
				t.Errorf("got the containers %q, want %q", got, test.containers)
			}
			if want := min(1, len(test.containers)); injected(created) != want {
				t.Errorf("injected %d times, want %d: %v", injected(created), want, created)
			}
			if all := strings.Join(warnings(), "\n"); !strings.Contains(all, test.warned) || test.warned == "" && all != "" {
				t.Errorf("got the warnings %q, want %q", all, test.warned)
			}
		})
	}
}

func TestDryRunShowsInjectionAndCreatesNothing(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	document, err := json.Marshal(pod("dry"))
	must(t, err)
	kubectl := w.Kubectl(t.Context(), "create", "--namespace=inject", "--dry-run=server", "--output=json", "--filename=-")
	kubectl.Stdin = strings.NewReader(strings.Replace(string(document), "{", `{"apiVersion":"v1","kind":"Pod",`, 1))
	output, err := kubectl.Output()
	must(t, err)
	var shown corev1.Pod
	must(t, json.Unmarshal(output, &shown))
	if injected(&shown) != 1 {
		t.Errorf("the dry run shows %s", output)
	}
	_, err = w.Client().CoreV1().Pods("inject").Get(t.Context(), "dry", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: got %v, want that there is no pod", err)
	}
}

// The example is admitted where the restricted Pod Security Standard is enforced, and what the API server's own plugins
// give to containers reaches the sidecar too.
func TestAppliedTwice(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
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

func TestPodsOfADeploymentAreInjected(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	labels := map[string]string{"app": "deployed"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}
	_, err := w.Client().AppsV1().Deployments("inject").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "deployed"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	must(t, err)
	support.Eventually(t, "the Deployment's pods", func() error {
		pods, err := w.Client().CoreV1().Pods("inject").List(t.Context(), metav1.ListOptions{LabelSelector: "app=deployed"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 2 {
			return fmt.Errorf("there are %d", len(pods.Items))
		}
		for i := range pods.Items {
			if injected(&pods.Items[i]) != 1 {
				t.Errorf("%s is not injected: %v", pods.Items[i].Name, pods.Items[i].Spec)
			}
		}
		return nil
	})
	deployed, err := w.Client().AppsV1().Deployments("inject").Get(t.Context(), "deployed", metav1.GetOptions{})
	must(t, err)
	if len(deployed.Spec.Template.Spec.InitContainers) != 0 {
		t.Errorf("the template has changed: %v", deployed.Spec.Template.Spec)
	}
}

// Another webhook changes pods before ours is asked, after, and both. The API server then asks ours again, and the pod
// has each thing once.
func TestInjectionAmongOtherWebhooks(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	// Mutating webhooks are called in the order of their configurations' names.
	const before, after = "aaa-before-gatehouse", "zzz-after-gatehouse"
	for _, name := range []string{before, after} {
		w.addContainers(t, name, "order", "initContainers", metav1.LabelSelector{MatchLabels: map[string]string{name: "wanted"}})
	}
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want []string // the init containers
	}{
		{"alone", pod("alone"), []string{shipper}},
		{"before", pod("before", labelled(before, "wanted")), []string{shipper, before}},
		{"after", pod("after", labelled(after, "wanted")), []string{after, shipper}},
		{"before and after", pod("both", labelled(before, "wanted"), labelled(after, "wanted")), []string{after, shipper, before}},
		{"declined, before and after", pod("declined", labelled(before, "wanted"), labelled(after, "wanted"), saying("false")), []string{after, before}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pods := w.Client().CoreV1().Pods("order")
			// The registrations of the others take effect a moment later.
			support.Eventually(t, "the other webhooks", func() error {
				tried, err := pods.Create(t.Context(), test.pod.DeepCopy(), dryRun)
				if err == nil && len(tried.Spec.InitContainers) != len(test.want) {
					err = fmt.Errorf("the pod has the init containers %q, want %q", names(tried), test.want)
				}
				return err
			})
			created, err := pods.Create(t.Context(), test.pod, metav1.CreateOptions{})
			must(t, err)
			if got := names(created); !slices.Equal(got, test.want) {
				t.Errorf("got the init containers %q, want %q", got, test.want)
			}
			if want := created.Annotations[injectAnnotation] != "false"; (injected(created) == 1) != want || !want && injected(created) != 0 {
				t.Errorf("injected %d times", injected(created))
			}
			if test.name != "after" {
				return
			}
			support.Eventually(t, "the audit log", func() error {
				annotations, err := w.audited("create", "pods", "order", "after")
				if err == nil && annotations["default.mutate.gatehouse.dev/profiles-again"] == "" {
					err = fmt.Errorf("it tells nothing of a second call: %q", annotations)
				}
				return err
			})
		})
	}
}

func names(p *corev1.Pod) []string {
	var list []string
	for _, c := range p.Spec.InitContainers {
		list = append(list, c.Name)
	}
	return list
}

var errNotYet = errors.New("not yet")
