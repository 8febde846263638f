// Package podvalidity tests that what is valid stays valid: it asks the API server's own validation about pods before
// and after sidecars are added, and about what broken profiles would add.
package podvalidity

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// anyNamespace is known by every name, without labels.
type anyNamespace struct{}

func (anyNamespace) Namespace(name string) (*corev1.Namespace, bool) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, true
}

type configMaps map[string]string

func (c configMaps) ConfigMapData(_, _ string) (map[string]string, bool) { return c, true }

// profiles reads the documents of a file.
func profiles(t *testing.T, source, text string) []sidecar.Profile {
	t.Helper()
	var all []sidecar.Profile
	for i, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		p := sidecar.Profile{Source: fmt.Sprintf("%s#%d", source, i+1)}
		err := yaml.UnmarshalStrict([]byte(document), &p.SidecarProfile)
		if err != nil {
			t.Fatalf("%s: %v", p.Source, err)
		}
		all = append(all, p)
	}
	return all
}

func compile(profiles []sidecar.Profile) (*sidecar.Set, error) {
	return sidecar.Compile(sidecar.Spec{Profiles: profiles, Namespaces: anyNamespace{}, ConfigMaps: configMaps{"image": "example/proxy:1"}})
}

// sets are the sets of rich profiles, each with what can be said about what is in the way.
func sets(t *testing.T) map[string]*sidecar.Set {
	t.Helper()
	paths, err := filepath.Glob("testdata/profiles/*.yaml")
	if err != nil || len(paths) < 4 {
		t.Fatal(paths, err)
	}
	all := make(map[string]*sidecar.Set)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, conflict := range []v1alpha1.ConflictAction{v1alpha1.SkipConflict, v1alpha1.KeepConflict} {
			for _, name := range []v1alpha1.SameNameAction{v1alpha1.KeepSameName, v1alpha1.ReplaceSameName} {
				documents := profiles(t, path, string(text))
				for i := range documents {
					documents[i].Spec.OnConflict, documents[i].Spec.OnSameName = conflict, name
				}
				set, err := compile(documents)
				if err != nil {
					t.Fatal(err)
				}
				all[fmt.Sprintf("%s, %s conflicts, %s same names", path, conflict, name)] = set
			}
		}
	}
	return all
}

// patched applies a patch with the API server's library.
func patched(t *testing.T, pod []byte, operations []jsonpatch.Operation) []byte {
	t.Helper()
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := evanphx.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("%s does not apply to %s: %v", text, pod, err)
	}
	return out
}

// tally counts pods.
type tally struct{ pods, valid, patched int }

// stays decides about a pod under every set, and wants a valid one to stay valid.
func (c *tally) stays(t *testing.T, validator *validator, sets map[string]*sidecar.Set, name string, pod []byte) {
	t.Helper()
	c.pods++
	if errs := validator.Errors(pod); len(errs) > 0 {
		return
	}
	c.valid++
	for _, of := range slices.Sorted(maps.Keys(sets)) {
		d := sets[of].Decide(t.Context(), sidecar.ForPod("shop", pod))
		if d.Err != nil {
			t.Errorf("%s: %s: %v", name, of, d.Err)
		}
		if d.Patches == nil {
			continue
		}
		c.patched++
		out := patched(t, pod, d.Patches)
		if errs := validator.Errors(out); len(errs) > 0 {
			t.Errorf("%s: %s: valid before, but after: %q\n%s\n%s", name, of, errs, pod, out)
		}
	}
}

// want fails if what was tested is too little to say anything.
func (c *tally) want(t *testing.T, valid, patched int) {
	t.Helper()
	t.Logf("%d pods, of which %d are valid; they were patched %d times, by one set of profiles or another", c.pods, c.valid, c.patched)
	if c.valid*100 < c.pods*valid {
		t.Errorf("%d of %d pods are valid to begin with, and at least %d %% should be", c.valid, c.pods, valid)
	}
	if c.patched < patched {
		t.Errorf("valid pods are patched %d times, and should be %d times at least", c.patched, patched)
	}
}

// serviceAccount is what a plug-in of the API server gives every pod before webhooks see it.
const serviceAccount = "default"

// TestFixturesStayValid takes the pods with which upstream tests the Pod Security Standards.
func TestFixturesStayValid(t *testing.T) {
	t.Parallel()
	validator := newValidator(t)
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	var count tally
	all := sets(t)
	seen := make(map[string]bool) // Most versions have the same pods.
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(out)), "test", "testdata"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || seen[string(text)] {
			return err
		}
		seen[string(text)] = true
		var pod map[string]any
		err = yaml.Unmarshal(text, &pod)
		if err != nil {
			return err
		}
		if metadata, ok := pod["metadata"].(map[string]any); ok {
			metadata["name"] = "checkout" // Some have the name of a check, which is no name of a pod.
		}
		spec, ok := pod["spec"].(map[string]any)
		if ok && spec["serviceAccountName"] == nil {
			spec["serviceAccountName"] = serviceAccount
		}
		pod["spec"] = spec
		object, err := json.Marshal(pod)
		if err != nil {
			return err
		}
		count.stays(t, validator, all, path, object)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	count.want(t, 95, 3000)
}

// TestRandomPodsStayValid takes pods that are put together by chance.
func TestRandomPodsStayValid(t *testing.T) {
	t.Parallel()
	validator := newValidator(t)
	all := sets(t)
	var count tally
	for seed := range uint64(250) {
		count.stays(t, validator, all, fmt.Sprintf("seed %d", seed), randomPod(t, seed))
		if t.Failed() {
			break
		}
	}
	count.want(t, 95, 2000)
}

// randomPod is a pod that is valid nearly always.
func randomPod(t *testing.T, seed uint64) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	often := func() bool { return r.IntN(2) == 0 }
	one := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "checkout"}}
	if often() {
		pod.Labels = map[string]string{"app": "checkout", one("tier", "team", "no-settings"): "web"}
	}
	if often() {
		pod.Annotations = map[string]string{"mesh.sidecar.gatehouse.dev/" + one("level", "note"): "debug"}
	}
	spec := &pod.Spec
	spec.ServiceAccountName = serviceAccount
	spec.RestartPolicy = corev1.RestartPolicy(one("", "Always", "Never", "OnFailure"))
	spec.HostNetwork = r.IntN(8) == 0
	spec.DNSPolicy = corev1.DNSPolicy(one("", "ClusterFirst", "Default", "None"))
	if spec.DNSPolicy == corev1.DNSNone || often() {
		spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}[:1+r.IntN(3)], Searches: []string{"a.example"}}
	}
	for _, ip := range []string{"10.0.0.1", "10.0.0.9"} {
		if often() {
			spec.HostAliases = append(spec.HostAliases, corev1.HostAlias{IP: ip, Hostnames: []string{"own"}})
		}
	}
	if often() {
		spec.Tolerations = []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}, {Operator: corev1.TolerationOpExists}}[:1+r.IntN(2)]
	}
	if often() {
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 2, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.UnsatisfiableConstraintAction(one("ScheduleAnyway", "DoNotSchedule"))}}
	}
	if often() {
		spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SupplementalGroups: []int64{1, 3000}}
	}
	if often() {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: one("registry", "own")}}
	}
	if r.IntN(6) == 0 {
		spec.OS = &corev1.PodOS{Name: corev1.OSName(one("linux", "windows"))}
		if spec.OS.Name == corev1.Windows {
			spec.SecurityContext = nil
		}
	}
	if r.IntN(6) == 0 {
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/own"}}
	}
	for _, name := range []string{"cache", "tmp", "audit"} {
		if often() {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}
	}
	if often() {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "block", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "block"}}})
	}
	names := []string{"app", "web", "helper", "agent", "setup", "logs", "migrate", "container1", "audit-two"}
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	own := 1 + r.IntN(3)
	for i, name := range names[:own+r.IntN(3)] {
		c := randomContainer(r, spec, name, i)
		if i < own {
			spec.Containers = append(spec.Containers, c)
			continue
		}
		switch {
		case often():
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		default:
			c.LivenessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil
		}
		spec.InitContainers = append(spec.InitContainers, c)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func randomContainer(r *rand.Rand, spec *corev1.PodSpec, name string, number int) corev1.Container {
	often := func() bool { return r.IntN(2) == 0 }
	one := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	c := corev1.Container{Name: name, Image: "example/app:1"}
	for _, variable := range []string{"A", "MESH", "TZ", "TEAM", "POD"} {
		if often() {
			c.Env = append(c.Env, corev1.EnvVar{Name: variable, Value: one("", "1", "$(A)")})
		}
	}
	if often() {
		c.Env = append(c.Env, corev1.EnvVar{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}})
	}
	paths := []string{"/data", "/tmp", "/etc/mesh", "/buffer", "/host/logs", "/audit"}
	r.Shuffle(len(paths), func(i, k int) { paths[i], paths[k] = paths[k], paths[i] })
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			if often() {
				c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: v.Name, DevicePath: one("/dev/xvda", paths[5])})
			}
		case often():
			m := corev1.VolumeMount{Name: v.Name, MountPath: paths[i], ReadOnly: often()}
			if r.IntN(4) == 0 {
				m.SubPathExpr = "$(POD)"
			}
			c.VolumeMounts = append(c.VolumeMounts, m)
		}
	}
	if often() {
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: int32(8000 + number), Protocol: corev1.Protocol(one("", "TCP", "UDP"))}}
	}
	if often() {
		c.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}}
		c.StartupProbe.HTTPGet.Port.IntVal = 80
	}
	if often() {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	}
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return c
	}
	switch r.IntN(6) {
	case 0:
		c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	case 1:
		c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
	case 2:
		c.SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("x")}}
	case 3:
		c.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}
	}
	return c
}
