package convert

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
)

// mutate translates a rule that mutates. If Kyverno makes rules about pod templates of it, there are further mutations for these.
func (c *ruleConverter) mutate() ([]*part, error) {
	first, err := c.mutateObject()
	if err != nil || !c.checksTemplates() {
		return []*part{first}, err
	}
	out := []*part{first}
	for _, t := range []struct {
		suffix, path string
		kinds        []string
	}{
		{"templates", "spec.template", []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "ReplicationController"}},
		{"cronjobs", "spec.jobTemplate.spec.template", []string{"CronJob"}},
	} {
		rule := *c.rule
		if rule.Match = *rule.Match.about(t.kinds); rule.Exclude != nil {
			rule.Exclude = rule.Exclude.about(t.kinds)
		}
		to := &part{rule: c.rule.Name, index: c.index, suffix: t.suffix}
		rc := &ruleConverter{policyConverter: c.policyConverter, part: to, rule: &rule, template: strings.Split(t.path, ".")}
		if _, err = rc.mutateObject(); err != nil {
			return nil, err
		}
		out = append(out, to)
	}
	return out, nil
}

// about returns filters for other kinds.
func (f *filters) about(kinds []string) *filters {
	out := &filters{Any: slices.Clone(f.Any), All: slices.Clone(f.All), filter: f.filter}
	blocks, _, _ := out.all("")
	for _, b := range blocks {
		if len(b.Resources.Kinds) > 0 {
			b.Resources.Kinds = kinds
		}
	}
	return out
}

// mutateObject translates the mutation of the object itself.
func (c *ruleConverter) mutateObject() (*part, error) {
	m := c.rule.Mutate
	if len(m.Targets) > 0 {
		return nil, unsupported("mutate.targets", "change existing objects with kubectl, or use a controller", "the mutation of other objects than that of the request")
	}
	if err := c.match([]string{"CREATE", "UPDATE"}, true); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(c.matched.operations, func(o admissionregistrationv1.OperationType) bool {
		return o != admissionregistrationv1.Create && o != admissionregistrationv1.Update
	}) {
		return nil, unsupported("match", "match CREATE and UPDATE", "the mutation of connections")
	}
	if !c.matched.takeLate().IsTrue() {
		return nil, unsupported("match", "use a namespaceSelector alone", "a namespaceSelector among alternatives or excluded, in a rule that mutates")
	}
	if c.index > 0 && c.rule.Preconditions != nil && c.policy.Rules[c.index-1].Mutate != nil {
		c.note("Kyverno applies the rules of a policy that mutate in their order, and the API server in that of the policies' names")
	}
	c.mutates = true
	s := c.scope
	s.Names = s.Names.With("i")
	root := place{expr: celexpr.Raw("object"), kind: c.matched.types()}
	for _, step := range c.template {
		root, _ = root.member(step)
	}
	switch {
	case len(m.ForEach) > 0:
		for i := range m.ForEach { // each sees what the ones before it have changed
			once, o := c.mutateLoop(&m.ForEach[i], fmt.Sprintf("mutate.foreach[%d]", i), root, s, 0)
			c.addPatch(append(once, o...))
		}
	case m.PatchesJSON6902 != "":
		c.addPatch(c.jsonOperations(m.PatchesJSON6902, "mutate.patchesJson6902", root, s))
	default:
		patch, _ := m.PatchStrategicMerge.(map[string]any)
		b := &patcher{ruleConverter: c, scope: s, field: "mutate.patchStrategicMerge"}
		o, conditions := b.object(root, patch, nil)
		if e := celexpr.And(conditions...); !e.IsTrue() {
			c.matched.conditions = append(c.matched.conditions, guard{"patch-applies", e})
		}
		if c.addPatch(o); len(o) == 0 {
			c.fail(unsupported("mutate", "remove the rule", "a mutation that changes nothing"))
		}
	}
	return c.part, c.failed
}

// place is a part of an object that is there.
type place struct {
	path pointer
	expr celexpr.Expr
	kind celexpr.Type
	// element reports whether it is an element of a list.
	element bool
}

// pointer is a JSON pointer: texts and expressions of indexes.
type pointer []celexpr.Expr

// member returns the pointer of a member or element.
func (p pointer) member(name string) pointer {
	return append(slices.Clone(p), celexpr.Raw("/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name)))
}

// computed returns the pointer of a member or element whose name is the value of an expression.
func (p pointer) computed(name celexpr.Expr) pointer {
	return append(slices.Clone(p), celexpr.Raw("/"), name)
}

// isStatic reports whether the pointer is the same for all elements of loops.
func (p pointer) isStatic() bool {
	return !slices.ContainsFunc(p, func(e celexpr.Expr) bool { return !strings.HasPrefix(e.String(), "/") || e.String() == "/" })
}

// text returns the pointer as an expression.
func (p pointer) text() celexpr.Expr {
	var parts []celexpr.Expr
	literal := ""
	for _, part := range p {
		if text := part.String(); strings.HasPrefix(text, "/") {
			literal += text
			continue
		}
		parts = append(parts, celexpr.Str(literal), part)
		literal = ""
	}
	if literal != "" {
		parts = append(parts, celexpr.Str(literal))
	}
	return celexpr.Add(parts...)
}

// member returns a member of a place, which is there if has holds.
func (p place) member(name string) (inner place, has celexpr.Expr) {
	v := jmespath.Of(p.expr, p.kind).Member(name)
	return place{path: p.path.member(name), expr: v.Expr, kind: v.Type}, celexpr.And(v.Present)
}

// operations are expressions of lists of operations, which follow each other.
type operations []celexpr.Expr

func (o operations) expr() celexpr.Expr {
	if len(o) == 0 {
		return celexpr.List()
	}
	return celexpr.Add(o...)
}

// when returns operations that are done under a condition.
func (o operations) when(condition celexpr.Expr, otherwise operations) operations {
	switch {
	case condition.IsTrue():
		return o
	case condition.IsFalse():
		return otherwise
	case len(o) == 0 && len(otherwise) == 0:
		return nil
	}
	return operations{celexpr.If(condition, o.expr(), otherwise.expr())}
}

// single returns one operation of a JSON patch.
func single(op string, path pointer, value celexpr.Expr) operations {
	text := "JSONPatch{op: " + celexpr.Quote(op) + ", path: " + path.text().String()
	if !value.IsZero() {
		text += ", value: " + value.String()
	}
	return operations{celexpr.List(celexpr.Raw(text + "}"))}
}

// indexName returns the name of the index of a loop within so many others.
func indexName(depth int) string { return string(rune('i' + depth)) } //nolint:gosec // behind z it is no name, and refused

// each returns the operations of a loop over the elements of a list, by their index.
func each(list celexpr.Expr, index string, condition celexpr.Expr, body operations, backwards bool) operations {
	if len(body) == 0 {
		return nil
	}
	loop := celexpr.Func("lists.range", celexpr.Func("size", list))
	if backwards {
		loop = celexpr.Call(loop, "reverse")
	}
	loop = celexpr.Macro(loop, "filter", index, condition)
	if one, ok := body.expr().Only(); ok {
		return operations{celexpr.Call(loop, "map", celexpr.Raw(index), one)}
	}
	return operations{celexpr.Call(celexpr.Call(loop, "map", celexpr.Raw(index), body.expr()), "flatten")}
}

// addPatch adds operations as a mutation of the policy.
func (c *ruleConverter) addPatch(o operations) {
	if len(o) == 0 {
		return
	}
	c.mutations = append(c.mutations, admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: c.hoist(o.expr()).Format()},
	})
}

// mutateLoop translates a loop: to operations that are the same for all elements, which are done once and before the others, and to
// operations about each element.
func (c *ruleConverter) mutateLoop(f *forEachMutate, field string, root place, s jmespath.Scope, depth int) (once, all operations) {
	list, ok := c.listOf(&f.loop, field, s, depth)
	if !ok {
		return nil, nil
	}
	index := indexName(depth)
	inner, condition := c.enter(&f.loop, field, s, depth, map[string]jmespath.Value{
		"element":      {Expr: celexpr.At(list.List(), celexpr.Raw(index)), Type: list.Type.Elem(), Name: list.Name},
		"elementIndex": jmespath.Of(celexpr.Raw(index), celexpr.Plain(celexpr.Number)),
	})
	var o operations
	conditions := []celexpr.Expr{condition}
	patch, isMerge := f.PatchStrategicMerge.(map[string]any)
	switch {
	case len(f.ForEach) > 0:
		for i := range f.ForEach {
			first, of := c.mutateLoop(&f.ForEach[i], fmt.Sprintf("%s.foreach[%d]", field, i), root, inner, depth+1)
			o = append(append(o, first...), of...)
		}
	case f.PatchesJSON6902 != "":
		o = c.jsonOperations(f.PatchesJSON6902, field+".patchesJson6902", root, inner)
	case isMerge:
		b := &patcher{ruleConverter: c, scope: inner, field: field + ".patchStrategicMerge", loop: list.List(), index: index, depth: depth + 1}
		var of []celexpr.Expr
		o, of = b.object(root, patch, nil)
		conditions = append(conditions, of...)
	default:
		c.fail(unsupported(field, "write the mutation in CEL", "a loop without a patch"))
	}
	// An element that is removed moves those behind it.
	holds := celexpr.And(conditions...)
	var perElement operations
	for _, e := range o {
		if e.Mentions("["+index+"]") || e.Mentions("string("+index+")") {
			perElement = append(perElement, e)
			continue
		}
		indexes := celexpr.Func("lists.range", celexpr.Func("size", list.List()))
		once = append(once, operations{e}.when(celexpr.Macro(indexes, "exists", index, holds), nil)...)
	}
	backwards := strings.EqualFold(f.Order, "Descending") || f.Order == "" && strings.Contains(f.PatchesJSON6902, "op: remove")
	return once, each(list.List(), index, holds, perElement, backwards)
}

// mutation returns a policy that mutates, with its binding, and what it is.
func (c *policyConverter) mutation(m *part, name string, _ *Result) ([]*object, converted, error) {
	for i := range m.matched.rules { // a mutation cannot change a pod by the subresource for ephemeral containers
		r := &m.matched.rules[i]
		r.Resources = slices.DeleteFunc(r.Resources, func(name string) bool { return name == "pods/ephemeralcontainers" })
	}
	failure := c.failurePolicy()
	spec := admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{NamespaceSelector: m.matched.selector, ResourceRules: m.matched.rules},
		MatchConditions:  matchConditions(m.matched.conditions, c.policy.Spec.WebhookConfiguration.MatchConditions...),
		Variables:        m.variables, Mutations: m.mutations, FailurePolicy: &failure, ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
	}
	for i := range m.mutations { // what inserts elements would insert them again
		if p := m.mutations[i].JSONPatch; p != nil && (strings.Contains(p.Expression, `/-"`) || strings.Contains(p.Expression, `/0"`)) {
			spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
		}
	}
	binding := admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}
	spec.ParamKind, binding.ParamRef = paramsOf(m.params)
	objects := []*object{
		upstream("MutatingAdmissionPolicy", keptMeta(name, c.policy.Metadata), spec),
		upstream("MutatingAdmissionPolicyBinding", metav1.ObjectMeta{Name: name}, binding),
	}
	return objects, converted{
		part: m, of: c.source, kind: "MutatingAdmissionPolicy", name: name, namespace: m.matched.selector != nil,
	}, nil
}
