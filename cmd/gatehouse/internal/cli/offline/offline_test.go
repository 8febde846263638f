package offline

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestOfflineIsOnline injects into every kind of object, and asks the webhook
// about the pod that it holds: the pods are equal, a second time changes nothing,
// and uninject gives back every byte.
func TestOfflineIsOnline(t *testing.T) {
	t.Parallel()
	const dir = "testdata/sidecars"
	_, snapshot, found := config.CompileDir(dir)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	const template = `metadata:
  labels: # labels
    app: a
  annotations:
    sidecar.gatehouse.dev/inject: "logs,proxy"
    logs.sidecar.gatehouse.dev/level: debug
spec:
  unknown: {field: 1.50}
  restartPolicy: Always
  initContainers: []
  containers:
  # the app
  - name: app
    image: a
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data # data
    emptyDir:
      {}
`
	indented := func(n int) string {
		return strings.ReplaceAll(strings.TrimSuffix(template, "\n"), "\n", "\n"+strings.Repeat(" ", n)) + "\n"
	}
	objects := map[string]string{
		"Pod":         "apiVersion: v1\nkind: Pod\n" + template,
		"PodTemplate": "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: a}\ntemplate:\n  " + indented(2),
		"CronJob":     "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec:\n  jobTemplate:\n    spec:\n      template:\n        " + indented(8),
		"Rollout":     "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: a}\nspec:\n  template:\n    " + indented(4),
		"List":        "apiVersion: v1\nkind: List\nitems:\n- {}\n- apiVersion: v1\n  kind: Pod\n  " + indented(2),
	}
	for kind, version := range map[string]string{
		"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1",
		"ReplicationController": "v1", "Job": "batch/v1",
	} {
		objects[kind] = fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: a}\nspec:\n  template:\n    %s", version, kind, indented(4))
	}
	workloads, err := manifest.NewWorkloads(workload.Kind{Group: "argoproj.io", Kind: "Rollout", Template: []string{"spec", "template"}})
	if err != nil {
		t.Fatal(err)
	}
	podOf := func(t *testing.T, text []byte) []byte {
		t.Helper()
		for _, o := range manifest.Read("a.yaml", text, workloads).Objects {
			if o.NoPod == "" {
				return o.Pod("shop")
			}
		}
		t.Fatal("there is no pod")
		return nil
	}
	for kind, text := range objects {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run := func(stdin string, args ...string) string {
				got := clitest.Run(t.Context(), stdin, append(args, "--config", dir, "--namespace", "shop"), NewInjectCommand, NewUninjectCommand)
				if got.Code != cli.ExitYes {
					t.Fatal(got.Err)
				}
				return got.Out
			}
			once := run(text, "inject")

			pod := podOf(t, []byte(text))
			response := snapshot.Sidecar.Decide(t.Context(), sidecar.Input{Request: admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				UID: "1", Operation: admissionv1.Create, Namespace: "shop",
				Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
				Object:   runtime.RawExtension{Raw: pod},
			}}}).Response()
			if !response.Allowed || len(response.Patches) == 0 {
				t.Fatalf("the webhook says %+v", response)
			}
			if got, want := tree(t, podOf(t, []byte(once))), tree(t, patched(t, pod, response.Patches)); !reflect.DeepEqual(got, want) {
				t.Errorf("offline the pod is\n%v\nand online\n%v", got, want)
			}
			if twice := run(once, "inject"); twice != once {
				t.Errorf("twice is not once:\n%s\nand\n%s", twice, once)
			}
			if back := run(once, "uninject"); back != text {
				t.Errorf("uninject leaves\n%s\nof\n%s", back, text)
			}
		})
	}
}

func patched(t *testing.T, pod []byte, patches []jsonpatch.Operation) []byte {
	t.Helper()
	text, err := json.Marshal(patches)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := evanphx.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := patch.Apply(pod)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tree(t *testing.T, text []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestCannotBeWritten names the file that the user knows, and what is wrong.
func TestCannotBeWritten(t *testing.T) {
	t.Parallel()
	const longest = 255 // and what is written first has a longer name
	name := strings.Repeat("a", longest-len(".yaml")) + ".yaml"
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("a: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sources := []source{{File: &manifest.File{Name: "deploy/" + name}, path: path, text: []byte("a: b\n")}}
	err := writeFiles(sources, [][]byte{[]byte("a: c\n")})
	if want := "deploy/" + name + ": cannot be written: file name too long"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestUndecided returns one line.
func TestUndecided(t *testing.T) {
	t.Parallel()
	unknown := func(profile string) error {
		return fmt.Errorf("namespace %q is not known, and sidecar profile %q selects namespaces by label", "shop", profile)
	}
	const hint = " (hint: put the Namespace into the --config directory, or among the manifests, or set its labels with --namespace-labels)"
	for _, tt := range []struct {
		name string
		d    sidecar.Decision
		want string
	}{
		{"other", sidecar.Decision{Err: errors.New("one\ntwo")}, "one; two"},
		{
			"one profile",
			sidecar.Decision{Err: unknown("a"), Verdicts: []sidecar.Verdict{{Profile: "a", Reason: sidecar.NamespaceUnknown}}},
			`namespace "shop" is not known, and sidecar profile "a" selects namespaces by label` + hint,
		},
		{
			"several, and more",
			sidecar.Decision{Err: errors.Join(unknown("a"), errors.New("more"), unknown("b")), Verdicts: []sidecar.Verdict{
				{Profile: "a", Reason: sidecar.NamespaceUnknown}, {Profile: "b", Reason: sidecar.NamespaceUnknown}, {Profile: "c", Reason: sidecar.Unknown},
			}},
			`namespace "shop" is not known, and sidecar profiles "a", "b" select namespaces by label; more` + hint,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := new(manifestFlags).undecided("shop", &tt.d)
			if got := f.String(); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
