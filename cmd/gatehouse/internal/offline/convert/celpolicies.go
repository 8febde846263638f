package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// celPolicySpec has the fields that Kyverno's policies in CEL add to Kubernetes'.
type celPolicySpec struct {
	ValidationActions    []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`
	WebhookConfiguration any                                        `json:"webhookConfiguration,omitempty"`
	Evaluation           struct {
		Mode           string  `json:"mode,omitempty"`
		Admission      enabled `json:"admission,omitzero"`
		MutateExisting enabled `json:"mutateExisting,omitzero"`
	} `json:"evaluation,omitzero"`
	Autogen struct {
		PodControllers *struct {
			Controllers []string `json:"controllers"`
		} `json:"podControllers,omitempty"`
	} `json:"autogen,omitzero"`
	Targets any `json:"targetMatchConstraints,omitempty"`
}

// enabled is a switch.
type enabled struct {
	Enabled *bool `json:"enabled,omitempty"`
}

// celPolicy converts a ValidatingPolicy or MutatingPolicy.
func (c *converter) celPolicy(o *manifest.Object) {
	switch o.Kind {
	case "ValidatingPolicy", "MutatingPolicy", "NamespacedValidatingPolicy", "NamespacedMutatingPolicy":
	default:
		c.refuse(o, unsupported("kind", "keep Kyverno for it, or use a controller", "the kind %s", o.Kind))
		return
	}
	objects, made, notes, err := c.fromCEL(o)
	if c.publish(o, objects, notes, err) {
		c.byPolicy[o.Name] = append(c.byPolicy[o.Name], made)
	}
}

// fromCEL returns what a policy in CEL becomes.
func (c *converter) fromCEL(o *manifest.Object) (objects []*object, made converted, notes []string, err error) {
	var document struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := readDocument(o, &document); err != nil {
		return nil, made, nil, err
	}
	var extra celPolicySpec
	var spec v1alpha1.AdmissionPolicySpec
	var mutating admissionregistrationv1.MutatingAdmissionPolicySpec
	mutates := strings.HasSuffix(o.Kind, "MutatingPolicy")
	into, fields := any(&spec), []string{"validationActions", "webhookConfiguration", "evaluation", "autogen"}
	if mutates {
		into, fields = &mutating, append(fields, "targetMatchConstraints")
	}
	if err := specOf(o, into, &extra, fields...); err != nil {
		return nil, made, nil, err
	}
	switch {
	case extra.Evaluation.Mode == "JSON":
		return nil, made, nil, unsupported("spec.evaluation.mode", "check JSON with another program", "the evaluation of JSON that is no object of Kubernetes")
	case extra.Evaluation.Admission.Enabled != nil && !*extra.Evaluation.Admission.Enabled:
		return nil, made, nil, unsupported("spec.evaluation.admission", "audit what exists with gatehouse audit", "a policy that is not about requests")
	case extra.Evaluation.MutateExisting.Enabled != nil && *extra.Evaluation.MutateExisting.Enabled:
		return nil, made, nil, unsupported("spec.evaluation.mutateExisting", "change existing objects with kubectl", "the mutation of existing objects")
	}
	meta := keptMeta(o.Name, document.Metadata)
	if strings.HasPrefix(o.Kind, "Namespaced") {
		meta.Name = document.Metadata.Namespace + "-" + o.Name
	}
	made = converted{rule: o.Name, name: meta.Name, mutates: mutates}
	if err := checkExpressions(toJSON(into), "spec"); err != nil {
		return nil, made, nil, err
	}
	conditions := &spec.MatchConditions
	if mutates {
		conditions = &mutating.MatchConditions
	}
	if strings.HasPrefix(o.Kind, "Namespaced") {
		of := admissionregistrationv1.MatchCondition{Name: "namespace-of-policy", Expression: fmt.Sprintf("request.namespace == %q", document.Metadata.Namespace)}
		*conditions = append([]admissionregistrationv1.MatchCondition{of}, *conditions...)
	}
	if mutates {
		made.kind = "MutatingAdmissionPolicy"
		objects, notes, err = mutatingFromCEL(&extra, &mutating, meta)
		return objects, made, notes, err
	}
	for i := range spec.Validations {
		spec.Validations[i].Message = plainMessage(spec.Validations[i].Message)
		made.rules = append(made.rules, v1alpha1.IndexedRule(i))
	}
	actions := extra.ValidationActions
	if len(c.options.Actions) > 0 {
		actions = c.options.Actions
	}
	if len(actions) == 0 {
		actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	made.audit = !slices.Contains(actions, admissionregistrationv1.Deny)
	made.namespace = mentions(&spec, "namespaceObject")
	made.templates = extra.hasAutogen() && matchesPods(spec.MatchConstraints)
	if made.kind = "ValidatingAdmissionPolicy"; made.templates {
		made.kind = "AdmissionPolicy"
		spec.ValidationActions = actions
		objects = []*object{own(made.kind, meta, spec)}
	} else {
		binding := admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: meta.Name, ValidationActions: actions}
		objects = []*object{upstream(made.kind, meta, spec.Upstream()), upstream(made.kind+"Binding", metav1.ObjectMeta{Name: meta.Name}, binding)}
	}
	return objects, made, nil, nil
}

// mutatingFromCEL returns the documents of a MutatingPolicy.
func mutatingFromCEL(extra *celPolicySpec, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, meta metav1.ObjectMeta) ([]*object, []string, error) {
	if extra.Targets != nil {
		return nil, nil, unsupported("spec.targetMatchConstraints", "change existing objects with kubectl", "the mutation of other objects than that of the request")
	}
	for i, m := range spec.Mutations {
		switch {
		case m.JSONPatch != nil && i < len(spec.Mutations)-1 && emptyValue.MatchString(m.JSONPatch.Expression):
			return nil, nil, unsupported(fmt.Sprintf("spec.mutations[%d]", i), "join the mutations: ([JSONPatch{…}]) + (…)",
				"an empty object that is added for a later mutation: the API server drops it before that")
		case m.ApplyConfiguration != nil && mixedList.MatchString(m.ApplyConfiguration.Expression):
			return nil, nil, unsupported(fmt.Sprintf("spec.mutations[%d]", i), "apply the new elements alone, which are merged into the list by their keys",
				"a list of elements that there are, and of new ones")
		}
	}
	if spec.ReinvocationPolicy == "" {
		spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	}
	var notes []string
	if extra.hasAutogen() && matchesPods(spec.MatchConstraints) {
		notes = append(notes, "the pods that workloads create are changed, and not the templates of the workloads")
	}
	binding := admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name}
	return []*object{upstream("MutatingAdmissionPolicy", meta, spec), upstream("MutatingAdmissionPolicyBinding", metav1.ObjectMeta{Name: meta.Name}, binding)}, notes, nil
}

// hasAutogen reports whether Kyverno applies a policy about pods to pod templates.
func (s *celPolicySpec) hasAutogen() bool {
	return s.Autogen.PodControllers == nil || len(s.Autogen.PodControllers.Controllers) > 0
}

// matchesPods reports whether pods are all that is matched.
func matchesPods(m *admissionregistrationv1.MatchResources) bool {
	return m != nil && len(m.ResourceRules) > 0 && !slices.ContainsFunc(m.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return !slices.Equal(r.Resources, []string{"pods"})
	})
}

var (
	// notOptional matches orValue() of a field that is chosen without a question mark.
	notOptional = regexp.MustCompile(`(?:^|[^\w.?)\]"'])(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*\.(?:orValue|hasValue)\(`)
	ofVariable  = regexp.MustCompile(`^\W?variables\.\w+\.\w+\($`)
	emptyValue  = regexp.MustCompile(`value:\s*\{\s*\}`)
	mixedList   = regexp.MustCompile(`\+\s*\[\s*Object\.`)
)

// checkExpressions returns an error if an expression below a field fails when it is evaluated. CEL of Kubernetes 1.36, which Kyverno
// has, takes a value that is not optional for one that is there.
func checkExpressions(value any, field string) error {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if err := checkExpressions(v[key], field+"."+key); err != nil {
				return err
			}
		}
	case []any:
		for i, of := range v {
			if err := checkExpressions(of, fmt.Sprintf("%s[%d]", field, i)); err != nil {
				return err
			}
		}
	case string:
		for _, call := range notOptional.FindAllString(v, -1) {
			if !ofVariable.MatchString(call) {
				return unsupported(field, "write a question mark before the field, as in object.?metadata.?labels.orValue({})",
					"%s…), of a field that is not optional: from Kubernetes 1.37 on, the evaluation fails", strings.TrimLeft(call, " !(\n"))
			}
		}
	}
	return nil
}
