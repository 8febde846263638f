package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

const (
	// ProfileKind is that of Items about SidecarProfiles.
	ProfileKind  = "SidecarProfile"
	mutatingKind = "MutatingAdmissionPolicy"
	// profileSuffix ends the names of what SidecarProfiles become.
	profileSuffix = "." + v1alpha1.ParameterDomain
	// mutatingSince is the first version in which the API server has MutatingAdmissionPolicies on.
	mutatingSince = "1.36"
)

// GeneralOfProfiles are the differences that all compiled profiles have.
func GeneralOfProfiles() []string {
	return []string{
		"pods have no annotation " + v1alpha1.StatusAnnotation + ": `gatehouse uninject` and the numbers in a profile's status do not know what was added; if Gatehouse is sent the pod too, it adds nothing twice",
		"what that annotation of a pod says was added before is compared as in any other pod, and refused if the profile has changed since",
		"a container of the pod with the name, image, command, args, workingDir, restartPolicy and securityContext of one of the profile is taken for it, as is a volume that has what a profile with expressions says of it; paths and addresses are compared as they are written",
		"nobody is warned of a profile that is left out or of an annotation without an effect; a pod with an invalid " + v1alpha1.InjectAnnotation + " is refused only if the selectors match",
		"the API server's own checks refuse, in their words, what Gatehouse finds before: Pod Security, resources, sleeps, lengths",
		"a pod for which an expression cannot be evaluated is refused, also one that Gatehouse's webhook lets through without the profile",
		"what several profiles add to one list stands in any order, but for containers",
		"what mutating webhooks add afterwards gets nothing, and they see the sidecar",
	}
}

// profiles compiles the SidecarProfiles, and carries over the policies that mutate.
func (c *compilation) profiles(configuration *config.Config) error {
	c.mutations(&configuration.Mutation)
	documents := slices.Clone(configuration.Sidecar.Profiles)
	if len(documents) == 0 {
		return c.verifyMutating()
	}
	slices.SortFunc(documents, func(a, b profile.Document) int { return cmp.Compare(a.Name, b.Name) })
	environment, err := template.NewEnvironment(nil)
	if err != nil {
		return err
	}
	all := make([]*profile.Profile, len(documents))
	for i := range documents {
		var found diagnostic.List
		if all[i], found = profile.Compile(profile.Input{Environment: environment, Profile: &documents[i]}); found.Err() != nil {
			return found.Err()
		}
	}
	order, _ := profile.Link(all)
	for i, p := range all {
		t := &translation{Profile: p, spec: &documents[i].Spec, item: c.item(ProfileKind, p.Name, ""), all: all}
		for l := range podtext.NumLists {
			for k, other := range all {
				if k != i && profile.CanOverlap(p, other) {
					if t.overlaps = true; slices.ContainsFunc(spots(t.spec), func(s string) bool { return slices.Contains(spots(&documents[k].Spec), s) }) {
						t.item.differ(sameSpot)
					}
					t.others[l] = append(t.others[l], other.Names[l]...)
					if isBefore := slices.Index(order, k) < slices.Index(order, i); isBefore == p.First[l] && other.First[l] == p.First[l] {
						t.beside[l] = append(t.beside[l], other.Names[l]...)
					}
				}
			}
		}
		if err := t.prepare(c); err != nil {
			return err
		}
		spec, binding := t.translate()
		c.excludeNamespaces(spec.MatchConstraints)
		if c.options.Kubernetes < mutatingSince {
			t.item.stay("the API server of Kubernetes " + c.options.Kubernetes + " has no MutatingAdmissionPolicy that is on")
		}
		if t.item.Status != Stays {
			c.emitMutating(ProfileKind+"/"+p.Name, p.Name+profileSuffix, documents[i].Annotations, spec, map[string]admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{p.Name + profileSuffix: binding}, t.item)
		}
	}
	return c.verifyMutating()
}

// sameSpot is the difference of a profile of which another one sets the same values.
const sameSpot = "another profile sets the same fields, variables or mounts: the API server does not say which of the two comes first"

// spots returns what a profile sets of what a pod has once: labels, annotations, fields, and of its containers fields, variables and mounts.
func spots(s *v1alpha1.SidecarProfileSpec) (out []string) {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(s.Template.Spec.Raw, &fields) // what is wrong is found where it is translated, here and below
	for name := range fields {
		if _, isList := podtext.ListNamed(name); !isList && name != "tolerations" && name != "imagePullSecrets" {
			out = append(out, "spec."+name)
		}
	}
	for name := range s.Template.Metadata.Labels {
		out = append(out, "label "+name)
	}
	for name := range s.Template.Metadata.Annotations {
		out = append(out, "annotation "+name)
	}
	for i := range s.AppContainers {
		var container map[string]any
		_ = json.Unmarshal(s.AppContainers[i].Template.Raw, &container)
		for name, value := range container {
			list, isList := value.([]any)
			for _, element := range list {
				of, _ := element.(map[string]any)
				out = append(out, fmt.Sprint(name, of["name"], of["mountPath"], of["devicePath"]))
			}
			if !isList {
				out = append(out, name)
			}
		}
	}
	return out
}

// mutations carries over Kubernetes' own policies that mutate.
func (c *compilation) mutations(from *mutation.Spec) {
	for i := range from.Policies {
		p := &from.Policies[i]
		item, bindings := c.item(mutatingKind, p.Name, ""), map[string]admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{}
		for k := range from.Bindings {
			if b := &from.Bindings[k]; b.Spec.PolicyName == p.Name {
				bindings[b.Name] = b.Spec
			}
		}
		switch {
		case c.options.Kubernetes < mutatingSince:
			item.stay("the API server of Kubernetes " + c.options.Kubernetes + " has no MutatingAdmissionPolicy that is on")
		case len(bindings) == 0:
			item.note("no binding puts it in force")
		default:
			c.emitMutating(mutatingKind+"/"+p.Name, p.Name, p.Annotations, &p.Spec, bindings, item)
		}
	}
}

// emitMutating adds a policy that mutates and its bindings, unless the API server would refuse it.
func (c *compilation) emitMutating(
	from, name string, annotations map[string]string, spec *admissionregistrationv1.MutatingAdmissionPolicySpec,
	bindings map[string]admissionregistrationv1.MutatingAdmissionPolicyBindingSpec, item *Item,
) {
	text, err := json.Marshal(spec)
	switch other := c.names[mutatingKind+"/"+name]; {
	case err != nil:
		item.stay(err.Error())
		return
	case other != "":
		item.stay(other + " becomes a policy of the same name, " + name)
		return
	case len(text) > maxDocument:
		item.stay("the policy is too large for the API server")
		return
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: map[string]string{FromAnnotation: from}, Labels: map[string]string{ManagedByLabel: ManagedBy}}
	}
	version := admissionregistrationv1.SchemeGroupVersion.String()
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: mutatingKind}, ObjectMeta: meta(name), Spec: *spec}
	digest := sha256.Sum256(text)
	policy.Annotations[HashAnnotation] = hex.EncodeToString(digest[:])
	if contact, given := annotations[v1alpha1.ContactAnnotation]; given {
		policy.Annotations[v1alpha1.ContactAnnotation] = contact
	}
	documents := []Document{{From: from, MutatingPolicy: policy}}
	for _, name := range sortedKeys(bindings) {
		documents = append(documents, Document{From: from, MutatingBinding: &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: mutatingKind + "Binding"}, ObjectMeta: meta(name), Spec: bindings[name],
		}})
	}
	c.names[mutatingKind+"/"+name] = from
	for i := range documents {
		c.mutating[documents[i].Object().GetName()] = item
	}
	c.out.Documents = append(c.out.Documents, documents...)
}

// verifyMutating leaves out what the API server would refuse of what mutates.
func (c *compilation) verifyMutating() error {
	set, err := mutation.Compile(c.out.Mutation())
	found, is := errors.AsType[diagnostic.List](err)
	if err != nil && !is {
		return err
	}
	c.out.mutating = set
	for i := range found {
		if d := &found[i]; d.Severity == diagnostic.Error {
			c.mutating[d.Source].stay("the compiled policy would be refused: " + d.Field + ": " + d.Message)
		}
	}
	c.out.Documents = slices.DeleteFunc(c.out.Documents, func(d Document) bool {
		return (d.MutatingPolicy != nil || d.MutatingBinding != nil) && c.mutating[d.PolicyName()].Status == Stays
	})
	return nil
}

// Mutation returns the documents that mutate as the input of mutation.Compile, which then takes little time.
func (o *Output) Mutation() (spec mutation.Spec) {
	spec.Previous = o.mutating
	for i := range o.Documents {
		switch d := &o.Documents[i]; {
		case d.MutatingPolicy != nil:
			spec.Policies = append(spec.Policies, mutation.Policy{Source: d.MutatingPolicy.Name, MutatingAdmissionPolicy: *d.MutatingPolicy})
		case d.MutatingBinding != nil:
			spec.Bindings = append(spec.Bindings, mutation.Binding{Source: d.MutatingBinding.Name, MutatingAdmissionPolicyBinding: *d.MutatingBinding})
		}
	}
	return spec
}

// translation is a profile that becomes a policy. The policy depends on the order of others nowhere: the API server runs policies in any.
// What the profile says of the pod is decided in variables by the pod as it came to the policy. Then one mutation refuses, by an error that
// says why, one for each entry of appContainers adds to containers, and the last one adds the rest.
type translation struct {
	*profile.Profile
	spec *v1alpha1.SidecarProfileSpec
	item *Item
	all  []*profile.Profile
	// overlaps is true if another profile can apply to a pod of this one. others are the names that these add, and beside those next to
	// which what this one adds goes: behind them, if it is first in the list, else in front of them.
	overlaps       bool
	others, beside [podtext.NumLists][]string

	env       *cel.Env
	rewriting *forTemplates
	// variables are those so far. refusals and conflicts are CEL lists of what is wrong with the pod, and skips conditions for leaving the
	// profile out.
	variables                  []admissionregistrationv1.Variable
	refusals, conflicts, skips []string
}

func quote(text string) string { return strconv.Quote(text) }

// names returns a CEL list.
func names(all []string) string {
	out := make([]string, len(all))
	for i, name := range all {
		out[i] = quote(name)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func all(conditions ...string) string {
	return cmp.Or(strings.Join(slices.DeleteFunc(conditions, func(c string) bool { return c == "" }), " && "), "true")
}

// flat returns the CEL list of what is in CEL lists.
func flat(lists []string) string { return "[" + strings.Join(lists, ",\n") + "].flatten()" }

func (t *translation) define(name, text string) string {
	if len(text) > maxExpression {
		t.item.stay(fmt.Sprintf("as CEL, a part of it has more than %d characters", maxExpression))
	}
	t.variables = append(t.variables, admissionregistrationv1.Variable{Name: name, Expression: text})
	return "variables." + name
}

// list returns a list of the pod's spec.
func list(l podtext.List) string { return "object.spec.?" + l.String() + ".orValue([])" }

// container finds a container of the pod among all.
func container(condition string) string {
	return fmt.Sprintf("[%s, %s].flatten().exists(c, %s)", list(podtext.InitContainers), list(podtext.Containers), condition)
}

// translate returns the policy and its binding.
func (t *translation) translate() (*admissionregistrationv1.MutatingAdmissionPolicySpec, admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
	t.decline()
	spec := &admissionregistrationv1.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionregistrationv1.MatchResources{
			MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: cmp.Or(t.spec.Match.NamespaceSelector, new(metav1.LabelSelector)).DeepCopy(),
			ObjectSelector: cmp.Or(t.spec.Match.ObjectSelector, new(metav1.LabelSelector)),
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistrationv1.AllScopes)},
			}}},
		},
		MatchConditions: []admissionregistrationv1.MatchCondition{registration.NotBreakGlass(), {
			Name: "gatehouse-not-injected", Expression: fmt.Sprintf("!object.?metadata.?annotations.orValue({}).exists(k, k in %s)", names([]string{corev1.MirrorPodAnnotationKey})),
		}},
	}
	binding := admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: t.Name + profileSuffix}
	if len(t.spec.Presets) == 1 {
		from := t.spec.Presets[0].ConfigMap
		spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		binding.ParamRef = &admissionregistrationv1.ParamRef{Name: from.Name, Namespace: from.Namespace, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
		t.define("preset", "params.?data.orValue({})")
		t.item.differ(fmt.Sprintf("as long as there is no ConfigMap %q in namespace %q, every pod that the selectors match is refused", from.Name, from.Namespace))
	}
	t.define("podNamespace", `{"metadata": {"name": dyn(namespaceObject.metadata.name), "labels": dyn(namespaceObject.metadata.?labels.orValue({})), "annotations": dyn(namespaceObject.metadata.?annotations.orValue({}))}}`)
	t.define("initContainers", list(podtext.InitContainers)+".map(c, c.name)")
	t.define("containers", list(podtext.Containers)+".map(c, c.name)")
	applies := t.define("applies", t.selected())
	t.parameters()
	params := len(t.refusals)
	ops, sets := t.values(), t.app()
	t.users()
	if t.OnConflict == v1alpha1.RefuseConflict {
		t.refusals = append(t.refusals, t.conflicts...)
	}
	skipped := t.define("skipped", cmp.Or(strings.Join(t.skips, " || "), "false"))
	for i := params; i < len(t.refusals); i++ {
		t.refusals[i] = fmt.Sprintf("%s ? [] : %s", skipped, t.refusals[i])
	}
	t.refusals = append([]string{fmt.Sprintf(`variables.podWish == "invalid" ? [%s] : []`, quote("metadata.annotations["+v1alpha1.InjectAnnotation+"] is invalid"))}, t.refusals...)
	refusals := t.define("refusals", flat(t.refusals))
	adds := all(applies, "!"+skipped)
	if t.OnConflict != v1alpha1.RefuseConflict && len(t.conflicts) > 0 {
		adds = all(adds, flat(t.conflicts)+".size() == 0")
	}
	adds = t.define("adds", adds)
	refusal := t.define("refusal", fmt.Sprintf(`!(%s || variables.podWish == "invalid") || %s.size() == 0 ? "" : %s + %[2]s.join("; ")`,
		applies, refusals, quote("sidecar profile "+quote(t.Name)+": ")))
	// A key that a map lacks is the one error that says something.
	mutations := []string{fmt.Sprintf(`%s == "" ? [] : {"": [JSONPatch{op: "test", path: "/kind", value: "Pod"}]}[%[1]s]`, refusal)}
	for _, set := range append(sets, ops) {
		if len(set) > 0 {
			mutations = append(mutations, adds+" ? "+flat(set)+" : []")
		}
	}
	for _, text := range mutations {
		if len(text) > maxExpression {
			t.item.stay(fmt.Sprintf("as CEL, what it adds has more than %d characters", maxExpression))
		}
		spec.Mutations = append(spec.Mutations, admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: text},
		})
	}
	spec.Variables = t.variables
	return spec, binding
}
