package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// emit writes the documents of a rule of a policy, of which several are converted: one that is not valid takes no others with it.
func (c *policyConverter) emit(parts []*part, several bool, result *Result, index int) {
	var objects []*object
	var made []converted
	var err error
	for _, p := range parts {
		name := c.policy.Metadata.Name
		if c.policy.Kind == "Policy" {
			name = c.policy.Metadata.Namespace + "-" + name
		}
		if several && p.rule != "" {
			name = joinName(name, ruleName(p.rule))
		}
		name = c.free("Policy", "", joinName(name, p.suffix), c.source, &result.Differences)
		becomes := c.validation
		if p.mutates {
			becomes = c.mutation
		}
		of, one, failed := becomes(p, name, result)
		objects, made, err = append(objects, of...), append(made, one), cmp.Or(err, failed)
	}
	c.complete(result, c.source, objects, err, []string{"spec", "rules", fmt.Sprint(index)})
	if result.Status != Not {
		c.sources[c.source].made = append(c.sources[c.source].made, made...)
	}
}

// joinName returns a name with a suffix, which is shorter, and the name itself without one.
func joinName(name, suffix string) string {
	const most = 253
	if suffix == "" {
		return name
	}
	return strings.TrimRight(name[:min(len(name), most-len(suffix)-1)], "-.") + "-" + suffix
}

// validation returns a policy that validates, with its bindings and exceptions, and what it is.
func (c *policyConverter) validation(p *part, name string, result *Result) (objects []*object, made converted, err error) {
	spec := v1alpha1.AdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{NamespaceSelector: p.matched.selector, ResourceRules: p.matched.rules},
		MatchConditions:  matchConditions(p.matched.conditions, c.policy.Spec.WebhookConfiguration.MatchConditions...),
		PodSecurity:      p.podSecurity, ParamKind: p.paramKind, AuditAnnotations: p.annotations, Variables: union(nil, p.variables...), Validations: p.validations,
	}
	if failure := c.failurePolicy(); failure == admissionregistrationv1.Ignore {
		spec.FailurePolicy = &failure
	}
	if mentions(&spec, "bject.apiVersion") { // it is about the version of the request, which must not be converted
		spec.MatchConstraints.MatchPolicy = new(admissionregistrationv1.Exact)
		for i := range spec.MatchConstraints.ResourceRules {
			spec.MatchConstraints.ResourceRules[i].APIVersions = []string{"*"}
		}
	}
	made = converted{
		part: p, of: c.source, kind: "ValidatingAdmissionPolicy", name: name,
		namespace: p.matched.selector != nil || mentions(&spec, "namespaceObject"),
	}
	if p.existing && !p.audits() && slices.Contains(p.matched.operations, admissionregistrationv1.Update) {
		made.kind = "AdmissionPolicy"
		result.Differences = append(result.Differences, "an update of an object that violates the rule already is allowed only if it does not make it worse")
	}
	if p.templates || p.podSecurity != nil { // one of Kubernetes cannot be that, either
		made.kind = "AdmissionPolicy"
	}
	for i := range p.validations {
		rule := v1alpha1.IndexedRule(i)
		if made.kind == "AdmissionPolicy" {
			rule = spec.RuleName(i)
		}
		made.rules = append(made.rules, rule)
	}
	bindings, err := p.bindings(name)
	return append(policyObjects(made.kind, keptMeta(name, c.policy.Metadata), spec, p, bindings), exceptionsOf(name, p.exempt)...), made, err
}

// failurePolicy returns what follows if a rule cannot be evaluated.
func (c *policyConverter) failurePolicy() admissionregistrationv1.FailurePolicyType {
	if strings.EqualFold(c.policy.Spec.FailurePolicy, "Ignore") || strings.EqualFold(c.policy.Spec.WebhookConfiguration.FailurePolicy, "Ignore") {
		return admissionregistrationv1.Ignore
	}
	return admissionregistrationv1.Fail
}

// paramsOf returns the params of a policy that reads a ConfigMap, none without one.
func paramsOf(r *configMapReference) (*admissionregistrationv1.ParamKind, *admissionregistrationv1.ParamRef) {
	if r == nil {
		return nil, nil
	}
	return &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		&admissionregistrationv1.ParamRef{Name: r.Name, Namespace: cmp.Or(r.Namespace, "default"), ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
}

// mentions reports whether an expression of a policy has a part.
func mentions(spec *v1alpha1.AdmissionPolicySpec, part string) bool {
	return slices.ContainsFunc(spec.Validations, func(v v1alpha1.Validation) bool { return strings.Contains(v.Expression, part) }) ||
		slices.ContainsFunc(spec.Variables, func(v admissionregistrationv1.Variable) bool { return strings.Contains(v.Expression, part) }) ||
		slices.ContainsFunc(spec.MatchConditions, func(m admissionregistrationv1.MatchCondition) bool { return strings.Contains(m.Expression, part) })
}

// matchConditions adds conditions to others, with unique names.
func matchConditions(guards []guard, others ...admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	out := slices.Clone(others)
	for _, g := range guards {
		name := g.name
		for i := 2; slices.ContainsFunc(out, func(m admissionregistrationv1.MatchCondition) bool { return m.Name == name }); i++ {
			name = fmt.Sprintf("%s-%d", g.name, i)
		}
		if !g.expr.IsTrue() {
			out = append(out, admissionregistrationv1.MatchCondition{Name: name, Expression: celexpr.Condition(g.expr).Format()})
		}
	}
	return out
}

// bindings returns the bindings of a policy: one, and others for the namespaces with other consequences. None are needed for a policy
// that has its consequences itself.
func (p *part) bindings(name string) ([]admissionregistrationv1.ValidatingAdmissionPolicyBinding, error) {
	out := []admissionregistrationv1.ValidatingAdmissionPolicyBinding{{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: p.actions, ParamRef: p.paramRef},
	}}
	var except []string
	for i, o := range p.override {
		if o.NamespaceSelector != nil || slices.ContainsFunc(o.Namespaces, func(n string) bool { return strings.ContainsAny(n, "*?") }) {
			return nil, unsupported(fmt.Sprintf("validate.failureActionOverrides[%d]", i), "write bindings with namespaceSelectors by hand",
				"an action for namespaces that are not named")
		}
		except = append(except, o.Namespaces...)
		b := out[0]
		b.Name = fmt.Sprintf("%s-%s-%d", name, strings.ToLower(o.Action), i+1)
		if b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}; strings.EqualFold(o.Action, "Enforce") {
			b.Spec.ValidationActions[0] = admissionregistrationv1.Deny
		}
		b.Spec.MatchResources = namespaceSelector(metav1.LabelSelectorOpIn, o.Namespaces)
		out = append(out, b)
	}
	if len(except) > 0 {
		out[0].Spec.MatchResources = namespaceSelector(metav1.LabelSelectorOpNotIn, except)
	}
	return out, nil
}

func namespaceSelector(operator metav1.LabelSelectorOperator, names []string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{namespaceNames(operator, names)},
	}}
}

// namespaceNames returns the requirement that a namespace has one of several names, or none of them.
func namespaceNames(operator metav1.LabelSelectorOperator, names []string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: "kubernetes.io/metadata.name", Operator: operator, Values: names}
}

// policyObjects returns a policy and its bindings.
func policyObjects(
	kind string, meta metav1.ObjectMeta, spec v1alpha1.AdmissionPolicySpec, p *part, bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding,
) []*object {
	document, policy := upstream, any(spec.Upstream())
	if kind == "AdmissionPolicy" {
		if !p.templates && slices.ContainsFunc(p.matched.targets, func(t target) bool { return t.isPod() }) {
			spec.WorkloadTemplates = v1alpha1.IgnoreTemplates
		}
		if !p.existing {
			spec.ExistingViolations = v1alpha1.DenyExisting
		}
		if len(bindings) == 1 && bindings[0].Spec.ParamRef == nil {
			spec.ValidationActions, bindings = p.actions, nil
		}
		document, policy = own, spec
	}
	objects := []*object{document(kind, meta, policy)}
	for _, b := range bindings {
		objects = append(objects, document(kind+"Binding", b.ObjectMeta, b.Spec))
	}
	return objects
}

// object is a document that is written.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       any               `json:"spec,omitempty"`
	*testParts
}

// own returns a document of Gatehouse, and upstream one of Kubernetes.
func own(kind string, meta metav1.ObjectMeta, spec any) *object {
	return &object{v1alpha1.GroupVersion.String(), kind, meta, spec, nil}
}

func upstream(kind string, meta metav1.ObjectMeta, spec any) *object {
	return &object{"admissionregistration.k8s.io/v1", kind, meta, spec, nil}
}

// write writes the documents that an object becomes, and returns their kinds and names, which a note tells if others have them. With others
// beside them, they must be a valid configuration, except for tests. If not, none is written.
func (c *converter) write(from *manifest.Object, objects []*object, notes *[]string, beside ...Document) (outputs []string, err error) {
	var documents []Document
	var keys []string
	for _, o := range objects {
		o.Metadata.Name = c.free(o.Kind, o.Metadata.Namespace, o.Metadata.Name, from, notes)
		key := writtenKey(o.Kind, o.Metadata.Namespace, o.Metadata.Name)
		keys, c.written[key] = append(keys, key), from
		text, failed := yaml.Marshal(o)
		err = cmp.Or(err, failed)
		documents = append(documents, Document{Kind: o.Kind, Name: o.Metadata.Name, From: title(from), File: from.File, Text: text})
		outputs = append(outputs, o.Kind+"/"+o.Metadata.Name)
	}
	if err == nil && objects[0].Kind != "Test" {
		err = checkCompiles(slices.Concat(beside, documents))
	}
	if err != nil {
		for _, key := range keys {
			delete(c.written, key)
		}
		return nil, err
	}
	c.out.Documents = append(c.out.Documents, documents...)
	return outputs, nil
}

// checkCompiles returns an error if documents are no valid configuration.
func checkCompiles(documents []Document) error {
	var text []byte
	for _, d := range documents {
		text = append(append(text, "---\n"...), d.Text...)
	}
	c, found := config.InspectPaths(nil, map[string][]byte{"converted.yaml": text})
	_, all := config.Compile(c, found)
	all = slices.DeleteFunc(all, func(d diagnostic.Diagnostic) bool { return d.Severity != diagnostic.Error })
	if len(all) == 0 {
		return nil
	}
	return unsupported(all[0].Field, cmp.Or(all[0].Hint, "write it in CEL"), "a policy that is not valid in Kubernetes: %s",
		strings.TrimPrefix(all[0].Field+": "+plainMessage(all[0].Message), ": "))
}
