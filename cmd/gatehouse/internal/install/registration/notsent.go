package registration

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

const (
	// maxNamed is how many resources a remark names.
	maxNamed = 3
	// maxRemark is how many bytes a remark should have, so that what to do about it
	// is still there when kubectl shows it behind the name of the policy.
	maxRemark = 170
)

// NotSent returns remarks on requests that a policy matches and that the API server does
// not send, so that the policy has no effect on them. There are none if everything is sent
// that can be.
//
// The configurations are those that register Gatehouse; those of others must not
// be among them. The workloads are those of the PolicyConfiguration, whose pod
// templates the policy checks besides the usual ones; if they cannot be used, the
// usual ones alone count.
//
// A rule of a webhook and one of a policy are compared as the API server does it
// for objects that exist in several versions, and without regard to namespaces and
// labels, by which an administrator leaves out what is in them for all policies.
// A resource that both name is sent, whatever scope the rules have. One that is sent
// of one group and not of another that the policy names is taken to be in the first
// alone: a rule about deployments and jobs of apps and batch is about two resources
// and not about four.
func NotSent(policy *v1alpha1.AdmissionPolicy, workloads []workload.Kind, configs []admissionregistrationv1.ValidatingWebhookConfiguration) []string {
	kinds, err := workload.New(workloads)
	if err != nil {
		kinds, _ = workload.New(nil) // which has nothing that could be wrong
	}
	set := policySet{versions: versionSets{}, workloads: kinds.All()}
	spec := policy.Spec.Upstream()
	set.add("", spec, policy.Spec.WorkloadTemplates != v1alpha1.IgnoreTemplates)
	var remarks []string
	if excluded := excludedBy(spec); len(excluded) > 0 {
		remarks = append(remarks, listNames(excluded)+": never sent to Gatehouse by design, so that a cluster can start and recover without it")
	}
	closed := true
	wanted := set.fail
	if len(set.ignore) > 0 {
		closed, wanted = false, set.ignore
	}
	if len(wanted) == 0 {
		return remarks
	}
	about := union(wanted)
	if about.full {
		return append(remarks, fmt.Sprintf("the policy names more than %d combinations, too many to report which of them are sent (hint: write \"*\" for groups, versions or resources)", maxAtoms))
	}
	fail, every, foreign := sentBy(configs)
	remarks = append(remarks, foreign...)
	var missing, open []atom
	sent := map[atom]bool{} // without their groups
	for a := range about.atoms {
		for _, part := range a.parts() {
			switch {
			case !every.sends(part):
				missing = append(missing, part)
				continue
			case closed && !fail.sends(part):
				open = append(open, part)
			}
			sent[part.ofAnyGroup()] = true
		}
	}
	missing = slices.DeleteFunc(missing, func(a atom) bool { return !strings.Contains(a.resource, all) && sent[a.ofAnyGroup()] })
	if len(missing) > 0 {
		flag := "--validate"
		if !closed {
			flag = "--validate-open"
		}
		remarks = append(remarks, remark(missing, flag, "not sent to Gatehouse"))
	}
	if len(open) > 0 {
		remarks = append(remarks, remark(open, "--validate", "sent by a fail-open webhook, unlike the policy"))
	}
	return remarks
}

// ProfilesNotSent returns remarks on pods that the API server does not send for injection.
// The configurations are those that register Gatehouse.
func ProfilesNotSent(configs []admissionregistrationv1.MutatingWebhookConfiguration) []string {
	var asked, silent bool
	pods := atom{corev1.GroupName, "v1", "pods", string(admissionregistrationv1.NamespacedScope), string(admissionregistrationv1.Create)}
	for i := range configs {
		for j := range configs[i].Webhooks {
			w := &configs[i].Webhooks[j]
			var s sender
			s.add(w.Rules, w.MatchPolicy)
			if pathOfClient(&w.ClientConfig) != webhooks.MutatePath || !s.sends(pods) {
				continue
			}
			has := func(expression string) bool {
				return slices.ContainsFunc(w.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Expression == expression })
			}
			asked = asked || !has("!("+asksExpression+")")
			silent = silent || !has(asksExpression)
		}
	}
	const hint = " (hint: apply the output of gatehouse manifests again)"
	switch {
	case asked && silent:
		return nil
	case asked:
		return []string{"pods that do not ask for injection are not sent to Gatehouse, so that they get no sidecars" + hint}
	case silent:
		return []string{"pods that ask for injection are not sent to Gatehouse, so that they get no sidecars" + hint}
	default:
		return []string{"no webhook sends pods to Gatehouse, so that none gets sidecars" + hint}
	}
}

// excludedBy returns the resources that a policy names and that are never sent.
func excludedBy(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) []string {
	if spec.MatchConstraints == nil {
		return nil
	}
	found := map[string]bool{}
	for _, rule := range spec.MatchConstraints.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if a := (atom{group: group, resource: resource}); a.isExcluded() {
					found[a.kubectlName()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// sender is a set of requests that webhooks are called for. Its zero value is empty.
type sender struct {
	any, exact atomSet // with any version of an object that exists in several, and in one
}

func (s *sender) add(rules []admissionregistrationv1.RuleWithOperations, matchPolicy *admissionregistrationv1.MatchPolicyType) {
	to := &s.any
	if matchPolicy != nil && *matchPolicy == admissionregistrationv1.Exact {
		to = &s.exact
	}
	for _, rule := range rules {
		to.add(rule)
	}
}

// sends reports whether every request that an atom matches is sent. Of a resource that
// is named there is only one scope, so that it need not be compared.
func (s *sender) sends(a atom) bool {
	covers := func(set *atomSet, anyVersion bool) bool {
		for b := range set.atoms {
			if anyVersion {
				b.version = all
			}
			if !strings.Contains(a.resource, all) {
				b.scope = all
			}
			if b.covers(a) {
				return true
			}
		}
		return set.full
	}
	return covers(&s.any, true) || covers(&s.exact, false)
}

// sentBy returns the requests that the webhooks which fail closed are called for, and
// those that every one is called for; foreign are remarks on webhooks that may be called
// for less than their rules match.
func sentBy(configs []admissionregistrationv1.ValidatingWebhookConfiguration) (fail, every sender, foreign []string) {
	for i := range configs {
		for j := range configs[i].Webhooks {
			w := &configs[i].Webhooks[j]
			// What is only recorded may be sampled: no policy can rely on it.
			if w.Name == documentsWebhook || w.Name == recordWebhook || pathOfClient(&w.ClientConfig) != webhooks.ValidatePath {
				continue
			}
			for _, c := range w.MatchConditions {
				if !slices.Contains(ownConditions(), c) {
					foreign = append(foreign, fmt.Sprintf("webhook %q: the match condition %q may exclude requests that the policy matches (hint: gatehouse manifests --custom-resources has none)", w.Name, c.Name))
				}
			}
			every.add(w.Rules, w.MatchPolicy)
			// The API server's default is Fail.
			if w.FailurePolicy == nil || *w.FailurePolicy == admissionregistrationv1.Fail {
				fail.add(w.Rules, w.MatchPolicy)
			}
		}
	}
	return fail, every, foreign
}

// pathOfClient returns the path that a webhook is called at.
func pathOfClient(c *admissionregistrationv1.WebhookClientConfig) string {
	if c.Service != nil && c.Service.Path != nil {
		return *c.Service.Path
	}
	if c.URL != nil {
		if u, err := url.Parse(*c.URL); err == nil {
			return u.Path
		}
	}
	return ""
}

// parts takes apart what an atom says for several operations and scopes, so that
// different rules may cover them. Operations that there cannot be are left out.
func (a atom) parts() []atom {
	operations := []string{a.operation}
	if a.operation == all {
		operations = possibleOperations(a.resource)
	}
	scopes := []string{a.scope}
	if a.scope == all && strings.Contains(a.resource, all) {
		scopes = []string{string(admissionregistrationv1.ClusterScope), string(admissionregistrationv1.NamespacedScope)}
	}
	var parts []atom
	for _, operation := range operations {
		for _, scope := range scopes {
			a.operation, a.scope = operation, scope
			parts = append(parts, a)
		}
	}
	return parts
}

func (a atom) ofAnyGroup() atom {
	a.group = ""
	return a
}

// possibleOperations returns the operations on a resource.
func possibleOperations(resource string) []string {
	name, sub, hasSub := strings.Cut(resource, "/")
	switch {
	case hasSub && isConnection(sub):
		return []string{string(admissionregistrationv1.Connect)}
	case hasSub && sub != all:
		return []string{string(admissionregistrationv1.Create), string(admissionregistrationv1.Update)}
	case name == all || sub == all:
		return operations()[:4]
	default:
		return []string{string(admissionregistrationv1.Create), string(admissionregistrationv1.Update), string(admissionregistrationv1.Delete)}
	}
}

// kubectlName is how kubectl, and --validate, name the resource.
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

// remark returns a text about atoms with a hint, shortened to maxRemark.
func remark(atoms []atom, flag, what string) string {
	byName := map[string][]string{}
	mayFailClosed := true
	for _, a := range atoms {
		name := a.kubectlName()
		if !slices.Contains(byName[name], a.operation) {
			byName[name] = append(byName[name], a.operation)
		}
		mayFailClosed = mayFailClosed && a.checkClosed() == nil
	}
	names := slices.Sorted(maps.Keys(byName))
	var values []string
	for _, name := range names {
		slices.SortFunc(byName[name], func(a, b string) int { return cmp.Compare(operationOrder(a), operationOrder(b)) })
		values = append(values, name+":"+strings.Join(byName[name], ","))
	}
	var hints []string
	if flag == "--validate" && !mayFailClosed {
		hints = []string{"failurePolicy Ignore, and gatehouse manifests --validate-open, because that must not fail closed", "failurePolicy Ignore, and --validate-open"}
	} else {
		with := " " + strings.Join(values, ",")
		if strings.Contains(with, all) {
			with = " '" + with[1:] + "'"
		}
		hints = []string{
			"gatehouse manifests " + flag + with + ", or in the chart webhooks.validate.extraRules",
			"gatehouse manifests " + flag + ", or in the chart webhooks.validate.extraRules",
			"gatehouse manifests " + flag + ", or the chart's extraRules",
		}
		if len(names) > maxNamed {
			hints = hints[1:]
		}
	}
	text := ""
	for most := maxNamed; most > 0; most-- {
		for _, hint := range hints {
			text = describe(names, byName, most) + ": " + what + " (hint: " + hint + ")"
			if len(text) <= maxRemark {
				return text
			}
		}
	}
	return text
}

// describe names a number of resources at most, those with the same operations together.
func describe(names []string, operationsOf map[string][]string, most int) string {
	type group struct {
		operations string
		names      []string
	}
	var groups []*group
	for _, name := range names[:min(most, len(names))] {
		key := strings.Join(operationsOf[name], ", ")
		at := slices.IndexFunc(groups, func(g *group) bool { return g.operations == key })
		if at < 0 {
			groups = append(groups, &group{operations: key})
			at = len(groups) - 1
		}
		groups[at].names = append(groups[at].names, name)
	}
	var texts []string
	for _, g := range groups {
		texts = append(texts, g.operations+" of "+strings.Join(g.names, ", "))
	}
	return strings.Join(texts, "; ") + andMore(len(names)-most)
}

// listNames names maxNamed at most.
func listNames(names []string) string {
	return strings.Join(names[:min(maxNamed, len(names))], ", ") + andMore(len(names)-maxNamed)
}

// andMore returns how many are not named.
func andMore(count int) string {
	if count <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", count)
}
