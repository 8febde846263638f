package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// example is what one of the examples promises.
type example struct {
	Name, Namespace string
	// Init and Containers are the names that a pod has at the end.
	Init, Containers []string
	// Has is found in the JSON of a pod.
	Has []string
}

// template is the pod that an example shows, or that of its Deployment.
func (e *example) template(t *testing.T) corev1.PodTemplateSpec {
	t.Helper()
	var deployment appsv1.Deployment
	text, err := os.ReadFile(filepath.Join(examples, e.Name, "deployment.yaml"))
	if err == nil {
		must(t, yaml.UnmarshalStrict(text, &deployment))
		return deployment.Spec.Template
	}
	var p corev1.Pod
	text, err = os.ReadFile(filepath.Join(examples, e.Name, "pod.yaml"))
	must(t, err)
	must(t, yaml.UnmarshalStrict(text, &p))
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
}

func (e *example) check(p *corev1.Pod) error {
	if init, containers := names(p.Spec.InitContainers), names(p.Spec.Containers); !slices.Equal(init, e.Init) || !slices.Equal(containers, e.Containers) {
		return fmt.Errorf("%s has the containers %q and %q, want %q and %q", p.Name, init, containers, e.Init, e.Containers)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	for _, want := range e.Has {
		if !strings.Contains(string(text), want) {
			return fmt.Errorf("%s lacks %s: %s", p.Name, want, text)
		}
	}
	return nil
}

// Each example is without findings, does to pods what it promises, in a dry run as in reality and offline, once, and
// to the pods of a Deployment too.
func TestSidecarExamples(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	var all []example
	readTable(t, "examples.yaml", &all)
	for _, e := range all {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			found, err := gatehouse.Run(t.Context(), "lint", "--config", filepath.Join(examples, e.Name))
			if err != nil || !strings.HasPrefix(found, "0 errors, 0 warnings in ") {
				t.Errorf("lint says %s (%v)", found, err)
			}
			asked := w.record(t, "aaa-record-"+e.Name, e.Namespace)
			template := e.template(t)
			p := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			p.Name = "example"
			pods := w.Client().CoreV1().Pods(e.Namespace)
			var dry *corev1.Pod
			// The recorder's registration takes effect a moment later.
			support.Eventually(t, "the recorder is asked", func() error {
				var err error
				dry, err = pods.Create(t.Context(), p.DeepCopy(), dryRun)
				if err == nil && len(asked()) == 0 {
					err = errNotYet
				}
				return err
			})
			created, err := pods.Create(t.Context(), p.DeepCopy(), metav1.CreateOptions{})
			must(t, err)
			if err := e.check(created); err != nil {
				t.Error(err)
			}
			if got, want := stableJSON(t, dry), stableJSON(t, created); got != want {
				t.Errorf("a dry run shows\n%s\nand the pod is\n%s", got, want)
			}
			w.sameOffline(t, e.Namespace, asked())

			w.deploy(t, &e, &template)
		})
	}
}

// record registers a webhook that changes nothing, in front of ours, and returns what the API server has sent to it for
// the last pod, which is what it sends to ours next.
func (w *world) record(t *testing.T, name, namespace string) func() []byte {
	t.Helper()
	var (
		mu   sync.Mutex
		last []byte
	)
	w.addWebhook(t, name, namespace, metav1.LabelSelector{}, func(body []byte) []any {
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(string(body), statusAnnotation) { // the second call comes with ours
			last = body
		}
		return nil
	})
	return func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// stableJSON is the JSON of a pod without what the API server makes up for each.
func stableJSON(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	p = p.DeepCopy()
	p.UID, p.ResourceVersion, p.CreationTimestamp, p.ManagedFields = "", "", metav1.Time{}, nil
	text, err := json.Marshal(p)
	must(t, err)
	return regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`).ReplaceAllString(string(text), "kube-api-access")
}

// sameOffline wants that the API server has been given the patch that 'gatehouse review' gives for the same review, and
// no other when it asked a second time.
func (w *world) sameOffline(t *testing.T, namespace string, review []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "review.json")
	must(t, os.WriteFile(file, review, 0o600))
	text, err := gatehouse.Run(t.Context(), "review", "mutate", "--config", w.config, file)
	must(t, err)
	var answer struct{ Response struct{ Patch string } }
	must(t, json.Unmarshal([]byte(text), &answer))
	patch, err := base64.StdEncoding.DecodeString(answer.Response.Patch)
	must(t, err)
	var offline any
	must(t, json.Unmarshal(patch, &offline))

	support.Eventually(t, "the audit log", func() error {
		annotations, err := w.audited("create", "pods", namespace, "example")
		if err != nil {
			return err
		}
		var online, again []any
		mutated := map[bool]int{}
		for key, value := range annotations {
			var noted struct {
				Configuration string
				Mutated       bool
				Patch         any
			}
			if !strings.Contains(key, "webhook.admission.k8s.io/round_") || json.Unmarshal([]byte(value), &noted) != nil || noted.Configuration != "gatehouse" {
				continue
			}
			switch {
			case strings.HasPrefix(key, "patch.webhook.admission.k8s.io/round_0_"):
				online = append(online, noted.Patch)
			case strings.HasPrefix(key, "patch."):
				again = append(again, noted.Patch)
			case strings.HasPrefix(key, "mutation.webhook.admission.k8s.io/round_1_"):
				mutated[noted.Mutated]++
			}
		}
		switch {
		case len(online) != 1 || !reflect.DeepEqual(online[0], offline):
			t.Errorf("the API server was given %v\nand offline it is %v", online, offline)
		case len(again) > 0:
			t.Errorf("asked again, we answered %v", again)
		case mutated[true] > 0 || mutated[false] != 1:
			// The API server gives the sidecar a token of its own behind us, and asks again.
			t.Errorf("asked again, %d answers mutated the pod and %d did not", mutated[true], mutated[false])
		}
		return nil
	})
}

// deploy makes a Deployment of an example's pod, and waits for its pods.
func (w *world) deploy(t *testing.T, e *example, template *corev1.PodTemplateSpec) {
	t.Helper()
	template = template.DeepCopy()
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	template.Labels["deployed"] = e.Name
	_, err := w.Client().AppsV1().Deployments(e.Namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: e.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"deployed": e.Name}}, Template: *template,
		},
	}, metav1.CreateOptions{})
	must(t, err)
	support.Eventually(t, "the Deployment's pods", func() error {
		list, err := w.Client().CoreV1().Pods(e.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "deployed=" + e.Name})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		if err != nil {
			return err
		}
		if list.Items[0].Annotations[statusAnnotation] != list.Items[1].Annotations[statusAnnotation] {
			t.Errorf("two replicas differ: %v", list.Items)
		}
		return errors.Join(e.check(&list.Items[0]), e.check(&list.Items[1]))
	})
}

// A preset that changes is in force for the pods created from then on, without a change of the profile. All are dry runs,
// which leave no trace in the metrics.
func TestPresetChanges(t *testing.T) {
	w := sharedWorld(t)
	file := filepath.Join(w.config, "mesh-preset", "preset.yaml")
	before, err := os.ReadFile(file)
	must(t, err)
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0o600) }) // if this fails half-way
	image := func(want string) func() error {
		return func() error {
			created, err := w.Client().CoreV1().Pods("shipping").Create(t.Context(), restricted(pod("preset")), dryRun)
			if err != nil {
				return err
			}
			if len(created.Spec.InitContainers) != 1 || created.Spec.InitContainers[0].Image != want {
				return fmt.Errorf("want the image %q in %v", want, created.Spec.InitContainers)
			}
			return nil
		}
	}
	counted := func() float64 {
		n, err := w.gatehouse.Metric(t.Context(), "gatehouse_sidecar_profiles_total", `profile="mesh-preset"`)
		must(t, err)
		return n
	}
	first := counted()
	const name = "envoyproxy/envoy:distroless-"
	support.Eventually(t, "the first preset", image(name+"v1.35.3"))
	must(t, os.WriteFile(file, []byte(strings.Replace(string(before), "v1.35.3", "v1.36.0", 1)), 0o600))
	support.Eventually(t, "the second preset", image(name+"v1.36.0"))
	must(t, os.WriteFile(file, before, 0o600))
	support.Eventually(t, "the first preset again", image(name+"v1.35.3"))
	if last := counted(); last != first {
		t.Errorf("dry runs are counted: %v, then %v", first, last)
	}
}

// restricted makes a pod one that the restricted Pod Security Standard admits.
func restricted(p *corev1.Pod) *corev1.Pod {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(10001)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	return p
}
