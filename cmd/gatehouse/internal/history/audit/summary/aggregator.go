package summary

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Aggregator sums up results. It is an audit.Sink, for one goroutine.
type Aggregator struct {
	// examples bounds those of a rule or profile for each status or state.
	examples int

	objects    int64
	totals     Counts
	rules      map[ruleKey]*rule
	exceptions map[string]int64
	baselines  map[string]int64
	profiles   map[string]*profile
	// said has the statuses of the present object.
	said statuses
}

var _ audit.Sink = (*Aggregator)(nil)

type ruleKey struct{ kind, policy, rule string }

type rule struct {
	counts     Counts
	namespaces map[string]int64
	users      map[string]int64
	examples   map[status][]Example
	// object is the number of the last object, and said are its statuses: each counts once.
	object int64
	said   statuses
}

type profile struct {
	states     map[audit.Injection]int64
	namespaces map[string]int64
	examples   map[audit.Injection][]Example
}

// status is a column of Counts.
type status int

const (
	fail status = iota
	warn
	failed // cannot be decided
	excepted
	baselined
	changed
	skip
	end
)

// statuses is a set of statuses.
type statuses [end]bool

// New returns an empty Aggregator that keeps a number of examples for each rule and status.
func New(examples int) *Aggregator {
	return &Aggregator{
		examples: examples, rules: map[ruleKey]*rule{}, exceptions: map[string]int64{}, baselines: map[string]int64{}, profiles: map[string]*profile{},
	}
}

// Object implements audit.Sink.
func (a *Aggregator) Object(audit.Object) {
	a.objects++
	a.said = statuses{}
}

// Result implements audit.Sink.
func (a *Aggregator) Result(r audit.Result) {
	of, counts := statusOf(&r)
	if !counts {
		return
	}
	if !a.said[of] {
		a.said[of] = true
		a.totals.add(of)
	}
	switch of { //nolint:exhaustive // nothing allows the others
	case excepted:
		for exception := range policy.Exceptions(r.Exception) {
			a.exceptions[strings.Clone(exception)]++
		}
	case baselined:
		a.baselines[strings.Clone(r.Baseline)]++
	}
	key := ruleKey{r.Kind, r.Policy, r.Rule}
	one := a.rules[key]
	if one == nil {
		one = &rule{namespaces: map[string]int64{}, users: map[string]int64{}, examples: map[status][]Example{}}
		a.rules[key] = one
	}
	if one.object != a.objects {
		one.object, one.said = a.objects, statuses{}
	}
	if one.said[of] {
		return
	}
	isPlaced := one.said[fail] || one.said[warn] || one.said[failed] || one.said[changed]
	if of != excepted && of != baselined && of != skip && !isPlaced {
		addNamespace(one.namespaces, &r.Object)
		addName(one.users, r.User)
	}
	one.said[of] = true
	one.counts.add(of)
	if of != skip {
		one.examples[of] = a.addExample(one.examples[of], Example{
			Status: r.Status, Object: ObjectOf(&r.Object), User: r.User, Binding: r.Binding, Template: r.Template, Exception: r.Exception, Baseline: r.Baseline,
			Message: truncate.Runes(r.Message, MaxMessage),
		})
	}
}

// Injection implements audit.Sink.
func (a *Aggregator) Injection(object audit.Object, name string, state audit.Injection) {
	one := a.profiles[name]
	if one == nil {
		one = &profile{states: map[audit.Injection]int64{}, namespaces: map[string]int64{}, examples: map[audit.Injection][]Example{}}
		for _, state := range States() {
			one.states[state] = 0
		}
		a.profiles[strings.Clone(name)] = one
	}
	one.states[state]++
	if state == audit.Current || state == audit.Declined {
		return
	}
	addNamespace(one.namespaces, &object)
	one.examples[state] = a.addExample(one.examples[state], Example{State: state, Object: ObjectOf(&object)})
}

// statusOf returns the column in which a result counts, and false for one that does not.
func statusOf(r *audit.Result) (status, bool) {
	switch r.Status {
	case audit.Fail:
		return fail, true
	case audit.Warn:
		return warn, true
	case audit.Error:
		return failed, true
	case audit.Skip:
		switch {
		case r.Exception != "":
			return excepted, true
		case r.Baseline != "":
			return baselined, true
		}
		return skip, true
	case audit.Change:
		return changed, true
	case audit.Pass:
	}
	return 0, false
}

func (c *Counts) add(of status) {
	switch of {
	case fail:
		c.Fail++
	case warn:
		c.Warn++
	case failed:
		c.Error++
	case excepted:
		c.Excepted++
	case baselined:
		c.Baselined++
	case changed:
		c.Change++
	case skip, end:
		c.Skip++
	}
}

// addNamespace counts an object in its namespace, if it is in one. A copy of the name, which is a part of the object's text, keeps
// that out of memory.
func addNamespace(to map[string]int64, o *audit.Object) {
	addName(to, o.Namespace)
}

// maxNames bounds the names of a rule. Names of users are not bounded by what exists.
const maxNames = 10_000

// addName counts a name, unless it is empty.
func addName(to map[string]int64, name string) {
	if _, known := to[name]; known {
		to[name]++
	} else if name != "" && len(to) < maxNames {
		to[strings.Clone(name)] = 1
	}
}

// addExample adds an example if there is space for it, without keeping the object's text in memory.
func (a *Aggregator) addExample(to []Example, x Example) []Example {
	if len(to) >= a.examples {
		return to
	}
	for _, text := range [...]*string{&x.Message, &x.Name, &x.Namespace, &x.Template, &x.Exception, &x.Baseline, &x.User} {
		*text = strings.Clone(*text)
	}
	return append(to, x)
}

// ObjectOf returns what identifies an object for people.
func ObjectOf(o *audit.Object) Object {
	return Object{APIVersion: o.GroupVersion().String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

// Summary returns the sum of all results so far.
func (a *Aggregator) Summary() *Summary {
	out := &Summary{
		Objects: a.objects, Totals: a.totals, Rules: make([]Rule, 0, len(a.rules)), Exceptions: namedOf(a.exceptions), Baselines: namedOf(a.baselines),
	}
	for key, one := range a.rules {
		r := Rule{Kind: key.kind, Policy: key.policy, Rule: key.rule, Counts: one.counts, Namespaces: namedOf(one.namespaces), Users: namedOf(one.users)}
		for of := range end {
			r.Examples = append(r.Examples, one.examples[of]...)
		}
		out.Rules = append(out.Rules, r)
	}
	slices.SortFunc(out.Rules, func(a, b Rule) int {
		return cmp.Or(
			-cmp.Compare(a.Fail, b.Fail), -cmp.Compare(a.Error, b.Error), -cmp.Compare(a.Warn, b.Warn), -cmp.Compare(a.Change, b.Change),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule),
		)
	})
	for _, name := range slices.Sorted(maps.Keys(a.profiles)) {
		one := a.profiles[name]
		p := Profile{Profile: name, States: maps.Clone(one.states), Namespaces: namedOf(one.namespaces)}
		for _, state := range States() {
			p.Examples = append(p.Examples, one.examples[state]...)
		}
		out.Injection = append(out.Injection, p)
	}
	return out
}

// namedOf returns the names sorted.
func namedOf(counts map[string]int64) []Named {
	out := make([]Named, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, Named{name, counts[name]})
	}
	return out
}
