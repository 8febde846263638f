package policy

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// mostUncounted is what all expressions of a policy together may cost at most to be evaluated without counting. It is
// the limit of a single one, so that none reaches a limit: not its own, not that of the match conditions, not that of
// the rules with their messages, each of which may evaluate a variable again, and not that of the annotations. Nor do
// the rules cost so much that messages that are not shown have to be evaluated, see evaluateMessages.
const mostUncounted = min(celconfig.PerCallLimit, cheapRules, celconfig.RuntimeCELCostBudgetMatchConditions, celconfig.RuntimeCELCostBudget/2)

// uncountedShare is the part of the budget of a request that policies may use that are evaluated without counting: they
// do not count in the budget.
const uncountedShare = 10

// observedOnce is how often an evaluation whose cost could be left uncounted is left so before the cost of one is
// counted for those who observe.
const observedOnce = 64

// counting returns how a policy is evaluated: without counting what it costs if that is known to be within all limits.
// Observers are told the cost of the first of such evaluations and of each 64th one, and that of these for the 63 before
// too: times is 1 or 64. An explanation has all costs.
func (v *decider) counting(t *target) (how expression.Counting, times int64) {
	if v.explain {
		return expression.Counted, 1
	}
	how = v.countingOf(t.request, t.policy.bound, t.policy.uses, t.param)
	if how == expression.Counted || !v.observe {
		return how, 1
	}
	switch n := t.policy.uncounted.Add(1); {
	case n == 1:
		return expression.Counted, 1
	case n%observedOnce == 1:
		return expression.Counted, observedOnce
	default:
		return how, 1
	}
}

// countingOf returns how expressions with the bound are evaluated, which mention the names, and takes the bound off what the
// review may leave uncounted. The param may be nil.
func (v *decider) countingOf(r *request, bound celcost.Bound, uses expression.Uses, p *matching.Param) expression.Counting {
	if !bound.IsFinite() {
		return expression.Counted
	}
	sizes, ok := r.sizes(uses, p)
	if !ok {
		return expression.Counted
	}
	most := bound.At(&sizes)
	if most > mostBrief {
		sizes.ObjectValues = r.objectValues(uses)
		most = bound.At(&sizes)
	}
	if most > mostUncounted || v.uncounted+most > float64(v.set.budget/uncountedShare) {
		return expression.Counted
	}
	v.uncounted += most
	if most <= mostBrief {
		return expression.Brief
	}
	return expression.Uncounted
}

// mostBrief is what the expressions of a policy together may cost to be evaluated without a look at the context between: a few
// milliseconds. The context is checked after each policy.
const mostBrief = mostUncounted / 10

// bytesPerValue is how many bytes of JSON a value in a list or object has, at least: one, and a comma or bracket.
const bytesPerValue = 2

// sizes returns the sizes of what expressions may read that mention the names, and false if they are not known.
func (r *request) sizes(uses expression.Uses, p *matching.Param) (out celcost.Sizes, ok bool) {
	for object := range r.read(uses) {
		text, err := object.json()
		if err != nil {
			return out, false
		}
		out.ObjectBytes += len(text)
	}
	out.ObjectValues = out.ObjectBytes / bytesPerValue
	others := measured{bytes: fieldBytes, values: fieldValues}
	if uses.Has(expression.UsesRequest) {
		if r.measured.values == 0 {
			r.measured.request(r)
		}
		others.join(r.measured)
	}
	if uses.Has(expression.UsesNamespace) {
		if namespace, known := r.NamespaceObject(); known && namespace != nil {
			if r.namespaceMeasured.values == 0 {
				r.namespaceMeasured.namespace(namespace)
			}
			others.join(r.namespaceMeasured)
		}
	}
	if p != nil {
		others.add(p.Object.Object)
	}
	out.OtherBytes, out.OtherValues = others.bytes, others.values
	return out, others.values < mostMeasured
}

// read returns the objects of the request that expressions may read that mention the names.
func (r *request) read(uses expression.Uses) func(func(*payload) bool) {
	return func(yield func(*payload) bool) {
		if uses.Has(expression.UsesObject) && !yield(&r.object) {
			return
		}
		if uses.Has(expression.UsesOldObject) {
			yield(&r.oldObject)
		}
	}
}

// objectValues returns how many values the objects have, at most: each is behind a comma or a bracket.
func (r *request) objectValues(uses expression.Uses) int {
	sum := 0
	for object := range r.read(uses) {
		if object.values == 0 {
			text := object.parsed
			object.values = bytes.Count(text, []byte{','}) + bytes.Count(text, []byte{'['}) + bytes.Count(text, []byte{'{'})
		}
		sum += object.values
	}
	return sum
}

// measured is the size of what expressions may read besides objects.
type measured struct{ bytes, values int }

const (
	// fieldBytes and fieldValues are more than the fields of a request and a namespace have together, with their names, but
	// for strings, lists and maps of any length.
	fieldBytes, fieldValues = 4096, 256
	// mostMeasured is how many values are counted. What has more is not worth the time.
	mostMeasured = 2048
)

// join adds what was measured before.
func (m *measured) join(other measured) {
	m.bytes, m.values = m.bytes+other.bytes, m.values+other.values
}

// text adds a string, which is one of a list or map.
func (m *measured) text(strings ...string) {
	for _, s := range strings {
		m.bytes, m.values = m.bytes+len(s), m.values+1
	}
}

func (m *measured) request(r *request) {
	user := &r.UserInfo
	m.text(user.Username, user.UID, r.Name, r.Namespace, r.SubResource, r.RequestSubResource, string(r.Operation), r.Requested.Resource,
		r.Requested.Group, r.Requested.Version, r.Kind.Group, r.Kind.Version, r.Kind.Kind, r.Resource.Group, r.Resource.Version, r.Resource.Resource)
	if kind := r.RequestKind; kind != nil {
		m.text(kind.Group, kind.Version, kind.Kind)
	}
	m.text(user.Groups...)
	for key, values := range user.Extra {
		m.text(key)
		m.text(values...)
	}
	// The options are bytes, or what these say.
	m.bytes, m.values = m.bytes+2*len(r.Options.Raw), m.values+len(r.Options.Raw)
}

func (m *measured) namespace(namespace *corev1.Namespace) {
	m.text(namespace.Name, namespace.GenerateName, string(namespace.UID), namespace.ResourceVersion)
	for _, values := range [...]map[string]string{namespace.Labels, namespace.Annotations} {
		for key, value := range values {
			m.text(key, value)
		}
	}
	m.text(namespace.Finalizers...)
	for _, finalizer := range namespace.Spec.Finalizers {
		m.text(string(finalizer))
	}
	for i := range namespace.Status.Conditions {
		c := &namespace.Status.Conditions[i]
		m.text(string(c.Type), c.Reason, c.Message, "", "", "", "", "")
	}
}

// add adds what JSON was decoded to, as far as it is counted.
func (m *measured) add(value any) {
	if m.values >= mostMeasured {
		return
	}
	m.values++
	switch v := value.(type) {
	case string:
		m.bytes += len(v)
	case map[string]any:
		for key, member := range v {
			m.bytes += len(key)
			m.add(member)
		}
	case []any:
		for _, element := range v {
			m.add(element)
		}
	}
}
