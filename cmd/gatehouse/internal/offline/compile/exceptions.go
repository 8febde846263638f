package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// exception is a PolicyException that may be in force.
type exception struct {
	*policy.Exception

	title string
	item  *Item
	// namespaces are those that it is about, nil for all.
	namespaces []string
}

// exceptions returns those in force, by their names. Of the others, the report has why they are not.
func (c *compilation) exceptions() (out []exception) {
	requireExpiry := policy.ExceptionRules(c.spec).RequireExpiry
	for i := range c.spec.Exceptions {
		x := &c.spec.Exceptions[i]
		title := x.Namespace + "/" + x.Name
		item := c.item("PolicyException", title, "")
		namespaces, expires := x.Spec.Match.Namespaces, x.Spec.ExpiresAt
		switch c.spec.ReachOf(x.Namespace) {
		case policy.ReachesAll:
		case policy.ReachesOwn:
			namespaces = []string{x.Namespace}
		case policy.ReachesNothing:
			item.note("exceptions in its namespace do nothing")
			continue
		}
		switch {
		case expires == nil && requireExpiry:
			item.note("it has no expiresAt, so it does nothing")
			continue
		case expires != nil && !c.options.Now.Before(expires.Time):
			item.note("it expired at " + expires.UTC().Format(time.RFC3339))
			continue
		case expires != nil && !c.options.Until.IsZero() && !c.options.Until.Before(expires.Time):
			item.differ("it is left out already, as it expires at " + expires.UTC().Format(time.RFC3339))
			continue
		case expires != nil:
			item.differ("the API server does not see that it expires at " + expires.UTC().Format(time.RFC3339))
		}
		if x.Spec.Match.Containers != nil {
			item.stay("the API server cannot ask a rule again without some of the containers")
		}
		out = append(out, exception{Exception: x, title: title, item: item, namespaces: namespaces})
	}
	slices.SortFunc(out, func(a, b exception) int { return cmp.Compare(a.title, b.title) })
	return out
}

// of returns the rules of a policy that the exception exempts, none for all of them, and false if it is not about the policy.
func (x *exception) of(kind, name string) (rules []string, isAbout bool) {
	for _, p := range x.Spec.Policies {
		if p.Name != name || p.Kind != "" && p.Kind != kind {
			continue
		}
		if len(p.Rules) == 0 {
			return nil, true
		}
		rules, isAbout = append(rules, p.Rules...), true
	}
	return rules, isAbout
}

// guard is an exception as an expression that is true for what it exempts.
type guard struct {
	text string
	// certain is false if its evaluation may fail, and readsNamespace true if it reads namespaceObject, which match conditions lack.
	certain, readsNamespace bool
}

// guard returns the exception for the objects of a part, or why there is none.
func (c *compilation) guard(x *exception, p *part) (g guard, problem string) {
	match := &x.Spec.Match
	g.certain = true
	var all []string
	if x.namespaces != nil {
		items := make([]celexpr.Expr, len(x.namespaces))
		for i, name := range x.namespaces {
			items[i] = celexpr.Str(name)
		}
		if p.path == nil && p.matchesNamespaces {
			all = append(all, `!(request.requestResource.group == "" && request.requestResource.resource == "namespaces")`)
		}
		all = append(all, "("+celexpr.In(celexpr.Raw(`request.?namespace.orValue("")`), items...).String()+")")
	}
	if len(match.Names) > 0 {
		all = append(all, "("+namesCondition(p, match.Names)+")")
	}
	if match.NamespaceSelector != nil {
		g.readsNamespace = true
		all = append(all, "namespaceObject != null")
		all = append(all, selectorConditions(match.NamespaceSelector, "namespaceObject.metadata.?labels.orValue({})")...)
	}
	if match.ObjectSelector != nil {
		all = append(all, p.objectSelector(match.ObjectSelector)...)
	}
	conditions := texts{conditions: match.MatchConditions}
	if p.path != nil && len(match.MatchConditions) > 0 {
		translated := c.templates.translate(&conditions)
		conditions = *translated.at(p.path)
	}
	for _, condition := range conditions.conditions {
		g.certain = false
		g.readsNamespace = g.readsNamespace || strings.Contains(condition.Expression, "namespaceObject")
		all = append(all, "(\n"+condition.Expression+"\n)")
	}
	if conditions.problem != "" {
		return g, "its " + conditions.problem
	}
	g.text = cmp.Or(strings.Join(all, " && "), "true")
	return g, c.accepts(g.text)
}

// namesCondition compares the name of the object, which may be only the beginning of one.
func namesCondition(p *part, names []string) string {
	object := "object"
	if p.path == nil {
		object = "(object == null ? oldObject : object)"
	}
	named, generated := object+`.?metadata.?name.orValue("")`, object+`.?metadata.?generateName.orValue("")`
	name := `(request.?name.orValue("") != "" ? request.name : string(` + named + `))`
	var either []string
	for _, pattern := range names {
		prefix, open := strings.CutSuffix(pattern, "*")
		if !open {
			either = append(either, name+" == "+celexpr.Quote(pattern))
			continue
		}
		quoted := celexpr.Quote(prefix)
		either = append(either, fmt.Sprintf(`%[1]s != "" && %[1]s.startsWith(%[2]s) || %[1]s == "" && %[3]s != "" && string(%[3]s).startsWith(%[2]s)`, name, quoted, generated))
	}
	return strings.Join(either, " || ")
}

// objectSelector returns the conditions on the labels of an object, and of an update those of the old one too.
func (p *part) objectSelector(selector *metav1.LabelSelector) []string {
	if p.path != nil {
		return selectorConditions(selector, p.optionalPath("object")+".?metadata.?labels.orValue({})")
	}
	out := []string{`request.operation != "CONNECT"`}
	for _, object := range []string{"object", "oldObject"} {
		if all := selectorConditions(selector, object+".?metadata.?labels.orValue({})"); len(all) > 0 {
			out = append(out, fmt.Sprintf("(%s == null || %s)", object, strings.Join(all, " && ")))
		}
	}
	return out
}

// selectorConditions returns a selector as conditions on labels, as labels.Selector has it.
func selectorConditions(selector *metav1.LabelSelector, of string) (out []string) {
	for _, key := range sortedKeys(selector.MatchLabels) {
		out = append(out, fmt.Sprintf("%s[?%s] == optional.of(%s)", of, celexpr.Quote(key), celexpr.Quote(selector.MatchLabels[key])))
	}
	for _, r := range selector.MatchExpressions {
		values := make([]celexpr.Expr, len(r.Values))
		for i, value := range slices.Sorted(slices.Values(r.Values)) {
			values[i] = celexpr.Str(value)
		}
		has := fmt.Sprintf("%s in %s", celexpr.Quote(r.Key), of)
		in := fmt.Sprintf("(%s && %s[%s] in %s)", has, of, celexpr.Quote(r.Key), celexpr.List(values...).String())
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			out = append(out, in)
		case metav1.LabelSelectorOpNotIn:
			out = append(out, "!"+in)
		case metav1.LabelSelectorOpExists:
			out = append(out, "("+has+")")
		case metav1.LabelSelectorOpDoesNotExist:
			out = append(out, "!("+has+")")
		}
	}
	return out
}

// baselined returns the rules of a policy that baselines allow violations of.
func (c *compilation) baselined(kind, name string) map[string]bool {
	out := map[string]bool{}
	for i := range c.spec.Baselines {
		b := &c.spec.Baselines[i]
		if !c.options.Now.Before(b.Spec.ExpiresAt.Time) {
			continue
		}
		for j := range b.Rules {
			if r := &b.Rules[j]; r.Kind == kind && r.Policy == name && len(r.Digests) > 0 {
				out[r.Rule] = true
			}
		}
	}
	return out
}

// isNamed reports whether a rule is among those that an exception names, by its name, as in messages or without brackets, or by its index.
func isNamed(rules []string, r *rule) bool {
	return len(rules) == 0 || slices.ContainsFunc(rules, func(name string) bool {
		return name == r.name || name == r.indexed || "validations["+name+"]" == r.name
	})
}

// guards returns for each rule the variables that are true for objects that exceptions exempt from it, and when the first of them expires. An
// exception from the whole policy becomes a match condition where it can. A rule with an exception that has no translation stays: "".
func (c *compilation) guards(s *source, p *part, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) (out [][]string, expires time.Time) {
	out = make([][]string, len(s.rules))
	taken := map[string]bool{}
	for _, v := range spec.Variables {
		taken[v.Name] = true
	}
	for i := range c.excepted {
		x := &c.excepted[i]
		named, isAbout := x.of(s.Kind, s.Name)
		if !isAbout || x.Spec.Match.Containers != nil {
			continue
		}
		for k := range s.annotations {
			if isNamed(named, &s.annotations[k]) {
				s.annotations[k].item.differ("exception " + x.title + " does not help where the annotation cannot be evaluated")
			}
		}
		c.out.excepts = true
		g, problem := c.guard(x, p)
		if problem != "" {
			x.item.differ("what it exempts from " + s.Kind + " " + s.Name + " stays with Gatehouse: " + problem)
		} else if at := x.Spec.ExpiresAt; at != nil && (expires.IsZero() || at.Time.Before(expires)) {
			expires = at.Time
		}
		ignored := problem == "" && !g.certain && *s.spec.FailurePolicy == admissionregistrationv1.Ignore
		if ignored {
			x.item.differ("where a condition of it cannot be evaluated, violations of " + s.Kind + " " + s.Name + " pass")
		}
		name := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, x.title)
		if problem == "" && len(named) == 0 && g.certain && !g.readsNamespace && len(s.annotations) == 0 && len(spec.MatchConditions) < maxMatchConditions {
			const most = 40
			digest := sha256.Sum256([]byte(x.title))
			name = "exception-" + strings.Trim(strings.ReplaceAll(name[:min(len(name), most)], "_", "-"), "-") + "-" + hex.EncodeToString(digest[:4])
			spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: name, Expression: "!(" + g.text + ")"})
			continue
		}
		for name = "exception_" + name; taken[name]; {
			name += "_"
		}
		for k := range s.rules {
			r := &s.rules[k]
			switch {
			case !isNamed(named, r):
				continue
			case problem != "":
				out[k] = append(out[k], "")
				continue
			case ignored:
				r.item.differ("violations pass where a condition of exception " + x.title + " cannot be evaluated")
			}
			out[k] = append(out[k], "variables."+name)
			if !taken[name] {
				taken[name] = true
				spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Name: name, Expression: g.text})
			}
		}
	}
	return out, expires
}
