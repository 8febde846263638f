package registration

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// guardEnding is behind the name of the guard's policy and of its binding.
const guardEnding = "-registration"

// guard is a ValidatingAdmissionPolicy that holds Gatehouse's ServiceAccount to what
// its right to patch webhook configurations is for, which RBAC cannot express. It is
// the API server's own policy: it holds while Gatehouse is down, and webhook
// configurations are never sent to webhooks.
//
// Rules and selectors are restricted by what must not lock a cluster: match conditions, which stay as they are, excluded
// namespaces, and new pods for the two webhooks whose match conditions do not have the exclusions. That less is sent is not restricted,
// because it depends on the policies.
//
// The CA that is written is not restricted. A CA that an administrator confirms would
// stop rotation, and CEL cannot parse certificates. With a CA of a thief, reviews
// fail, unless the thief can also answer at the address of the Service, and that
// address is what the policy keeps.
func (o *Options) guard() []Document {
	const unchanged = `request.operation != "UPDATE" || `
	account := "system:serviceaccount:" + o.Namespace + ":" + cmp.Or(o.ServiceAccount, o.Name)
	name := o.Name + guardEnding
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			// Server-side apply compares these as a whole. Without the defaults, the same
			// policy applied by another field manager is a conflict.
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{admissionregistrationv1.GroupName}, APIVersions: []string{"*"},
							Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
							Scope:     new(admissionregistrationv1.AllScopes),
						},
					},
				}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "by-gatehouse", Expression: fmt.Sprintf("request.userInfo.username == %q", account),
			}},
			// Everything is compared by whatever fields it has, so that one which a later
			// version of Kubernetes adds is compared too.
			Variables: []admissionregistrationv1.Variable{
				{Name: "before", Expression: "dyn(has(oldObject.webhooks) ? oldObject.webhooks : [])"},
				{Name: "after", Expression: "dyn(has(object.webhooks) ? object.webhooks : [])"},
				{Name: "annotations", Expression: "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"},
				{Name: "bundle", Expression: fmt.Sprintf(`%q in variables.annotations ? [] : ["caBundle"]`, injectCAFrom)},
				{Name: "excluded", Expression: fmt.Sprintf(`%[1]q in variables.annotations ? variables.annotations[%[1]q].split(",") : []`, ExcludedNamespaces)},
				{Name: "fields", Expression: `variables.excluded.size() > 0 ? ["namespaceSelector", "objectSelector", "rules"] : []`},
				{Name: "managed", Expression: "[" + quoted(append(MutatingNames(), ValidatingNames()...)) + "]"},
				// Those whose rules or selectors change.
				{Name: "rewritten", Expression: `variables.after.filter(w, !variables.before.exists(b, b.name == w.name && ` +
					`variables.fields.all(k, (k in b) == (k in w) && (!(k in b) || b[k] == w[k]))))`},
			},
			Validations: []admissionregistrationv1.Validation{
				{
					Message:    "Gatehouse may neither create nor delete webhook configurations",
					Expression: `request.operation == "UPDATE"`,
				},
				{
					Message: "Gatehouse may change no labels, annotations, finalizers and owners of webhook configurations",
					Expression: unchanged + `["labels", "annotations", "finalizers", "ownerReferences"].all(k, ` +
						`(k in dyn(object.metadata)) == (k in dyn(oldObject.metadata)) && ` +
						`(!(k in dyn(object.metadata)) || dyn(object.metadata)[k] == dyn(oldObject.metadata)[k]))`,
				},
				{
					Message:    "Gatehouse may add, remove and reorder no webhooks",
					Expression: unchanged + `variables.before.map(w, w.name) == variables.after.map(w, w.name)`,
				},
				{
					Message: "Gatehouse may change clientConfig.caBundle, rules and selectors of its webhooks and nothing else",
					Expression: unchanged + `variables.after.all(w, variables.before.exists(b, b.name == w.name && ` +
						`b.all(k, k in w || (k in variables.fields && w.name in variables.managed)) && ` +
						`w.all(k, k == "clientConfig" || (k in b && b[k] == w[k]) || (k in variables.fields && w.name in variables.managed)) && ` +
						`b.clientConfig.all(k, k in variables.bundle || k in w.clientConfig) && ` +
						`w.clientConfig.all(k, k in variables.bundle || (k in b.clientConfig && b.clientConfig[k] == w.clientConfig[k]))))`,
				},
				{
					Message: "Gatehouse may have nothing sent from the namespaces of the annotation " + ExcludedNamespaces,
					Expression: unchanged + `variables.rewritten.all(w, !has(w.rules) || w.rules.size() == 0 || ` +
						`(has(w.namespaceSelector) && has(w.namespaceSelector.matchExpressions) && w.namespaceSelector.matchExpressions.exists(e, ` +
						`e.key == "` + namespaceName + `" && e.operator == "NotIn" && variables.excluded.all(n, n in e.values))))`,
				},
				{
					Message: "Gatehouse may have nothing but new pods sent for injection",
					Expression: unchanged + `variables.rewritten.all(w, !(w.name in [` + quoted([]string{AskedMutate, DefaultMutate}) + `]) || !has(w.rules) || ` +
						`w.rules.all(r, r.apiGroups == [""] && r.resources == ["pods"] && r.operations == ["CREATE"]))`,
				},
				{
					Message:    fmt.Sprintf("Gatehouse may write at most %d rules for a webhook", MaxRules),
					Expression: unchanged + fmt.Sprintf(`variables.rewritten.all(w, !has(w.rules) || w.rules.size() <= %d)`, MaxRules),
				},
			},
		},
	}
	return []Document{
		{
			comment: `The ServiceAccount of Gatehouse can change caBundle of webhook configurations, rules and selectors of those with the annotation
` + ExcludedNamespaces + `, and nothing else. It cannot change where reviews are sent, what is never sent, and what
happens without an answer. The API server evaluates this itself, without Gatehouse.`,
			object: policy,
		},
		{
			object: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				},
			},
		},
	}
}

// quoted returns strings as the elements of a list in CEL.
func quoted(list []string) string {
	all := make([]string, len(list))
	for i, text := range list {
		all[i] = strconv.Quote(text)
	}
	return strings.Join(all, ", ")
}
