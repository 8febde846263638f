package compile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const library = "../../../../../manifests/policies"

// compiled compiles the library.
func compiled(t testing.TB) (*config.Config, *Output) {
	t.Helper()
	c, err := config.Load(library)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Compile(c, Options{Kubernetes: "1.36", Now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	return c, out
}

// TestLibrary wants most rules of the library to be native, and says how many are.
func TestLibrary(t *testing.T) {
	t.Parallel()
	_, out := compiled(t)
	counts := map[Status]int{}
	for _, i := range out.Items {
		if counts[i.Status]++; i.Status != Native {
			t.Log(i.Status, i.Kind, i.Name, i.Rule, i.Reasons)
		}
	}
	const least = 83 // percent
	if share := 100 * counts[Native] / len(out.Items); share < least {
		t.Errorf("%d %% of the rules are native: %v", share, counts)
	} else {
		t.Logf("%d %% of the rules are native: %v", share, counts)
	}
	_, again := compiled(t)
	if !equality.Semantic.DeepEqual(out.Documents, again.Documents) {
		t.Error("a second run makes other documents")
	}
}

// TestTemplate rewrites expressions about pods for pod templates.
func TestTemplate(t *testing.T) {
	t.Parallel()
	rewriting, err := newForTemplates()
	if err != nil {
		t.Fatal(err)
	}
	rewriting.untranslated["name"] = "it reads metadata.name, which a pod template lacks"
	for variable, text := range map[string]string{"resource": `request.operation == "DELETE" ? oldObject : object`, "any": `object == null ? oldObject : object`, "none": `request.operation != "DELETE" ? oldObject : object`} {
		if rewriting.aliases[variable] = rewriting.isAlias(text); rewriting.aliases[variable] == (variable == "none") {
			t.Errorf("%s: %t", text, rewriting.aliases[variable])
		}
	}
	for text, want := range map[string]string{
		`object.spec.containers.all(c, has(c.image))`:                                                          `object.spec.template.spec.containers.all(c, has(c.image))`,
		`object.?spec.?hostNetwork.orValue(false)`:                                                             `object.spec.template.?spec.?hostNetwork.orValue(false)`,
		`variables.resource.spec.hostPID && (request.operation == "DELETE" ? oldObject : object).spec.hostIPC`: `object.spec.template.spec.hostPID && object.spec.template.spec.hostIPC`,
		`has(variables.any.metadata.labels)`:                                                                   `has(object.spec.template.?metadata.orValue({}).labels)`,
		`request.operation in ["CREATE"] ? variables.none.spec : object.spec`:                                  `("CREATE" in ["CREATE"]) ? variables.none.spec : object.spec.template.spec`,
		`object["spec"].hostPID`:                                                                               `object.spec.template.spec.hostPID`,
		`has(object.metadata.labels)`:                                                                          `has(object.spec.template.?metadata.orValue({}).labels)`,
		`object.?metadata.?labels.?a.orValue("")`:                                                              `optional.of(object.spec.template.?metadata.orValue({})).?labels.?a.orValue("")`,
		`object.metadata.namespace == request.namespace`:                                                       `request.namespace == request.namespace`,
		`object.kind + object.apiVersion`:                                                                      `"Pod" + "v1"`,
		`oldObject == null || request.operation == "UPDATE"`:                                                   `dyn(null) == null || "CREATE" == "UPDATE"`,
		`request.resource.resource + request.subResource`:                                                      `"pods" + ""`,
		`[1].exists(x, {"a": x}.a in [object.spec.priority])`:                                                  `[1].exists(x, {"a": x}.a in [object.spec.template.spec.priority])`,
		`variables.x && authorizer.group("").check("use").allowed()`:                                           `variables.x && authorizer.group("").check("use").allowed()`,
		`request.userInfo.?groups.orValue([]) == params.groups`:                                                `request.userInfo.?groups.orValue([]) == params.groups`,
	} {
		got, problem := rewriting.rewrite(text)
		if got = strings.ReplaceAll(got, anyTemplate, "object.spec.template"); got != want || problem != "" {
			t.Errorf("%s\n got %s (%s)\nwant %s", text, got, problem, want)
		}
	}
	for text, want := range map[string]string{
		`object.metadata.name != ""`: "it reads metadata.name, which a pod template lacks", `object.status.phase == "x"`: "it reads status, which a pod template lacks",
		`object == oldObject`: "it reads all of object", `variables.resource.metadata.name == ""`: "it reads metadata.name, which a pod template lacks", `variables["any"].?status.hasValue()`: "it reads status, which a pod template lacks", `object.metadata == {}`: "it reads all of the pod's metadata", `variables.name == ""`: "variable name: it reads metadata.name, which a pod template lacks",
		`request.name == ""`: "it reads request.name of the pod, which does not exist yet", `[1].all(object, object > 0)`: "a loop may name its elements object",
		`authorizer.requestResource.check("x").allowed()`: "it asks for the rights on the pod, which does not exist yet", `a b`: "it cannot be parsed", `dyn(variables).x`: "it reads all of variables", `object.spec.containers.sortBy(request, 1) == []`: "a loop may name its elements request",
	} {
		if got, problem := rewriting.rewrite(text); got != "" || problem != want {
			t.Errorf("%s: got %q, problem %q, want %q", text, got, problem, want)
		}
	}
}

// copies returns policies of the library under other names, of which each has a constant of its own in each rule.
func copies(t testing.TB, policies int) *config.Config {
	t.Helper()
	c, err := config.Load(library)
	if err != nil {
		t.Fatal(err)
	}
	of, many := &c.Policy, *c
	many.Policy.AdmissionPolicies, many.Policy.AdmissionPolicyBindings = nil, nil
	for i := range policies {
		p := *of.AdmissionPolicies[i%len(of.AdmissionPolicies)].DeepCopy()
		name := fmt.Sprintf("%s-%d", p.Name, i)
		for k := range of.AdmissionPolicyBindings {
			if binding := of.AdmissionPolicyBindings[k]; binding.Spec.PolicyName == p.Name {
				binding.Name, binding.Spec.PolicyName = fmt.Sprintf("%s-%d", binding.Name, i), name
				many.Policy.AdmissionPolicyBindings = append(many.Policy.AdmissionPolicyBindings, binding)
			}
		}
		for k := range p.Spec.Validations {
			p.Spec.Validations[k].Expression += fmt.Sprintf(" || %d == 0", i+1)
		}
		many.Policy.AdmissionPolicies = append(many.Policy.AdmissionPolicies, policy.AdmissionPolicy{Source: name, AdmissionPolicy: v1alpha1.AdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: p.Spec,
		}})
	}
	return &many
}

// TestMany compiles so many policies that several processors do, twice: the documents are the same, and compile.
func TestMany(t *testing.T) {
	t.Parallel()
	const policies = 150
	var earlier *Output
	for range 2 {
		out, err := Compile(copies(t, policies), Options{Kubernetes: "1.36", Now: now()})
		if err != nil {
			t.Fatal(err)
		}
		if earlier != nil && !equality.Semantic.DeepEqual(out.Documents, earlier.Documents) {
			t.Error("a second run makes other documents")
		}
		earlier = out
	}
	if _, err := policy.Compile(earlier.Spec("1.36")); err != nil {
		t.Error(err)
	}
}

// BenchmarkCompile compiles 1,000 policies.
func BenchmarkCompile(b *testing.B) {
	const policies = 1000
	many := copies(b, policies)
	for b.Loop() {
		out, err := Compile(many, Options{Kubernetes: "1.36", Now: now()})
		if err != nil || len(out.Documents) < policies {
			b.Fatal(len(out.Documents), err)
		}
	}
}

// TestLaterFunctions has an API server of 1.37 get nothing that one of 1.36 does not know: it refuses that in new documents.
func TestLaterFunctions(t *testing.T) {
	t.Parallel()
	c := configOf(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\ncelCompatibilityVersion: '1.37'\n---\n"+
		attackPolicy(attackRules, "  validationActions: [Deny]\n  validations: [{expression: 'object.metadata.name.split(\"-\").includes(\"x\")', message: x}, {expression: 'object.spec.containers.size() > 0', message: some}]\n"))
	out, err := Compile(c, Options{Kubernetes: "1.37", Now: now()})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Items) != 2 || out.Items[0].Status != Stays || !strings.HasPrefix(out.Items[0].Reasons[0], "an API server of Kubernetes 1.37 refuses it: ") || out.Items[1].Status != Native || len(out.Documents) == 0 {
		t.Errorf("got %+v %+v and %d documents", out.Items[0], out.Items[1:], len(out.Documents))
	}
	if _, err := Compile(c, Options{Kubernetes: "x"}); err == nil {
		t.Error("there is a version x")
	}
}
