package registration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// MaxRules bounds the rules of a webhook, and maxResources the names of resources in them. Rules that exceed them are merged
// into wider ones.
const (
	MaxRules     = 64
	maxResources = 500
)

// Requests are the requests that a webhook is called for. Exclusions of namespaces and match conditions come in addition.
type Requests struct {
	Rules []admissionregistrationv1.RuleWithOperations `json:"rules,omitempty"`
	// Namespaces and Objects are the selectors that all policies of the webhook have, nil without such.
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	Objects    *metav1.LabelSelector `json:"objects,omitempty"`
}

// Needs are the requests that a configuration needs, by the name of the webhook that sends them. A webhook that is missing
// sends nothing.
type Needs map[string]Requests

// NeedsOf returns what the active policies and profiles of a configuration need, and nothing else. A request that a policy
// with failurePolicy Fail matches is sent by a webhook that fails closed; one that only policies with Ignore match is sent by
// one that fails open.
//
// The webhooks for new pods divide them by what the pod asks for, so that no pod is sent twice: AskedMutate sends those that
// ask for injection, and the others are sent by FailMutate if a policy that fails closed matches new pods, else by DefaultMutate.
//
// Included are those of the annotation IncludedResources. LeftOut names what is needed and may not be sent without being there.
func NeedsOf(spec *webhooks.Spec, included []string) (needs Needs, leftOut []string, err error) {
	needs, _, leftOut, err = needsOf(spec, false, included)
	return needs, leftOut, err
}

// needsOf is NeedsOf, with remarks on what is sent. Unknown adds what policies and profiles that come later are likely to need: new
// pods for injection, and pods and workloads for validation, failing closed.
func needsOf(spec *webhooks.Spec, unknown bool, included []string) (_ Needs, notes, leftOut []string, err error) {
	validate, err := newPolicySet(&spec.Policy)
	if err != nil {
		return nil, nil, nil, err
	}
	mutate := newMutatingSet(&spec.Mutation)
	if unknown {
		for _, rule := range defaultRules() {
			validate.fail.add(rule)
		}
		// More is sent than what the policies match, and their selectors do not apply to that.
		for _, sent := range []*sentRequests{&validate.fail, &validate.ignore} {
			sent.namespaces, sent.objects = nil, nil
		}
	}
	for _, sent := range []*sentRequests{&validate.fail, &validate.ignore, &mutate.fail, &mutate.ignore} {
		if sent.full {
			*sent = sentRequests{atomSet: *everyRequest()}
		}
		// Before anything is removed because a rule covers it that is not sent.
		leftOut = append(leftOut, sent.restrict(sent == &mutate.fail || sent == &mutate.ignore, included)...)
	}
	podsFail := mutate.fail.coverPodCreation()
	others := unknown || len(spec.Sidecar.Profiles) > 0 || mutate.ignore.coverPodCreation()
	notes = slices.Concat(validate.notes, mutate.notes)
	if podsFail {
		notes = append(notes, "a MutatingAdmissionPolicy with failurePolicy Fail matches new pods: while Gatehouse is down, no pod is created")
	}
	if podsFail && others {
		mutate.fail.namespaces, mutate.fail.objects = nil, nil // it sends the pods of all the others too
	}
	validate.removeSentTwice()
	mutate.removeSentTwice()
	mutate.ignore.removeCovered(newPods())
	needs := Needs{}
	for name, sent := range map[string]*sentRequests{
		FailValidate: &validate.fail, IgnoreValidate: &validate.ignore, FailMutate: &mutate.fail, IgnoreMutate: &mutate.ignore,
	} {
		if len(sent.atoms) > 0 {
			rules, tooMany := sent.boundedRules(slices.Contains(included, all))
			for _, rule := range tooMany {
				leftOut = append(leftOut, all+"."+rule.APIGroups[0])
			}
			needs[name] = Requests{rules, sent.namespaces, sent.objects}
		}
	}
	if others || podsFail {
		needs[AskedMutate] = Requests{Rules: podCreation()}
	}
	if others && !podsFail {
		needs[DefaultMutate] = Requests{Rules: podCreation()}
	}
	slices.Sort(notes)
	slices.Sort(leftOut)
	return needs, slices.Compact(notes), slices.Compact(leftOut), nil
}

// newPods returns the creation of pods, in any version and scope.
func newPods() *atomSet {
	return &atomSet{atoms: map[atom]bool{{"", all, "pods", string(admissionregistrationv1.AllScopes), string(admissionregistrationv1.Create)}: true}}
}

// everyRequest returns the widest set. What is never sent is excluded by match conditions.
func everyRequest() *atomSet {
	return &atomSet{atoms: map[atom]bool{{all, all, "*/*", string(admissionregistrationv1.AllScopes), all}: true}}
}

// boundedRules returns rules within MaxRules and maxResources that match at least the atoms. Where there are more, versions, scopes
// and operations are not distinguished, and in the end nothing is. Without wildcards, rules that do not fit then are returned apart.
func (s *atomSet) boundedRules(wildcards bool) (rules, tooMany []admissionregistrationv1.RuleWithOperations) {
	fits := func(rules []admissionregistrationv1.RuleWithOperations) bool {
		names := 0
		for i := range rules {
			names += len(rules[i].Resources)
		}
		return len(rules) <= MaxRules && names <= maxResources
	}
	if rules = s.rules(); fits(rules) {
		return rules, nil
	}
	wider := atomSet{atoms: map[atom]bool{}}
	for a := range s.atoms {
		wider.atoms[atom{a.group, all, a.resource, string(admissionregistrationv1.AllScopes), all}] = true
	}
	if rules = wider.rules(); fits(rules) {
		return rules, nil
	}
	if wildcards {
		return everyRequest().rules(), nil
	}
	fitting := min(len(rules), MaxRules)
	return rules[:fitting], rules[fitting:]
}
