package compile

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// What updates of objects that violate a rule already are refused natively, and not by Gatehouse.
const (
	lossRefused   = "an update is refused that only takes elements from a list in another list while others violate the rule as before"
	limitsRefused = "an update is refused that changes only numbers of probes, CPU and memory, pull policies, or a securityContext to one that allows less, while the pod violates the rule as before"
)

// optionalPath returns the pod, or its template, in object or oldObject.
func (p *part) optionalPath(object string) string {
	for _, name := range p.path {
		object += ".?" + name
	}
	return object
}

// unchanged returns an expression that is true for an update by which nothing changes that a rule reads, which may then violate it as
// before, and how it differs from what Gatehouse allows. It is "" for a rule of which every violation counts.
func (p *part) unchanged(program *expression.Program) (text string, differences []string) {
	reads := program.Reads()
	if program.Uses().Has(expression.UsesOldObject|expression.UsesUser|expression.UsesAuthorizer) || reads.IsNothing() {
		return "", nil
	}
	c := &comparer{pod: p.isPod && p.path == nil}
	privileged := readsPrivileges(reads) || !p.isPod && slices.ContainsFunc(p.templates, func(path []string) bool { return readsPrivileges(reads, path...) })
	if privileged {
		differences = append(differences, limitsRefused)
		c.add(".?spec")
	}
	c.read(reads, "", privileged)
	if c.loses {
		differences = append(differences, lossRefused)
	}
	all := []string{`request.operation == "UPDATE"`}
	for _, format := range c.same {
		all = append(all, fmt.Sprintf(format, p.optionalPath("object"), p.optionalPath("oldObject")))
	}
	return strings.Join(all, " && "), differences
}

// readsPrivileges reports whether a rule reads what a pod is allowed on its node, as policy.existing has it.
func readsPrivileges(reads *expression.Reads, pod ...string) bool {
	return slices.ContainsFunc([][]string{
		{"hostIPC"}, {"hostNetwork"}, {"hostPID"}, {"hostUsers"}, {"securityContext"}, {"volumes", expression.EachElement, "hostPath"},
		{"containers", expression.EachElement, "securityContext"}, {"initContainers", expression.EachElement, "securityContext"},
		{"ephemeralContainers", expression.EachElement, "securityContext"},
	}, func(path []string) bool { return reads.Touches(slices.Concat(pod, []string{"spec"}, path)...) })
}

// comparer collects conditions that are true if a value is the same before and after an update. They are formats for the object and the old one.
type comparer struct {
	same []string
	// pod is true for the spec of pods, whose lists cannot lose elements.
	pod   bool
	loses bool
	loops int
}

func (c *comparer) add(path string) { c.same = append(c.same, "%[1]s"+path+" == %[2]s"+path) }

// read adds what is read at a path of the object. If the spec is compared whole, what is in it need not be.
func (c *comparer) read(r *expression.Reads, path string, wholeSpec bool) {
	s := r.Shape()
	switch {
	case wholeSpec && path == ".?spec":
	case s.Whole, s.Each != nil && len(s.Members) > 0:
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

// creation is whether rules match the creation of what they match the update of.
type creation uint8

const (
	// neverCreated is that of rules that match no update, too.
	neverCreated creation = iota
	partlyCreated
	alwaysCreated
)

// creationOf returns whether the rules match the creation of what they match the update of. A policy that does not is about changes.
func creationOf(rules []admissionregistrationv1.NamedRuleWithOperations) creation {
	has := func(r *admissionregistrationv1.NamedRuleWithOperations, of admissionregistrationv1.OperationType) bool {
		return slices.Contains(r.Operations, of) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
	}
	some, all, updated := false, true, false
	for i := range rules {
		some = some || has(&rules[i], admissionregistrationv1.Create)
		if !has(&rules[i], admissionregistrationv1.Update) {
			continue
		}
		updated = true
		for _, resource := range rules[i].Resources {
			whole, _, _ := strings.Cut(resource, "/")
			all = all && slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
				return has(&r, admissionregistrationv1.Create) && containsAll(r.APIGroups, rules[i].APIGroups) && containsAll(r.APIVersions, rules[i].APIVersions) &&
					(containsAll(r.Resources, []string{whole}) || slices.Contains(r.Resources, "*/*")) &&
					(len(r.ResourceNames) == 0 || slices.Equal(r.ResourceNames, rules[i].ResourceNames))
			})
		}
	}
	switch {
	case !some, !updated:
		return neverCreated
	case !all:
		return partlyCreated
	default:
		return alwaysCreated
	}
}

func containsAll(of, all []string) bool {
	return slices.Contains(of, "*") || !slices.ContainsFunc(all, func(s string) bool { return !slices.Contains(of, s) })
}

// isEmptySelector reports whether a selector selects everything.
func isEmptySelector(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}
