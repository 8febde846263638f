package console

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// The kinds that have pages.
const (
	admissionPolicyKind = "AdmissionPolicy"
	nativePolicyKind    = "ValidatingAdmissionPolicy"
	profileKind         = "SidecarProfile"
	exceptionKind       = "PolicyException"
)

// policyDoc is a policy of any kind, or a profile.
type policyDoc struct {
	Kind, Name, Source string
	Annotations        map[string]string
	// Matches and Actions say on one line what it matches, and what a violation leads to or when a profile is injected.
	Matches, Actions string
	// Bindings are those of a policy.
	Bindings []bindingDoc
}

// bindingDoc is a binding of any kind.
type bindingDoc struct {
	Kind, Name, Source string
	// Policy is the name of the policy.
	Policy  string
	Actions []admissionregistrationv1.ValidationAction
	Spec    any
}

// policies returns all policies and profiles, the profiles last.
func (l *loaded) policies() (all []policyDoc) {
	of, mutation := &l.Config.Policy, &l.Config.Mutation
	var own, native, mutating []bindingDoc
	for i := range of.AdmissionPolicyBindings {
		b := &of.AdmissionPolicyBindings[i]
		own = append(own, bindingDoc{"AdmissionPolicyBinding", b.Name, b.Source, b.Spec.PolicyName, b.Spec.ValidationActions, &b.Spec})
	}
	for i := range of.Bindings {
		b := &of.Bindings[i]
		native = append(native, bindingDoc{"ValidatingAdmissionPolicyBinding", b.Name, b.Source, b.Spec.PolicyName, b.Spec.ValidationActions, &b.Spec})
	}
	for i := range mutation.Bindings {
		b := &mutation.Bindings[i]
		mutating = append(mutating, bindingDoc{"MutatingAdmissionPolicyBinding", b.Name, b.Source, b.Spec.PolicyName, []admissionregistrationv1.ValidationAction{"Mutate"}, &b.Spec})
	}
	for i := range of.AdmissionPolicies {
		p := &of.AdmissionPolicies[i]
		one := policyDoc{Kind: admissionPolicyKind, Name: p.Name, Source: p.Source, Annotations: p.Annotations, Matches: matchSummary(p.Spec.Upstream().MatchConstraints)}
		all = append(all, one.bound(own, p.Spec.ValidationActions))
	}
	for i := range of.Policies {
		p := &of.Policies[i]
		one := policyDoc{Kind: nativePolicyKind, Name: p.Name, Source: p.Source, Annotations: p.Annotations, Matches: matchSummary(p.Spec.MatchConstraints)}
		all = append(all, one.bound(native, nil))
	}
	for i := range mutation.Policies {
		p := &mutation.Policies[i]
		one := policyDoc{Kind: admit.MutationKind, Name: p.Name, Source: p.Source, Annotations: p.Annotations, Matches: matchSummary(p.Spec.MatchConstraints)}
		all = append(all, one.bound(mutating, nil))
	}
	slices.SortStableFunc(all, func(a, b policyDoc) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
	})
	for i := range l.Config.Sidecar.Profiles {
		p := &l.Config.Sidecar.Profiles[i]
		match := strings.Join(strings.Fields(asYAML(p.Spec.Match)), " ")
		if match == "{}" {
			match = "all pods"
		}
		all = append(all, policyDoc{Kind: profileKind, Name: p.Name, Source: p.Source, Annotations: p.Annotations, Matches: match, Actions: cmp.Or(string(p.Spec.Injection), "OptIn")})
	}
	return all
}

// bound returns the policy with its bindings, and the actions of these beside its own.
func (p policyDoc) bound(bindings []bindingDoc, actions []admissionregistrationv1.ValidationAction) policyDoc {
	names := map[string]bool{}
	for _, b := range bindings {
		if b.Policy == p.Name {
			p.Bindings, actions = append(p.Bindings, b), slices.Concat(actions, b.Actions)
		}
	}
	for _, action := range actions {
		names[string(action)] = true
	}
	p.Actions = strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	return p
}

// exceptionsOf returns the exceptions that name a policy.
func (l *loaded) exceptionsOf(p *policyDoc) []*policy.Exception {
	return exceptionsOf(p, allExceptions(l))
}

func exceptionsOf(p *policyDoc, exceptions []*policy.Exception) []*policy.Exception {
	return slices.DeleteFunc(exceptions, func(e *policy.Exception) bool {
		return !slices.ContainsFunc(e.Spec.Policies, func(of v1alpha1.ExceptedPolicy) bool {
			return of.Name == p.Name && (of.Kind == "" || of.Kind == p.Kind) && p.Kind != admit.MutationKind
		})
	})
}

// matchSummary says which requests a policy matches, without its selectors.
func matchSummary(m *admissionregistrationv1.MatchResources) string {
	if m == nil {
		return "nothing"
	}
	var parts []string
	for i := range m.ResourceRules {
		parts = append(parts, ruleSummary(&m.ResourceRules[i].RuleWithOperations))
	}
	return strings.Join(parts, "; ")
}

// ruleSummary returns operations and resources, as "CREATE, UPDATE of deployments.apps".
func ruleSummary(r *admissionregistrationv1.RuleWithOperations) string {
	operations := make([]string, len(r.Operations))
	for i, operation := range r.Operations {
		operations[i] = string(operation)
	}
	var resources []string
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			name, sub, isSub := strings.Cut(resource, "/")
			if group != "" {
				name += "." + group
			}
			if isSub {
				name += "/" + sub
			}
			resources = append(resources, name)
		}
	}
	return strings.Join(operations, ", ") + " of " + strings.Join(resources, ", ")
}

// asYAML returns a part of an object for people.
func asYAML(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err.Error() // these types can be encoded
	}
	return string(text)
}

// ownerOf returns who is responsible for an object by an annotation whose name is "owner", or ends in "/owner".
func ownerOf(annotations map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if name == "owner" || strings.HasSuffix(name, "/owner") {
			return annotations[name]
		}
	}
	return ""
}

// definedAt says where an object is defined: an object of the cluster, or FILE:LINE.
func (c *console) definedAt(source string) string {
	if isFromCluster(source) {
		return "the cluster"
	}
	name, number := parseSource(source)
	path := filepath.Join(c.config, filepath.FromSlash(name))
	text, err := os.ReadFile(path) // #nosec G304 -- a file of the configuration
	if err != nil {
		return filepath.ToSlash(path)
	}
	workloads, _ := manifest.NewWorkloads(nil) // none are named
	at, found := manifest.Read(name, text, workloads).Position(number)
	if !found {
		return filepath.ToSlash(path)
	}
	return fmt.Sprintf("%s:%d", filepath.ToSlash(path), at.Line)
}

// parseSource returns the file of a source, and the number of the document in it.
func parseSource(source string) (file string, number int) {
	name, rest, _ := strings.Cut(source, "#")
	rest, _, _ = strings.Cut(rest, "/") // an item of a list
	number = 1
	if n, err := strconv.Atoi(rest); err == nil && n > 0 {
		number = n
	}
	return name, number
}

// expiry is when an exception ends, for people.
type expiry struct {
	At time.Time
	// Text says how long that is, and Class is "bad" if it has ended and "notice" if it ends soon.
	Text, Class string
}

// soon is the time before its end at which an exception is marked.
const soon = 7 * 24 * time.Hour

func newExpiry(at *metav1.Time, now time.Time) expiry {
	if at == nil {
		return expiry{Text: "does not expire"}
	}
	const day = 24 * time.Hour
	left := at.Sub(now)
	switch {
	case left <= 0:
		return expiry{at.Time, "expired", "bad"}
	case left < day:
		return expiry{at.Time, "expires in less than a day", "notice"}
	case left < 2*day:
		return expiry{at.Time, "expires in 1 day", "notice"}
	}
	e := expiry{At: at.Time, Text: fmt.Sprintf("expires in %d days", left/day)}
	if left < soon {
		e.Class = "notice"
	}
	return e
}
