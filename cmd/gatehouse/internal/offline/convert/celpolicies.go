package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// celPolicySpec has the fields that Kyverno's policies in CEL add to Kubernetes'.
type celPolicySpec struct {
	ValidationActions    []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`
	WebhookConfiguration any                                        `json:"webhookConfiguration,omitempty"`
	Evaluation           struct {
		Mode           string           `json:"mode,omitempty"`
		Admission      map[string]*bool `json:"admission,omitempty"`
		MutateExisting map[string]*bool `json:"mutateExisting,omitempty"`
	} `json:"evaluation,omitzero"`
	Autogen struct {
		PodControllers struct {
			Controllers *[]string `json:"controllers,omitempty"`
		} `json:"podControllers,omitzero"`
	} `json:"autogen,omitzero"`
	Targets any `json:"targetMatchConstraints,omitempty"`
}

// celPolicy converts a ValidatingPolicy or MutatingPolicy.
func (c *converter) celPolicy(o *manifest.Object) {
	if !slices.Contains([]string{"ValidatingPolicy", "MutatingPolicy", "NamespacedValidatingPolicy", "NamespacedMutatingPolicy"}, o.Kind) {
		c.refuse(o, unsupported("kind", "keep Kyverno for it, or use a controller", "the kind %s", o.Kind))
		return
	}
	objects, made, notes, err := c.fromCEL(o)
	if c.publish(o, objects, notes, err) {
		c.sources[o].made = append(c.sources[o].made, made)
	}
}

// fromCEL returns what a policy in CEL becomes.
func (c *converter) fromCEL(o *manifest.Object) (objects []*object, made converted, notes []string, err error) {
	var extra celPolicySpec
	var spec v1alpha1.AdmissionPolicySpec
	var mutating admissionregistrationv1.MutatingAdmissionPolicySpec
	p := &part{rule: o.Name, mutates: strings.HasSuffix(o.Kind, "MutatingPolicy"), actions: c.options.Actions}
	made = converted{part: p, of: o, kind: "ValidatingAdmissionPolicy"}
	into, conditions, fields := any(&spec), &spec.MatchConditions, []string{"validationActions", "webhookConfiguration", "evaluation", "autogen"}
	if made.mutates {
		into, conditions, fields = &mutating, &mutating.MatchConditions, append(fields, "targetMatchConstraints")
	}
	meta, err := specOf(o, into, &extra, fields...)
	if err != nil {
		return nil, made, nil, err
	}
	switch on, change := extra.Evaluation.Admission["enabled"], extra.Evaluation.MutateExisting["enabled"]; {
	case extra.Evaluation.Mode != "" && extra.Evaluation.Mode != "Kubernetes", spec.MatchConstraints == nil && mutating.MatchConstraints == nil:
		return nil, made, nil, unsupported("spec", "check JSON with another program", "a policy that is about no objects of Kubernetes")
	case on != nil && !*on:
		return nil, made, nil, unsupported("spec.evaluation.admission", "audit what exists with gatehouse audit", "a policy that is not about requests")
	case change != nil && *change:
		return nil, made, nil, unsupported("spec.evaluation.mutateExisting", "change existing objects with kubectl", "the mutation of existing objects")
	}
	if p.params, notes, err = adaptExpressions(into, "spec"); err != nil {
		return nil, made, nil, err
	}
	name := o.Name
	if strings.HasPrefix(o.Kind, "Namespaced") {
		name = inNamespace(&meta, &notes) + "-" + name
		of := fmt.Sprintf("request.?namespace.orValue('') == %q", meta.Namespace)
		*conditions = slices.Insert(*conditions, 0, admissionregistrationv1.MatchCondition{Name: "namespace-of-policy", Expression: of})
	}
	meta = keptMeta(c.free("Policy", "", name, o, &notes), meta)
	if made.name = meta.Name; made.mutates {
		made.kind = "MutatingAdmissionPolicy"
		objects, err = mutatingFromCEL(&extra, &mutating, meta, p.params, &notes)
		return objects, made, notes, err
	}
	matches := moveConditions(&spec.MatchConditions)
	for i := range spec.Validations {
		if v := &spec.Validations[i]; matches != "" {
			v.Expression = fmt.Sprintf("!(%s) || (%s)", matches, v.Expression)
		}
		spec.Validations[i].Message = plainMessage(spec.Validations[i].Message)
		made.rules = append(made.rules, v1alpha1.IndexedRule(i))
	}
	if len(p.actions) == 0 {
		p.actions = extra.ValidationActions
	}
	if len(p.actions) == 0 {
		p.actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	spec.ParamKind, p.paramRef = paramsOf(p.params)
	made.namespace = mentions(&spec, "namespaceObject")
	if p.templates = extra.hasAutogen(spec.MatchConstraints); p.templates {
		made.kind = "AdmissionPolicy"
		if of := extra.Autogen.PodControllers.Controllers; of != nil {
			notes = append(notes, someTemplates(*of)...)
		}
	}
	bindings, err := p.bindings(meta.Name)
	return policyObjects(made.kind, meta, spec, p, bindings), made, notes, err
}

// someTemplates says that the pod templates of more workloads are checked than Kyverno checks.
func someTemplates(controllers []string) []string {
	const all = 6 // Kyverno knows a seventh, ReplicationController, by its older policies alone
	if len(controllers) >= all || slices.Contains(controllers, "all") {
		return nil
	}
	return []string{"the pod templates of all workloads are checked, and not those of " + strings.Join(controllers, ", ") + " alone"}
}

// mutatingFromCEL returns the documents of a MutatingPolicy.
func mutatingFromCEL(
	extra *celPolicySpec, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, meta metav1.ObjectMeta, params *configMapReference, notes *[]string,
) ([]*object, error) {
	if extra.Targets != nil {
		return nil, unsupported("spec.targetMatchConstraints", "change existing objects with kubectl", "the mutation of other objects than that of the request")
	}
	for i, m := range spec.Mutations {
		switch {
		case m.JSONPatch != nil && i < len(spec.Mutations)-1 && emptyValue.MatchString(m.JSONPatch.Expression):
			return nil, unsupported(fmt.Sprintf("spec.mutations[%d]", i), "join the mutations: ([JSONPatch{…}]) + (…)",
				"an empty object that is added for a later mutation: the API server drops it before that")
		case m.ApplyConfiguration != nil && mixedList.MatchString(m.ApplyConfiguration.Expression):
			return nil, unsupported(fmt.Sprintf("spec.mutations[%d]", i), "apply the new elements alone, which are merged into the list by their keys",
				"a list of elements that there are, and of new ones")
		}
	}
	if matches := moveConditions(&spec.MatchConditions); matches != "" {
		for _, m := range spec.Mutations {
			if m.JSONPatch != nil {
				m.JSONPatch.Expression = fmt.Sprintf("%s ? (%s) : []", matches, m.JSONPatch.Expression)
			} else if m.ApplyConfiguration != nil {
				m.ApplyConfiguration.Expression = fmt.Sprintf("%s ? (%s) : Object{}", matches, m.ApplyConfiguration.Expression)
			}
		}
	}
	if spec.ReinvocationPolicy == "" {
		spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	}
	if extra.hasAutogen(spec.MatchConstraints) {
		*notes = append(*notes, "the pods that workloads create are changed, and not the templates of the workloads")
	}
	binding := admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name}
	spec.ParamKind, binding.ParamRef = paramsOf(params)
	return []*object{upstream("MutatingAdmissionPolicy", meta, spec), upstream("MutatingAdmissionPolicyBinding", metav1.ObjectMeta{Name: meta.Name}, binding)}, nil
}

// moveConditions takes the conditions away that name what those of Kubernetes cannot, and returns an expression that holds if they do, or "".
func moveConditions(conditions *[]admissionregistrationv1.MatchCondition) string {
	var moved []string
	*conditions = slices.DeleteFunc(*conditions, func(c admissionregistrationv1.MatchCondition) bool {
		late := lateNames.MatchString(c.Expression)
		if late {
			moved = append(moved, "("+strings.TrimSpace(c.Expression)+")")
		}
		return late
	})
	return strings.Join(moved, " && ")
}

// hasAutogen reports whether Kyverno applies a policy about pods to pod templates.
func (s *celPolicySpec) hasAutogen(m *admissionregistrationv1.MatchResources) bool {
	if m == nil || len(m.ResourceRules) != 1 || len(m.ExcludeResourceRules) > 0 {
		return false
	}
	r, controllers, labels := m.ResourceRules[0], s.Autogen.PodControllers.Controllers, m.ObjectSelector
	return slices.Equal(r.Resources, []string{"pods"}) && len(r.ResourceNames) == 0 && (controllers == nil || len(*controllers) > 0) &&
		(labels == nil || len(labels.MatchLabels)+len(labels.MatchExpressions) == 0)
}

var (
	// notOptional matches orValue() of a field that is chosen without a question mark.
	notOptional = regexp.MustCompile(`(?:^|[^\w.?)\]"'])(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*\.(?:orValue|hasValue)\(`)
	ofVariable  = regexp.MustCompile(`^\W?variables\.\w+\.\w+\($`)
	lateNames   = regexp.MustCompile(`\b(?:variables|namespaceObject)\b`)
	emptyValue  = regexp.MustCompile(`value:\s*\{\s*\}`)
	mixedList   = regexp.MustCompile(`\+\s*\[\s*Object\.`)
	// getConfigMap and getNamespace match look-ups for which policies of Kubernetes have params and namespaceObject.
	getConfigMap = regexp.MustCompile(`\bresource\.[Gg]et\(\s*["']v1["'],\s*["']configmaps["'],\s*["']([\w.-]+)["'],\s*["']([\w.-]+)["']\s*\)`)
	getNamespace = regexp.MustCompile(`\bresource\.[Gg]et\(\s*["']v1["'],\s*["']namespaces["'],\s*(?:""|'')\s*,\s*(?:request|object\.metadata)\.namespace\s*\)`)
	// lacked matches what Kyverno adds to CEL.
	lacked = regexp.MustCompile(`(?:^|[^\w.])((?:resource|http|globalContext|generator|image)\.(?:[Gg]et|[Ll]ist|[Pp]ost|[Cc]lient|[Aa]pply|[Tt]oGVR|[Gg]etMetadata)\(|` +
		`yaml\.parse\(|json\.(?:un)?marshal\(|(?:hash\.)?(?:md5|sha1|sha256)\(|math\.round\(|(?:random\.)?random\(|time\.(?:now|toCron|truncate)\(|x509\.decode\(|` +
		`gzip\.(?:de)?compress\(|(?:transform\.)?listObjToMap\(|(?:user\.)?parseServiceAccount\(|parseImageReference\(|isImage\(|image\(|exceptions\.allowed(?:Images|Values)\b)`)
)

// adapter changes the expressions of a policy of Kyverno to such of Kubernetes.
type adapter struct {
	params *configMapReference
	notes  []string
	err    error
}

// adaptExpressions changes the expressions of what is below a field, and returns the ConfigMap that they read, and in what they differ.
func adaptExpressions(into any, field string) (*configMapReference, []string, error) {
	var a adapter
	raw, err := json.Marshal(a.value(toJSON(into), "", field))
	if err = cmp.Or(a.err, err); err == nil {
		err = json.Unmarshal(raw, into)
	}
	return a.params, a.notes, err
}

// value returns a value, which is that of a key, with other expressions in it.
func (a *adapter) value(value any, key, field string) any {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			v[name] = a.value(v[name], name, field+"."+name)
		}
	case []any:
		for i, of := range v {
			v[i] = a.value(of, key, fmt.Sprintf("%s[%d]", field, i))
		}
	case string:
		switch {
		case strings.HasSuffix(strings.ToLower(key), "expression"):
			return a.expression(v, field)
		case key == "name" && strings.Contains(field, "onditions[") && len(validation.IsQualifiedName(v)) > 0:
			return ruleName(v)
		}
	}
	return value
}

// expression returns an expression of Kubernetes. CEL of Kubernetes 1.36, which Kyverno has, takes a value that is not optional for one that
// is there.
func (a *adapter) expression(text, field string) string {
	for _, m := range getConfigMap.FindAllStringSubmatch(text, -1) {
		of := &configMapReference{Namespace: m[1], Name: m[2]}
		if a.params != nil && *a.params != *of {
			a.err = cmp.Or(a.err, unsupported(field, "put both into one ConfigMap", "a second ConfigMap"))
		}
		a.params = of
	}
	text = getNamespace.ReplaceAllString(getConfigMap.ReplaceAllString(text, "params"), "namespaceObject")
	if m := lacked.FindStringSubmatch(text); m != nil {
		a.err = cmp.Or(a.err, unsupported(field, "use params, namespaceObject, the functions of Kubernetes, or a controller that writes what is needed into a label",
			"%s, which Kyverno adds to CEL", strings.Replace(m[1], "(", "()", 1)))
	}
	return notOptional.ReplaceAllStringFunc(text, func(call string) string {
		if ofVariable.MatchString(call) {
			return call
		}
		at := strings.LastIndexByte(call[:strings.LastIndexByte(call, '.')], '.') + 1
		a.notes = union(a.notes, fmt.Sprintf("%s is optional: Kyverno fails to evaluate it where it is missing", strings.Trim(call[:strings.LastIndexByte(call, '.')], " !(\n")))
		return call[:at] + "?" + call[at:]
	})
}
