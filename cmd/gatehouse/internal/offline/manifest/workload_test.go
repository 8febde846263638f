package manifest

import (
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// TestNewWorkloads has kinds of the command line, and those of a PolicyConfiguration beside them.
func TestNewWorkloads(t *testing.T) {
	t.Parallel()
	configured := workload.Kind{Group: "example.com", Kind: "Set", Resource: "sets", Template: []string{"spec", "pod"}}
	for _, tt := range []struct {
		name       string
		custom     []string
		configured []workload.Kind
		want       string
	}{
		{"configured", nil, []workload.Kind{configured}, ""},
		{"both", []string{"Set.example.com=spec.pod"}, []workload.Kind{configured}, ""},
		{"another beside it", []string{"Rollout.argoproj.io=spec.template"}, []workload.Kind{configured}, ""},
		{"another path", []string{"Set.example.com=spec.template"}, []workload.Kind{configured}, `workloads[1]: Set.example.com is given twice`},
		{"wrong", []string{"Rollout.argoproj.io", "a.b=c", "Set.example.com=spec.pod", "Deployment.apps=a"}, []workload.Kind{configured, {Kind: "b"}, configured}, `"Rollout.argoproj.io": must be KIND.GROUP=PATH (hint: as in Rollout.argoproj.io=spec.template)
"a.b=c": "a" does not begin with a capital letter (hint: a kind as manifests write it, such as Rollout, and not a resource)
"Deployment.apps=a": Deployment.apps is built in (hint: as in Rollout.argoproj.io=spec.template)
workloads[1].kind: "b" does not begin with a capital letter (hint: a kind as manifests write it, such as Rollout, and not a resource)
workloads[1].group: the API group of kind "b" is required (hint: such as argoproj.io)
workloads[1].template: "" is not the path of a pod template: write field names separated by dots, without lists
workloads[2]: Set.example.com is given twice`},
		{"right", []string{"Rollout.argoproj.io=spec.template", "CloneSet.apps.kruise.io=spec.template", "Set.example.com=spec.pod"}, nil, ""},
		{"resource", []string{"rollouts.argoproj.io=spec.template"}, nil, `"rollouts.argoproj.io=spec.template": "rollouts" does not begin with a capital letter (hint: a kind as manifests write it, such as Rollout, and not a resource)`},
		{"no path", []string{"Rollout.argoproj.io"}, nil, `"Rollout.argoproj.io": must be KIND.GROUP=PATH (hint: as in Rollout.argoproj.io=spec.template)`},
		{"empty path", []string{"Rollout.argoproj.io="}, nil, `"Rollout.argoproj.io=": "" is not the path of a pod template: write field names separated by dots, without lists (hint: as in Rollout.argoproj.io=spec.template)`},
		{"list", []string{"Rollout.argoproj.io=spec.x[0].template"}, nil, `"Rollout.argoproj.io=spec.x[0].template": "spec.x[0].template" is not the path of a pod template: write field names separated by dots, without lists (hint: as in Rollout.argoproj.io=spec.template)`},
		{"no group", []string{"Rollout=spec.template"}, nil, `"Rollout=spec.template": the API group of kind "Rollout" is required (hint: such as argoproj.io)`},
		{"version", []string{"Rollout.argoproj.io/v1=spec.template"}, nil, `"Rollout.argoproj.io/v1=spec.template": the API group "argoproj.io/v1" must be without a version (hint: such as argoproj.io)`},
		{"bad group", []string{"Rollout.Argo_=spec.template"}, nil, `"Rollout.Argo_=spec.template": "Argo_" is not an API group (hint: such as argoproj.io)`},
		{"spec", []string{"Rollout.argoproj.io=spec.template.spec"}, nil, `"Rollout.argoproj.io=spec.template.spec": the path "spec.template.spec" ends in spec: it must name the whole pod template, with its metadata (hint: "spec.template")`},
		{"built in and twice", []string{"Deployment.apps=spec.template", "A.b=c", "A.b=d"}, nil, "\"Deployment.apps=spec.template\": Deployment.apps is built in (hint: as in Rollout.argoproj.io=spec.template)\nworkloads[1]: A.b is given twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, err := NewWorkloads(tt.custom, tt.configured...)
			if tt.want != "" {
				if fmt.Sprint(err) != tt.want {
					t.Errorf("got  %v\nwant %s", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			f, err := tryParse("app.yaml", []byte("{apiVersion: example.com/v1, kind: Set, metadata: {name: a}, spec: {pod: {spec: {}}}}"), w)
			if err != nil {
				t.Fatal(err)
			}
			if o := f.Objects[0]; o.Template != "spec.pod" || o.NoPod != "" {
				t.Errorf("template is at %q, no pod because %q", o.Template, o.NoPod)
			}
		})
	}
}
