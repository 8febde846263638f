package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/labels"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

const exceptionKind = "PolicyException"

// exception is a PolicyException in force.
type exception struct {
	// title is namespace/name.
	title string
	// policies are those that it is about, and the rules of each; none are all.
	policies map[exceptedPolicy][]string
	// expires is zero for one that does not.
	expires time.Time
	// namespaces are those that it is about; nil are all.
	namespaces []string
	names      []string
	// inNamespaces and objects are nil for one that does not select by labels.
	inNamespaces, objects labels.Selector
	conditions            []expression.Condition
	// containers is nil for one that is about whole objects.
	containers *containerMatch
	// bound is that of what the conditions cost together, and uses are the names that they mention.
	bound celcost.Bound
	uses  expression.Uses
	// inert is why it does nothing, whatever the request is.
	inert string
	// unknown says which condition was left out, because it depends on the request, "" for none.
	unknown string
}

// exceptedPolicy names a policy: its kind may be "" for both.
type exceptedPolicy struct{ kind, name string }

// includes reports whether the policy is one of those named.
func (e exceptedPolicy) includes(p exceptedPolicy) bool {
	return e.name == p.name && (e.kind == "" || e.kind == p.kind)
}

// finding is what the exceptions say about a violation.
type finding struct {
	// exception is the title of the one that covers it, or those of several that do so together, and "" if there is none. If unknown is
	// not "", exception is the first that may cover it, and unknown says why that is not known.
	exception, unknown string
	// tried are those that do not cover it, if they are to be explained.
	tried []TriedException
	// containers are those without which the rule holds. If it does not hold without those of the exceptions together, without is the
	// request for which it was evaluated again.
	containers []string
	together   []*exception
	without    *request
}

// findException looks for exceptions that cover a violation of the rule. A rule that is "" is the whole policy, which only an exception
// from all of it covers.
func findException(t target, result *ruleResult, rule string) finding {
	var out finding
	var ofContainers []*exception
	for _, x := range t.policy.exceptions {
		if !x.covers(t.policy, rule) {
			continue
		}
		why, condition := x.whyNot(t.request)
		switch {
		case why != isMet:
			if t.request.decider.explain {
				out.tried = append(out.tried, TriedException{Exception: x.title, Why: x.describe(why, condition, t.request)})
			}
		case x.containers != nil:
			ofContainers = append(ofContainers, x)
		case x.unknown == "":
			return finding{exception: x.title}
		case out.unknown == "":
			out.exception, out.unknown = x.title, x.unknown
		}
	}
	if len(ofContainers) > 0 {
		out.exceptContainers(t, result, ofContainers)
	}
	return out
}

// keysOf returns how exceptions can name a policy.
func keysOf(p *compiledPolicy) [2]exceptedPolicy {
	return [...]exceptedPolicy{{p.kind, p.name}, {"", p.name}}
}

// isAbout reports whether the exception names the policy.
func (x *exception) isAbout(p *compiledPolicy) bool {
	for _, key := range keysOf(p) {
		if _, named := x.policies[key]; named {
			return true
		}
	}
	return false
}

// covers reports whether the exception names the rule.
func (x *exception) covers(p *compiledPolicy, rule string) bool {
	for _, key := range keysOf(p) {
		if rules, named := x.policies[key]; named && (len(rules) == 0 || slices.Contains(rules, rule)) {
			return true
		}
	}
	return false
}

// unmet is what of an exception does not hold for a request.
type unmet uint8

const (
	isMet unmet = iota
	isInert
	hasExpired
	otherNamespace
	otherName
	namespaceSelector
	objectSelector
	matchCondition
)

// whyNot returns what of the exception does not hold for the request at this time. A condition is named.
func (x *exception) whyNot(r *request) (why unmet, condition string) {
	if x.inert != "" {
		return isInert, ""
	}
	if !x.expires.IsZero() {
		if now, known := r.decider.time(); !known || !now.Before(x.expires) {
			return hasExpired, ""
		}
	}
	namespace := r.exceptionNamespace()
	if x.namespaces != nil && (namespace == "" || !slices.Contains(x.namespaces, namespace)) {
		return otherNamespace, ""
	}
	if len(x.names) > 0 {
		if name, generated := r.nameForExceptions(); !matchesName(x.names, name, generated) {
			return otherName, ""
		}
	}
	var missing error
	if x.inNamespaces != nil {
		found, known := r.decider.set.objects.Namespace(namespace)
		if !known && namespace != "" {
			if err := r.decider.missingNamespace(namespace); err != nil {
				missing = err
			}
		}
		if missing == nil && (namespace == "" || !known || !x.inNamespaces.Matches(labels.Set(found.Labels))) {
			return namespaceSelector, ""
		}
	}
	if x.objects != nil && !x.selects(r) {
		return objectSelector, ""
	}
	if condition := r.falseCondition(x); condition != "" {
		return matchCondition, condition
	}
	if missing != nil {
		// The exception may hold; the request is not allowed because of it.
		r.decider.noteUndecided("exception "+x.title, missing)
	}
	return isMet, ""
}

// describe returns what whyNot has found, for people.
func (x *exception) describe(why unmet, condition string, r *request) string {
	switch why {
	case isInert:
		return x.inert
	case hasExpired:
		return "it expired at " + x.expires.UTC().Format(time.RFC3339)
	case otherNamespace:
		return fmt.Sprintf("it selects namespaces %s, and the object is in %q", diagnostic.QuotedList(x.namespaces), r.exceptionNamespace())
	case otherName:
		name, _ := r.nameForExceptions()
		return fmt.Sprintf("it selects names %s, and the object is %q", diagnostic.QuotedList(x.names), name)
	case namespaceSelector:
		return "its namespaceSelector does not match"
	case objectSelector:
		return "its objectSelector does not match"
	case matchCondition:
		return "its match condition " + condition + " is not true"
	case isMet:
	}
	return ""
}

// exceptionNamespace returns the namespace by which an exception knows the object.
func (r *request) exceptionNamespace() string {
	if r.Requested.Group == "" && r.Requested.Resource == "namespaces" {
		return "" // a namespace is not in itself
	}
	return r.Namespace
}

// selects reports whether the exception selects the object, and of an update the
// old one too, so that an update cannot label an object into an exception. Options have no
// labels, not even none.
func (x *exception) selects(r *request) bool {
	if r.Operation == admissionv1.Connect {
		return false
	}
	for _, object := range [...]*payload{&r.object, &r.oldObject} {
		if object.present() && !x.objects.Matches(r.objectLabels(object)) {
			return false
		}
	}
	return true
}

// falseCondition returns the name of the first condition of the exception that is not true, and "" if all are.
func (r *request) falseCondition(x *exception) string {
	conditions := x.conditions
	if len(conditions) == 0 {
		return ""
	}
	var in expression.Input
	in.Reset(r, nil, nil)
	in.Counting = r.decider.countingOf(r, x.bound, x.uses, nil)
	defer func() { r.decider.spent += in.Spent }()
	phase := in.Phase(celconfig.RuntimeCELCostBudgetMatchConditions)
	for i := range conditions {
		value, _, err := phase.Eval(r.decider.context, conditions[i].Program)
		if failure := r.decider.unansweredError(conditions[i].Program); failure != nil {
			err = failure
		}
		if errors.Is(err, ErrUnanswered) {
			r.decider.noteUndecided("the condition "+conditions[i].Name+" of an exception", err)
			continue // the exception may hold; the request is not allowed because of it
		}
		if err != nil || value != types.True {
			return conditions[i].Name
		}
	}
	return ""
}

// nameForExceptions returns the name by which an exception knows the object: that of the
// workload for a pod template. It is generated if it is only the beginning of a
// name.
func (r *request) nameForExceptions() (name string, generated bool) {
	if r.owner != "" {
		_, name, _ := strings.Cut(r.owner, "/")
		return name, r.ownerGenerated
	}
	return r.objectName(), r.isNameGenerated()
}

// isNameGenerated reports whether the object has no name yet.
func (r *request) isNameGenerated() bool {
	r.objectName() // reads it
	return r.nameGenerated
}

// matchesName reports whether one of the patterns, of which a "*" at the end stands
// for any rest, is about the name. A name that is generated has a rest.
func matchesName(patterns []string, name string, generated bool) bool {
	return name != "" && slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, open := strings.CutSuffix(pattern, "*"); open {
			return strings.HasPrefix(name, prefix)
		}
		return pattern == name && !generated
	})
}
