package resolve

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// custom is a custom resource as an API server gives it.
func custom(t *testing.T, generation int, text string) *config.Resource {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte("apiVersion: gatehouse.dev/v1alpha1\n"+text), &fields); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGeneration(int64(generation))
	u.SetUID("uid-of-" + types.UID(u.GetName()))
	return config.ReadResource(u)
}

func customPolicy(t *testing.T, generation int, name, expression string) *config.Resource {
	t.Helper()
	return custom(t, generation, fmt.Sprintf(`
kind: AdmissionPolicy
metadata: {name: %s}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: %q}]
`, name, expression))
}

func customProfile(t *testing.T, generation int, name, more string) *config.Resource {
	t.Helper()
	return custom(t, generation, fmt.Sprintf(`
kind: SidecarProfile
metadata: {name: %s}
spec: {template: {spec: {containers: [{name: %s, image: x}]}}%s}
`, name, name, more))
}

// agentSince is a profile that conflicts with every other of its container, changed at a time.
func agentSince(t *testing.T, minute int, name string) *config.Resource {
	t.Helper()
	return custom(t, 1, fmt.Sprintf(`
kind: SidecarProfile
metadata: {name: %s, creationTimestamp: "2026-01-01T00:00:00Z", managedFields: [
  {manager: kubectl, operation: Apply, time: "2026-01-01T00:%02d:00Z", fieldsV1: {"f:spec": {}}}, {manager: gatehouse, operation: Apply, subresource: status, time: "2026-02-01T00:00:00Z"}]}
spec: {template: {spec: {containers: [{name: agent, image: img}]}}}
`, name, minute))
}

// documentsOf is a configuration of a directory.
func documentsOf(t *testing.T, text string) *config.Config {
	t.Helper()
	if text == "" {
		base, found := config.InspectBeside("")
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return base
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	base, found := config.InspectBeside(dir)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return base
}

// prepare makes broken expressions of policies warnings, as a server does.
func prepare(c *config.Config) error {
	c.Policy.KeepBroken = true
	return nil
}

func resolve(r *Resolver, documents *config.Config, resources []*config.Resource) (*Resolution, error) {
	return r.Resolve(Input{Documents: documents, Resources: resources, Clustered: true, Tolerant: true, Prepare: prepare})
}

// A broken custom resource keeps no other from being used, and what worked before it
// broke goes on working.
func TestResolve(t *testing.T) {
	t.Parallel()
	type round []*config.Resource
	exception := func(generation int, reason string) *config.Resource {
		return custom(t, generation, fmt.Sprintf(`
kind: PolicyException
metadata: {name: e, namespace: gatehouse-system}
spec: {policies: [{name: p}], match: {names: [a]}, reason: %q}
`, reason))
	}
	for _, test := range []struct {
		name      string
		documents string
		rounds    []round
		// want is each object with its use in the last round, and found what is said of
		// it.
		want, found []string
		// profiles and policies are what is compiled then.
		profiles, policies int
		// started reports whether a replica that starts with the last round has the same.
		started bool
	}{
		{name: "nothing"},
		{
			name: "all good", rounds: []round{{customPolicy(t, 1, "p", "true"), customProfile(t, 1, "a", "")}},
			want: []string{"AdmissionPolicy/p Current", "SidecarProfile/a Current"}, profiles: 1, policies: 1,
		},
		{
			name: "a new policy that does not compile decides by its failurePolicy", rounds: []round{{customPolicy(t, 1, "p", "true +"), customPolicy(t, 1, "q", "true")}},
			want: []string{"AdmissionPolicy/p Unused", "AdmissionPolicy/q Current"}, policies: 2,
			found: []string{`AdmissionPolicy/p: spec.validations[0].expression: 1:7 in "true +": Syntax error`},
		},
		{
			name: "also beside what else does not compile",
			rounds: []round{
				{customPolicy(t, 1, "p", "true +"), customPolicy(t, 1, "q", "true"), customProfile(t, 1, "a", ", placement: {before: [a]}"), exception(1, "why")},
				{customPolicy(t, 1, "p", "true +"), customPolicy(t, 2, "q", "true +"), customProfile(t, 1, "a", ", placement: {before: [a]}"), exception(1, "why")},
			},
			want: []string{"AdmissionPolicy/p Unused", "AdmissionPolicy/q Previous", "PolicyException/gatehouse-system/e Current", "SidecarProfile/a Unused"}, policies: 2,
			found: []string{`AdmissionPolicy/p: spec.validations[0].expression: 1:7 in "true +": Syntax error`, `SidecarProfile/a: spec.placement`},
		},
		{
			name: "a policy that breaks is used as it was", rounds: []round{{customPolicy(t, 1, "p", "true")}, {customPolicy(t, 2, "p", "true +")}},
			want: []string{"AdmissionPolicy/p Previous"}, policies: 1,
			found: []string{`AdmissionPolicy/p: spec.validations[0].expression: 1:7 in "true +": Syntax error`},
		},
		{
			name:   "and as it is once it is mended",
			rounds: []round{{customPolicy(t, 1, "p", "true")}, {customPolicy(t, 2, "p", "true +")}, {customPolicy(t, 3, "p", "false")}},
			want:   []string{"AdmissionPolicy/p Current"}, policies: 1,
		},
		{
			name:   "what is deleted is not used any more",
			rounds: []round{{customPolicy(t, 1, "p", "true")}, {customPolicy(t, 2, "p", "true +")}, {}},
		},
		{
			name:   "one broken profile leaves the other, and takes changes of it",
			rounds: []round{{customProfile(t, 1, "a", ""), customProfile(t, 1, "b", "")}, {customProfile(t, 2, "a", ", injection: OptOut"), customProfile(t, 2, "b", ", injection: Never")}},
			want:   []string{"SidecarProfile/a Current", "SidecarProfile/b Previous"}, profiles: 2,
			found: []string{`SidecarProfile/b: spec.injection: "Never"`},
		},
		{
			name:   "a new broken profile is left out",
			rounds: []round{{customProfile(t, 1, "a", ", colour: red"), customProfile(t, 1, "b", "")}},
			want:   []string{"SidecarProfile/a Unused", "SidecarProfile/b Current"}, profiles: 1,
			found: []string{`SidecarProfile/a: spec.colour: unknown field`},
		},
		{
			name: "a cycle is broken by what stood before it",
			rounds: []round{
				{customProfile(t, 1, "a", ", placement: {before: [b]}"), customProfile(t, 1, "b", "")},
				{customProfile(t, 1, "a", ", placement: {before: [b]}"), customProfile(t, 2, "b", ", placement: {before: [a]}")},
			},
			want: []string{"SidecarProfile/a Current", "SidecarProfile/b Previous"}, profiles: 2,
			found: []string{`placement`},
		},
		{
			name:      "a document of the directory counts before a resource of its name",
			documents: "apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: a, image: img}]}}}\n",
			rounds:    []round{{customProfile(t, 1, "a", ""), customProfile(t, 1, "b", "")}},
			want:      []string{"SidecarProfile/a Unused", "SidecarProfile/b Current"}, profiles: 2,
			found: []string{`the configuration directory has a document of the same name, in "a.yaml"`},
		},
		{
			name:   "an exception that breaks lets nothing pass",
			rounds: []round{{customPolicy(t, 1, "p", "true"), exception(1, "why")}, {customPolicy(t, 1, "p", "true"), exception(2, "")}},
			want:   []string{"AdmissionPolicy/p Current", "PolicyException/gatehouse-system/e Unused"}, policies: 1,
			found: []string{"spec.reason"},
		},
		{
			name:      "a conflict with a document is the error of the resource alone",
			documents: "apiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: zdir}\nspec: {template: {spec: {containers: [{name: agent, image: img}]}}}\n",
			rounds: []round{
				{customPolicy(t, 1, "p", "true")},
				{customPolicy(t, 1, "p", "true"), customPolicy(t, 1, "q", "true +"), agentSince(t, 1, "aa"), customProfile(t, 1, "other", "")},
			},
			want:    []string{"AdmissionPolicy/p Current", "AdmissionPolicy/q Unused", "SidecarProfile/aa Unused", "SidecarProfile/other Current"},
			started: true, profiles: 2, policies: 2, found: []string{"AdmissionPolicy/q: spec.validations[0]", "SidecarProfile/aa: "},
		},
		{
			name: "a conflict is the error of the resource that was changed last", rounds: []round{{agentSince(t, 1, "aa")}, {agentSince(t, 1, "aa"), agentSince(t, 2, "zz")}},
			want: []string{"SidecarProfile/aa Current", "SidecarProfile/zz Unused"}, started: true, profiles: 1, found: []string{"SidecarProfile/zz: "},
		},
		{
			name: "whatever it is called", rounds: []round{{agentSince(t, 1, "zz")}, {agentSince(t, 1, "zz"), agentSince(t, 2, "aa")}},
			want: []string{"SidecarProfile/aa Unused", "SidecarProfile/zz Current"}, started: true, profiles: 1, found: []string{"SidecarProfile/aa: "},
		},
		{
			name: "what permits ends when it is being deleted, and what restricts when it is gone",
			rounds: []round{{
				custom(t, 1, "kind: PolicyException\nmetadata: {name: e, namespace: gatehouse-system, deletionTimestamp: \"2026-01-01T00:00:00Z\", finalizers: [a/b]}\nspec: {policies: [{name: p}], match: {names: [a]}, reason: why}\n"),
				custom(t, 1, "kind: AdmissionPolicyBinding\nmetadata: {name: b, deletionTimestamp: \"2026-01-01T00:00:00Z\", finalizers: [a/b]}\nspec: {policyName: p, validationActions: [Deny]}\n"),
				customPolicy(t, 1, "p", "true"),
			}},
			want: []string{"AdmissionPolicy/p Current", "AdmissionPolicyBinding/b Current"}, started: true, policies: 1,
		},
		{
			name: "all errors are reported, also of a version that is not active",
			rounds: []round{
				{customPolicy(t, 1, "p", "true"), customProfile(t, 1, "a", "")},
				{
					custom(t, 2, "kind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n  validations: [{expression: 'true +'}, {expression: 'nonsense'}]\n"),
					customProfile(t, 2, "a", ", injection: Never, onConflict: Never"),
				},
			},
			want: []string{"AdmissionPolicy/p Previous", "SidecarProfile/a Previous"}, profiles: 1, policies: 1,
			found: []string{"AdmissionPolicy/p: spec.validations[0]", "AdmissionPolicy/p: spec.validations[1]", "SidecarProfile/a: spec.injection", "SidecarProfile/a: spec.onConflict"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := Resolver{}
			base := documentsOf(t, test.documents)
			var last *Resolution
			if len(test.rounds) == 0 {
				test.rounds = []round{nil}
			}
			for _, resources := range test.rounds {
				of, err := resolve(&s, base, resources)
				if err != nil {
					t.Fatal(err)
				}
				s.Remember(of)
				last = of
			}
			if test.started {
				of, err := resolve(&Resolver{}, base, test.rounds[len(test.rounds)-1])
				if err != nil {
					t.Fatal(err)
				}
				if running, started := outcomesOf(last), outcomesOf(of); !slices.Equal(running, started) {
					t.Errorf("a replica that runs reports %+v, and one that started %+v", running, started)
				}
			}
			var got, found []string
			for _, o := range last.Candidates {
				name := o.Read.Kind + "/" + o.Read.Name
				if o.Read.Namespace != "" {
					name = o.Read.Kind + "/" + o.Read.Namespace + "/" + o.Read.Name
				}
				got = append(got, name+" "+string(o.Use()))
				for _, f := range o.Found {
					if f.Severity == diagnostic.Error {
						found = append(found, f.String())
					}
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			for _, want := range test.found {
				if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, want) }) {
					t.Errorf("nothing says %q: %q", want, found)
				}
			}
			if test.found == nil && len(found) > 0 {
				t.Errorf("found %q", found)
			}
			if n := len(last.Config.Sidecar.Profiles); n != test.profiles {
				t.Errorf("%d profiles, want %d", n, test.profiles)
			}
			if n := len(last.Config.Policy.AdmissionPolicies); n != test.policies {
				t.Errorf("%d policies, want %d", n, test.policies)
			}
		})
	}
}

// The digest that replicas compare is of what was read and whether it can be used. A
// replica that started after an object broke is not behind.
func TestReportDigest(t *testing.T) {
	t.Parallel()
	base := documentsOf(t, "")
	digest := func(s *Resolver, resources ...*config.Resource) string {
		t.Helper()
		of, err := resolve(s, base, resources)
		if err != nil {
			t.Fatal(err)
		}
		s.Remember(of)
		return of.Digest()
	}
	one, other := &Resolver{}, &Resolver{}
	a := digest(one, customPolicy(t, 1, "p", "true"), customPolicy(t, 1, "q", "true"))
	if b := digest(other, customPolicy(t, 1, "q", "true"), customPolicy(t, 1, "p", "true")); a != b {
		t.Error("the order in which resources are read makes a difference")
	}
	began := &Resolver{}
	with, without := digest(one, customPolicy(t, 2, "p", "true +")), digest(began, customPolicy(t, 2, "p", "true +"))
	if with != without {
		t.Error("a replica that has no version from before looks as if it were behind")
	}
	if mended := digest(one, customPolicy(t, 2, "p", "false")); mended == with {
		t.Error("what can be used looks like what cannot")
	}
}

// running is a Resolver that has these resources active.
func running(t *testing.T, base *config.Config, resources ...*config.Resource) *Resolver {
	t.Helper()
	s := &Resolver{}
	of, err := resolve(s, base, resources)
	if err != nil {
		t.Fatal(err)
	}
	s.Remember(of)
	return s
}

// outcomesOf are the uses and diagnostics of all resources, and the digest.
func outcomesOf(of *Resolution) []string {
	list := usesOf(of)
	for _, o := range of.Candidates {
		list = append(list, fmt.Sprint(o.Found))
	}
	return append(list, of.Digest())
}

func usesOf(of *Resolution) []string {
	var uses []string
	for _, o := range of.Candidates {
		uses = append(uses, o.Read.Kind+"/"+o.Read.Name+" "+string(o.Use()))
	}
	return uses
}

// Whoever labels one of two resources that exclude each other does not change which of
// them is in use; who writes its spec once more does, also in replicas that run, where
// nothing else of it is new.
func TestResolveAfterNothingButATimeChanged(t *testing.T) {
	t.Parallel()
	base := documentsOf(t, "")
	profile := func(name, more string, managers ...string) *config.Resource {
		return custom(t, 1, fmt.Sprintf(`
kind: SidecarProfile
metadata: {name: %s, creationTimestamp: "2026-01-01T00:00:00Z"%s, managedFields: [%s]}
spec: {template: {spec: {containers: [{name: agent, image: img}]}}}
`, name, more, strings.Join(managers, ", ")))
	}
	spec := func(minute int) string {
		return fmt.Sprintf(`{manager: apply, operation: Apply, time: "2026-01-01T00:%02d:00Z", fieldsV1: {"f:spec": {}}}`, minute)
	}
	const label = `{manager: label, operation: Update, time: "2026-01-01T00:03:00Z", fieldsV1: {"f:metadata": {"f:labels": {"f:team": {}}}}}`
	before := []*config.Resource{profile("a", "", spec(1)), profile("b", "", spec(2))}
	for name, test := range map[string]struct {
		a    *config.Resource
		same bool
		want []string
	}{
		"labelled":      {profile("a", ", labels: {team: x}", spec(1), label), true, []string{"SidecarProfile/a Current", "SidecarProfile/b Unused"}},
		"applied again": {profile("a", ", labels: {team: x}", spec(3)), false, []string{"SidecarProfile/a Unused", "SidecarProfile/b Current"}},
	} {
		after := []*config.Resource{before[1], test.a}
		if same := SameResources(before, after); same != test.same {
			t.Errorf("%s: nothing to resolve: %v, want %v", name, same, test.same)
		}
		ran := running(t, base, before...)
		digests := map[string]bool{}
		for who, s := range map[string]*Resolver{"running": ran, "started": {}} {
			of, err := resolve(s, base, after)
			if err != nil {
				t.Fatal(err)
			}
			digests[of.Digest()] = true
			if got := usesOf(of); !slices.Equal(got, test.want) {
				t.Errorf("%s, %s: got %q, want %q", name, who, got, test.want)
			}
		}
		if len(digests) != 1 {
			t.Errorf("%s: one replica looks as if it were behind the other", name)
		}
	}
}
