package offline

import (
	"bytes"
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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/active"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// offlineConfig is a configuration of two profiles: one for every pod, and one
// for those that ask.
const offlineConfig = `apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: logs}
spec:
  injection: OptOut
  parameters: [{name: level, type: string, default: info}]
  appContainers:
  - template:
      env: [{name: LOG_DIR, value: /var/log/app}]
      volumeMounts: [{name: logs, mountPath: /var/log/app}]
  template:
    metadata: {labels: {logs: shipped}}
    spec:
      initContainers:
      - name: logs
        image: registry.example/logs:1
        restartPolicy: Always
        args: ["--level=${params.level}", "--pod=${pod.metadata.namespace}"]
        startupProbe: {tcpSocket: {port: 2020}}
      volumes: [{name: logs, emptyDir: {}}]
---
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: proxy}
spec:
  template:
    spec:
      initContainers:
      - {name: proxy, image: "registry.example/proxy:1", restartPolicy: Always, startupProbe: {tcpSocket: {port: 15000}}}
`

// TestOfflineIsOnline injects into every kind of object, and asks the webhook
// about the pod that it holds: the pods are equal, a second time changes nothing,
// and uninject gives back every byte.
func TestOfflineIsOnline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "profiles.yaml"), []byte(offlineConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	_, snapshot, found := active.Load(dir)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	const template = `metadata:
  labels: {app: a} # labels
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
	workloads, err := manifest.NewWorkloads([]string{"Rollout.argoproj.io=spec.template"})
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
			command := func(in string, run func(f *changeFlags, s cli.Streams) error) string {
				var out, err bytes.Buffer
				f := changeFlags{output: "yaml"}
				f.namespace, f.workloads = "shop", []string{"Rollout.argoproj.io=spec.template"}
				if problem := run(&f, cli.Streams{In: strings.NewReader(in), Out: &out, Err: &err}); problem != nil {
					t.Fatal(problem)
				}
				return out.String()
			}
			inject := func(f *changeFlags, s cli.Streams) error {
				sources, err := f.read(s.In)
				if err != nil {
					return err
				}
				return f.inject(t.Context(), s, sources, snapshot.Sidecar.Decide)
			}
			once := command(text, inject)

			pod := podOf(t, []byte(text))
			response := snapshot.Sidecar.Review(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				UID: "1", Operation: admissionv1.Create, Namespace: "shop",
				Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
				Object:   runtime.RawExtension{Raw: pod},
			}})
			if !response.Allowed || len(response.Patches) == 0 {
				t.Fatalf("the webhook says %+v", response)
			}
			if got, want := tree(t, podOf(t, []byte(once))), tree(t, patched(t, pod, response.Patches)); !reflect.DeepEqual(got, want) {
				t.Errorf("offline the pod is\n%v\nand online\n%v", got, want)
			}
			if twice := command(once, inject); twice != once {
				t.Errorf("twice is not once:\n%s\nand\n%s", twice, once)
			}
			if back := command(once, func(f *changeFlags, s cli.Streams) error { return f.uninject(s, sidecar.Remove) }); back != text {
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

// TestInjectOutcomes is what inject does where not all pods can be told about.
func TestInjectOutcomes(t *testing.T) {
	t.Parallel()
	const pods = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {}\n"
	add := []jsonpatch.Operation{{Operation: "add", Path: "/spec/x", Value: json.RawMessage("1")}}
	refused := sidecar.Decision{Refusals: diagnostic.List{{Severity: diagnostic.Error, Field: "spec.x", Message: "must not be"}}}
	for _, tt := range []struct {
		name     string
		a, b     sidecar.Decision
		code     int
		out, err string
	}{
		{
			"changed",
			sidecar.Decision{Patches: add, Warnings: []string{"beware"}, Verdicts: []sidecar.Verdict{{Profile: "x", Reason: sidecar.Applied}}},
			sidecar.Decision{},
			0,
			strings.Replace(pods, "spec: {}", "spec:\n  x: 1", 1), "standard input#1: Pod/a: warning: beware\nstandard input#1: Pod/a: changed: x\n" +
				"standard input#2: Pod/b: left as it is; no profile is about it\n1 object changed, 1 left as it is, 0 without a pod\n",
		},
		{"refused", sidecar.Decision{Patches: add}, refused, cli.ExitNo, "", "refused:\nstandard input#2: Pod/b: spec.x: must not be"},
		{
			"cannot tell", refused,
			sidecar.Decision{Err: errors.New("no idea")},
			cli.ExitUnknown, "",
			"standard input#1: Pod/a: spec.x: must not be\nstandard input#2: Pod/b: no idea",
		},
		{
			"does not fit",
			sidecar.Decision{Patches: []jsonpatch.Operation{{Operation: "remove", Path: "/spec/y"}}},
			sidecar.Decision{},
			cli.ExitUnknown, "",
			"standard input#1: Pod/a: the patch does not fit: error in remove for path: '/spec/y': Unable to remove nonexistent key: y: missing value",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			f := changeFlags{output: "yaml"}
			f.namespace = "default"
			sources, err := f.read(strings.NewReader(pods))
			if err != nil {
				t.Fatal(err)
			}
			err = f.inject(t.Context(), cli.Streams{Out: &out, Err: &errs}, sources, func(in sidecar.Input) sidecar.Decision {
				if bytes.Contains(in.Pod, []byte(`"name":"a"`)) {
					return tt.a
				}
				return tt.b
			})
			code := cli.ExitYes
			if err != nil {
				code = cli.ExitUnknown
				if exit, ok := errors.AsType[*cli.ExitError](err); ok {
					code = exit.Code
				}
				errs.WriteString(err.Error())
			}
			if code != tt.code || out.String() != tt.out || errs.String() != tt.err {
				t.Errorf("code %d, want %d; out\n%s\nwant\n%s\nerr\n%s\nwant\n%s", code, tt.code, out.String(), tt.out, errs.String(), tt.err)
			}
		})
	}
}

func TestColoured(t *testing.T) {
	t.Parallel()
	got := string(coloured([]byte("diff a b\n--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z\n--- not a header\n")))
	want := "\x1b[1mdiff a b\x1b[0m\n\x1b[1m--- a\x1b[0m\n\x1b[1m+++ b\x1b[0m\n\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-x\x1b[0m\n\x1b[32m+y\x1b[0m\n z\n\x1b[31m--- not a header\x1b[0m\n"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestDiff shows what was added, and nothing that was not touched.
func TestDiff(t *testing.T) {
	t.Parallel()
	const object = "kind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: a\n    image: a"
	before := object + "\n---\n" + object
	after := strings.ReplaceAll(strings.ReplaceAll(before, "\nspec:", "\n  labels: {}\nspec:"), "  - name", "  - name: first\n  - name")
	var out bytes.Buffer
	if err := writeDiffs(&out, []source{{path: "/a.yaml", text: []byte(before)}}, [][]byte{[]byte(after)}); err != nil {
		t.Fatal(err)
	}
	want := `diff a/a.yaml b/a.yaml
--- a/a.yaml
+++ b/a.yaml
@@ -1,8 +1,10 @@
 kind: Pod
 metadata:
   name: a
+  labels: {}
 spec:
   containers:
+  - name: first
   - name: a
     image: a
 ---
@@ -9,7 +11,9 @@
 kind: Pod
 metadata:
   name: a
+  labels: {}
 spec:
   containers:
+  - name: first
   - name: a
     image: a
\ No newline at end of file
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
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
		return fmt.Errorf("namespace %q is not known, and sidecar profile %q selects namespaces by their labels", "shop", profile)
	}
	const hint = " (hint: put the Namespace into the --config directory, or among the manifests)"
	for _, tt := range []struct {
		name string
		d    sidecar.Decision
		want string
	}{
		{"other", sidecar.Decision{Err: errors.New("one\ntwo")}, "one; two"},
		{
			"one profile",
			sidecar.Decision{Err: unknown("a"), Verdicts: []sidecar.Verdict{{Profile: "a", Reason: sidecar.NamespaceUnknown}}},
			`namespace "shop" is not known, and sidecar profile "a" selects namespaces by their labels` + hint,
		},
		{
			"several, and more",
			sidecar.Decision{Err: errors.Join(unknown("a"), errors.New("more"), unknown("b")), Verdicts: []sidecar.Verdict{
				{Profile: "a", Reason: sidecar.NamespaceUnknown}, {Profile: "b", Reason: sidecar.NamespaceUnknown}, {Profile: "c", Reason: sidecar.Unknown},
			}},
			`namespace "shop" is not known, and sidecar profiles "a", "b" select namespaces by their labels; more` + hint,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := undecided("shop", &tt.d)
			if got := f.String(); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
