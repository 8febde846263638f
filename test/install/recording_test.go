package install

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/installers"
)

// kustomizedWith renders the overlay self-signed with a component.
func kustomizedWith(t *testing.T, component string) *variant {
	t.Helper()
	program, err := installers.Binary(installers.Kustomize)
	must(t, err)
	overlay := filepath.Join(t.TempDir(), component)
	must(t, os.Mkdir(overlay, 0o700))
	below := func(name string) string { // kustomize takes relative paths only
		path, err := filepath.Rel(overlay, filepath.Join(root(t), "manifests/kustomize", name))
		must(t, err)
		return path
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{below("overlays/self-signed")}, "components": []string{below("components/" + component)},
	})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), raw, 0o600))
	return newVariant(t, "kustomize with "+component, run(t, program, "build", overlay))
}

// chartedWith renders the chart with the values of the overlay self-signed and others, as --set-json takes them.
func chartedWith(t *testing.T, values ...string) *variant {
	t.Helper()
	program, err := installers.Binary(installers.Helm)
	must(t, err)
	directory := filepath.Join(root(t), chart)
	args := []string{
		"template", name, directory, "--namespace", system, "--include-crds",
		"--values", filepath.Join(directory, "ci", "self-signed-values.yaml"),
	}
	for _, value := range values {
		args = append(args, "--set-json", value)
	}
	return newVariant(t, "helm with "+strings.Join(values, " "), run(t, program, args...))
}

const (
	recordingOn  = `recording.enabled=true`
	recordingKey = `recording.keySecret="gatehouse-recording-key"`
)

// TestRecordingIsTheSame: the component and the chart record alike.
func TestRecordingIsTheSame(t *testing.T) {
	t.Parallel()
	kustomize, helm := kustomizedWith(t, "record"), chartedWith(t, recordingOn, recordingKey)
	if difference := compare(comparableObjects(kustomize), comparableObjects(helm)); difference != "" {
		t.Error(difference)
	}
}

// TestRecordingIsOff: nobody records who has not asked for it.
func TestRecordingIsOff(t *testing.T) {
	t.Parallel()
	for _, v := range variants(t) {
		pod := as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Spec
		for _, arg := range pod.Containers[0].Args {
			if strings.HasPrefix(arg, "--record") {
				t.Errorf("%s has %s", v.name, arg)
			}
		}
		for _, volume := range pod.Volumes {
			if strings.HasPrefix(volume.Name, "recording") {
				t.Errorf("%s has the volume %s", v.name, volume.Name)
			}
		}
	}
}

// TestRecordingFits: what the program is told to write is a volume that it may write to, and what it is told to read is
// mounted.
func TestRecordingFits(t *testing.T) {
	t.Parallel()
	for _, v := range []*variant{
		kustomizedWith(t, "record"),
		chartedWith(t, recordingOn, recordingKey),
		chartedWith(t, recordingOn, recordingKey, `recording.persistence.enabled=true`, `recording.config={"sampling":{"default":0.5}}`),
		chartedWith(t, recordingOn, recordingKey, `recording.persistence={"enabled":true,"existingClaim":"mine"}`),
	} {
		pod := as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Spec
		container := pod.Containers[0]
		mounts := map[string]corev1.VolumeMount{}
		for _, mount := range container.VolumeMounts {
			mounts[mount.MountPath] = mount
		}
		volumes := map[string]corev1.Volume{}
		for i := range pod.Volumes {
			volumes[pod.Volumes[i].Name] = pod.Volumes[i]
		}
		files := map[string]bool{}
		for _, arg := range container.Args {
			flag, path, _ := strings.Cut(arg, "=")
			switch flag {
			case "--record":
				mount, ok := mounts[path]
				volume := volumes[mount.Name]
				if !ok || mount.ReadOnly || volume.EmptyDir == nil && volume.PersistentVolumeClaim == nil {
					t.Errorf("%s: %s is the mount %+v of %+v", v.name, arg, mount, volume)
				}
				if volume.EmptyDir != nil && volume.EmptyDir.SizeLimit.IsZero() {
					t.Errorf("%s: the emptyDir has no limit", v.name)
				}
				if claim := volume.PersistentVolumeClaim; claim != nil && claim.ClaimName != "mine" {
					got := as[corev1.PersistentVolumeClaim](t, v.find(t, "PersistentVolumeClaim", claim.ClaimName))
					if !slices.Contains(got.Spec.AccessModes, corev1.ReadWriteMany) {
						t.Errorf("%s: replicas cannot share %v", v.name, got.Spec.AccessModes)
					}
				}
				files[flag] = true
			case "--record-key-file", "--record-config":
				mount, ok := mounts[filepath.Dir(path)]
				if !ok || !mount.ReadOnly {
					t.Errorf("%s: %s is the mount %+v", v.name, arg, mount)
				}
				files[flag] = projects(t, v, volumes[mount.Name].Projected, filepath.Base(path))
			}
		}
		for flag, found := range files {
			if !found {
				t.Errorf("%s: %s names a file that is not projected", v.name, flag)
			}
		}
		if !files["--record"] || !files["--record-key-file"] {
			t.Errorf("%s: the arguments are %q", v.name, container.Args)
		}
	}
}

// projects reports whether a volume has a file.
func projects(t *testing.T, v *variant, volume *corev1.ProjectedVolumeSource, file string) bool {
	t.Helper()
	if volume == nil {
		return false
	}
	for _, source := range volume.Sources {
		if source.Secret != nil && slices.ContainsFunc(source.Secret.Items, func(item corev1.KeyToPath) bool { return item.Path == file }) {
			return true
		}
		if source.ConfigMap != nil {
			if _, ok := as[corev1.ConfigMap](t, v.find(t, "ConfigMap", source.ConfigMap.Name)).Data[file]; ok {
				return true
			}
		}
	}
	return false
}

// TestRecordingConfigurationStartsPods: the program reads the configuration when it starts, so that a change of it replaces pods.
func TestRecordingConfigurationStartsPods(t *testing.T) {
	t.Parallel()
	annotation := func(share string) string {
		v := chartedWith(t, recordingOn, recordingKey, `recording.config={"sampling":{"default":`+share+`}}`)
		return as[appsv1.Deployment](t, v.find(t, "Deployment", name)).Spec.Template.Annotations["checksum/recording"]
	}
	if a, b := annotation("0.5"), annotation("0.25"); a == "" || a == b {
		t.Errorf("the pods have the annotations %q and %q", a, b)
	}
}

// TestRecordingKeyIsKept: on a real API server the chart makes a key, and an upgrade keeps the one that is there.
func TestRecordingKeyIsKept(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{})
	program, err := installers.Binary(installers.Helm)
	must(t, err)
	render := func() *corev1.Secret {
		v := newVariant(t, "helm", run(t, program, "template", name, filepath.Join(root(t), chart), "--namespace", system,
			"--kubeconfig", c.Kubeconfig(), "--dry-run=server", "--set", "recording.enabled=true"))
		return as[corev1.Secret](t, v.find(t, "Secret", "gatehouse-recording-key"))
	}
	first := render()
	key, err := base64.StdEncoding.DecodeString(string(first.Data["key"]))
	if err != nil || len(key) != 32 {
		t.Fatalf("the key has %d bytes, %v, want 32 in base64", len(key), err)
	}
	if slices.Equal(render().Data["key"], first.Data["key"]) {
		t.Error("the key is not random")
	}
	must(t, c.CreateNamespace(t.Context(), system, nil))
	first.Annotations = map[string]string{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": system} // as helm install does
	_, err = c.Client().CoreV1().Secrets(system).Create(t.Context(), first, metav1.CreateOptions{})
	must(t, err)
	if !slices.Equal(render().Data["key"], first.Data["key"]) {
		t.Error("an upgrade makes another key")
	}
}
