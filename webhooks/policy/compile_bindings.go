package policy

import (
	"cmp"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// boundSpec is a checked binding.
type boundSpec struct {
	validation.Reporter
	name string
	spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
	// contact is "" for that of the policy.
	contact string
}

// bindings checks the bindings and groups them by the kind and name of their
// policy. Those with errors are left out.
func (c *compilation) bindings(spec *Spec, policies []policyDocument) map[string]map[string][]boundSpec {
	known := map[string][]string{}
	for i := range policies {
		known[policies[i].Kind] = append(known[policies[i].Kind], policies[i].Name)
	}
	bound := map[string]map[string][]boundSpec{policyKind: {}, admissionKind: {}}
	seen := map[string]validation.Taken{bindingKind: {}, admissionBindingKind: {}}
	add := func(source, kind, of string, meta *metav1.ObjectMeta, spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
		d := c.reporter(source, kind, meta.Name)
		seen[kind].Check(d, meta.Name)
		defaulted, before := validation.DefaultBindingSpec(spec), c.errorCount()
		validation.CheckBindingSpec(d, of, defaulted)
		if defaulted.PolicyName != "" && !slices.Contains(known[of], defaulted.PolicyName) {
			hint := diagnostic.NameHint(defaulted.PolicyName, known[of]...)
			for kind, names := range known {
				if kind != of && slices.Contains(names, defaulted.PolicyName) {
					article := "a"
					if kind == admissionKind {
						article = "an"
					}
					hint = fmt.Sprintf("there is %s %s of this name, which %sBinding binds", article, kind, kind)
				}
			}
			d.NoEffect(field.NewPath("spec", "policyName"), hint, "there is no %s %q, so the binding does nothing", of, defaulted.PolicyName)
		}
		if c.errorCount() == before {
			bound[of][defaulted.PolicyName] = append(bound[of][defaulted.PolicyName], boundSpec{d, meta.Name, defaulted, contactOf(d, meta.Annotations)})
		} else if bound[of][defaulted.PolicyName] == nil {
			bound[of][defaulted.PolicyName] = []boundSpec{}
		}
	}
	for i := range spec.Bindings {
		b := &spec.Bindings[i]
		add(b.Source, bindingKind, policyKind, &b.ObjectMeta, &b.Spec)
	}
	for i := range spec.AdmissionPolicyBindings {
		b := &spec.AdmissionPolicyBindings[i]
		add(b.Source, admissionBindingKind, admissionKind, &b.ObjectMeta, &b.Spec)
	}
	for _, byName := range bound {
		for _, list := range byName {
			slices.SortFunc(list, func(a, b boundSpec) int { return cmp.Compare(a.name, b.name) })
		}
	}
	return bound
}

// checkParams warns about params that are not there now, if they are looked for in
// one place.
func (c *compilation) checkParams(d validation.Reporter, p *matching.Params) {
	if c.followsParams {
		return
	}
	for _, missing := range p.Missing(c.set.objects, nil) {
		d.Warnf(field.NewPath("spec", "paramRef"), `parameterNotFoundAction is "Deny"`, "there is no %s, so requests that the policy matches are denied", missing.What())
	}
}

// MissingParams returns the bindings that deny, because their params do not exist. Denied has the namespaces of requests that were denied,
// by what DeniedByKey names: params in the namespace of a request are looked for there.
func (s *Set) MissingParams(denied map[string][]string) (list []matching.MissingParams) {
	for _, p := range s.policies {
		for i := range p.bindings {
			b := &p.bindings[i]
			for _, missing := range b.params.Missing(s.objects, denied[p.name+"/"+b.name]) {
				if p.failureOutcome() == Failed {
					list = append(list, matching.MissingParams{Kind: p.kind + "Binding", Binding: b.name, Policy: p.name, Params: missing.What()})
				}
			}
		}
	}
	return list
}
