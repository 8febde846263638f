package compile

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

// upstream is a compiled policy as the API server's own code evaluates it.
type upstream struct {
	*Document

	validator validating.Validator
}

func newUpstream(t testing.TB, d *Document) upstream {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	p := d.Policy
	declared := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.NewExpressions)
	}
	var conditions, rules []plugincel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		rules = append(rules, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
	}
	compile := func(all []plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
		evaluator := compiler.CompileCondition(all, declared, environment.NewExpressions)
		if errs := evaluator.CompilationErrors(); len(errs) > 0 {
			t.Fatal(d.Policy.Name, errs)
		}
		return evaluator
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(compile(conditions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	none := compile(nil)
	return upstream{d, validating.NewValidator(compile(rules), matcher, none, compile(make([]plugincel.ExpressionAccessor, len(rules))), p.Spec.FailurePolicy, nil)}
}

// violated returns the rules that a request violates, of which the objects are Go values as in the API server.
func (u upstream) violated(t testing.TB, req admission.Request) (out []string) {
	t.Helper()
	typed := func(raw []byte) runtime.Object {
		if len(raw) == 0 {
			return nil
		}
		object := map[string]runtime.Object{"Pod": &corev1.Pod{}, "Deployment": &appsv1.Deployment{}, "CronJob": &batchv1.CronJob{}}[req.Kind.Kind].DeepCopyObject()
		if err := json.Unmarshal(raw, object); err != nil {
			return nil
		}
		return object
	}
	object, old := typed(req.Object.Raw), typed(req.OldObject.Raw)
	if object == nil {
		return []string{"unreadable"}
	}
	gvr := schema.GroupVersionResource(req.Resource)
	attributes := apiserveradmission.NewAttributesRecord(object, old, schema.GroupVersionKind(req.Kind), req.Namespace, req.Name, gvr, req.SubResource,
		apiserveradmission.Operation(req.Operation), nil, false, &user.DefaultInfo{Name: req.UserInfo.Username})
	versioned, err := apiserveradmission.NewVersionedAttributes(attributes, schema.GroupVersionKind(req.Kind), apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme))
	if err != nil {
		t.Fatal(err)
	}
	result := u.validator.Validate(t.Context(), gvr, versioned, nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: req.Namespace}}, celconfig.RuntimeCELCostBudget, nil)
	for i, d := range result.Decisions {
		if d.Action == validating.ActionDeny || d.Evaluation == validating.EvalError {
			rule := ""
			if i < len(u.Rules) {
				rule = u.Rules[i]
			}
			out = append(out, rule+" "+string(d.Evaluation)+" "+d.Message)
		}
	}
	return out
}

// TestPodSecurityUpstream has the API server's own code evaluate the checks as CEL for the newest of upstream's fixtures, as pods and as
// templates of workloads, as Go values: a standard is violated exactly if upstream's checks say so, and no evaluation fails.
func TestPodSecurityUpstream(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]int{"Pod": 0, "Deployment": 2, "CronJob": 1} // by the order of the paths of templates
	for _, level := range []string{"baseline", "restricted"} {
		p := newPair(t, standardPolicy(t, level, "v1.37"))
		var compiled []upstream
		for i := range p.out.Documents {
			if p.out.Documents[i].Policy != nil {
				compiled = append(compiled, newUpstream(t, &p.out.Documents[i]))
			}
		}
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "test", "testdata", level, "v1.37", "*", "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatal(len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file) // #nosec G304 -- of a module
			if err != nil {
				t.Fatal(err)
			}
			var pod map[string]any
			if err := yaml.Unmarshal(text, &pod); err != nil {
				t.Fatal(err)
			}
			pod["metadata"].(map[string]any)["namespace"] = "shop"
			for _, req := range []admission.Request{
				ask(admissionv1.Create, podKind, "pods", pod, nil), ask(admissionv1.Update, podKind, "pods", pod, pod),
				ask(admissionv1.Create, deploymentKind, "deployments", deploymentOf(pod), nil), ask(admissionv1.Update, deploymentKind, "deployments", deploymentOf(pod), deploymentOf(pod)),
				ask(admissionv1.Create, cronJobKind, "cronjobs", cronJobOf(pod), nil),
			} {
				var want, got []string
				for _, one := range p.violated(p.ours, req) {
					want = append(want, strings.Fields(one)[1])
				}
				for _, one := range compiled[parts[req.Kind.Kind]].violated(t, req) {
					if strings.Contains(one, " error ") {
						t.Errorf("%s: %s %s: %s", filepath.Base(file), req.Operation, req.Kind.Kind, one)
					}
					got = append(got, strings.Fields(one)[0])
				}
				slices.Sort(got)
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: %s %s: got %q, want %q", filepath.Base(file), req.Operation, req.Kind.Kind, got, want)
				}
			}
		}
	}
}
