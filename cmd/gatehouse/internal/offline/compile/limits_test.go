package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestLimits has configurations at the limits of the API server, and what becomes of them: never a document that it refuses.
func TestLimits(t *testing.T) {
	t.Parallel()
	const (
		deny  = "  validationActions: [Deny]\n"
		image = "  validations: [{expression: 'object.spec.containers.all(c, c.image.startsWith(\"r/\"))', message: images}]\n"
		vap   = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: %s}\nspec:\n  matchConstraints: {" + attackRules + "}\n  validations: [{expression: 'true'}]\n" +
			"---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: %s}\nspec: {policyName: %s, validationActions: [Deny]}\n"
	)
	conditions := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("{name: c%d, expression: 'object.metadata.name != \"%d\"'}", i, i))
		}
		return "  matchConditions: [" + strings.Join(all, ", ") + "]\n"
	}
	named := func(name, document string) string { return strings.Replace(document, "name: p}", "name: "+name+"}", 1) }
	byLabel := func(n int) string {
		return strings.ReplaceAll(conditions(n), "metadata.name", "metadata.?labels.?a.orValue(\"\")")
	}
	for name, c := range map[string]struct {
		documents string
		// status and reason are of the item AdmissionPolicy p, or of a policy of another name, and documents how many there are, -1 for any.
		policy, reason string
		status         Status
		want           int
	}{
		"a plain policy":                     {named("p", attackPolicy(attackRules, deny+image)), "p", "", Native, 8},
		"a name that is too long for a part": {named(strings.Repeat("a.", 115)+"b", attackPolicy(attackRules, deny+image)), strings.Repeat("a.", 115) + "b", "pod templates at spec.jobTemplate.spec.template stay with Gatehouse: the compiled policy would be refused: metadata.name: ", Differs, -1},
		"a name that is too long":            {named(strings.Repeat("a.", 125)+"b", attackPolicy(attackRules, deny+image)), strings.Repeat("a.", 125) + "b", "the compiled policy would be refused: metadata.name: ", Stays, 0},
		"policies of one name":               {attackPolicy(attackRules, deny+image) + fmt.Sprintf(vap, "p.gatehouse.dev", "b", "p.gatehouse.dev"), "p.gatehouse.dev", "AdmissionPolicy/p becomes a policy of the same name, p.gatehouse.dev", Stays, -1},
		"a VAP of the same name":             {attackPolicy(attackRules, deny+image) + fmt.Sprintf(vap, "p", "p", "p"), "p", "", Native, 10},
		"64 match conditions":                {attackPolicy(attackRules, deny+image+byLabel(64)), "p", "there are too many match conditions", Stays, 0},
		"62 match conditions":                {attackPolicy(attackRules, deny+image+byLabel(62)), "p", "pod templates at spec.template stay with Gatehouse: there are too many match conditions", Differs, 2},
		"61 match conditions":                {attackPolicy(attackRules, deny+image+byLabel(61)), "p", "", Native, 8},
		"63 match conditions with an exception": {
			attackPolicy(attackRules, deny+image+"  workloadTemplates: Ignore\n"+conditions(63)) + attackException("", "namespaces: [lab]"), "p", "", Native, 2,
		},
		"a reserved variable":        {attackPolicy(attackRules, deny+image+"  variables: [{name: gatehouse_containers, expression: '1'}]\n"), "p", "a variable has a name that begins with gatehouse_", Stays, 0},
		"a reserved match condition": {attackPolicy(attackRules, deny+image+"  matchConditions: [{name: gatehouse-template, expression: 'object.metadata.?labels.?a.orValue(\"\") == \"\"'}]\n"), "p", "pod templates at template stay with Gatehouse: the compiled policy would be refused: spec.matchConditions", Differs, 2},
		"an expression that is nearly too long": {
			attackPolicy(attackRules, deny+"  workloadTemplates: Ignore\n  validations: [{expression: 'object.metadata.name != \""+strings.Repeat("a", 9_900)+"\"', message: m}]\n") + attackException(", rules: ['validations[0]']", "namespaces: [lab]"), "p", "it has more than 10000 characters", Stays, 0,
		},
		"an exception that is too long": {
			attackPolicy(attackRules, deny+image) + attackException("", "namespaces: [lab], matchConditions: [{name: a, expression: 'object.metadata.labels.a == \""+strings.Repeat("a", 9_950)+"\"'}]"), "p", "an exception of it has no translation", Stays, 0,
		},
		"an annotation that is too long for templates": {
			attackPolicy(attackRules, deny+image+"  auditAnnotations: [{key: k, valueExpression: '"+strings.TrimSuffix(strings.Repeat("string(object.spec.hostNetwork) + ", 150), " + ")+"'}]\n"), "p", "the compiled policy would be refused: spec.auditAnnotations[0].valueExpression: has ", Differs, -1,
		},
		"nested deeply": {
			attackPolicy(attackRules, deny+"  validations: [{expression: '"+strings.Repeat("(", 205)+"true"+strings.Repeat(")", 205)+"', message: m}]\n"), "p", "expressions are nested too deeply", Stays, 0,
		},
		"params of the namespace": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\ndata: {a: b}\n---\n" + attackPolicy(attackRules, "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'object.metadata.name != params.data.a', message: m}]\n") +
				"---\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Deny], paramRef: {selector: {matchLabels: {a: b}}, parameterNotFoundAction: Deny}}\n", "p", "", Differs, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, configOf(t, c.documents))
			if n := len(p.out.Documents); c.want >= 0 && n != c.want {
				t.Errorf("%d documents, want %d", n, c.want)
			}
			found := false
			for _, item := range p.out.Items {
				if item.Name == c.policy && strings.HasSuffix(item.Kind, "Policy") && item.Rule != "" {
					has := c.reason == "" || slices.ContainsFunc(item.Reasons, func(reason string) bool { return strings.Contains(reason, c.reason) })
					found = found || item.Status == c.status && has
				}
			}
			if !found {
				for _, item := range p.out.Items {
					t.Log(item.Kind, item.Name, item.Rule, item.Status, item.Reasons)
				}
				t.Errorf("no item is %s because of %q", c.status, c.reason)
			}
			if ours, native := p.ours.Warnings(), p.native.Warnings(); len(ours) == 0 && len(native) > 0 {
				t.Error("there are warnings about the documents:", native)
			}
			for i := range p.out.Documents {
				if b := p.out.Documents[i].Binding; b != nil && strings.Contains(c.documents, "paramRef") &&
					(b.Spec.ParamRef == nil || b.Spec.ParamRef.Selector.MatchLabels["a"] != "b" || *b.Spec.ParamRef.ParameterNotFoundAction != admissionregistrationv1.DenyAction) {
					t.Errorf("the binding has the params %+v", b.Spec.ParamRef)
				}
			}
		})
	}
}

// TestLargePod has what the library asks of a pod that is as large as pods are, with what was violated before: no evaluation costs too much.
func TestLargePod(t *testing.T) {
	t.Parallel()
	const many = 30
	c, _ := compiled(t)
	p := newPair(t, c)
	pod := func(labels string) map[string]any {
		var containers, volumes []any
		for i := range many {
			container := map[string]any{"name": fmt.Sprintf("c%d", i), "image": "x", "securityContext": map[string]any{"privileged": true}}
			var mounts, env, ports []any
			for k := range many {
				mounts = append(mounts, map[string]any{"name": fmt.Sprintf("v%d", k), "mountPath": fmt.Sprintf("/m%d", k)})
				env = append(env, map[string]any{"name": fmt.Sprintf("E%d", k), "value": strings.Repeat("x", many)})
				ports = append(ports, map[string]any{"containerPort": int64(i*many + k + 1)})
			}
			container["volumeMounts"], container["env"], container["ports"] = mounts, env, ports
			containers = append(containers, container)
			volumes = append(volumes, map[string]any{"name": fmt.Sprintf("v%d", i), "hostPath": map[string]any{"path": fmt.Sprintf("/etc/%d", i)}})
		}
		return map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "large", "namespace": "shop", "labels": map[string]any{"a": labels}},
			"spec": map[string]any{"containers": containers, "volumes": volumes, "hostNetwork": true},
		}
	}
	for _, req := range []struct{ now, before map[string]any }{{pod("a"), nil}, {pod("b"), pod("a")}, {deploymentOf(pod("a")), nil}, {deploymentOf(pod("b")), deploymentOf(pod("a"))}} {
		kind, resource, operation := podKind, "pods", admissionv1.Create
		if req.now["kind"] != "Pod" {
			kind, resource = deploymentKind, "deployments"
		}
		if req.before != nil {
			operation = admissionv1.Update
		}
		asked := ask(operation, kind, resource, req.now, req.before)
		if rules := p.unnamed(asked); len(rules) > 0 {
			t.Errorf("%s of %s: %q", operation, kind.Kind, rules)
		}
		d := p.native.Decide(t.Context(), policy.Input{Request: asked, Violations: true})
		for i := range d.Violations {
			if v := &d.Violations[i]; v.Outcome == policy.Failed && strings.Contains(v.Message, "cost") {
				t.Errorf("%s of %s: %s %s: %s", operation, kind.Kind, v.Policy, v.Rule, v.Message)
			}
		}
	}
}

// TestLint wants that lint has nothing to say about what the library is compiled to.
func TestLint(t *testing.T) {
	t.Parallel()
	c, out := compiled(t)
	before, err := lint.Lint(lint.Input{Policy: c.Policy, Now: now()})
	if err != nil {
		t.Fatal(err)
	}
	found, err := lint.Lint(lint.Input{Policy: out.Spec("1.36"), Now: now()})
	if err != nil {
		t.Fatal(err)
	}
	if len(before) == 0 && len(found) > 0 {
		t.Errorf("%d: %v", len(found), found[:min(len(found), 20)])
	}
}
