package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// TestObjects finds the pod of every kind that has one, where the kind has it.
func TestObjects(t *testing.T) {
	t.Parallel()
	const spec = "{metadata: {labels: {a: b}, namespace: elsewhere}, spec: {containers: [{name: app}]}}"
	for _, tt := range []struct {
		name, text                string
		title, template, workload string
		noPod                     string
		ofKind                    bool
		looksLike                 bool
	}{
		{name: "pod", text: "{apiVersion: v1, kind: Pod, metadata: {name: app}, spec: {containers: []}}", title: "Pod/app", ofKind: true},
		{name: "generated name", text: "{apiVersion: v1, kind: Pod, metadata: {generateName: app-}, spec: {}}", title: "Pod/app-", ofKind: true},
		{name: "deployment", text: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: app}, spec: {template: " + spec + "}}", title: "Deployment/app", template: "spec.template", workload: "Deployment/app", ofKind: true},
		{name: "old deployment", text: "{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: app}, spec: {template: " + spec + "}}", title: "Deployment/app", template: "spec.template", workload: "Deployment/app", ofKind: true},
		{name: "stateful set", text: "{apiVersion: apps/v1beta2, kind: StatefulSet, spec: {template: " + spec + "}}", title: "StatefulSet", template: "spec.template", workload: "StatefulSet/", ofKind: true},
		{name: "daemon set", text: "{apiVersion: apps/v1, kind: DaemonSet, spec: {template: " + spec + "}}", title: "DaemonSet", template: "spec.template", workload: "DaemonSet/", ofKind: true},
		{name: "replica set", text: "{apiVersion: apps/v1, kind: ReplicaSet, spec: {template: " + spec + "}}", title: "ReplicaSet", template: "spec.template", workload: "ReplicaSet/", ofKind: true},
		{name: "replication controller", text: "{apiVersion: v1, kind: ReplicationController, spec: {template: " + spec + "}}", title: "ReplicationController", template: "spec.template", workload: "ReplicationController/", ofKind: true},
		{name: "job", text: "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: " + spec + "}}", title: "Job/j", template: "spec.template", workload: "Job/j", ofKind: true},
		{name: "cron job", text: "{apiVersion: batch/v1, kind: CronJob, metadata: {name: j}, spec: {jobTemplate: {metadata: {labels: {no: pod}}, spec: {template: " + spec + "}}}}", title: "CronJob/j", template: "spec.jobTemplate.spec.template", workload: "CronJob/j", ofKind: true},
		{name: "pod template", text: "{apiVersion: v1, kind: PodTemplate, metadata: {name: p}, template: " + spec + "}", title: "PodTemplate/p", template: "template", workload: "PodTemplate/p", ofKind: true},
		{name: "custom", text: "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: r}, spec: {template: " + spec + "}}", title: "Rollout/r", template: "spec.template", workload: "Rollout/r", ofKind: true},
		{name: "custom that is not known", text: "{apiVersion: example.com/v1, kind: Rollout, spec: {template: " + spec + "}}", title: "Rollout", noPod: "its kind has no pod", looksLike: true},
		{name: "other group", text: "{apiVersion: example.com/v1, kind: Pod, spec: {}}", title: "Pod", noPod: "its kind has no pod"},
		{name: "service", text: "{apiVersion: v1, kind: Service, metadata: {name: s}}", title: "Service/s", noPod: "its kind has no pod"},
		{name: "no template", text: "{apiVersion: apps/v1, kind: Deployment, spec: {}}", title: "Deployment", template: "spec.template", workload: "Deployment/", noPod: "spec.template is absent", ofKind: true},
		{name: "null template", text: "{apiVersion: apps/v1, kind: Deployment, spec: {template: }}", title: "Deployment", template: "spec.template", workload: "Deployment/", noPod: "spec.template is null", ofKind: true},
		{name: "no spec", text: "{apiVersion: apps/v1, kind: Deployment, spec: {template: {}}}", title: "Deployment", template: "spec.template", workload: "Deployment/", noPod: "spec.template.spec is absent", ofKind: true},
		{name: "pod without spec", text: "{apiVersion: v1, kind: Pod, spec: []}", title: "Pod", noPod: "spec is an array", ofKind: true},
		{name: "metadata is text", text: "{apiVersion: v1, kind: Pod, metadata: x, spec: {}}", title: "Pod", noPod: "metadata is a string and no object", ofKind: true},
		{name: "hostile name", text: "{apiVersion: v1, kind: Pod, metadata: {name: \"a\\e[31m\"}, spec: {}}", title: `"Pod/a\x1b[31m"`, ofKind: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			objects := parse(t, []byte(tt.text)).Objects
			if len(objects) != 1 {
				t.Fatalf("found %d objects, want 1", len(objects))
			}
			o := objects[0]
			got := fmt.Sprint(o.Title(), "|", o.Template, "|", o.Workload, "|", o.NoPod, "|", o.OfKind, "|", o.LooksLikeWorkload)
			want := fmt.Sprint(tt.title, "|", tt.template, "|", tt.workload, "|", tt.noPod, "|", tt.ofKind, "|", tt.looksLike)
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			pod := o.Pod("shop")
			if (pod == nil) != (tt.noPod != "") {
				t.Fatalf("pod is %s", pod)
			}
			if pod == nil {
				if o.Apply([]jsonpatch.Operation{operation("add", "/spec/a", "1")}) == nil {
					t.Error("an object without a pod was changed")
				}
				return
			}
			v, err := rawjson.Parse(pod)
			if err != nil {
				t.Fatal(err)
			}
			if !v.Get("kind").Is("Pod") || !v.Get("apiVersion").Is("v1") || !v.Get("metadata", "namespace").Is("shop") || v.Get("metadata").Get("namespace").Kind() != rawjson.String {
				t.Errorf("pod is %s", pod)
			}
			if _, twice := v.Get("metadata").DuplicateKey(); twice {
				t.Errorf("pod is %s", pod)
			}
			if tt.template != "" && !v.Get("metadata", "labels", "a").Is("b") {
				t.Errorf("pod is %s", pod)
			}
		})
	}
}

// TestItems finds objects in lists, and says where they are.
func TestItems(t *testing.T) {
	t.Parallel()
	f := parse(t, []byte(`# only this
---
apiVersion: v1
kind: PodList
items: # without a version of their own
- spec: {}
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: a}
  spec: {}
- apiVersion: v1
  kind: List
  items:
  - 5
  - {apiVersion: apps/v1, kind: Deployment, metadata: {name: b, namespace: shop}, spec: {template: {spec: {}}}}
---
kind: NotAList
items: text
---
[1, 2]
---
null
---
a: {kind: Pod}
---
kind: Pod
spec: {}
`))
	var got []string
	for _, o := range f.Objects {
		what := fmt.Sprintf("%s %d %s %s %s", o.Source, o.Document, o.Item, o.Title(), o.Field("spec.x"))
		if o.Odd {
			what = fmt.Sprintf("%s %s %s: %s", o.Source, o.Item, o.Title(), o.NoPod)
		}
		got = append(got, what)
	}
	want := []string{
		"app.yaml#1 1 items[0] Pod items[0].spec.x",
		"app.yaml#2 2 items[0] Pod/a items[0].spec.x",
		"app.yaml#2 items[1].items[0] : not a Kubernetes object: it is a number",
		"app.yaml#2 2 items[1].items[1] Deployment/b items[1].items[1].spec.template.spec.x",
		"app.yaml#3  NotAList: not a Kubernetes object: apiVersion is missing",
		"app.yaml#4  : not a Kubernetes object: it is an array",
		"app.yaml#6  : not a Kubernetes object: apiVersion and kind are missing",
		"app.yaml#7  Pod: not a Kubernetes object: apiVersion is missing",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestMisplaced warns about what is meant for a pod and has no effect where it
// is.
func TestMisplaced(t *testing.T) {
	t.Parallel()
	const metadata = "metadata: {annotations: {meant: a, other: b}, labels: {meant: c, other: d}}"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"pod", "{apiVersion: v1, kind: Pod, " + metadata + ", spec: {}}", nil},
		{"deployment", "{apiVersion: apps/v1, kind: Deployment, " + metadata + ", spec: {template: {" + metadata + ", spec: {}}}}", []string{
			"metadata.annotations[meant] has no effect on a Deployment (hint: move it to spec.template.metadata.annotations)",
			"metadata.labels[meant] has no effect on a Deployment (hint: move it to spec.template.metadata.annotations)",
		}},
		{"cron job", "{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {" + metadata + ", spec: {template: {spec: {}}}}}}", []string{
			"spec.jobTemplate.metadata.annotations[meant] has no effect on a CronJob (hint: move it to spec.jobTemplate.spec.template.metadata.annotations)",
			"spec.jobTemplate.metadata.labels[meant] has no effect on a CronJob (hint: move it to spec.jobTemplate.spec.template.metadata.annotations)",
		}},
		{"no pod", "{apiVersion: v1, kind: Service, " + metadata + "}", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range parse(t, []byte(tt.text)).Objects[0].Misplaced(func(name string) bool { return name == "meant" }) {
				f.Source, f.Object = "", ""
				got = append(got, f.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// TestNotStrings has labels and annotations that the API server would not take.
func TestNotStrings(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: apps/v1
kind: Deployment
metadata: {name: a, labels: {not: 1}}
spec:
  template:
    metadata:
      annotations: {a.b/c: 2021, nothing: , ok: "1"}
      labels: {d: yes}
    spec: {}
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: b, labels: {x: {}}, annotations: [y]}
  spec: {}
---
apiVersion: v1
kind: Namespace
metadata: {name: c, labels: {e: 1.5}}
---
apiVersion: v1
kind: Service
metadata: {name: c, labels: {not: 1}}
`
	const want = `app.yaml#1: Deployment/a: spec.template.metadata.annotations[a.b/c]: the value is a number, expected a string (hint: put it in quotes)
app.yaml#1: Deployment/a: spec.template.metadata.labels.d: "true" is a boolean, expected a string (hint: put it in quotes: YAML reads yes, no, on, off, y and n as booleans)
app.yaml#2: Pod/b: items[0].metadata.annotations: is a list, expected a mapping
app.yaml#2: Pod/b: items[0].metadata.labels.x: is a mapping, expected a string
app.yaml#3: Namespace/c: metadata.labels.e: "1.5" is a number, expected a string (hint: put it in quotes)`
	var found diagnostic.List
	for _, o := range parse(t, []byte(text)).Objects {
		found = append(found, o.Errors()...)
	}
	if got := found.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestUnreadable are texts that kubectl would not read either, or in which a
// change would be a guess.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	const pod = "apiVersion: v1\nkind: Pod\nspec: {}\n"
	for _, tt := range []struct{ name, text, want string }{
		{"tab", pod + "---\na: b\n\tc: d\n", "app.yaml#2: near line 6: found a tab character that violates indentation (hint: put text that begins with @, ` or % in quotes, and indent with spaces, never with tabs)"},
		{"several", "a: [\n---\n" + pod + "---\n}\n", "app.yaml#1: near line 1: did not find expected node content (hint: check the brackets, and put text that begins with [ or { in quotes)\napp.yaml#3: near line 7: did not find expected node content (hint: check the brackets, and put text that begins with [ or { in quotes)"},
		{"template", pod + "---\n{{- if .Values.x }}\na: b\n{{- end }}\n", "app.yaml#2: near line 5: did not find expected node content (hint: this looks like a template: give what it renders to)"},
		{"template in a value", "b: c\na: {{ .Values.x }}\n", `app.yaml: near line 2: an object or a list cannot be a key (hint: this looks like a template: give what it renders to)`},
		{"JSON", "{\n  \"a\": 1\n  \"b\": 2\n}\n", "app.yaml: line 3: invalid character '\"' after object key:value pair"},
		{"twice", "# x\n---\n" + pod + "spec:\n  a: b\n", `app.yaml: line 6: the key "spec" is given twice (hint: remove one of the two)`},
		{"twice in JSON", "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\":\n {\"a\": 1, \"a\": 2}}", `app.yaml: line 2: the key "a" is given twice (hint: remove one of the two)`},
		{"not UTF-8", pod + "# \xff\n", "app.yaml: line 4: the text is not UTF-8 (hint: save it as UTF-8)"},
		{"UTF-16", "\xff\xfea\x00", "app.yaml: the text is UTF-16 (hint: save it as UTF-8)"},
		{"alias of nothing", "a: *b\n", "app.yaml: near line 1: unknown anchor 'b' referenced"},
		{"text behind the end", "{a: b}\nc: d\n", "app.yaml: near line 1: there is more text behind the end of the document"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := tryParse("app.yaml", []byte(tt.text), workloads(t))
			var list diagnostic.List
			if !errors.As(err, &list) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestRead: what cannot be read is told in its place, and hides nothing.
func TestRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"one of several": {
			"kind: ConfigMap\napiVersion: v1\n---\na: b\n\tc: d\n---\nkind: Secret\napiVersion: v1\n",
			[]string{"a.yaml#1, line 1: ConfigMap", "a.yaml#2, line 5: near line 5: found a tab character that violates indentation", "a.yaml#3, line 7: Secret"},
		},
		"a key twice where there is a pod": {
			"kind: Pod\napiVersion: v1\nkind: Pod\n", []string{`a.yaml, line 3: line 3: the key "kind" is given twice`},
		},
		"JSON, one after the other": {
			"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"}\n---\n{\"kind\" 1}\n", []string{"a.yaml#1, line 1: ConfigMap", "a.yaml#2, line 3: line 3: invalid character '1' after object key"},
		},
		"nothing": {"# nothing\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			unreadable := false
			for _, o := range Read("a.yaml", []byte(c.text), workloads(t)).Objects {
				what := o.Title()
				if o.Unreadable != nil {
					unreadable, what = true, o.Unreadable.Message
					if !o.Odd || o.JSON() != nil || o.Pod("default") != nil || o.Unreadable.Source != o.Source {
						t.Errorf("%s is known to be more than it is", o.Source)
					}
				}
				got = append(got, fmt.Sprintf("%s, line %d: %s", o.Source, o.Line(), what))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%q\nwant\n%q", got, c.want)
			}
			if _, err := tryParse("a.yaml", []byte(c.text), workloads(t)); (err != nil) != unreadable {
				t.Errorf("Parse says: %v", err)
			}
		})
	}
}
