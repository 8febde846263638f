package workload_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

func rollout() workload.Kind {
	return workload.Kind{Group: "argoproj.io", Kind: "Rollout", Resource: "rollouts", Template: []string{"spec", "template"}}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	kinds, err := workload.New([]workload.Kind{rollout(), {Group: "example.com", Kind: "Pod", Template: []string{"template"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		group, kind string
		want        string
	}{
		{"", "PodTemplate", "template"},
		{"apps", "Deployment", "spec.template"},
		{"batch", "CronJob", "spec.jobTemplate.spec.template"},
		{"argoproj.io", "Rollout", "spec.template"},
		{"example.com", "Pod", "template"},
		{"", "Pod", ""},
		{"", "Deployment", ""},
		{"apps", "Job", ""},
		{"extensions", "StatefulSet", ""},
		{"apps", "deployment", ""},
		{"", "", ""},
	} {
		t.Run(tt.group+"/"+tt.kind, func(t *testing.T) {
			t.Parallel()
			path, ok := kinds.Template(tt.group, tt.kind)
			if got := strings.Join(path, "."); got != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", got, ok, tt.want)
			}
		})
	}
}

// TestAll has every kind once, in order, with the resource that registrations
// name. What the caller does with it changes nothing.
func TestAll(t *testing.T) {
	t.Parallel()
	kinds, err := workload.New([]workload.Kind{rollout(), {Group: "a.example.com", Kind: "Set", Template: []string{"template"}}})
	if err != nil {
		t.Fatal(err)
	}
	show := func() string {
		var lines []string
		for _, k := range kinds.All() {
			lines = append(lines, fmt.Sprintf("%s/%s %s %s", k.Group, k.Kind, k.Resource, strings.Join(k.Template, ".")))
		}
		return strings.Join(lines, "\n")
	}
	const want = `/PodTemplate podtemplates template
/ReplicationController replicationcontrollers spec.template
a.example.com/Set  template
apps/DaemonSet daemonsets spec.template
apps/Deployment deployments spec.template
apps/ReplicaSet replicasets spec.template
apps/StatefulSet statefulsets spec.template
argoproj.io/Rollout rollouts spec.template
batch/CronJob cronjobs spec.jobTemplate.spec.template
batch/Job jobs spec.template
extensions/DaemonSet daemonsets spec.template
extensions/Deployment deployments spec.template
extensions/ReplicaSet replicasets spec.template`
	if got := show(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	clear(kinds.All())
	if got := show(); got != want {
		t.Errorf("after a caller's change:\n%s", got)
	}
}

func TestFromAPI(t *testing.T) {
	t.Parallel()
	got := workload.FromAPI([]v1alpha1.WorkloadKind{
		{Group: "argoproj.io", Kind: "Rollout", Resource: "rollouts", Template: "spec.template"},
		{},
	})
	if len(got) != 2 || fmt.Sprint(got[0]) != fmt.Sprint(rollout()) {
		t.Errorf("got %v", got)
	}
	if _, err := workload.New(got); err == nil {
		t.Error("an empty kind is right")
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	with := func(change func(*workload.Kind)) []workload.Kind {
		k := rollout()
		change(&k)
		return []workload.Kind{k}
	}
	for _, tt := range []struct {
		name   string
		custom []workload.Kind
		want   string
	}{
		{"resource for a kind", with(func(k *workload.Kind) { k.Kind = "rollouts" }), `workloads[0].kind: "rollouts" does not begin with a capital letter: write the kind as manifests do, such as Rollout`},
		{"no group", with(func(k *workload.Kind) { k.Group = "" }), `workloads[0].group: "" is not an API group without a version, such as argoproj.io`},
		{"version", with(func(k *workload.Kind) { k.Group += "/v1" }), `workloads[0].group: "argoproj.io/v1" is not an API group without a version, such as argoproj.io`},
		{"subresource", with(func(k *workload.Kind) { k.Resource = "rollouts/scale" }), `workloads[0].resource: "rollouts/scale" is not a resource: write the plural of the kind in lower case, such as rollouts`},
		{"no path", with(func(k *workload.Kind) { k.Template = nil }), `workloads[0].template: "" is not the path of a pod template: write field names separated by dots, without lists`},
		{"list", with(func(k *workload.Kind) { k.Template = []string{"spec", "x[0]"} }), `workloads[0].template: "spec.x[0]" is not the path of a pod template: write field names separated by dots, without lists`},
		{"two steps in one", with(func(k *workload.Kind) { k.Template = []string{"spec.template"} }), `workloads[0].template: "spec.template" is not the path of a pod template: write field names separated by dots, without lists`},
		{"spec", with(func(k *workload.Kind) { k.Template = append(k.Template, "spec") }), `workloads[0].template: "spec.template.spec" ends in spec: it must name the whole pod template, with its metadata`},
		{"built in", with(func(k *workload.Kind) { k.Group, k.Kind = "apps", "Deployment" }), `workloads[0]: Deployment.apps is built in`},
		{"resource built in", with(func(k *workload.Kind) { k.Group, k.Resource = "batch", "jobs" }), `workloads[0].resource: jobs.batch is built in`},
		{"twice", []workload.Kind{rollout(), rollout()}, `workloads[1]: Rollout.argoproj.io is given twice`},
		{"resource twice", append(with(func(k *workload.Kind) { k.Kind = "Other" }), rollout()), `workloads[1].resource: rollouts.argoproj.io is given twice`},
		{"long", with(func(k *workload.Kind) { k.Kind = strings.Repeat("long", 1000) }), `workloads[0].kind: "` + strings.Repeat("long", 25) + `…" does not begin with a capital letter: write the kind as manifests do, such as Rollout`},
		{"several", []workload.Kind{rollout(), {}}, `workloads[1].kind: "" does not begin with a capital letter: write the kind as manifests do, such as Rollout
workloads[1].group: "" is not an API group without a version, such as argoproj.io
workloads[1].template: "" is not the path of a pod template: write field names separated by dots, without lists`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, e := range workload.Check(tt.custom) {
				got = append(got, e.Field+": "+e.Detail)
			}
			if kinds, err := workload.New(tt.custom); err == nil || kinds != nil || strings.Join(got, "\n") != tt.want {
				t.Errorf("got  %s, %v\nwant %s", strings.Join(got, "\n"), err, tt.want)
			}
		})
	}
}

// TestWithoutResource is right for any number of kinds.
func TestWithoutResource(t *testing.T) {
	t.Parallel()
	custom := []workload.Kind{rollout(), rollout()}
	custom[0].Resource, custom[1].Resource, custom[1].Kind = "", "", "Other"
	if _, err := workload.New(custom); err != nil {
		t.Error(err)
	}
}

func TestAppendPod(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, template  string
		namespace, from string
		want            string
	}{
		{
			"plain", `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["e/f"]},"spec":{"containers":[]}}`, "shop", "checkout",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"checkout-","labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["e/f"]},"spec":{"containers":[]}}`,
		},
		{
			"byte for byte", "{ \"spec\" :{\"a\" : 1.50e0 ,\n\"b\":\"\\u0041\"} , \"m\\u0065tadata\": {\"l\\u0061bels\" : { \"x\":\"y\" } } }", "shop", "a",
			"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"namespace\":\"shop\",\"generateName\":\"a-\",\"l\\u0061bels\":{ \"x\":\"y\" }},\"spec\":{\"a\" : 1.50e0 ,\n\"b\":\"\\u0041\"}}",
		},
		{
			"what controllers leave out", `{"apiVersion":"v2","kind":"X","status":{},"metadata":{"name":"a","generateName":"b","namespace":"c","uid":"d","creationTimestamp":null,"ownerReferences":[],"labels":null},"spec":{}}`, "shop", "a",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-","labels":null},"spec":{}}`,
		},
		{"no metadata", `{"spec":{}}`, "shop", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-"},"spec":{}}`},
		{"metadata is null", `{"metadata":null,"spec":{}}`, "shop", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-"},"spec":{}}`},
		{"metadata is text", `{"metadata":"labels","spec":{}}`, "shop", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-"},"spec":{}}`},
		{"no spec", `{"metadata":{"labels":{}}}`, "shop", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-","labels":{}}}`},
		{"spec is null", `{"spec":null}`, "shop", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-"},"spec":null}`},
		{"nothing", `{}`, "", "", `{"apiVersion":"v1","kind":"Pod","metadata":{}}`},
		{"no name", `{"metadata":{"labels":{}}}`, "shop", "", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","labels":{}}}`},
		{"no namespace", `{"metadata":{"labels":{}}}`, "", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"a-","labels":{}}}`},
		{"labels alone", `{"metadata":{"labels":{}}}`, "", "", `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{}}}`},
		{"an array", `[{"spec":{}}]`, "shop", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-"}}`},
		{"a null", `null`, "shop", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-"}}`},
		{"absent", ``, "shop", "a", `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","generateName":"a-"}}`},
		{"hostile names", `{}`, "\"}\n", `\`, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"\"}\n","generateName":"\\-"}}`},
		{"the first of two", `{"spec":1,"metadata":{"labels":{}},"spec":2,"metadata":{}}`, "", "", `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{}},"spec":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var template rawjson.Value
			if tt.template != "" {
				var err error
				if template, err = rawjson.Parse([]byte(tt.template)); err != nil {
					t.Fatal(err)
				}
			}
			got := workload.AppendPod([]byte("before"), template, tt.namespace, tt.from)
			if string(got) != "before"+tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if _, err := rawjson.Parse(got[len("before"):]); err != nil {
				t.Error(err)
			}
		})
	}
}

// FuzzAppendPod makes JSON of every template, with its spec as it is.
func FuzzAppendPod(f *testing.F) {
	f.Add(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[]}}`, "shop", "checkout")
	f.Add(`{"metadata":[],"spec":"\u0000"}`, "", "\x00\xff")
	f.Add(`[]`, "\"", "")
	f.Fuzz(func(t *testing.T, text, namespace, name string) {
		template, err := rawjson.Parse([]byte(text))
		if err != nil {
			return
		}
		pod, err := rawjson.Parse(workload.AppendPod(nil, template, namespace, name))
		if err != nil && len(text) < rawjson.MaxDepth { // one level more may be one too many
			t.Fatal(err)
		}
		if err == nil && string(pod.Get("spec")) != string(template.Get("spec")) {
			t.Errorf("spec %s became %s", template.Get("spec"), pod.Get("spec"))
		}
	})
}
