package compile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const library = "../../../../../manifests/policies"

// compiled compiles a directory.
func compiled(t testing.TB, dir string) (*config.Config, *Output) {
	t.Helper()
	c, err := config.Load(dir)
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
	_, out := compiled(t, library)
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
	_, again := compiled(t, library)
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
	for text, want := range map[string]string{
		`object.spec.containers.all(c, has(c.image))`:                `object.spec.template.spec.containers.all(c, has(c.image))`,
		`object.?spec.?hostNetwork.orValue(false)`:                   `object.spec.template.?spec.?hostNetwork.orValue(false)`,
		`object["spec"].hostPID`:                                     `object.spec.template.spec.hostPID`,
		`has(object.metadata.labels)`:                                `has(object.spec.template.?metadata.orValue({}).labels)`,
		`object.?metadata.?labels.?a.orValue("")`:                    `optional.of(object.spec.template.?metadata.orValue({})).?labels.?a.orValue("")`,
		`object.metadata.namespace == request.namespace`:             `request.namespace == request.namespace`,
		`object.kind + object.apiVersion`:                            `"Pod" + "v1"`,
		`oldObject == null || request.operation == "UPDATE"`:         `dyn(null) == null || "CREATE" == "UPDATE"`,
		`request.resource.resource + request.subResource`:            `"pods" + ""`,
		`[1].exists(x, {"a": x}.a in [object.spec.priority])`:        `[1].exists(x, {"a": x}.a in [object.spec.template.spec.priority])`,
		`variables.x && authorizer.group("").check("use").allowed()`: `variables.x && authorizer.group("").check("use").allowed()`,
		`request.userInfo.?groups.orValue([]) == params.groups`:      `request.userInfo.?groups.orValue([]) == params.groups`,
	} {
		got, problem := rewriting.rewrite(text)
		if got = strings.ReplaceAll(got, anyTemplate, "object.spec.template"); got != want || problem != "" {
			t.Errorf("%s\n got %s (%s)\nwant %s", text, got, problem, want)
		}
	}
	for text, want := range map[string]string{
		`object.metadata.name != ""`: "it reads metadata.name, which a pod template lacks", `object.status.phase == "x"`: "it reads status, which a pod template lacks",
		`object == oldObject`: "it reads all of object", `object.metadata == {}`: "it reads all of the pod's metadata", `variables.name == ""`: "variable name: it reads metadata.name, which a pod template lacks",
		`request.name == ""`: "it reads request.name of the pod, which does not exist yet", `[1].all(object, object > 0)`: "a loop may name its elements object",
		`authorizer.requestResource.check("x").allowed()`: "it asks for the rights on the pod, which does not exist yet", `a b`: "it cannot be parsed", `dyn(variables).x`: "it reads all of variables", `object.spec.containers.sortBy(request, 1) == []`: "a loop may name its elements request",
	} {
		if got, problem := rewriting.rewrite(text); got != "" || problem != want {
			t.Errorf("%s: got %q, problem %q, want %q", text, got, problem, want)
		}
	}
}

// BenchmarkCompile compiles 1,000 policies.
func BenchmarkCompile(b *testing.B) {
	c, err := config.Load(library)
	if err != nil {
		b.Fatal(err)
	}
	many := *c
	many.Policy.Policies, many.Policy.AdmissionPolicies = nil, nil
	const policies = 1000
	for i := 0; len(many.Policy.AdmissionPolicies) < policies; i++ {
		p := c.Policy.AdmissionPolicies[i%len(c.Policy.AdmissionPolicies)]
		p.Name = fmt.Sprintf("%s-%d", p.Name, i)
		p.Spec.ParamKind, p.Spec.ValidationActions = nil, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		if len(p.Spec.Validations) > 0 {
			p.Spec.Variables, p.Spec.Validations = nil, []v1alpha1.Validation{{Validation: admissionregistrationv1.Validation{Expression: fmt.Sprintf(`object.spec.containers.all(c, c.image.startsWith("r%d/"))`, i)}}}
		}
		many.Policy.AdmissionPolicies = append(many.Policy.AdmissionPolicies, p)
	}
	for b.Loop() {
		if _, err := Compile(&many, Options{Kubernetes: "1.36", Now: now()}); err != nil {
			b.Fatal(err)
		}
	}
}
