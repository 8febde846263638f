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

// policyDoc is a policy of either kind.
type policyDoc struct {
	Kind, Name, Source string
	Annotations        map[string]string
	// Spec is the part that both kinds have, and Own all of an AdmissionPolicy.
	Spec *admissionregistrationv1.ValidatingAdmissionPolicySpec
	Own  *v1alpha1.AdmissionPolicySpec
}

// policies returns all policies, sorted by name.
func (l *loaded) policies() []policyDoc {
	var all []policyDoc
	for i := range l.Config.Policy.AdmissionPolicies {
		p := &l.Config.Policy.AdmissionPolicies[i]
		all = append(all, policyDoc{admissionPolicyKind, p.Name, p.Source, p.Annotations, p.Spec.Upstream(), &p.Spec})
	}
	for i := range l.Config.Policy.Policies {
		p := &l.Config.Policy.Policies[i]
		all = append(all, policyDoc{Kind: nativePolicyKind, Name: p.Name, Source: p.Source, Annotations: p.Annotations, Spec: &p.Spec})
	}
	slices.SortStableFunc(all, func(a, b policyDoc) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
	})
	return all
}

// bindingDoc is a binding of either kind.
type bindingDoc struct {
	Kind, Name, Source string
	Spec               *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
}

// bindingsOf returns the bindings of a policy.
func (l *loaded) bindingsOf(p *policyDoc) (all []bindingDoc) {
	if p.Kind == admissionPolicyKind {
		for i := range l.Config.Policy.AdmissionPolicyBindings {
			b := &l.Config.Policy.AdmissionPolicyBindings[i]
			all = append(all, bindingDoc{"AdmissionPolicyBinding", b.Name, b.Source, &b.Spec})
		}
	} else {
		for i := range l.Config.Policy.Bindings {
			b := &l.Config.Policy.Bindings[i]
			all = append(all, bindingDoc{"ValidatingAdmissionPolicyBinding", b.Name, b.Source, &b.Spec})
		}
	}
	return slices.DeleteFunc(all, func(b bindingDoc) bool { return b.Spec.PolicyName != p.Name })
}

// actionsOf returns what a violation leads to, by the policy itself or one of its bindings.
func actionsOf(p *policyDoc, bindings []bindingDoc) string {
	names := map[string]bool{}
	if p.Own != nil {
		for _, action := range p.Own.ValidationActions {
			names[string(action)] = true
		}
	}
	for i := range bindings {
		for _, action := range bindings[i].Spec.ValidationActions {
			names[string(action)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// exceptionsOf returns the exceptions that name a policy.
func (l *loaded) exceptionsOf(p *policyDoc) (all []*policy.Exception) {
	for i := range l.Config.Policy.Exceptions {
		e := &l.Config.Policy.Exceptions[i]
		if slices.ContainsFunc(e.Spec.Policies, func(of v1alpha1.ExceptedPolicy) bool {
			return of.Name == p.Name && (of.Kind == "" || of.Kind == p.Kind)
		}) {
			all = append(all, e)
		}
	}
	return all
}

// matchSummary says what a policy matches, on one line.
func matchSummary(m *admissionregistrationv1.MatchResources) string {
	if m == nil {
		return "nothing"
	}
	var parts []string
	for i := range m.ResourceRules {
		parts = append(parts, ruleSummary(&m.ResourceRules[i].RuleWithOperations))
	}
	more := []string{strings.Join(parts, "; ")}
	for _, of := range []struct {
		name     string
		selector *metav1.LabelSelector
	}{{"namespaces", m.NamespaceSelector}, {"objects", m.ObjectSelector}} {
		if !isEmptySelector(of.selector) {
			more = append(more, of.name+" with "+metav1.FormatLabelSelector(of.selector))
		}
	}
	if len(m.ExcludeResourceRules) > 0 {
		more = append(more, "with exclusions")
	}
	return strings.Join(more, ", ")
}

func isEmptySelector(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
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

// profileSummary says which pods a profile matches, on one line.
func profileSummary(s *v1alpha1.SidecarProfileSpec) string {
	text := asYAML(s.Match)
	if strings.TrimSpace(text) == "{}" {
		return "all pods"
	}
	return strings.Join(strings.Fields(text), " ")
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
