package policy_test

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// rules are resource rules, most of them about one of the requests.
func (g *generator) rules(requests []asked) []admissionregistrationv1.NamedRuleWithOperations {
	var out []admissionregistrationv1.NamedRuleWithOperations
	for range 1 + g.Intn(2) {
		req := &requests[g.Intn(len(requests))].sent
		version, resource := req.RequestResource.Version, req.RequestResource.Resource
		group := req.RequestResource.Group
		if g.maybe(0.3) {
			version, group = req.Resource.Version, req.Resource.Group
		}
		if g.maybe(0.35) {
			version = g.of("v1", "v2", "v1beta1", "v1beta2", "v1alpha1", "v2beta2", "*")
		}
		if resource == "events" && g.maybe(0.5) {
			group, version = g.of("", "events.k8s.io"), "v1"
		}
		rule := admissionregistrationv1.NamedRuleWithOperations{}
		rule.APIGroups, rule.APIVersions = []string{group}, []string{version}
		if g.maybe(0.15) {
			rule.APIGroups = []string{"*"}
		}
		if version != "*" && g.maybe(0.2) {
			if other := g.of("v1", "v2", "v1beta1"); other != version {
				rule.APIVersions = append(rule.APIVersions, other)
			}
		}
		name := resource
		if req.SubResource != "" && g.maybe(0.8) {
			name += "/" + req.SubResource
		}
		rule.Resources = []string{name}
		switch g.Intn(12) {
		case 0:
			rule.Resources = []string{"*"}
		case 1:
			rule.Resources = []string{"*/*"}
		case 2:
			rule.Resources = []string{resource + "/*"}
		case 3:
			rule.Resources = []string{"*/" + g.of("status", "scale", "exec")}
		}
		rule.Operations = []admissionregistrationv1.OperationType{"*"}
		if g.maybe(0.5) {
			rule.Operations = nil
			for _, o := range g.list("CREATE", "UPDATE", "DELETE", "CONNECT") {
				rule.Operations = append(rule.Operations, admissionregistrationv1.OperationType(o))
			}
		}
		if g.maybe(0.15) {
			rule.ResourceNames = g.list("web", "cart", "x")
		}
		if g.maybe(0.3) {
			rule.Scope = new(admissionregistrationv1.ScopeType(g.of("*", "Namespaced", "Cluster")))
		}
		out = append(out, rule)
	}
	return out
}

func (g *generator) selector() *metav1.LabelSelector {
	key := g.of("team", "env", "app", "kubernetes.io/metadata.name")
	values := g.list("a", "b", "prod", "test", "checkout", "shop", "lab")
	switch g.Intn(5) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: values[0]}}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values}}}
	case 3:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
	default:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOperator(g.of("Exists", "DoesNotExist"))}}}
	}
}

func (g *generator) match(requests []asked, required bool) *admissionregistrationv1.MatchResources {
	out := &admissionregistrationv1.MatchResources{}
	if required || g.maybe(0.6) {
		out.ResourceRules = g.rules(requests)
	}
	if g.maybe(0.15) {
		out.ExcludeResourceRules = g.rules(requests)
	}
	if g.maybe(0.2) {
		out.NamespaceSelector = g.selector()
	}
	if g.maybe(0.2) {
		out.ObjectSelector = g.selector()
	}
	if g.maybe(0.4) {
		out.MatchPolicy = new(admissionregistrationv1.MatchPolicyType(g.of("Exact", "Equivalent", "Equivalent")))
	}
	return out
}

// policySpec returns a policy whose expressions may not compile.
func (g *generator) policySpec(requests []asked) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: g.match(requests, true)}
	e := expressions{generator: g}
	if g.maybe(0.5) {
		spec.FailurePolicy = new(admissionregistrationv1.FailurePolicyType(g.of("Fail", "Ignore")))
	}
	if g.maybe(0.4) {
		kinds := []admissionregistrationv1.ParamKind{
			{APIVersion: "v1", Kind: "ConfigMap"},
			{APIVersion: "v1", Kind: "ConfigMap"},
			{APIVersion: "example.com/v1", Kind: "Limit"},
			{APIVersion: "example.com/v1", Kind: "ClusterLimit"},
			{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
			{APIVersion: "example.com/v1", Kind: "Unserved"},
		}
		spec.ParamKind = &kinds[g.Intn(len(kinds))]
		e.params = true
	}
	if g.maybe(0.35) {
		for i := range 1 + g.Intn(3) {
			spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: e.bool(2)})
		}
	}
	if g.maybe(0.4) {
		for i := range 1 + g.Intn(3) {
			text := e.any(2)
			if g.maybe(0.3) {
				text = e.bool(2)
			}
			spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Name: fmt.Sprintf("v%d", i), Expression: text})
			e.variables = append(e.variables, fmt.Sprintf("variables.v%d", i))
		}
	}
	for range 1 + g.Intn(4) {
		v := admissionregistrationv1.Validation{Expression: e.bool(3)}
		if g.maybe(0.3) {
			v.Message = g.of("no", "  padded  ", "must be so", "é")
		}
		if g.maybe(0.4) {
			v.MessageExpression = e.message()
		}
		if g.maybe(0.3) {
			v.Reason = new(metav1.StatusReason(g.of("Forbidden", "Invalid", "RequestEntityTooLarge")))
		}
		spec.Validations = append(spec.Validations, v)
	}
	if g.maybe(0.3) {
		for i := range 1 + g.Intn(2) {
			spec.AuditAnnotations = append(spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{
				Key: fmt.Sprintf("k%d", i), ValueExpression: g.of(e.message(), "null", "'  '", e.bool(1)+" ? 'yes' : ''"),
			})
		}
	}
	return spec
}

func (g *generator) binding(p *admissionregistrationv1.ValidatingAdmissionPolicy, name string, requests []asked) policy.Binding {
	b := policy.Binding{Source: name}
	b.Name, b.Spec.PolicyName = name, p.Name
	actions := [][]admissionregistrationv1.ValidationAction{{"Deny"}, {"Deny"}, {"Deny", "Audit"}, {"Warn"}, {"Audit"}, {"Warn", "Audit"}}
	b.Spec.ValidationActions = actions[g.Intn(len(actions))]
	if g.maybe(0.3) {
		b.Spec.MatchResources = g.match(requests, false)
	}
	if p.Spec.ParamKind != nil && g.maybe(0.85) || g.maybe(0.05) {
		ref := &admissionregistrationv1.ParamRef{ParameterNotFoundAction: new(admissionregistrationv1.ParameterNotFoundActionType(g.of("Allow", "Deny")))}
		if g.maybe(0.5) {
			ref.Name = g.of("limits", "words", "more", "none")
		} else {
			ref.Selector = g.selector()
		}
		if g.maybe(0.5) {
			ref.Namespace = g.of("shop", "lab")
		}
		b.Spec.ParamRef = ref
	}
	return b
}

// expressions makes expressions.
type expressions struct {
	*generator
	params    bool
	variables []string
}

// path is something that expressions can name.
func (e *expressions) path() string {
	fixed := []string{
		"object", "oldObject", "object.metadata", "object.metadata.labels", "object.metadata.name", "object.spec", "object.status", "oldObject.spec", "object.data", "object.kind", "object.apiVersion",
		"request", "request.name", "request.namespace", "request.operation", "request.subResource", "request.kind", "request.kind.version", "request.resource", "request.resource.group",
		"request.requestKind.kind", "request.requestResource.version", "request.requestSubResource", "request.dryRun", "request.options", "request.userInfo", "request.userInfo.username", "request.userInfo.groups", "request.userInfo.extra",
		"request.userInfo.uid", "request.options.fieldManager", "namespaceObject", "namespaceObject.metadata.name", "namespaceObject.metadata.labels", "namespaceObject.metadata.annotations", "namespaceObject.status.phase",
		"object.spec.replicas", "object.spec.containers", "object.a", "object.spec.a", "object.spec.list",
	}
	if e.params {
		fixed = append(fixed, "params", "params", "params.data", "params.data.a", "params.spec", "params.spec.a", "params.spec.list", "params.metadata.name", "params.metadata.labels", "params.kind", "params.a", "params.data.maxReplicas", "params.parameters")
	}
	fixed = append(fixed, e.variables...)
	fixed = append(fixed, e.variables...)
	if len(e.paths) == 0 || e.maybe(0.35) {
		return fixed[e.Intn(len(fixed))]
	}
	path := e.paths[e.Intn(len(e.paths))]
	switch e.Intn(10) {
	case 0:
		return path + ".missing"
	case 1:
		return path + "[" + e.of("0", "1", "-1", "'a'", "1.0", "dyn(0.0)", "dyn('a')", "dyn(1u)", "null") + "]"
	case 2:
		if i := strings.LastIndex(path, "."); i > 0 {
			return path[:i] + ".?" + path[i+1:]
		}
		return path
	default:
		return path
	}
}

func (e *expressions) literal() string {
	switch e.Intn(4) {
	case 0:
		return celString(e.text())
	case 1:
		return e.of("null", "true", "false", "0", "1", "-1", "1u", "1.0", "1.5", "80", "9007199254740993", "9223372036854775807", "-9223372036854775808", "1e30", "0.1")
	case 2:
		return e.of("[]", "{}", "[1]", "['a', 'b']", "[1, 'a', null]", "{'a': 1}", "{'a': null}", "[[1], [2]]", "{'env': 'prod'}")
	default:
		return e.of("b'a'", "duration('1h')", "timestamp('2026-01-02T03:04:05Z')", "quantity('1Gi')", "double('NaN')", "optional.of(1)", "optional.none()", "type(1)", "string", "int", "{'a': 1}.a")
	}
}

// celString returns a string literal of CEL.
func celString(s string) string {
	var out strings.Builder
	out.WriteByte('\'')
	for _, r := range s {
		switch {
		case r == '\'' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < ' ':
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String() + "'"
}

// any returns an expression of any type.
func (e *expressions) any(depth int) string {
	if depth <= 0 || e.maybe(0.35) {
		if e.maybe(0.65) {
			return e.path()
		}
		return "dyn(" + e.literal() + ")"
	}
	a, b := e.any(depth-1), e.any(depth-1)
	switch e.Intn(24) {
	case 0:
		return "string(" + a + ")"
	case 1:
		return "int(" + a + ")"
	case 2:
		return "double(" + a + ")"
	case 3:
		return "size(" + a + ")"
	case 4:
		return "type(" + a + ")"
	case 5:
		return "(" + a + " + " + b + ")"
	case 6:
		return "(" + a + " " + e.of("-", "*", "/", "%") + " " + b + ")"
	case 7:
		return "(" + e.bool(depth-1) + " ? dyn(" + a + ") : dyn(" + b + "))"
	case 8:
		return a + ".orValue(" + b + ")"
	case 9:
		return "[" + a + ", " + b + "]"
	case 10:
		return "{'a': " + a + "}"
	case 11:
		return "dyn(" + a + ")"
	case 12:
		return a + ".filter(x, " + e.item(depth-1) + ")"
	case 13:
		return a + "[" + e.of("0", "1", "'a'", "dyn(0.0)", "dyn(1.5)", "size("+a+")-1") + "]"
	case 14:
		return "quantity(string(" + a + "))"
	case 15:
		return "timestamp(" + a + ")"
	case 16:
		return "duration(" + a + ")"
	case 17:
		return "bytes(" + a + ")"
	case 18:
		return "string(" + a + ")." + e.of("lowerAscii()", "trim()", "split(',')", "replace('a', 'b')", "substring(1)", "indexOf('a')", "charAt(0)", "upperAscii()")
	case 19:
		return "uint(" + a + ")"
	case 20:
		return "bool(" + a + ")"
	case 21:
		return "optional.ofNonZeroValue(" + a + ")"
	case 22:
		return "-" + a
	default:
		return a + ".?" + e.of("a", "b", "spec", "labels", "name") + e.of("", ".orValue('none')", ".hasValue()")
	}
}

// item returns a condition on x, an element.
func (e *expressions) item(depth int) string {
	return e.of("x == 'a'", "has(x.name)", "x.name == 'a'", "x > 1", "x != null", "x.v == 1", "x in ['a', 1]", "string(x) == 'a'", "type(x) == string", "x == "+e.any(depth-1))
}

// bool returns a condition.
func (e *expressions) bool(depth int) string {
	if depth <= 0 {
		return e.of("true", "false", e.path()+" == "+e.literal(), "has("+e.selection()+")")
	}
	a, b := e.any(depth-1), e.any(depth-1)
	switch e.Intn(26) {
	case 0, 1, 2:
		return a + " " + e.of("==", "!=") + " " + b
	case 3, 4:
		return a + " " + e.of("==", "!=") + " " + e.literal()
	case 5:
		return a + " " + e.of("<", "<=", ">", ">=") + " " + b
	case 6:
		return a + " in " + b
	case 7:
		return "(" + e.bool(depth-1) + " && " + e.bool(depth-1) + ")"
	case 8:
		return "(" + e.bool(depth-1) + " || " + e.bool(depth-1) + ")"
	case 9:
		return "!(" + e.bool(depth-1) + ")"
	case 10, 11:
		return "has(" + e.selection() + ")"
	case 12:
		return a + "." + e.of("all", "exists", "exists_one") + "(x, " + e.item(depth-1) + ")"
	case 13:
		return "string(" + a + ")." + e.of("startsWith", "endsWith", "contains", "matches") + "(" + celString(e.of("a", "web", "", "^[a-z]+$", "1")) + ")"
	case 14:
		return "quantity(string(" + a + "))." + e.of("isLessThan", "isGreaterThan") + "(quantity('1'))"
	case 15:
		return e.of("isQuantity", "isURL", "isIP", "isCIDR", "isSemver") + "(string(" + a + "))"
	case 16:
		return "timestamp(" + a + ") < timestamp('2030-01-01T00:00:00Z')"
	case 17:
		return e.authorizer()
	case 18:
		return "!(double(" + a + ") > 5.0)"
	case 19:
		return "type(" + a + ") == " + e.of("int", "string", "double", "list", "map", "null_type", "bool", "type("+b+")")
	case 20:
		return "sets." + e.of("contains", "intersects", "equivalent") + "(" + a + ", " + b + ")"
	case 21:
		return a + ".isSorted()"
	case 22:
		return "cel.bind(x, " + a + ", " + e.item(depth-1) + ")"
	case 23:
		return a + " == true"
	case 24:
		return a + ".hasValue()"
	default:
		return "(" + e.bool(depth-1) + " ? " + e.bool(depth-1) + " : " + e.bool(depth-1) + ")"
	}
}

// selection returns a field that has can ask about.
func (e *expressions) selection() string {
	path := e.path()
	if strings.HasSuffix(path, "]") || !strings.Contains(path, ".") || strings.Contains(path, ".?") {
		return path + "." + e.of("a", "name", "spec", "labels")
	}
	return path
}

func (e *expressions) authorizer() string {
	check := func(of string) string {
		return of + ".check('" + e.of("get", "create", "fail", "list") + "')." + e.of("allowed()", "errored()", "reason() == ''", "error() == ''")
	}
	switch e.Intn(4) {
	case 0:
		return check("authorizer.requestResource")
	case 1:
		return check("authorizer.group(" + celString(e.of("", "apps")) + ").resource('" + e.of("pods", "deployments") + "')" + e.of("", ".namespace('shop')", ".name('web')", ".subresource('exec')"))
	case 2:
		return check("authorizer.path('/healthz')")
	default:
		return check("authorizer.serviceAccount('shop', 'web').group('').resource('pods')")
	}
}

// message returns an expression for a text.
func (e *expressions) message() string {
	a := e.any(1)
	return e.of("'seen'", "'  '", "'a\\nb'", "string("+a+")", "'is ' + string("+a+")", "'"+strings.Repeat("x", 100)+"' + string("+a+")", "string(request.userInfo.groups[0])",
		"'%s and %v'.format(["+a+", 1])", "type("+a+") == string ? string("+a+") : 'other'")
}
