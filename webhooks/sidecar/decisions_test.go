package sidecar_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// decisionCase is a pod in the namespace shop and what becomes of it. Profiles and a pod that
// are left out are those of the case before.
type decisionCase struct {
	Name string `json:"name"`
	// Profiles are specs by the name of the profile. One that does not say is OptOut.
	Profiles map[string]json.RawMessage `json:"profiles"`
	// Namespace is the metadata of the namespace, which is not known if Unknown is true.
	Namespace json.RawMessage `json:"namespace"`
	Unknown   bool            `json:"unknown"`
	Pod       json.RawMessage `json:"pod"`
	// Want is the pod afterwards, without its status annotation. It is left out for a pod that
	// is left as it is.
	Want json.RawMessage `json:"want"`
	// Reasons are those of all profiles, by name. By default all are applied if the pod
	// changes, and refused if it does not.
	Reasons string `json:"reasons"`
	// Says are all refusals, errors and warnings, one a line.
	Says string `json:"says"`
}

// TestDecisions holds the cases in testdata/decisions against what is decided, explained,
// decided a second time and removed again.
func TestDecisions(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/decisions/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		var groups map[string][]decisionCase
		if err := yaml.UnmarshalStrict([]byte(read(t, path)), &groups); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for group, cases := range groups {
			seen := make(map[string]bool)
			for i, tc := range cases {
				if seen[tc.Name] {
					t.Errorf("%s: there are two cases %q in %s", path, tc.Name, group)
				}
				seen[tc.Name] = true
				if tc.Profiles == nil {
					cases[i].Profiles = cases[i-1].Profiles
				}
				if tc.Pod == nil {
					cases[i].Pod = cases[i-1].Pod
				}
				t.Run(group+"/"+tc.Name, cases[i].run)
			}
		}
	}
}

func (tc *decisionCase) run(t *testing.T) {
	t.Parallel()
	spec := sidecar.Spec{}
	for _, name := range sorted(tc.Profiles) {
		p := profile(t, "test.yaml", "metadata: {name: "+name+"}\nspec: "+string(tc.Profiles[name]))
		if p.Spec.Injection == "" {
			p.Spec.Injection = "OptOut"
		}
		spec.Profiles = append(spec.Profiles, p)
	}
	spec.Namespaces = shop(t, string(tc.Namespace))
	if tc.Unknown {
		spec.Namespaces = objects{namespaces: map[string]*corev1.Namespace{}}
	}
	set, err := sidecar.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	d, patched := inject(t, set, string(tc.Pod))
	check(t, "said", said(&d), tc.Says)
	want := tc.Reasons
	if want == "" {
		reason := "=refused"
		if tc.Want != nil {
			reason = "=applied"
		}
		want = strings.Join(sorted(tc.Profiles), reason+",") + reason
	}
	check(t, "reasons", reasons(&d), want)
	if (d.Patches != nil) != (tc.Want != nil) {
		t.Errorf("got patches %v, want %s", d.Patches, tc.Want)
	}
	if tc.Want != nil {
		checkPod(t, patched, string(tc.Want))
	}
}
