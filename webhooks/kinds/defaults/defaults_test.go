package defaults_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
)

// files are the names of those of testdata that have manifests.
func files(t testing.TB) []string { return names(t, filepath.Join("testdata", "*.yaml")) }

// names are those of the files that match, without what is behind the dot.
func names(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
	}
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return paths
}

// manifests are the documents of a file of testdata.
func manifests(t testing.TB, file string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		list = append(list, parse(t, document))
	}
	return list
}

// answers are what the API server of a version has made of them.
func answers(t testing.TB, version, file string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "kubernetes-"+version, file+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	err = kjson.UnmarshalCaseSensitivePreserveInts(text, &list)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// parse reads an object, as YAML or JSON.
func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	var object map[string]any
	inJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(inJSON, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func title(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name := metadata["name"]
	if name == nil {
		name = metadata["generateName"]
	}
	return fmt.Sprintf("%v/%v/%v", object["apiVersion"], object["kind"], name)
}

// differences are where two trees differ, one a line.
func differences(path string, got, want any) []string {
	var lines []string
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			break
		}
		keys := make(map[string]bool)
		for _, tree := range []map[string]any{got, want} {
			for key := range tree {
				keys[key] = true
			}
		}
		for key := range keys {
			lines = append(lines, differences(path+"."+key, got[key], want[key])...)
		}
		slices.Sort(lines)
		return lines
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			break
		}
		for i := range want {
			lines = append(lines, differences(fmt.Sprintf("%s[%d]", path, i), got[i], want[i])...)
		}
		return lines
	}
	if !reflect.DeepEqual(got, want) {
		lines = append(lines, fmt.Sprintf("%s: got %s, want %s", path, text(got), text(want)))
	}
	return lines
}

func text(tree any) string {
	out, err := json.Marshal(tree)
	if err != nil {
		return fmt.Sprintf("%v", tree)
	}
	return string(out)
}

// TestAsTheAPIServer compares with what a real API server has made of the same
// manifests before it asked a validating webhook: TestRecordedDefaults in test/e2e
// holds what is recorded against one. Nothing is left to do of what it has made.
func TestAsTheAPIServer(t *testing.T) {
	t.Parallel()
	for _, file := range files(t) {
		given, want := manifests(t, file), answers(t, "1.37", file)
		if len(given) != len(want) {
			t.Fatalf("%s has %d manifests and %d answers", file, len(given), len(want))
		}
		for i, object := range given {
			t.Run(title(object), func(t *testing.T) {
				t.Parallel()
				defaults.Apply(object)
				for _, line := range differences("", object, want[i]) {
					t.Error("the manifest", line)
				}
				again := parse(t, text(want[i]))
				defaults.Apply(again)
				for _, line := range differences("", again, want[i]) {
					t.Error("the answer", line)
				}
			})
		}
	}
}

// TestOlderAPIServer shows in what the versions before differ, which are filled in as the newest one does. Everything that a
// version serves is recorded of it.
func TestOlderAPIServer(t *testing.T) {
	t.Parallel()
	want := []string{
		`v1/Pod/whole .spec.resources.limits.cpu: got "4", want null`,
		`v1/Pod/raised .spec.resources.limits: got {"cpu":"3","memory":"1536Mi"}, want null`,
		`v1/Pod/raised .spec.resources.requests.memory: got "1536Mi", want null`,
		`apps/v1/StatefulSet/minimal .spec.updateStrategy.rollingUpdate.maxUnavailable: got 1, want null`,
	}
	served := map[string][]string{
		"1.35": slices.DeleteFunc(files(t), func(file string) bool { return file == "mutating" }), // v1beta1 only
		"1.36": files(t),
		"1.37": files(t),
	}
	for version, recorded := range served {
		if got := names(t, filepath.Join("testdata", "kubernetes-"+version, "*")); !slices.Equal(got, recorded) {
			t.Errorf("recorded of %s is %q, want %q", version, got, recorded)
		}
	}
	for _, version := range []string{"1.35", "1.36"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, file := range served[version] {
				given, old := manifests(t, file), answers(t, version, file)
				if len(given) != len(old) {
					t.Fatalf("%s has %d manifests and %d answers", file, len(given), len(old))
				}
				for i, object := range given {
					defaults.Apply(object)
					got = append(got, differences(title(object)+" ", object, old[i])...)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestPullPolicy tells images apart as the API server does.
func TestPullPolicy(t *testing.T) {
	t.Parallel()
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for image, want := range map[string]string{
		"app":                     "Always",
		"app:latest":              "Always",
		"a/b/c":                   "Always",
		"Registry/app":            "Always", // a registry, because no path has capitals
		"localhost/app":           "Always",
		"registry.example:5000/a": "Always",
		"[::1]:5000/a":            "Always",
		"app:latest" + digest:     "Always",
		"app:1":                   "IfNotPresent",
		"app" + digest:            "IfNotPresent",
		"registry:5000/app:1":     "IfNotPresent",
		"app:1" + digest:          "IfNotPresent",
		"":                        "IfNotPresent",
		"app:":                    "IfNotPresent",
		"app@sha256:0123":         "IfNotPresent",
	} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			object := parse(t, "{apiVersion: v1, kind: Pod, spec: {containers: [{name: a}]}}")
			container := at(object, []any{"spec", "containers", 0}).(map[string]any)
			container["image"] = image
			defaults.Apply(object)
			if got := at(object, []any{"spec", "containers", 0, "imagePullPolicy"}); got != want {
				t.Errorf("got %v, want %s", got, want)
			}
		})
	}
}

// TestApply are rules one by one: what is in a manifest, and what must then be
// in the object.
func TestApply(t *testing.T) {
	t.Parallel()
	const pod = "{apiVersion: v1, kind: Pod, spec: "
	for _, tt := range []struct {
		name, object string
		path         []any
		want         any
	}{
		{"volume without a source", pod + "{volumes: [{name: a}]}}", []any{"spec", "volumes", 0, "emptyDir"}, map[string]any{}},
		{"volume that is empty", pod + "{volumes: [{name: a, emptyDir: }]}}", []any{"spec", "volumes", 0, "emptyDir"}, map[string]any{}},
		{"volume with a source", pod + "{volumes: [{name: a, nfs: {server: a, path: b}}]}}", []any{"spec", "volumes", 0, "emptyDir"}, nil},
		{"volume in a template", "{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {volumes: [{name: a}]}}}}", []any{"spec", "template", "spec", "volumes", 0, "emptyDir"}, map[string]any{}},
		{"false is left out", pod + "{hostNetwork: false}}", []any{"spec", "hostNetwork"}, nil},
		{"false that is not the default stays", pod + "{containers: [{securityContext: {privileged: false}}]}}", []any{"spec", "containers", 0, "securityContext", "privileged"}, false},
		{"null is left out", pod + "{nodeName: }}", []any{"spec", "nodeName"}, nil},
		{"quantity", pod + "{containers: [{resources: {limits: {cpu: 1000m}}}]}}", []any{"spec", "containers", 0, "resources", "limits", "cpu"}, "1"},
		{"quantity that is a number", pod + "{containers: [{resources: {limits: {cpu: 0.5}}}]}}", []any{"spec", "containers", 0, "resources", "limits", "cpu"}, "500m"},
		{"request of a pod", pod + "{containers: [{resources: {limits: {cpu: 1}}}]}}", []any{"spec", "containers", 0, "resources", "requests", "cpu"}, "1"},
		{"no request of a template", "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{resources: {limits: {cpu: 1}}}]}}}}", []any{"spec", "template", "spec", "containers", 0, "resources", "requests"}, nil},
		{"no token in a template", "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: a}]}}}}", []any{"spec", "template", "spec", "volumes"}, nil},
		{"no service account in a template", "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {}}}}", []any{"spec", "template", "spec", "serviceAccountName"}, nil},
		{"old name of the service account", pod + "{serviceAccount: a}}", []any{"spec", "serviceAccountName"}, "a"},
		{"both names of the service account", pod + "{serviceAccount: a, serviceAccountName: b}}", []any{"spec", "serviceAccount"}, "b"},
		{"service account of a mirror pod", "{apiVersion: v1, kind: Pod, metadata: {annotations: {kubernetes.io/config.mirror: a}}}", []any{"spec", "serviceAccountName"}, nil},
		{"token for nobody", pod + "{}}", []any{"spec", "volumes"}, nil},
		{"class that is not known", pod + "{priorityClassName: mine}}", []any{"spec", "priority"}, nil},
		{"namespace that has no name yet", "{apiVersion: v1, kind: Namespace, metadata: {generateName: a-}}", []any{"metadata", "labels"}, nil},
		{"ephemeral container", pod + "{ephemeralContainers: [{name: a, image: b}]}}", []any{"spec", "ephemeralContainers", 0, "imagePullPolicy"}, "Always"},
		{"status stays", "{apiVersion: v1, kind: Pod, status: {phase: Running, unknown: 1}}", []any{"status"}, map[string]any{"phase": "Running", "unknown": int64(1)}},
		{"no status", pod + "{}}", []any{"status"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			object := parse(t, tt.object)
			defaults.Apply(object)
			if got := at(object, tt.path); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%v is %s, want %s in %s", tt.path, text(got), text(tt.want), text(object))
			}
		})
	}
}

// at is what stands there, and nil for nothing.
func at(tree any, path []any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := tree.(map[string]any)
			tree = object[step]
		case int:
			list, _ := tree.([]any)
			if step >= len(list) {
				return nil
			}
			tree = list[step]
		}
	}
	return tree
}

// TestLeftAlone are objects to which nothing is done.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		object map[string]any
	}{
		{"nil", nil},
		{"nothing", map[string]any{}},
		{"no apiVersion", map[string]any{"kind": "Pod", "spec": map[string]any{}}},
		{"kind is a number", map[string]any{"apiVersion": "v1", "kind": int64(1)}},
		{"custom resource", parse(t, "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, spec: {template: {spec: {volumes: [{name: a}]}}}}")},
		{"old version", parse(t, "{apiVersion: extensions/v1beta1, kind: Deployment, spec: {}}")},
		{"kind of another group", parse(t, "{apiVersion: apps/v1, kind: Pod, spec: {}}")},
		{"list", parse(t, "{apiVersion: v1, kind: PodList, items: [{spec: {}}]}")},
		{"spec is a list", parse(t, "{apiVersion: v1, kind: Pod, spec: [], metadata: {name: a}}")},
		{"spec is text", parse(t, "{apiVersion: apps/v1, kind: Deployment, spec: text}")},
		{"metadata is a number", parse(t, "{apiVersion: v1, kind: Pod, metadata: 5, spec: {}}")},
		{"label is a number", parse(t, "{apiVersion: v1, kind: Pod, metadata: {labels: {a: 1}}, spec: {volumes: [{name: a}]}}")},
		{"containers are an object", parse(t, "{apiVersion: v1, kind: Pod, spec: {containers: {}, volumes: [{name: a}]}}")},
		{"boolean in quotes", parse(t, "{apiVersion: v1, kind: Pod, spec: {hostNetwork: 'false'}}")},
		{"number with a fraction", parse(t, "{apiVersion: apps/v1, kind: ReplicaSet, spec: {replicas: 1.5}}")},
		{"number that is too large", parse(t, "{apiVersion: apps/v1, kind: ReplicaSet, spec: {replicas: 4294967296}}")},
		{"no quantity", parse(t, "{apiVersion: v1, kind: Pod, spec: {containers: [{resources: {limits: {cpu: much}}}]}}")},
		{"not base64", parse(t, "{apiVersion: v1, kind: Secret, data: {a: '%'}}")},
		{"no number", map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"priority": math.Inf(1)}}},
		{"no JSON", map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": func() {}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := fmt.Sprint(tt.object)
			defaults.Apply(tt.object)
			if after := fmt.Sprint(tt.object); after != before {
				t.Errorf("%s became %s", before, after)
			}
		})
	}
}

// FuzzApply finishes with every object, and has nothing left to do afterwards.
func FuzzApply(f *testing.F) {
	for _, file := range files(f) {
		for _, object := range manifests(f, file) {
			f.Add([]byte(text(object)))
		}
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[null,{"env":[null,{"valueFrom":null}],"ports":[null]}],"volumes":[null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var object map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts(data, &object) != nil {
			return
		}
		defaults.Apply(object)
		once := text(object)
		defaults.Apply(object)
		if twice := text(object); twice != once {
			t.Errorf("once  %s\ntwice %s", once, twice)
		}
	})
}
