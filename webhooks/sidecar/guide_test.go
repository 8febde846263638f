package sidecar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	examples     = "../../manifests/examples/"
	firstExample = examples + "log-shipper/"
)

// guide are the pages about sidecars. Package test/docs runs their commands and compares the files that they show.
var guide = []string{
	"inject-a-sidecar", "parameterise-a-sidecar", "share-a-mount", "order-containers", "resolve-conflicts-with-pods", "roll-out-a-sidecar-change",
	"explain-a-pod",
}

// guideText returns the text of all pages.
func guideText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, page := range guide {
		all.WriteString(read(t, "../../docs/tasks/"+page+".md"))
	}
	return all.String()
}

// TestExample runs the example of the guide, which a reader will try first.
func TestExample(t *testing.T) {
	t.Parallel()
	var namespace corev1.Namespace
	strictly(t, read(t, firstExample+"namespace.yaml"), &namespace)
	set := compileIn(t, guideNamespaces(&namespace), read(t, firstExample+"profile.yaml"))
	if warnings := set.Warnings(); len(warnings) > 0 {
		t.Errorf("warnings about the example profile: %v", warnings)
	}
	pod := toJSON(t, read(t, firstExample+"pod.yaml"))
	response := set.Decide(t.Context(), sidecar.Input{Request: request(namespace.Name, pod)}).Response()
	if !response.Allowed || len(response.Warnings) > 0 {
		t.Fatalf("got %+v", response)
	}
	patched := apply(t, pod, response.Patches)
	again := set.Decide(t.Context(), sidecar.Input{Request: request(namespace.Name, patched)}).Response()
	if !again.Allowed || again.Patches != nil {
		t.Errorf("second call: got %+v", again)
	}
	var strict corev1.Pod
	strictly(t, patched, &strict)
	out, err := yaml.JSONToYAML([]byte(patched))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "log-shipper.yaml", string(out))
}

// TestGuideFragments compiles every part of a profile that the guide shows, and compares the status annotation that it shows.
func TestGuideFragments(t *testing.T) {
	t.Parallel()
	if status := statusOf(t, toJSON(t, read(t, "testdata/log-shipper.yaml"))); !slices.Contains(guideBlocks(t, "json"), status+"\n") {
		t.Errorf("the guide does not show the annotation %s", status)
	}
	fragments := guideBlocks(t, "yaml")
	for _, block := range fragments {
		if found := lintFragment(t, block); len(found) > 0 {
			t.Errorf("the guide shows\n%s%v", block, found)
		}
	}
	const least = 5
	if len(fragments) < least {
		t.Errorf("the guide shows %d parts of profiles", len(fragments))
	}
}

// lintFragment compiles a part of a profile's spec among profiles of the names that the guide uses.
func lintFragment(t *testing.T, block string) diagnostic.List {
	t.Helper()
	const others = "spec: {template: {metadata: {labels: {%[1]s: added}}}}\nmetadata: {name: %[1]s}"
	p := profile(t, "guide.yaml", "metadata: {name: fragment}\nspec:\n"+indented(block))
	if len(p.Spec.Template.Spec.Raw) == 0 {
		p.Spec.Template.Spec.Raw = []byte(toJSON(t, "initContainers: [{name: example, image: e, restartPolicy: Always, startupProbe: {exec: {command: [ok]}}}]"))
	}
	spec := sidecar.Spec{Profiles: []sidecar.Profile{p}, ConfigMaps: objects{configMaps: map[string]map[string]string{"mesh-system/mesh-settings": {}}}}
	for _, name := range []string{"log-shipper", "secrets-agent", "mesh-proxy"} {
		spec.Profiles = append(spec.Profiles, profile(t, name, fmt.Sprintf(others, name)))
	}
	set, err := sidecar.Compile(spec)
	if err != nil {
		return diagnostic.List{{Message: err.Error()}}
	}
	return set.Warnings()
}

// TestGuidePrecedence runs every line of the guide's table of who gets a profile.
func TestGuidePrecedence(t *testing.T) {
	t.Parallel()
	words := map[string][]string{
		"`mesh` or `\"true\"`":         {"mesh", "true", "other, mesh", "-other,mesh"},
		"`-mesh` or `\"false\"`":       {"-mesh", "false", "other,-mesh"},
		"nothing, or only other names": {"", "other", "-other"},
	}
	var all []string
	for _, some := range words {
		all = append(all, some...)
	}
	words["anything"] = all
	seen := map[string]bool{}
	for _, row := range guideTable(t, "the pod says") {
		for i, injection := range []string{"OptIn", "OptOut"} {
			if len(words[row[0]]) == 0 || len(words[row[1]]) == 0 {
				t.Fatalf("the line %q cannot be read", row)
			}
			for _, ofPod := range words[row[0]] {
				for _, ofNamespace := range words[row[1]] {
					seen[injection+"/"+ofPod+"/"+ofNamespace] = true
					set := compileIn(t, guideNamespaces(guideNamespace("shop", ofNamespace)),
						"metadata: {name: mesh}\nspec: {injection: "+injection+", template: {metadata: {labels: {mesh: added}}}}",
						"metadata: {name: other}\nspec: {template: {metadata: {labels: {other: added}}}}")
					pod := `{"metadata":{"annotations":{` + guideWord(ofPod) + `}},"spec":{"containers":[{"name":"app"}]}}`
					d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(pod)))
					if got := d.Verdicts[0].Reason == sidecar.Applied; got != (row[2+i] == "yes") {
						t.Errorf("%s, the pod says %q and the namespace %q: got %v, the guide says %s", injection, ofPod, ofNamespace, got, row[2+i])
					}
				}
			}
		}
	}
	if want := 2 * len(all) * len(all); len(seen) != want {
		t.Errorf("the guide's table is about %d of %d cases", len(seen), want)
	}
}

func TestGuideReasons(t *testing.T) {
	t.Parallel()
	var got []sidecar.Reason
	for _, row := range guideTable(t, "reason") {
		got = append(got, sidecar.Reason(unquoted(row[0])))
	}
	if want := sidecar.Reasons(); !slices.Equal(got, want) {
		t.Errorf("the guide has %q, want %q", got, want)
	}
}

// TestGuideParameterTypes gives to a parameter of each type what the guide shows of it.
func TestGuideParameterTypes(t *testing.T) {
	t.Parallel()
	values := map[v1alpha1.ParameterType][]string{
		v1alpha1.StringParameter: {"any text"}, v1alpha1.EnumParameter: {"debug"}, v1alpha1.IntegerParameter: {"-3", "12"}, v1alpha1.PortParameter: {"1", "65535"},
		v1alpha1.BooleanParameter: {"true", "false"}, v1alpha1.QuantityParameter: {"100m", "64Mi"}, v1alpha1.DurationParameter: {"90s", "1h30m"},
		v1alpha1.ListParameter: {"a,b,c"},
	}
	const typeOf = `${type(dyn(params.x)) == int ? 'int' : type(dyn(params.x)) == bool ? 'bool' : type(dyn(params.x)) == list ? 'list(string)' : 'string'}`
	rows := guideTable(t, "type")
	if len(rows) != len(values) {
		t.Errorf("the guide has %d types, want %d", len(rows), len(values))
	}
	for _, row := range rows {
		kind := v1alpha1.ParameterType(unquoted(row[0]))
		for _, value := range values[kind] {
			if kind != v1alpha1.StringParameter && kind != v1alpha1.EnumParameter && !strings.Contains(row[1], "`"+value+"`") {
				t.Errorf("%s: the guide does not show %q", kind, value)
			}
			parameter := "{name: x, type: " + string(kind) + "}"
			if kind == v1alpha1.EnumParameter {
				parameter = "{name: x, type: enum, enum: [debug]}"
			}
			set := compileIn(t, objects{}, "metadata: {name: p}\nspec: {injection: OptOut, parameters: ["+parameter+`], template: {metadata: {annotations: {type: "`+typeOf+`"}}}}`)
			pod := `{"metadata":{"annotations":{"p.sidecar.gatehouse.dev/x":"` + value + `"}},"spec":{"containers":[{"name":"app"}]}}`
			response := set.Decide(t.Context(), sidecar.Input{Request: request("shop", pod)}).Response()
			if got := apply(t, pod, response.Patches); !response.Allowed || !strings.Contains(got, `"type":"`+row[2]+`"`) {
				t.Errorf("%s %q: got %s (%v), want the type %s", kind, value, got, response.Result, row[2])
			}
		}
	}
}

// TestGuidePlaceholders renders what the guide shows of placeholders.
func TestGuidePlaceholders(t *testing.T) {
	t.Parallel()
	for _, row := range guideTable(t, "written in a container | becomes") {
		written, becomes := unquoted(row[0]), unquoted(row[1])
		set, err := guidePlaceholder(t, written)
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		pod := `{"metadata":{},"spec":{"containers":[{"name":"app"}]}}`
		response := set.Decide(t.Context(), sidecar.Input{Request: request("shop", pod)}).Response()
		var patched struct {
			Spec struct{ InitContainers []map[string]any }
		}
		if err := json.Unmarshal([]byte(apply(t, pod, response.Patches)), &patched); err != nil || len(patched.Spec.InitContainers) != 1 {
			t.Fatalf("%s: %v: %+v", written, err, response)
		}
		got := patched.Spec.InitContainers[0]
		delete(got, "name")
		delete(got, "image")
		if want := decoded(t, becomes); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, the guide says %s", written, got, becomes)
		}
	}
	for _, row := range guideTable(t, "written in a container | lint says") {
		_, err := guidePlaceholder(t, unquoted(row[0]))
		if err == nil || !strings.Contains(err.Error(), unquoted(row[1])) {
			t.Errorf("%s: got %v, the guide says %s", row[0], err, row[1])
		}
	}
}

// guidePlaceholder compiles a part of a container, with the parameters that the guide shows.
func guidePlaceholder(t *testing.T, written string) (*sidecar.Set, error) {
	t.Helper()
	var parameters string
	for _, block := range guideBlocks(t, "yaml") {
		if strings.HasPrefix(block, "parameters:\n") {
			parameters = block
		}
	}
	p := profile(t, "guide.yaml", "metadata: {name: p}\nspec:\n  injection: OptOut\n"+indented(parameters))
	container, err := json.Marshal(decoded(t, written))
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Template.Spec.Raw = []byte(`{"initContainers":[{"name":"c","image":"i",` + string(container[1:]) + `]}`)
	return sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{p}})
}

// TestGuideMessages makes each message of the guide appear.
func TestGuideMessages(t *testing.T) {
	t.Parallel()
	set := compileIn(t, guideNamespaces(
		guideNamespace("shop", ""), guideNamespace("quiet", ""), guideNamespace("strict", "", "pod-security.kubernetes.io/enforce", "restricted"),
	), `
metadata: {name: mesh}
spec:
  match: {namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [shop, strict]}]}}
  injection: OptOut
  distinctUsers: [mesh]
  parameters: [{name: memory, type: quantity, default: 64Mi}]
  template:
    metadata: {labels: {mode: sidecar}, annotations: {app: "${pod.metadata.labels['app']}"}}
    spec:
      initContainers:
      - name: mesh
        image: mesh
        restartPolicy: Always
        ports: [{containerPort: 15001}]
        startupProbe: {tcpSocket: {port: 15001}}
        securityContext: {runAsUser: 1337}
        volumeMounts: [{name: mesh-run, mountPath: /run/mesh}]
      volumes: [{name: mesh-run, emptyDir: {}}]
`, `
metadata: {name: agent}
spec:
  match: {objectSelector: {matchLabels: {agent: wanted}}}
  injection: OptOut
  template: {spec: {containers: [{name: agent, image: agent}]}}
`)
	review := func(namespace, metadata, spec string) admission.Response {
		return set.Decide(t.Context(), sidecar.Input{Request: request(namespace, guidePod(t, metadata, spec))}).Response()
	}
	const one = "containers: [{name: app}]"
	responses := []admission.Response{
		review("shop", `annotations: {sidecar.gatehouse.dev/inject: "yes"}`, one),
		review("quiet", `annotations: {sidecar.gatehouse.dev/inject: mesh}`, one),
		review("quiet", `annotations: {sidecar.gatehouse.dev/inject: "true"}`, one),
		review("shop", `annotations: {mesh.sidecar.gatehouse.dev/memory: lots}`, one),
		review("shop", `annotations: {mesh.sidecar.gatehouse.dev/memroy: 1Mi}`, one),
		review("shop", `annotations: {mesch.sidecar.gatehouse.dev/memory: 1Mi}`, one),
		review("shop", "", "containers: [{name: app, ports: [{containerPort: 15001}]}]"),
		review("shop", "", "containers: [{name: mesh}]"),
		review("shop", "", one+"\nvolumes: [{name: mesh-run, hostPath: {path: /}}]"),
		review("shop", "labels: {app: a, mode: 'off'}", one),
		review("shop", "", "containers: [{name: app, securityContext: {runAsUser: 1337}}]"),
		review("shop", "labels: {}", one),
		review("strict", "", "securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}\ncontainers: [{name: app, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]"),
		review("shop", "labels: {app: a, agent: wanted}", one+"\nrestartPolicy: Never"),
	}
	pod := guidePod(t, "", one)
	patched := apply(t, pod, set.Decide(t.Context(), sidecar.Input{Request: request("shop", pod)}).Response().Patches)
	for _, edit := range [][2]string{{`"restartPolicy":"Always",`, ""}, {`\"revision\":\"`, `\"revision\":\"0`}} {
		edited := strings.Replace(patched, edit[0], edit[1], 1)
		if edited == patched {
			t.Fatalf("there is no %s in %s", edit[0], patched)
		}
		responses = append(responses, set.Decide(t.Context(), sidecar.Input{Request: request("shop", edited)}).Response())
	}
	var said []string
	for _, response := range responses {
		said = append(said, response.Warnings...)
		if response.Result != nil {
			said = append(said, response.Result.Message)
		}
	}
	rows := guideTable(t, "message")
	for _, row := range rows {
		if !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, unquoted(row[0])) }) {
			t.Errorf("the message %s was not said, but\n%s", row[0], strings.Join(said, "\n"))
		}
	}
	if len(rows) != len(responses) {
		t.Errorf("the guide has %d messages, want %d", len(rows), len(responses))
	}
}

// guidePod returns the text of a pod with these metadata and spec, and a label app if there are no other labels.
func guidePod(t *testing.T, metadata, spec string) string {
	t.Helper()
	m := map[string]any{}
	if metadata != "" {
		m = decoded(t, metadata)
	}
	if m["labels"] == nil {
		m["labels"] = map[string]any{"app": "a"}
	}
	text, err := json.Marshal(map[string]any{"metadata": m, "spec": decoded(t, spec)})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// guideBlocks returns the blocks of the guide in a language.
func guideBlocks(t *testing.T, language string) []string {
	t.Helper()
	var blocks []string
	for _, rest := range strings.Split(guideText(t), "\n```"+language+"\n")[1:] {
		block, _, ended := strings.Cut(rest, "\n```\n")
		if !ended {
			t.Fatalf("a block does not end: %s", rest)
		}
		blocks = append(blocks, block+"\n")
	}
	if len(blocks) == 0 {
		t.Fatalf("the guide has no block in %s", language)
	}
	return blocks
}

// guideTable returns the cells of all tables of the guide whose head begins like this.
func guideTable(t *testing.T, head string) [][]string {
	t.Helper()
	var rows [][]string
	in := false
	for line := range strings.Lines(guideText(t)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "| "+head):
			in = true
		case !strings.HasPrefix(line, "|"):
			in = false
		case in && !strings.HasPrefix(line, "|---"):
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	if len(rows) == 0 {
		t.Fatalf("the guide has no table of %q", head)
	}
	return rows
}

func unquoted(cell string) string { return strings.Trim(cell, "`") }

func indented(block string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n  ") + "\n"
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func strictly(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func guideNamespaces(all ...*corev1.Namespace) objects {
	o := objects{namespaces: map[string]*corev1.Namespace{}}
	for _, ns := range all {
		o.namespaces[ns.Name] = ns
	}
	return o
}

// guideNamespace returns a namespace with a word, if it is not empty, and labels.
func guideNamespace(name, word string, labels ...string) *corev1.Namespace {
	namespace := new(corev1.Namespace)
	namespace.Name, namespace.Labels = name, map[string]string{}
	if word != "" {
		namespace.Annotations = map[string]string{v1alpha1.InjectAnnotation: word}
	}
	for pair := range slices.Chunk(labels, 2) {
		namespace.Labels[pair[0]] = pair[1]
	}
	return namespace
}

// guideWord returns the member of a pod's annotations for its word, if it is not empty.
func guideWord(word string) string {
	if word == "" {
		return ""
	}
	return `"` + v1alpha1.InjectAnnotation + `":"` + word + `"`
}

// golden compares text with a file in testdata. UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := read(t, path); !bytes.Equal([]byte(want), []byte(text)) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, text, want)
	}
}

// TestNoStaleGoldens fails on files that no test compares with.
func TestNoStaleGoldens(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"decisions", "log-shipper.yaml", "findings.txt", "status.yaml", "explained.txt", "lint.txt", "fuzz"}
	for _, entry := range entries {
		if !slices.Contains(known, entry.Name()) {
			t.Errorf("testdata/%s belongs to no test", entry.Name())
		}
	}
}
