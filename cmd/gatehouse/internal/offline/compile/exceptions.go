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
	rules := policy.ExceptionRules(c.spec)
	for i := range c.spec.Exceptions {
		x := &c.spec.Exceptions[i]
		title := x.Namespace + "/" + x.Name
		item := c.item("PolicyException", title, "")
		own := slices.Contains(rules.OwnNamespaces, "*") || slices.Contains(rules.OwnNamespaces, x.Namespace)
		namespaces, expires := x.Spec.Match.Namespaces, x.Spec.ExpiresAt
		switch {
		case slices.Contains(rules.Namespaces, x.Namespace):
		case own:
			namespaces = []string{x.Namespace}
		default:
			item.note("exceptions in its namespace do nothing")
			continue
		}
		switch {
		case expires == nil && rules.RequireExpiry:
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
func (x *exception) guard(p *part) (g guard, problem string) {
	match := &x.Spec.Match
	g.certain = true
	var all []string
	notNamespaces := `!(request.requestResource.group == "" && request.requestResource.resource == "namespaces")`
	if x.namespaces != nil {
		items := make([]celexpr.Expr, len(x.namespaces))
		for i, name := range x.namespaces {
			items[i] = celexpr.Str(name)
		}
		if p.path == nil && p.matchesNamespaces {
			all = append(all, notNamespaces)
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
	for _, condition := range match.MatchConditions {
		text := condition.Expression
		if p.template != nil {
			var problem string
			if text, problem = p.template.rewrite(text); problem != "" {
				return g, fmt.Sprintf("its match condition %s: %s", condition.Name, problem)
			}
		}
		g.certain = false
		g.readsNamespace = g.readsNamespace || strings.Contains(text, "namespaceObject")
		all = append(all, "(\n"+text+"\n)")
	}
	if len(all) == 0 {
		all = []string{"true"}
	}
	g.text = strings.Join(all, " && ")
	return g, ""
}

// namesCondition compares the name of the object, which may be only the beginning of one.
func namesCondition(p *part, names []string) string {
	object := "object"
	if p.path == nil {
		object = "(object == null ? oldObject : object)"
	}
	named, generated := object+`.?metadata.?name.orValue("")`, object+`.?metadata.?generateName.orValue("")`
	name := `(request.?name.orValue("") != "" ? request.name : string(` + named + `))`
	var any []string
	for _, pattern := range names {
		prefix, open := strings.CutSuffix(pattern, "*")
		if !open {
			any = append(any, name+" == "+celexpr.Quote(pattern))
			continue
		}
		quoted := celexpr.Quote(prefix)
		any = append(any, fmt.Sprintf(`%[1]s != "" && %[1]s.startsWith(%[2]s) || %[1]s == "" && %[3]s != "" && string(%[3]s).startsWith(%[2]s)`, name, quoted, generated))
	}
	return strings.Join(any, " || ")
}

// objectSelector returns the conditions on the labels of an object, and of an update those of the old one too.
func (p *part) objectSelector(selector *metav1.LabelSelector) []string {
	if p.template != nil {
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

// isNamed reports whether a rule is among those that an exception names, by its name or by its index.
func isNamed(rules []string, r *rule) bool {
	return len(rules) == 0 || slices.Contains(rules, r.name) || r.indexed != "" && slices.Contains(rules, r.indexed)
}

// guards returns for each rule the variables that are true for objects that exceptions exempt from it, and when the first of them expires. An
// exception from the whole policy becomes a match condition where it can. A rule with an exception that has no translation stays.
func (c *compilation) guards(s *source, p *part, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, rules []rule) (out [][]string, expires time.Time) {
	out = make([][]string, len(rules))
	taken := map[string]bool{standardVariable: true}
	for _, v := range spec.Variables {
		taken[v.Name] = true
	}
	for i := range c.excepted {
		x := &c.excepted[i]
		named, isAbout := x.of(s.kind, s.name)
		if !isAbout || x.Spec.Match.Containers != nil {
			continue
		}
		g, problem := x.guard(p)
		if problem == "" && len(g.text) > maxExpression {
			problem = "it is too long for the API server"
		}
		if problem == "" && !g.certain && *s.spec.FailurePolicy == admissionregistrationv1.Ignore {
			x.item.differ("where a condition of it cannot be evaluated, violations of " + s.kind + " " + s.name + " pass")
			for k := range rules {
				if isNamed(named, &rules[k]) {
					rules[k].item.differ("violations pass where a condition of exception " + x.title + " cannot be evaluated")
				}
			}
		}
		if at := x.Spec.ExpiresAt; problem == "" && at != nil && (expires.IsZero() || at.Time.Before(expires)) {
			expires = at.Time
		}
		if problem == "" && len(named) == 0 && g.certain && !g.readsNamespace && len(s.spec.AuditAnnotations) == 0 && len(spec.MatchConditions) < maxMatchConditions {
			name := strings.ReplaceAll(x.title, "/", "-")
			const most = 40
			digest := sha256.Sum256([]byte(x.title))
			name = "exception-" + strings.Trim(name[:min(len(name), most)], "-.") + "-" + hex.EncodeToString(digest[:4])
			spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: name, Expression: "!(" + g.text + ")"})
			continue
		}
		variable := "exception_" + strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, x.title)
		for taken[variable] {
			variable += "_"
		}
		used := false
		for k := range rules {
			if !isNamed(named, &rules[k]) {
				continue
			}
			if problem != "" {
				why := "exception " + x.title + ": " + problem
				if x.item.differ("the rules that it exempts stay with Gatehouse: " + problem); p.path == nil {
					rules[k].item.stay(why)
				} else {
					out[k] = append(out[k], "")
					rules[k].item.differ("pod templates stay with Gatehouse: " + why)
				}
				continue
			}
			used = true
			out[k] = append(out[k], "variables."+variable)
		}
		if used {
			taken[variable] = true
			spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Name: variable, Expression: g.text})
		}
	}
	return out, expires
}
