package convert

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/pattern"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// ruleConverter translates one rule.
type ruleConverter struct {
	*policyConverter
	// part is what the rule becomes.
	*part
	rule *rule
	// object is the expression of the object.
	object celexpr.Expr
	// template is the path of the pod template that the rule sees as the object, nil if it sees the object itself.
	template []string
	// scope is what expressions of the rule see.
	scope jmespath.Scope
	notes []string
	// failed is the first construct that has no translation.
	failed error
}

// fail keeps the first error.
func (c *ruleConverter) fail(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

func (c *ruleConverter) note(format string, args ...any) {
	c.notes = union(c.notes, fmt.Sprintf(format, args...))
}

// part is what a rule becomes: a policy.
type part struct {
	rule string
	// index is that of the rule, and matched what it is about.
	index   int
	matched *matched
	// templates reports whether pod templates are checked.
	templates bool
	// existing reports whether objects that violate the rule already may be updated.
	existing bool
	actions  []admissionregistrationv1.ValidationAction
	override []actionOverride

	variables   []admissionregistrationv1.Variable
	validations []v1alpha1.Validation
	annotations []admissionregistrationv1.AuditAnnotation
	podSecurity *v1alpha1.PodSecurity
	// exempt are controls of podSecurity that are left out for some containers.
	exempt []exemption
	params *configMapReference
	// ofNamespace are the paths in the namespace that variables have the values of.
	ofNamespace map[string][]string
	paramKind   *admissionregistrationv1.ParamKind
	paramRef    *admissionregistrationv1.ParamRef

	// mutates reports whether the rule mutates, by mutations. Suffix is what the name of the policy has at its end, "" for the rule itself.
	mutates   bool
	mutations []admissionregistrationv1.Mutation
	suffix    string
}

// audits reports whether a violation denies nothing.
func (p *part) audits() bool { return !slices.Contains(p.actions, admissionregistrationv1.Deny) }

// validate translates a rule that validates.
func (c *ruleConverter) validate() (*part, error) {
	v := c.rule.Validate
	switch {
	case v.Manifests != nil:
		return nil, unsupported("validate.manifests", "keep it in a program that verifies signatures", "the check of signed manifests")
	case v.Assert != nil:
		return nil, unsupported("validate.assert", "write it in CEL", "an assertion tree")
	case c.rule.ImageExtractors != nil:
		return nil, unsupported("validate", "name the fields in CEL", "image extractors")
	}
	operations := []string{"CREATE", "UPDATE"}
	if v.Deny != nil && len(v.ForEach) == 0 {
		operations = append(operations, "DELETE")
	}
	if err := c.match(operations, v.Deny == nil); err != nil {
		return nil, err
	}
	if c.override = v.FailureActionOverrides; c.override == nil {
		c.override = c.policy.Spec.ValidationFailureActionOverrides
	}
	c.part.actions = c.policyConverter.actions(v.FailureAction)
	if c.templates = c.checksTemplates(); c.templates {
		if of := c.policy.Metadata.Annotations[autogenControllers]; of != "" {
			c.notes = append(c.notes, someTemplates(strings.Split(strings.ReplaceAll(of, " ", ""), ","))...)
		}
	}
	if raw := fmt.Sprint(toJSON(c.rule)); c.templates && strings.Contains(raw, `request."object"`) {
		return nil, unsupported("", "annotate the policy with pod-policies.kyverno.io/autogen-controllers: none, or write a second rule",
			"request.\"object\", which is the workload and not the pod in the rules that Kyverno makes of this one")
	}
	c.existing = v.AllowExistingViolations == nil || *v.AllowExistingViolations
	var err error
	switch {
	case v.CEL != nil:
		err = c.expressions(v.CEL)
	case v.PodSecurity != nil:
		err = c.standard(v.PodSecurity)
	default:
		err = c.rules(v)
	}
	if c.paramKind == nil {
		c.paramKind, c.paramRef = paramsOf(c.params)
	}
	return c.part, err
}

// checksTemplates reports whether the rule is about pod templates too.
func (c *ruleConverter) checksTemplates() bool { return c.autogen && c.matched.onlyPods() }

// actions returns what a violation leads to.
func (c *policyConverter) actions(action string) []admissionregistrationv1.ValidationAction {
	if len(c.options.Actions) > 0 {
		return c.options.Actions
	}
	switch {
	case strings.EqualFold(cmp.Or(action, c.policy.Spec.ValidationFailureAction), "Enforce"):
		return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	case c.policy.Spec.EmitWarning:
		return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn, admissionregistrationv1.Audit}
	default:
		return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	}
}

// match translates what selects requests: filters, the operations of preconditions, and preconditions. Operations are those that Kyverno
// sends without any. Patterns are not about deletions.
func (c *ruleConverter) match(operations []string, patterns bool) error {
	allowed, preconditions := operationsOf(c.decodeConditions(c.rule.Preconditions, "preconditions"), possibleOperations)
	filters, _, _ := c.rule.Match.all("match")
	deleted := patterns && c.rule.Validate != nil && slices.ContainsFunc(filters, func(f *filter) bool {
		return len(f.Resources.Operations) == 0 || slices.Contains(f.Resources.Operations, "DELETE")
	})
	refusesMore := len(allowed) < len(possibleOperations) || deleted
	if deleted && c.rule.Validate.CEL != nil && !strings.Contains(fmt.Sprint(c.rule.CELPreconditions), "request.operation") {
		c.note("Kyverno refuses to delete what violates the rule, too")
	}
	if patterns {
		allowed = slices.DeleteFunc(slices.Clone(allowed), func(o string) bool { return o == "DELETE" })
	}
	c.object = celexpr.Raw("object")
	if err := c.readMatch(operations, allowed); err != nil {
		return err
	}
	deletes := slices.Contains(c.matched.operations, admissionregistrationv1.Delete)
	if deletes {
		if c.object = celexpr.Raw("oldObject"); len(c.matched.operations) > 1 {
			c.object = celexpr.Raw("(" + changedOrDeleted + ")")
		}
		if err := c.readMatch(operations, allowed); err != nil {
			return err
		}
	}
	if c.policy.Kind == "Policy" {
		of := celexpr.Eq(namespaceOf(c.matched.targets), celexpr.Str(c.policy.Metadata.Namespace))
		c.matched.conditions = append([]guard{{"namespace-of-policy", of}}, c.matched.conditions...)
	}
	c.readContext()
	_, notes, err := adaptExpressions(&c.rule.CELPreconditions, "celPreconditions")
	c.notes = union(c.notes, notes...)
	c.fail(err)
	for _, m := range c.rule.CELPreconditions {
		c.matched.conditions = append(c.matched.conditions, guard{m.Name, celexpr.Func("", celexpr.Raw(m.Expression))})
	}
	e, canFail := c.preconditions(preconditions)
	if canFail && refusesMore {
		c.note("Kyverno refuses other operations too, on an object without a value that the preconditions name")
	}
	if !e.IsTrue() {
		c.matched.conditions = append(c.matched.conditions, guard{"preconditions", e})
	}
	if slices.ContainsFunc(c.matched.conditions, func(g guard) bool { return g.expr.IsFalse() }) {
		c.fail(unsupported("match", "remove the rule", "a rule that never applies: its conditions never hold"))
	}
	if !deletes || len(c.matched.operations) == 1 {
		return c.failed
	}
	// Match conditions see no variables, and all other expressions do.
	c.object = celexpr.Raw("variables.resource")
	c.variables = append(c.variables, admissionregistrationv1.Variable{Name: "resource", Expression: changedOrDeleted})
	c.readContext()
	return c.failed
}

// possibleOperations are all, in the order of rules.
var possibleOperations = []string{"CREATE", "UPDATE", "DELETE", "CONNECT"} //nolint:gochecknoglobals // it is constant

// changedOrDeleted is the object that a request is about.
const changedOrDeleted = `request.operation == "DELETE" ? oldObject : object`

// root returns the value of a name that Kyverno defines.
func (c *ruleConverter) root(name string) (jmespath.Value, error) {
	switch name {
	case "request":
		return c.request(), nil
	case "serviceAccountName", "serviceAccountNamespace":
		user := celexpr.Raw("request.userInfo.username")
		index := map[string]int64{"serviceAccountNamespace": 2, "serviceAccountName": 3}[name]
		is := celexpr.Call(user, "startsWith", celexpr.Str("system:serviceaccount:"))
		part := celexpr.At(celexpr.Call(user, "split", celexpr.Str(":")), celexpr.Int(index))
		return jmespath.Of(celexpr.If(is, part, celexpr.Str("")), celexpr.Plain(celexpr.String)), nil
	case "images":
		return jmespath.Value{}, unsupported("", "name the containers and write it in CEL", "the variable images, the parts of image names")
	case "target":
		return jmespath.Value{}, unsupported("", "change existing objects with kubectl", "the variable target, an existing object")
	default:
		return jmespath.Value{}, unsupported("", "define it in the rule's context", "the variable %q, which the rule does not define", name)
	}
}

// request returns the value of the name request.
func (c *ruleConverter) request() jmespath.Value {
	text := celexpr.Plain(celexpr.String)
	of := func(expr string, t celexpr.Type) jmespath.Value { return jmespath.Of(celexpr.Raw(expr), t) }
	object := jmespath.Of(c.object, c.matched.types())
	old := of("oldObject", c.matched.types())
	for _, step := range c.template {
		object, old = object.Member(step), old.Member(step)
	}
	if slices.Contains(c.matched.operations, admissionregistrationv1.Create) || slices.Contains(c.matched.operations, admissionregistrationv1.Connect) {
		old.Opt, old.Present = celexpr.Raw("optional.ofNonZeroValue(oldObject)"), celexpr.Raw("oldObject != null")
	}
	user := jmespath.Value{Expr: celexpr.Raw("request.userInfo"), Name: "request.userInfo", Members: map[string]jmespath.Value{
		"username": of("request.userInfo.username", text), "uid": of("request.userInfo.uid", text),
		"groups": {Expr: celexpr.Raw("request.userInfo.groups"), Type: celexpr.ListOf(text), Name: "groups"},
		"extra":  of("request.userInfo.extra", celexpr.MapOf(celexpr.ListOf(text))),
	}}
	kind := func(field string) jmespath.Value {
		return jmespath.Value{Expr: celexpr.Raw("request." + field), Name: "request." + field, Members: map[string]jmespath.Value{
			"group": of("request."+field+".group", text), "version": of("request."+field+".version", text),
			"kind": of("request."+field+".kind", text), "resource": of("request."+field+".resource", text),
		}}
	}
	return jmespath.Value{Expr: celexpr.Raw("request"), Name: "request", Members: map[string]jmespath.Value{
		"object": object, "oldObject": old, "namespace": of("request.namespace", text), "name": of("request.name", text),
		"operation": of("request.operation", text), "userInfo": user, "kind": kind("kind"), "resource": kind("resource"),
		"subResource": of("request.subResource", text), "uid": of("request.uid", text), "dryRun": of("request.dryRun", celexpr.Plain(celexpr.Truth)),
	}}
}

// readContext defines the variables of the rule.
func (c *ruleConverter) readContext() {
	c.scope = jmespath.Scope{Root: c.root}
	c.readLocal(c.rule.Context, "context", &c.scope)
}

// translate translates an expression in JMESPath.
func (c *ruleConverter) translate(text, field string, s jmespath.Scope) jmespath.Value {
	v, err := jmespath.Translate(text, s)
	c.fail(atField(field, err))
	return v
}

// contextValue returns the value of a variable.
func (c *ruleConverter) contextValue(e *contextEntry, field string, s jmespath.Scope) jmespath.Value {
	refuse := func(below, instead, construct string) jmespath.Value {
		c.fail(unsupported(field+below, instead, "%s", construct))
		return jmespath.Value{}
	}
	switch {
	case e.APICall != nil:
		var of jmespath.Value
		isPlain := e.APICall.Service == nil && cmp.Or(e.APICall.Method, "GET") == "GET" && e.APICall.Default == nil
		configMap := configMapCall.FindStringSubmatch(e.APICall.URLPath)
		switch {
		case isPlain && namespaceCall.MatchString(e.APICall.URLPath):
			if m := metadataPath.FindStringSubmatch(e.APICall.JMESPath); m != nil {
				if c.ofNamespace == nil {
					c.ofNamespace = map[string][]string{}
				}
				c.ofNamespace[e.Name] = []string{m[1], m[2] + m[3]}
			}
			of = jmespath.Of(celexpr.Raw("namespaceObject"), celexpr.Object(reflect.TypeFor[corev1.Namespace]()))
		case isPlain && configMap != nil:
			of = c.contextValue(&contextEntry{ConfigMap: &configMapReference{Namespace: configMap[1], Name: configMap[2]}}, field, s)
		default:
			return refuse(".apiCall", "use params, or a controller that writes what is needed into a label or annotation", "a request to the API server or a service")
		}
		if e.APICall.JMESPath == "" {
			return of
		}
		s.Root = func(name string) (jmespath.Value, error) { return of.Member(name), nil }
		return c.translate(e.APICall.JMESPath, field+".apiCall.jmesPath", s)
	case e.ImageRegistry != nil:
		return refuse(".imageRegistry", "keep it in a program that reads registries", "a request to an image registry")
	case e.GlobalReference != nil:
		return refuse(".globalReference", "use params", "an entry of Kyverno's global context")
	case e.ConfigMap != nil:
		if c.params != nil && *c.params != *e.ConfigMap {
			return refuse(".configMap", "put both into one ConfigMap", "a second ConfigMap")
		}
		if hasVariables(e.ConfigMap.Name) || hasVariables(e.ConfigMap.Namespace) {
			return refuse(".configMap", "use a paramRef without a name, or a fixed one", "a ConfigMap whose name is computed")
		}
		c.params = e.ConfigMap
		return jmespath.Of(celexpr.Raw("params"), celexpr.Object(reflect.TypeFor[corev1.ConfigMap]()))
	}
	v := cmp.Or(e.Variable, &contextVariable{})
	if strings.Contains(v.JMESPath, "request.object") && slices.Contains(c.matched.operations, admissionregistrationv1.Delete) {
		c.note("at a deletion, the variable %s is about the object that is deleted: with Kyverno it has no value", e.Name)
	}
	value := c.resolve(v.Value, field+".variable.value", s)
	switch {
	case v.JMESPath != "" && v.Value != nil:
		return refuse(".variable.jmesPath", "write the part of the value that it is about", "jmesPath of a value")
	case v.JMESPath != "":
		value = c.translate(v.JMESPath, field+".variable.jmesPath", s)
	}
	if v.Default == nil || value.Always() {
		return value
	}
	fallback := c.resolve(v.Default, field+".variable.default", s)
	value = jmespath.Value{Expr: value.OrElse(fallback.Expr), Type: value.Type, Name: value.Name}
	if value.Type.Kind() == celexpr.Unknown {
		value.Type = fallback.Type
	}
	return value
}

var (
	namespaceCall = regexp.MustCompile(`^/api/v1/namespaces/\{\{\s*request\.(namespace|object\.metadata\.namespace)\s*\}\}$`)
	configMapCall = regexp.MustCompile(`^/api/v1/namespaces/([\w.-]+)/configmaps/([\w.-]+)$`)
	// metadataPath matches the path of a label or annotation.
	metadataPath = regexp.MustCompile(`^metadata\.(labels|annotations)\.(?:"([^"]+)"|([A-Za-z0-9_]+))(?:\s*\|\|.*)?$`)
)

// rules translates a pattern, conditions or loops into a validation.
func (c *ruleConverter) rules(v *validateRule) error {
	e := c.check(&v.checks, "validate", jmespath.Of(c.object, c.matched.types()), c.scope, 0)
	if e.IsTrue() {
		c.fail(unsupported("validate", "remove the rule", "a rule that never fails"))
	}
	e = celexpr.Or(celexpr.Not(c.matched.takeLate()), e)
	if e.IsFalse() && c.matched.selector == nil && len(c.matched.conditions) == 0 {
		c.note("every request that it matches violates the rule")
	}
	one := v1alpha1.Validation{Name: ruleName(c.rule.Name)}
	one.Expression = celexpr.Condition(c.hoist(e)).Format()
	c.message(&one, v.Message)
	c.validations = append(c.validations, one)
	return c.failed
}

// hoist makes variables of parts of an expression that stand in it several times.
func (c *ruleConverter) hoist(e celexpr.Expr) celexpr.Expr {
	e, variables := celexpr.Hoist(e, func(name string) bool {
		return slices.ContainsFunc(c.variables, func(v admissionregistrationv1.Variable) bool { return v.Name == name })
	})
	for _, v := range variables {
		c.variables = append(c.variables, admissionregistrationv1.Variable{Name: v.Name, Expression: v.Expr.Format()})
	}
	return e
}

// check translates what a value is checked by, within so many loops.
func (c *ruleConverter) check(of *checks, field string, value jmespath.Value, s jmespath.Scope, nesting int) celexpr.Expr {
	switch {
	case len(of.ForEach) > 0:
		return c.loops(of.ForEach, field, value, s, nesting)
	case of.Deny != nil && of.Deny.Conditions == nil:
		return celexpr.False
	case of.Deny != nil:
		return c.allowedBy(of.Deny.Conditions, field+".deny.conditions", s)
	case of.Pattern != nil:
		return c.pattern(of.Pattern, field+".pattern", value, s).Allowed
	case of.AnyPattern == nil:
		c.fail(unsupported(field, "write it in CEL", "a rule without a pattern, conditions or a loop"))
	}
	// It is enough that one holds, or that none of them fails.
	var holds, allowed []celexpr.Expr
	for i, one := range of.AnyPattern {
		check := c.pattern(one, fmt.Sprintf("%s.anyPattern[%d]", field, i), value, s)
		allowed = append(allowed, check.Allowed)
		holds = append(holds, check.Holds())
	}
	if holding := celexpr.Or(holds...); holding.Equal(celexpr.Or(allowed...)) {
		return holding
	}
	return celexpr.Or(append(holds, celexpr.And(allowed...))...)
}

// pattern translates a pattern at a path below a field.
func (c *ruleConverter) pattern(of any, field string, value jmespath.Value, s jmespath.Scope, path ...string) pattern.Check {
	compiler := pattern.Compiler{Scope: s}
	check, err := compiler.Compile(value, of)
	for _, note := range compiler.Notes {
		c.note("%s", note)
	}
	c.fail(atField(field, err, path...))
	return check
}

// loops translates loops about a value, of which each must allow all its elements.
func (c *ruleConverter) loops(all []forEachValidate, field string, value jmespath.Value, s jmespath.Scope, nesting int) celexpr.Expr {
	var out []celexpr.Expr
	for i := range all {
		f := &all[i]
		at := fmt.Sprintf("%s.foreach[%d]", field, i)
		list, ok := c.listOf(&f.loop, at, s, nesting)
		if !ok {
			return celexpr.False
		}
		if list.Type.Kind() == celexpr.Unknown {
			c.note("%s is taken for a list", f.List)
		}
		name, names := s.Names.Element(list.Name)
		of := jmespath.Value{Expr: celexpr.Raw(name), Type: list.Type.Elem(), Name: list.Name}
		inner, condition := c.enter(&f.loop, at, jmespath.Scope{Root: s.Root, Names: names}, nesting, map[string]jmespath.Value{"element": of})
		// A pattern is about the element, unless it is no object or that is not wanted.
		if k := of.Type.Kind(); f.ElementScope != nil && !*f.ElementScope || f.ElementScope == nil && k != celexpr.Unknown && k != celexpr.Map && k != celexpr.Struct {
			if of = value; c.checksTemplates() && f.Deny == nil {
				c.note("%s reads a pod template like a pod: with Kyverno, it reads the workload itself", at)
			}
		}
		body := c.check(&f.checks, at, of, inner, nesting+1)
		out = append(out, celexpr.Macro(list.List(), "all", name, celexpr.Or(celexpr.Not(condition), body)))
	}
	return celexpr.And(out...)
}

// maxNesting bounds loops within loops.
const maxNesting = 5

// listOf returns the list of a loop within so many others, and false if there is no translation.
func (c *ruleConverter) listOf(l *loop, field string, s jmespath.Scope, nesting int) (jmespath.Value, bool) {
	list := c.translate(l.List, field+".list", s)
	switch k := list.Type.Kind(); {
	case nesting > maxNesting:
		c.fail(unsupported(field, "split the rule", "loops that are nested too deeply"))
	case k != celexpr.Sequence && k != celexpr.Unknown:
		c.fail(unsupported(field+".list", "name a list", "a loop over something that is no list"))
	}
	return list, c.failed == nil
}

// enter returns what the body of a loop sees, which knows the element and perhaps its index, and the condition of its preconditions.
func (c *ruleConverter) enter(l *loop, field string, s jmespath.Scope, nesting int, known map[string]jmespath.Value) (jmespath.Scope, celexpr.Expr) {
	outer := s.Root
	s.Root = func(name string) (jmespath.Value, error) {
		if v, ok := known[strings.TrimSuffix(name, strconv.Itoa(nesting))]; ok {
			return v, nil
		}
		return outer(name)
	}
	c.readLocal(l.Context, field+".context", &s)
	return s, c.elementConditions(l.Preconditions, field+".preconditions", s)
}

// readLocal defines variables, in their order.
func (c *ruleConverter) readLocal(entries []contextEntry, field string, s *jmespath.Scope) {
	for i := range entries {
		e, outer := &entries[i], s.Root
		v := c.contextValue(e, fmt.Sprintf("%s[%d]", field, i), *s)
		v.Name = cmp.Or(v.Name, e.Name)
		s.Root = func(name string) (jmespath.Value, error) {
			if name == e.Name {
				return v, nil
			}
			return outer(name)
		}
	}
}

// message sets the message of a rule, or the expression that makes it.
func (c *ruleConverter) message(one *v1alpha1.Validation, text string) {
	text = cmp.Or(plainMessage(text), "rule "+c.rule.Name+" failed")
	if jmespath.HasVariables(text) {
		if v, err := jmespath.Template(text, c.scope); err != nil {
			c.note("the message shows the variables {{ }} as they are written")
		} else {
			one.MessageExpression = v.Expr.Format()
			for innermost.MatchString(text) {
				text = innermost.ReplaceAllString(text, "…")
			}
		}
	}
	one.Message = plainMessage(text)
}

var (
	variableForm = regexp.MustCompile(`\{\{.*?\}\}+`)
	// innermost matches a variable without others in it.
	innermost = regexp.MustCompile(`\{\{[^{}]*\}\}`)
)

// plainMessage returns a message in the form that the API server accepts.
func plainMessage(text string) string { return strings.Join(strings.Fields(text), " ") }

// expressions takes over a rule that is written in CEL.
func (c *ruleConverter) expressions(of *kyvernoExpression) error {
	params, notes, err := adaptExpressions(of, "validate.cel")
	c.notes = union(c.notes, notes...)
	second := params != nil && c.params != nil && *params != *c.params
	switch c.params = cmp.Or(params, c.params); {
	case err != nil:
		return err
	case second || of.ParamKind != nil && c.params != nil:
		return unsupported("validate.cel", "put both into one ConfigMap", "a second ConfigMap")
	}
	c.paramKind, c.paramRef = of.ParamKind, of.ParamRef
	c.annotations, c.variables = of.AuditAnnotations, append(c.variables, of.Variables...)
	if !c.matched.takeLate().IsTrue() {
		return unsupported("match", "write the condition in CEL", "a namespaceSelector among alternatives, together with CEL")
	}
	for i, v := range of.Expressions {
		name := ruleName(c.rule.Name)
		if len(of.Expressions) > 1 {
			name = fmt.Sprintf("%s-%d", name, i+1)
		}
		if v.Message == "" && v.MessageExpression == "" {
			v.Message = plainMessage(c.rule.Validate.Message)
		}
		v.Message = plainMessage(v.Message)
		c.validations = append(c.validations, v1alpha1.Validation{Name: name, Validation: v})
	}
	return nil
}

// standard translates a rule by a Pod Security Standard.
func (c *ruleConverter) standard(of *kyvernoPSS) error {
	exempt, err := exemptions("validate.podSecurity.exclude", of.Exclude)
	if err != nil || slices.ContainsFunc(exempt, func(e exemption) bool { return e.containers == nil }) {
		exempt = nil
		if !c.partial(errors.New("the excluded controls"), &c.notes) {
			return cmp.Or(err, unsupported("validate.podSecurity.exclude", "write a PolicyException whose rules are the checks, such as podSecurity.hostPorts",
				"controls of a Pod Security Standard that are left out for whole pods"))
		}
	}
	if c.exempt = exempt; len(exempt) > 0 {
		c.note("its exclude is a PolicyException in gatehouse-system, with a reason to be filled in")
		c.note(noteImages)
	}
	if !slices.ContainsFunc(c.matched.targets, func(t target) bool { return t.of == reflect.TypeFor[corev1.Pod]() }) {
		return unsupported("match", "match Pod", "a Pod Security Standard for something else than pods")
	}
	c.podSecurity = &v1alpha1.PodSecurity{Level: of.Level, Version: of.Version}
	if !c.matched.takeLate().IsTrue() {
		return unsupported("match", "use a namespaceSelector alone", "a namespaceSelector among alternatives, together with podSecurity")
	}
	c.note("an update is checked only if it changes an image or adds a container, as by Kubernetes")
	return nil
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// ruleName makes the name of a rule of that of Kyverno's.
func ruleName(name string) string {
	if name = plainName(name); name == "" || name[0] < 'a' {
		name = plainName("rule-" + name)
	}
	return name
}

// plainName returns a name of letters, digits and dashes alone.
func plainName(name string) string {
	const most = 63
	name = strings.Trim(notInName.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return strings.TrimRight(name[:min(len(name), most)], "-")
}
