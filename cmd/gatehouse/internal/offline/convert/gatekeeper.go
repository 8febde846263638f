package convert

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	objectschema "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// The group and version of the params that constraints become.
const (
	constraintGroup   = "constraints.gatekeeper.sh"
	constraintVersion = constraintGroup + "/v1beta1"
)

// constraintTemplate is a ConstraintTemplate of Gatekeeper.
type constraintTemplate struct {
	CRD struct {
		Spec struct {
			Names struct {
				Kind       string `json:"kind"`
				ShortNames any    `json:"shortNames"`
			} `json:"names"`
			Validation any `json:"validation"`
		} `json:"spec"`
	} `json:"crd"`
	Targets []struct {
		Target     string   `json:"target"`
		Rego       string   `json:"rego"`
		Libs       any      `json:"libs"`
		Operations []string `json:"operations"`
		Code       []struct {
			Engine string          `json:"engine"`
			Source json.RawMessage `json:"source"`
		} `json:"code"`
	} `json:"targets"`
}

// celSource is a template's code in CEL.
type celSource struct {
	FailurePolicy   *admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
	MatchConditions []admissionregistrationv1.MatchCondition   `json:"matchCondition,omitempty"`
	Conditions      []admissionregistrationv1.MatchCondition   `json:"matchConditions,omitempty"`
	Variables       []admissionregistrationv1.Variable         `json:"variables,omitempty"`
	Validations     []admissionregistrationv1.Validation       `json:"validations"`
	GenerateVAP     any                                        `json:"generateVAP,omitempty"`
}

// constraint is a constraint: the params of a template, and what it is applied to.
type constraint struct {
	EnforcementAction string          `json:"enforcementAction,omitempty"`
	Match             constraintMatch `json:"match,omitzero"`
	Parameters        any             `json:"parameters,omitempty"`
	Scoped            any             `json:"scopedEnforcementActions,omitempty"`
}

type constraintMatch struct {
	Kinds []struct {
		APIGroups []string `json:"apiGroups"`
		Kinds     []string `json:"kinds"`
	} `json:"kinds,omitempty"`
	Scope              string                `json:"scope,omitempty"`
	Namespaces         []string              `json:"namespaces,omitempty"`
	ExcludedNamespaces []string              `json:"excludedNamespaces,omitempty"`
	LabelSelector      *metav1.LabelSelector `json:"labelSelector,omitempty"`
	NamespaceSelector  *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Name               string                `json:"name,omitempty"`
	Source             string                `json:"source,omitempty"`
}

// constraints converts the templates, and then the constraints: of several templates for its kind, a constraint is for that which is nearest
// to its file, and of these for the last.
func (c *converter) constraints() {
	policies, templates := map[*source]Document{}, map[string][]*source{}
	for _, o := range c.templates {
		kind := rawjson.Value(o.JSON()).Get("spec", "crd", "spec", "names", "kind").Text()
		templates[kind] = append(templates[kind], c.sources[o])
		policy, err := c.template(o, kind)
		if c.publish(o, []*object{policy}, nil, err) {
			policies[c.sources[o]] = c.out.Documents[len(c.out.Documents)-1]
		}
	}
	for _, o := range c.constraintObjects {
		all := templates[o.Kind]
		if len(all) == 0 {
			c.refuse(o, unsupported("kind", "convert it together with its template", "a constraint whose template is not among the documents"))
			continue
		}
		near := nearest(all, o.File)
		of := near[len(near)-1]
		var notes []string
		if len(all) > 1 {
			notes = []string{fmt.Sprintf("of %d templates for its kind, it is for that in %s", len(all), placeOf(of.Object))}
		}
		if policies[of].Name == "" {
			c.refuse(o, unsupported("kind", "convert the template first", "a constraint whose template is not converted"))
		} else {
			c.constraint(o, of, policies[of], notes)
		}
	}
}

// template converts a template to a policy whose params are the constraints.
func (c *converter) template(o *manifest.Object, kind string) (policy *object, err error) {
	var t constraintTemplate
	meta, err := specOf(o, &t, nil)
	if err != nil {
		return nil, err
	}
	var source *celSource
	lacks := unsupported("spec.targets[0]", "write the rule in CEL: it reads nothing but the object and the parameters", "code in Rego")
	for i, target := range t.Targets {
		at := fmt.Sprintf("spec.targets[%d]", i)
		if strings.Contains(fmt.Sprint(toJSON(target)), "data.inventory") {
			lacks = unsupported(at, "let a controller write what is needed into a label, or use params", "code in Rego that reads other objects of the cluster")
		}
		for j, code := range target.Code {
			if code.Engine != "K8sNativeValidation" {
				continue
			}
			source = &celSource{}
			if err := decodeStrictly(code.Source, fmt.Sprintf("%s.code[%d].source", at, j), source); err != nil {
				return nil, err
			}
			if len(target.Operations) > 0 && !slices.Equal(slices.Sorted(slices.Values(target.Operations)), []string{"CREATE", "UPDATE"}) {
				return nil, unsupported(at+".operations", "write a match condition in the template", "the operations %s", strings.Join(target.Operations, ", "))
			}
		}
	}
	if source == nil {
		return nil, lacks
	}
	spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind:       &admissionregistrationv1.ParamKind{APIVersion: constraintVersion, Kind: kind},
		FailurePolicy:   source.FailurePolicy,
		MatchConditions: append(source.MatchConditions, source.Conditions...),
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
			resourceRule([]string{"*"}, "*"),
		}},
		Variables: append([]admissionregistrationv1.Variable{
			{Name: "params", Expression: "has(params.spec.parameters) ? params.spec.parameters : null"},
			{Name: "anyObject", Expression: `request.operation == "DELETE" ? oldObject : object`},
		}, source.Variables...),
		Validations: source.Validations,
	}
	return upstream("ValidatingAdmissionPolicy", keptMeta(o.Name, meta), &spec), nil
}

// resourceRule returns a rule for new and changed objects.
func resourceRule(groups []string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
	return newRule([]admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}, groups, "*", resources...)
}

// constraint converts a constraint to the params of the policy of its template, and a binding.
func (c *converter) constraint(o *manifest.Object, of *source, template Document, notes []string) {
	var spec constraint
	_, err := specOf(o, &spec, nil)
	params := map[string]any{}
	if err == nil && spec.Parameters != nil {
		params["parameters"], err = checkedParameters(o, of.Object, spec.Parameters, &notes)
	}
	var binding *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
	name := c.free(o.Kind, "", o.Name, o, &notes)
	if err == nil {
		binding, err = c.constraintBinding(&spec, template.Name, name, &notes)
	}
	c.publish(o, []*object{
		{constraintVersion, o.Kind, metav1.ObjectMeta{Name: name}, params, nil},
		upstream("ValidatingAdmissionPolicyBinding", metav1.ObjectMeta{Name: strings.ToLower(o.Kind) + "-" + name}, binding),
	}, notes, err, template)
}

// checkedParameters returns the parameters of a constraint with the defaults of its template, by whose schema they must be.
func checkedParameters(o, template *manifest.Object, parameters any, notes *[]string) (any, error) {
	given, err := rawjson.Value(template.JSON()).Get("spec", "crd", "spec", "validation", "openAPIV3Schema").Decode()
	if err != nil || given == nil {
		return parameters, err
	}
	kind, spec := schema.FromAPIVersionAndKind(constraintVersion, o.Kind), map[string]any{"parameters": parameters}
	object := map[string]any{"apiVersion": constraintVersion, "kind": o.Kind, "metadata": map[string]any{"name": "checked"}, "spec": spec}
	in := func(name string, of any) map[string]any {
		return map[string]any{"type": "object", "properties": map[string]any{name: of}}
	}
	schemas := objectschema.New([]*unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{
		"group": kind.Group, "names": map[string]any{"kind": kind.Kind, "plural": "constraints"},
		"versions": []any{map[string]any{"name": kind.Version, "schema": map[string]any{"openAPIV3Schema": in("spec", in("parameters", given))}}},
	}}}})
	found, _, err := schemas.Check(context.Background(), kind, object, nil)
	switch {
	case err != nil:
		*notes = append(*notes, "its parameters are not checked, since an API server does not accept the schema of its template")
		return parameters, nil //nolint:nilerr // the note says it
	case len(found) > 0:
		return nil, unreadable(found)
	}
	err = schemas.Prepare(kind, object, nil, false)
	return spec["parameters"], err
}

// constraintBinding returns the binding of a constraint.
func (c *converter) constraintBinding(of *constraint, policy, name string, notes *[]string) (*admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec, error) {
	if of.Scoped != nil {
		return nil, unsupported("spec.scopedEnforcementActions", "write enforcementAction", "actions that differ by enforcement point")
	}
	m := &of.Match
	for _, f := range []struct{ name, value, all string }{{"scope", m.Scope, "*"}, {"name", m.Name, ""}, {"source", m.Source, "All"}} {
		if f.value != "" && f.value != f.all {
			return nil, unsupported("spec.match."+f.name, "write a match condition in the template", "the filter %s", f.name)
		}
	}
	action := map[string]admissionregistrationv1.ValidationAction{
		"": admissionregistrationv1.Deny, "deny": admissionregistrationv1.Deny, "warn": admissionregistrationv1.Warn, "dryrun": admissionregistrationv1.Audit,
	}[of.EnforcementAction]
	if action == "" {
		return nil, unsupported("spec.enforcementAction", "write deny, warn or dryrun", "the action %q", of.EnforcementAction)
	}
	out := &admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy, ValidationActions: []admissionregistrationv1.ValidationAction{action},
		ParamRef:       &admissionregistrationv1.ParamRef{Name: name, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)},
		MatchResources: &admissionregistrationv1.MatchResources{ObjectSelector: m.LabelSelector, NamespaceSelector: m.NamespaceSelector},
	}
	if len(c.options.Actions) > 0 {
		out.ValidationActions = c.options.Actions
	}
	for i, k := range m.Kinds {
		for _, kind := range k.Kinds {
			targets, err := c.targetsOf(kind)
			if err != nil {
				return nil, unsupported(fmt.Sprintf("spec.match.kinds[%d]", i), "name the kinds", "%s", err)
			}
			var resources []string
			for _, t := range targets {
				if resources = union(resources, t.resource); t.guessed {
					*notes = union(*notes, t.assumed())
				}
			}
			out.MatchResources.ResourceRules = append(out.MatchResources.ResourceRules, resourceRule(k.APIGroups, resources...))
		}
	}
	for _, list := range []struct {
		field    string
		names    []string
		operator metav1.LabelSelectorOperator
	}{{"namespaces", m.Namespaces, metav1.LabelSelectorOpIn}, {"excludedNamespaces", m.ExcludedNamespaces, metav1.LabelSelectorOpNotIn}} {
		isWildcard := func(name string) bool { return strings.Contains(name, "*") }
		if i := slices.IndexFunc(list.names, isWildcard); i >= 0 {
			err := unsupported(fmt.Sprintf("spec.match.%s[%d]", list.field, i), "name the namespaces, or select them by a label", "the wildcard %q", list.names[i])
			if list.operator == metav1.LabelSelectorOpIn || !c.partial(err, notes) {
				return nil, err
			}
			list.names = slices.DeleteFunc(list.names, isWildcard)
		}
		if len(list.names) > 0 {
			selector := cmp.Or(out.MatchResources.NamespaceSelector, &metav1.LabelSelector{})
			selector.MatchExpressions = append(selector.MatchExpressions, namespaceNames(list.operator, list.names))
			out.MatchResources.NamespaceSelector = selector
		}
	}
	return out, nil
}
