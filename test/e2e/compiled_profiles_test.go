package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// twiceProfile adds to one container twice, and leaves pods alone that have another label.
const twiceProfile = `apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: twice}
spec:
  match: {namespaceSelector: {matchLabels: {compiled: profiles}}}
  injection: OptOut
  onConflict: Skip
  parameters: [{name: zones, type: list, default: "a,b"}]
  template:
    metadata: {labels: {twice: "yes"}}
    spec: {enableServiceLinks: false, nodeSelector: {arch: amd64}}
  appContainers:
    - template: {env: [{name: ZONES, value: "${params.zones.join(';')} of ${namespace.metadata.name}"}]}
    - names: [app]
      template: {env: [{name: ZONES, value: other}, {name: APP, value: "1"}]}
`

// TestCompiledProfiles: the API server itself gives pods what Gatehouse gives them, whatever the order in which it runs the policies, and
// refuses those that Gatehouse refuses. Before Kubernetes 1.36 it has no such policies.
func TestCompiledProfiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t) // where no webhook changes the pods
	if w.Minor(t) < mutatingSince {
		return
	}
	const native, plain = "compiled-profiles", "compiled-profiles-none"
	labels := map[string]string{"compiled": "profiles"}
	w.newNamespace(t, native, labels)
	w.newNamespace(t, plain, nil)
	directory := t.TempDir()
	for _, example := range []string{"log-shipper/profile.yaml", "mesh-proxy/profile.yaml", "order-containers/profiles.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../manifests/examples", example))
		must(t, err)
		// No other namespace of the cluster gets these.
		selected := strings.NewReplacer("{logs: shipped}", "{compiled: profiles}", "{mesh: enabled}", "{compiled: profiles}",
			"spec:\n  injection: OptOut", "spec:\n  match: {namespaceSelector: {matchLabels: {compiled: profiles}}}\n  injection: OptOut").Replace(string(text))
		must(t, os.WriteFile(filepath.Join(directory, strings.ReplaceAll(example, "/", "-")), []byte(selected), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(directory, "twice.yaml"), []byte(twiceProfile), 0o600))
	namespace, err := yaml.Marshal(corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: native, Labels: labels}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(directory, "namespace.yaml"), namespace, 0o600))
	// Users of other profiles' containers are not compared, which is a difference: the exit code is 1.
	documents, err := gatehouse.Run(t.Context(), "compile", "--config", directory, "-o", "yaml")
	if err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Fatal(err)
	}
	must(t, w.apply(t.Context(), documents))
	c, err := config.Load(directory)
	must(t, err)
	set, err := sidecar.Compile(c.Sidecar)
	must(t, err)

	app := corev1.Container{Name: "app", Image: "registry.example/app:1", Env: []corev1.EnvVar{{Name: "OWN", Value: "1"}}}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"own": "1"}}}
		p.Spec.Containers, p.Spec.AutomountServiceAccountToken = []corev1.Container{app}, new(false)
		change(p)
		return p
	}
	client := w.Client().CoreV1()
	support.Eventually(t, "the policies", func() error {
		created, err := client.Pods(native).Create(t.Context(), pod(func(*corev1.Pod) {}), dryRun)
		if err == nil && (len(created.Spec.InitContainers) != len(set.Profiles()) || created.Labels["twice"] == "") { // mesh-proxy has two, and twice has none
			return fmt.Errorf("it has %d init containers", len(created.Spec.InitContainers))
		}
		return err
	})
	for name, change := range map[string]func(*corev1.Pod){
		"a pod": func(*corev1.Pod) {},
		"init containers": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "a", Image: "registry.example/a:1"}, {Name: "b", Image: "registry.example/b:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
		},
		"parameters": func(p *corev1.Pod) {
			p.Annotations["log-shipper.sidecar.gatehouse.dev/memory"], p.Annotations["mesh-proxy.sidecar.gatehouse.dev/excludeInboundPorts"] = "96Mi", "80, 443"
		},
		"a declined profile": func(p *corev1.Pod) { p.Annotations[v1alpha1.InjectAnnotation] = "-mesh,-warm-up" },
		"all declined":       func(p *corev1.Pod) { p.Annotations[v1alpha1.InjectAnnotation] = "false" },
		"an equal volume": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		},
		"another volume": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"a label": func(p *corev1.Pod) { p.Labels = map[string]string{"twice": "no"} },
		"zones": func(p *corev1.Pod) {
			p.Annotations["twice.sidecar.gatehouse.dev/zones"], p.Spec.Containers[0].Env = "c", nil
		},
		"a port":             func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 2020}} },
		"a name":             func(p *corev1.Pod) { p.Spec.Containers[0].Name = "mesh-proxy" },
		"a user":             func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1337))} },
		"a parameter":        func(p *corev1.Pod) { p.Annotations["mesh-proxy.sidecar.gatehouse.dev/cpu"] = "100" },
		"another parameter":  func(p *corev1.Pod) { p.Annotations["mesh-proxy.sidecar.gatehouse.dev/cpus"] = "1" },
		"an annotation":      func(p *corev1.Pod) { p.Annotations[v1alpha1.InjectAnnotation] = "meshes" },
		"the node's network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := pod(change)
			text, err := json.Marshal(sent)
			must(t, err)
			in := sidecar.ForPod(native, text)
			in.Apply = true
			decision := set.Decide(t.Context(), in)
			must(t, decision.Err)
			got, err := client.Pods(native).Create(t.Context(), sent, dryRun)
			if len(decision.Refusals) > 0 {
				if err == nil || !strings.Contains(err.Error(), "no such key: sidecar profile") {
					t.Errorf("the API server says %v, Gatehouse refuses: %v", err, decision.Refusals)
				}
				return
			}
			must(t, err)
			want := sent
			if decision.Patched != nil {
				want = new(corev1.Pod)
				must(t, json.Unmarshal(decision.Patched, want))
				delete(want.Annotations, v1alpha1.StatusAnnotation)
			}
			want, err = client.Pods(plain).Create(t.Context(), want, dryRun)
			must(t, err)
			for _, p := range []*corev1.Pod{got, want} { // what several profiles add stands in any order, but for containers
				slices.SortFunc(p.Spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
			}
			if !equality.Semantic.DeepEqual(got.Spec, want.Spec) || !equality.Semantic.DeepEqual(got.Labels, want.Labels) || !equality.Semantic.DeepEqual(got.Annotations, want.Annotations) {
				a, _ := yaml.Marshal(got)
				b, _ := yaml.Marshal(want)
				t.Errorf("the API server makes\n%s\nGatehouse\n%s", a, b)
			}
		})
	}
}
