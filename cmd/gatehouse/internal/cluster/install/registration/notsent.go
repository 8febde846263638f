package registration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// maxNamed is how many resources a remark names.
const maxNamed = 3

// Sent is what the validating webhooks of an install send.
type Sent struct {
	*atomSet

	// hint is what the rules of a managed registration wait for, "" for one that people write.
	hint string
}

// SentBy returns what the configurations send that register Gatehouse.
func SentBy(configs []admissionregistrationv1.ValidatingWebhookConfiguration) *Sent {
	var sent atomSet
	for i := range configs {
		for j := range configs[i].Webhooks {
			for _, rule := range configs[i].Webhooks[j].Rules {
				sent.add(rule)
			}
		}
	}
	return &Sent{atomSet: &sent}
}

// Managed returns the same of a registration that Gatehouse manages. The hint is what it waits for, "" for nothing.
func (s *Sent) Managed(hint string) *Sent {
	return &Sent{s.atomSet, cmp.Or(hint, "Gatehouse adds that to its webhook configurations within seconds")}
}

// NotSent returns remarks on the resources that a policy matches and for which no webhook is called at all. A resource
// counts as sent if a rule names it with one of the operations, in whatever version, scope and, where the policy names
// several, group; in a managed registration, if all that the policy matches is sent. Selectors and match conditions are not
// compared.
//
// The workloads are those of the PolicyConfiguration, whose pod
// templates the policy checks in addition to the usual ones; if they are invalid, they do not count.
func NotSent(policy *v1alpha1.AdmissionPolicy, workloads []workload.Kind, sent *Sent) []string {
	kinds, err := workload.New(workloads)
	if err != nil {
		kinds, _ = workload.New(nil) // which has nothing that could be wrong
	}
	set := policySet{workloads: kinds.All()}
	var remarks []string
	if excluded := set.add("", policy.Spec.Upstream(), policy.Spec.WorkloadTemplates != v1alpha1.IgnoreTemplates); len(excluded) > 0 {
		slices.Sort(excluded)
		remarks = append(remarks, listNames(slices.Compact(excluded))+": never sent to Gatehouse by design, so that a cluster can start and recover without it")
	}
	wanted := set.fail
	if wanted.atoms == nil {
		wanted = set.ignore
	}
	if wanted.full || sent.full {
		return remarks
	}
	type action struct{ resource, operation string }
	isSent, missing := map[action]bool{}, map[string][]string{}
	for a := range wanted.atoms {
		isSent[action{a.resource, a.operation}] = isSent[action{a.resource, a.operation}] || sent.covers(a, false) || sent.hint == "" && sent.overlaps(a)
	}
	for a := range wanted.atoms {
		is := isSent[action{a.resource, a.operation}]
		if sent.hint != "" {
			is = sent.covers(a, false)
		}
		if is {
			continue
		}
		if name := a.kubectlName(); !slices.Contains(missing[name], a.operation) {
			missing[name] = append(missing[name], a.operation)
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.SortFunc(missing[name], func(a, b string) int { return cmp.Compare(operationOrder(a), operationOrder(b)) })
		names = append(names, name+":"+strings.Join(missing[name], ","))
	}
	if len(names) == 0 {
		return remarks
	}
	if sent.hint != "" {
		return append(remarks, fmt.Sprintf("%s: not sent to Gatehouse yet: %s", listNames(names), sent.hint))
	}
	return append(remarks, listNames(names)+": not sent to Gatehouse (hint: serve --manage-registration, or gatehouse manifests --config with this policy)")
}

// MatchesEverything reports whether a policy matches all resources of all groups, so that everything is sent that may be.
func MatchesEverything(policy *v1alpha1.AdmissionPolicy) bool {
	match := policy.Spec.MatchConstraints
	return match != nil && slices.ContainsFunc(match.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return SendsEverything(r.RuleWithOperations)
	})
}

// SendsEverything reports whether a rule matches all resources of all groups.
func SendsEverything(r admissionregistrationv1.RuleWithOperations) bool {
	return slices.Contains(r.APIGroups, all) && (slices.Contains(r.Resources, all) || slices.Contains(r.Resources, "*/*"))
}

// ProfilesNotSent returns a remark if no webhook is called for new pods, so that none gets sidecars. The configurations are
// those that register Gatehouse.
func ProfilesNotSent(configs []admissionregistrationv1.MutatingWebhookConfiguration) []string {
	var sent atomSet
	for i := range configs {
		for j := range configs[i].Webhooks {
			for _, rule := range configs[i].Webhooks[j].Rules {
				sent.add(rule)
			}
		}
	}
	if sent.overlaps(atom{corev1.GroupName, all, "pods", string(admissionregistrationv1.NamespacedScope), string(admissionregistrationv1.Create)}) {
		return nil
	}
	return []string{"no webhook sends new pods to Gatehouse, so no pod gets sidecars (hint: apply the output of gatehouse manifests again)"}
}

// overlaps reports whether a request may match the atom and one of the set, in any version and scope.
func (s *atomSet) overlaps(a atom) bool {
	isEither := func(a, b string) bool { return a == b || a == all || b == all }
	name, sub, _ := strings.Cut(a.resource, "/")
	for b := range s.atoms {
		otherName, otherSub, _ := strings.Cut(b.resource, "/")
		if isEither(a.group, b.group) && isEither(a.operation, b.operation) && isEither(name, otherName) && isEither(sub, otherSub) {
			return true
		}
	}
	return false
}

// kubectlName is how kubectl names the resource.
func (a atom) kubectlName() string {
	resource, sub, hasSub := strings.Cut(a.resource, "/")
	if a.group != "" {
		resource += "." + a.group
	}
	if hasSub {
		resource += "/" + sub
	}
	return resource
}

// listNames names maxNamed at most.
func listNames(names []string) string {
	text := strings.Join(names[:min(maxNamed, len(names))], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
