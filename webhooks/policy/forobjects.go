package policy

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// RequestDependent is a policy, or a rule of one, that cannot be evaluated for an object alone: it
// is about how or by whom a request is made.
type RequestDependent struct {
	// Kind and Policy are those of the policy. Rule is as in Violation, and "" for all of it.
	Kind, Policy, Rule string
	// Condition is the name of the match condition that reads what is not known, and "" for a rule
	// that does.
	Condition string
	// Reads are what is read, as Uses.OfRequest returns it. It is empty for a policy that does not
	// match the creation of any object.
	Reads []string
}

// ForObjects returns the Set without what cannot be evaluated for the creation of an object of
// which the request is not known, and what was left out, by policy. Policies without a binding
// are not named.
//
// What is left out has no effect on the rest: neither on what it costs, nor on which namespaces
// must be known. A messageExpression that reads the request is left out for the message. If a
// violation is left that such an exception may allow, it has Violation.Unknown. Known are match
// conditions that depend on the request, and are evaluated nevertheless.
func (s *Set) ForObjects(known ...string) (*Set, []RequestDependent) {
	out := *s
	out.policies, out.checksTemplates = make([]*compiledPolicy, 0, len(s.policies)), false
	exceptions := map[*exception]*exception{}
	var left []RequestDependent
	for _, p := range s.policies {
		kept, without := p.forObjects(exceptions, known)
		if len(p.bindings) > 0 {
			left = append(left, without...)
		}
		if kept != nil {
			out.policies = append(out.policies, kept)
			out.checksTemplates = out.checksTemplates || kept.checksTemplates && len(kept.bindings) > 0
		}
	}
	out.index = newIndex(out.policies, s.objects)
	return &out, left
}

// forObjects returns the policy without what depends on the request, nil if nothing is left, and
// what was left out. Exceptions has what became of those of other policies.
func (p *compiledPolicy) forObjects(exceptions map[*exception]*exception, known []string) (*compiledPolicy, []RequestDependent) {
	about := RequestDependent{Kind: p.kind, Policy: p.name}
	if !matchesSomeCreation(p.match) {
		return nil, []RequestDependent{about}
	}
	out := *p
	out.exceptions = make([]*exception, len(p.exceptions))
	for i, x := range p.exceptions {
		if exceptions[x] == nil {
			exceptions[x] = x.forObjects()
		}
		out.exceptions[i] = exceptions[x]
	}
	if p.broken != nil {
		return &out, nil // none of its rules is evaluated
	}
	if condition, reads := dependentCondition(p.conditions, known); reads != nil {
		about.Condition, about.Reads = condition, reads
		return nil, []RequestDependent{about}
	}
	var left []RequestDependent
	leaveOut := func(name string, program *expression.Program) bool {
		reads := readsOfRequest(program)
		if len(reads) == 0 {
			return false
		}
		rule := about
		rule.Rule, rule.Reads = name, reads
		left = append(left, rule)
		return true
	}
	rest := *p.program
	out.program = &rest
	rest.validations = nil
	for _, v := range p.validations {
		if !leaveOut(v.name, v.Program) {
			if len(readsOfRequest(v.messageExpression)) > 0 {
				v.messageExpression = nil
			}
			rest.validations = append(rest.validations, v)
		}
	}
	rest.auditAnnotations = nil
	for _, a := range p.auditAnnotations {
		if !leaveOut(a.name, a.Program) {
			rest.auditAnnotations = append(rest.auditAnnotations, a)
		}
	}
	if len(left) == 0 {
		return &out, nil
	}
	if len(rest.validations) == 0 && len(rest.auditAnnotations) == 0 && p.podSecurity == nil {
		return nil, left
	}
	rest.uses = rest.usesOfAll()
	out.needsNamespace = out.needsKnownNamespace()
	return &out, left
}

// usesOfAll returns the names that any of the expressions mentions.
func (p *program) usesOfAll() expression.Uses {
	var uses expression.Uses
	add := func(program *expression.Program) {
		if program != nil {
			uses |= program.Uses()
		}
	}
	for i := range p.conditions {
		add(p.conditions[i].Program)
	}
	uses &^= expression.UsesNamespace // match conditions see none
	for i := range p.validations {
		add(p.validations[i].Program)
		add(p.validations[i].messageExpression)
	}
	for i := range p.auditAnnotations {
		add(p.auditAnnotations[i].Program)
	}
	return uses
}

// matchesSomeCreation reports whether the rules match the creation of some object, and not of
// subresources alone.
func matchesSomeCreation(c *matching.Constraints) bool {
	return slices.ContainsFunc(c.Rules, func(r matching.Rule) bool {
		creates := slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool {
			return o == admissionregistrationv1.Create || o == admissionregistrationv1.OperationAll
		})
		return creates && slices.ContainsFunc(r.Resources, func(resource string) bool {
			_, sub, found := strings.Cut(resource, "/")
			return !found || sub == "*"
		})
	})
}

// forObjects returns the exception without the conditions that depend on the request.
func (x *exception) forObjects() *exception {
	name, reads := dependentCondition(x.conditions, nil)
	if reads == nil {
		return x
	}
	out := *x
	out.unknown = fmt.Sprintf("its match condition %q reads %s", name, strings.Join(reads, ", "))
	out.conditions = slices.DeleteFunc(slices.Clone(x.conditions), func(c expression.Condition) bool { return len(readsOfRequest(c.Program)) > 0 })
	return &out
}

// dependentCondition returns the first condition that depends on the request and is not known, and what it reads.
func dependentCondition(conditions []expression.Condition, known []string) (name string, reads []string) {
	for i := range conditions {
		if reads := readsOfRequest(conditions[i].Program); len(reads) > 0 && !slices.Contains(known, conditions[i].Text()) {
			return conditions[i].Name, reads
		}
	}
	return "", nil
}

// readsOfRequest returns what an expression, which may be nil, reads that depends on the request.
func readsOfRequest(program *expression.Program) []string {
	if program == nil {
		return nil
	}
	return program.Uses().OfRequest()
}
