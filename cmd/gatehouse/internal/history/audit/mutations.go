package audit

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// knownMutations returns the set without the policies that cannot be evaluated for the creation of an object of which only the object
// itself is known, and these.
func knownMutations(c *config.Config, set *mutation.Set) (*mutation.Set, []Skipped) {
	spec := mutation.Spec{Lookups: set.Lookups(), Previous: set, KeepBroken: true}
	var left []Skipped
	skipped := map[string]bool{}
	for i := range c.Mutation.Policies {
		p := &c.Mutation.Policies[i]
		isBound := slices.ContainsFunc(c.Mutation.Bindings, func(b mutation.Binding) bool { return b.Spec.PolicyName == p.Name })
		reason := ""
		if reads := readsOfRequest(&p.Spec); len(reads) > 0 {
			reason = "it reads " + strings.Join(reads, ", ") + ", which an audit does not know"
		}
		if match := p.Spec.MatchConstraints; match != nil && len(creations(match.ResourceRules)) == 0 {
			reason = "it does not match the creation of objects"
		}
		if reason == "" {
			spec.Policies = append(spec.Policies, *p)
			continue
		}
		skipped[p.Name] = true
		if isBound {
			left = append(left, Skipped{Kind: admit.MutationKind, Policy: p.Name, Reason: reason})
		}
	}
	if len(skipped) == 0 {
		return set, nil
	}
	for _, b := range c.Mutation.Bindings {
		if !skipped[b.Spec.PolicyName] {
			spec.Bindings = append(spec.Bindings, b)
		}
	}
	known, err := mutation.Compile(spec)
	if err != nil {
		return set, nil // it has been compiled before
	}
	return known, left
}

// ofRequest matches names by which expressions read what is more than the object.
var ofRequest = regexp.MustCompile(`\b(?:oldObject|authorizer|request)\b(?:\.\??\w+)?`)

// readsOfRequest returns what the expressions of a policy read that an audit does not know, sorted. A name in a string counts too.
func readsOfRequest(p *admissionregistrationv1.MutatingAdmissionPolicySpec) (reads []string) {
	texts := make([]string, 0, len(p.MatchConditions)+len(p.Variables)+len(p.Mutations))
	for i := range p.MatchConditions {
		if p.MatchConditions[i].Expression != registration.NotBreakGlass().Expression {
			texts = append(texts, p.MatchConditions[i].Expression)
		}
	}
	for i := range p.Variables {
		texts = append(texts, p.Variables[i].Expression)
	}
	for i := range p.Mutations {
		if m := &p.Mutations[i]; m.ApplyConfiguration != nil {
			texts = append(texts, m.ApplyConfiguration.Expression)
		} else if m.JSONPatch != nil {
			texts = append(texts, m.JSONPatch.Expression)
		}
	}
	for _, name := range ofRequest.FindAllString(strings.Join(texts, "\n"), -1) {
		root, member, _ := strings.Cut(name, ".")
		switch strings.TrimPrefix(member, "?") {
		case "name", "namespace", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource":
			if root == "request" {
				continue
			}
		}
		if root != "request" {
			name = root
		}
		reads = append(reads, name)
	}
	slices.Sort(reads)
	return slices.Compact(reads)
}

// mostPaths is how many paths a message has.
const mostPaths = 5

// mutations reports the policies that would change the object of a request, with the paths that they change last. Decision is that
// about the request.
func (r *reporter) mutations(ctx context.Context, set *mutation.Set, req *admission.Request, decision *admit.Decision) {
	if !slices.ContainsFunc(decision.Mutated, func(m admit.Mutated) bool { return m.Template == "" && m.Object != nil }) {
		return
	}
	explained := set.Decide(ctx, mutation.Input{Request: *req, Explain: true})
	type policy struct{ name, binding string }
	paths, order := map[policy][]string{}, []policy(nil)
	for _, change := range explained.LastChanges() {
		by := policy{change.Policy, change.Binding}
		if paths[by] == nil {
			order = append(order, by)
		}
		paths[by] = append(paths[by], change.Path)
	}
	for _, by := range order {
		all := paths[by]
		text := "would change " + strings.Join(all[:min(len(all), mostPaths)], ", ")
		if more := len(all) - mostPaths; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		r.add(Result{Status: Change, Kind: admit.MutationKind, Policy: by.name, Binding: by.binding, Message: text})
	}
}
