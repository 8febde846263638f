package compile

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// What updates of objects that violate a rule already are refused natively, and not by Gatehouse.
const (
	lossRefused   = "an update is refused that only takes elements from a list in another list while others violate the rule as before"
	limitsRefused = "an update is refused that changes only numbers of probes, CPU and memory, pull policies, or a securityContext to one that allows less, while the pod violates the rule as before"
	listsRefused  = "an update is refused that changes what the rule does not read in the elements of a list that it reads, while the object violates the rule as before"
	addedRefused  = "an ephemeral container cannot be added to a pod that violates the check already"
)

// optionalPath returns the pod, or its template, in object or oldObject.
func (p *part) optionalPath(object string) string {
	for _, name := range p.path {
		object += ".?" + name
	}
	return object
}

// allowed returns conditions under which violations of a rule pass although no exception says so, mostly updates of what violated it before,
// and how these differ from what Gatehouse allows.
func (p *part) allowed(s *source, r *rule) (conditions, differences []string) {
	if r.standard && p.path == nil {
		conditions = append(conditions, standardUnchanged())
	}
	created, _ := matching.Creates(s.spec.MatchConstraints.ResourceRules)
	switch {
	case !s.existing:
	case p.path == nil && !created:
		if !r.standard && readsObjectOnly(r.program) && !r.program.Reads().Touches("metadata", "finalizers") && !r.program.Reads().Touches("metadata", "ownerReferences") {
			conditions = append(conditions, harmless())
		}
	case r.standard:
		differences = append(differences, limitsRefused)
		if p.path == nil {
			differences = []string{addedRefused}
		}
		conditions = append(conditions, p.updates(s, "%[1]s.?spec == %[2]s.?spec", "%[1]s.?metadata.?annotations == %[2]s.?metadata.?annotations"))
	case readsObjectOnly(r.program):
		var same []string
		same, differences = p.unchanged(r.program.Reads(), *s.spec.FailurePolicy == admissionregistrationv1.Ignore)
		conditions = append(conditions, p.updates(s, same...))
	}
	return conditions, differences
}

// updates returns a condition for updates of objects that the policy selected before. Of the others, %[1]s is the pod or template, and %[2]s the
// old one.
func (p *part) updates(s *source, formats ...string) string {
	all := []string{`request.operation == "UPDATE"`}
	before := s.before
	if p.path != nil {
		before = before[:1] // where a binding selects pods by labels, templates stay with Gatehouse
	}
	for _, selector := range before {
		if selector != nil {
			all = append(all, selectorConditions(selector, p.optionalPath("oldObject")+".?metadata.?labels.orValue({})")...)
		}
	}
	for _, format := range formats {
		if !strings.Contains(format, "%[") {
			all = append(all, format)
			continue
		}
		all = append(all, fmt.Sprintf(format, p.optionalPath("object"), p.optionalPath("oldObject")))
	}
	return strings.Join(all, " && ")
}

// unchanged returns conditions that are true for an update by which nothing changes that a rule reads, which may then violate it as before.
// Where an evaluation that costs too much would let violations pass, they compare whole lists, which always costs little.
func (p *part) unchanged(reads *expression.Reads, cheap bool) (same, differences []string) {
	c := &comparer{pod: p.isPod && p.path == nil, cheap: cheap}
	ofPods := policy.ReadsPrivileges(reads)
	whole := ofPods && cheap || !p.isPod && slices.ContainsFunc(p.templates, func(path []string) bool { return policy.ReadsPrivileges(reads, path...) })
	switch {
	case whole:
		differences = append(differences, limitsRefused)
		c.add(".?spec")
	case ofPods && p.isPod:
		c.same = append(c.same, "variables."+powerVariable)
	case ofPods:
		c.same = append(c.same, `(request.kind.group != "" || request.kind.kind != "Pod" || variables.`+powerVariable+`)`)
	}
	c.read(reads, "", whole)
	if c.loses {
		differences = append(differences, lossRefused)
	}
	if c.wholes {
		differences = append(differences, listsRefused)
	}
	return c.same, differences
}

// comparer collects conditions that are true if a value is the same before and after an update. They are formats for the object and the old one.
type comparer struct {
	same []string
	// pod is true for the spec of pods, whose lists cannot lose elements.
	pod bool
	// cheap is true if lists are compared whole, and wholes then for one of which not all is read.
	cheap, wholes bool
	loses         bool
	loops         int
}

func (c *comparer) add(path string) { c.same = append(c.same, "%[1]s"+path+" == %[2]s"+path) }

// read adds what is read at a path of the object. If the spec is compared whole, what is in it need not be.
func (c *comparer) read(r *expression.Reads, path string, wholeSpec bool) {
	s := r.Shape()
	switch {
	case wholeSpec && path == ".?spec":
	case s.Whole, s.Each != nil && len(s.Members) > 0:
		c.add(path)
	case s.Each != nil && c.cheap:
		c.wholes = true
		c.add(path)
	case s.Each != nil:
		c.same = append(c.same, c.elements(r, path))
		if s.Strict {
			c.add(path + ".hasValue()")
		}
	default:
		for _, name := range s.Members {
			c.read(r.Member(name), path+member(name), wholeSpec)
		}
	}
}

// member returns the access to a member.
func member(name string) string {
	if strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) >= 0 {
		return fmt.Sprintf("[?%q]", strings.ReplaceAll(name, "%", "%%"))
	}
	return ".?" + name
}

// elements returns a condition that is true if a list has the same elements as before in what is read of them, but for some that are gone if
// none need be kept. Elements that are alike are told apart by their names.
func (c *comparer) elements(r *expression.Reads, path string) string {
	pair := func(more ...string) string {
		text := c.list(r, "%[1]s"+path, more...)
		return "[" + text + ", " + strings.ReplaceAll(text, "%[1]s", "%[2]s") + "]"
	}
	if r.Shape().Kept || c.pod && strings.HasPrefix(path, ".?spec") {
		return "[" + pair() + "].all(p, p[0] == p[1])"
	}
	pairs := pair()
	if each := r.Shape().Each.Shape(); !each.Whole && each.Each == nil && !slices.Contains(each.Members, "name") {
		pairs += ", " + pair(".?name")
	}
	return "[" + pairs + "].exists(p, p[0] == p[1] || type(p[0]) == list && p[0] == p[1].filter(x, x in p[0]))"
}

// list returns what is read of each element of a list, and more. What is no list is compared whole.
func (c *comparer) list(r *expression.Reads, of string, more ...string) string {
	c.loops++
	name, value := fmt.Sprintf("e%d", c.loops), of+".orValue([])"
	all := c.element(r.Shape().Each, name, true)
	for _, path := range more {
		all = append(all, "dyn("+name+path+")")
	}
	return "(type(" + value + ") == list ? dyn(" + value + ".map(" + name + ", [" + strings.Join(all, ", ") + "])) : dyn(" + value + "))"
}

// element returns what is read of an element.
func (c *comparer) element(r *expression.Reads, of string, top bool) (out []string) {
	s := r.Shape()
	switch {
	case s.Whole, top && s.Each != nil, s.Each != nil && len(s.Members) > 0:
		return []string{"dyn(" + of + ")"}
	case s.Each != nil:
		c.loses = c.loses || !s.Kept && !c.pod
		out = []string{c.list(r, of)}
		if s.Strict {
			out = append(out, "dyn("+of+".hasValue())")
		}
		return out
	}
	for _, name := range s.Members {
		out = append(out, c.element(r.Member(name), of+member(name), false)...)
	}
	return out
}
