package summary

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Aggregator sums up results. It is an audit.Sink, for one goroutine.
type Aggregator struct {
	// examples bounds those of a rule or profile for each status or state.
	examples int
	// known are the profiles of the configuration.
	known sets.Set[string]

	objects    int64
	totals     Counts
	rules      map[ruleKey]*rule
	moreRules  int64
	exceptions map[string]int64
	moreExcept int64
	profiles   map[string]*profile
	unknown    int
	moreProf   int64
	// names and kept are the bytes of names and examples that are kept.
	names, kept int
	// said has the statuses of the present object.
	said statuses
}

var _ audit.Sink = (*Aggregator)(nil)

type ruleKey struct{ kind, policy, rule string }

// place counts objects by namespace.
type place struct {
	namespaces map[string]int64
	more       int64
}

type rule struct {
	counts   Counts
	place    place
	examples map[status][]Example
	// object is the number of the last object, and said are its statuses: each counts once.
	object int64
	said   statuses
}

type profile struct {
	states   map[audit.Injection]int64
	place    place
	examples map[audit.Injection][]Example
}

// status is a column of Counts.
type status int

const (
	fail status = iota
	warn
	failed // cannot be decided
	excepted
	changed
	skip
	end
)

// statuses is a set of statuses.
type statuses [end]bool

// New returns an empty Aggregator that keeps a number of examples for each rule and status.
// Profiles are those of the configuration: names of others, which anybody can write into the
// annotation of a pod, do not displace them.
func New(examples int, profiles ...string) *Aggregator {
	return &Aggregator{
		examples: max(examples, 0), known: sets.New(profiles...),
		rules: map[ruleKey]*rule{}, exceptions: map[string]int64{}, profiles: map[string]*profile{},
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
	if of == excepted {
		a.addException(r.Exception)
	}
	key := ruleKey{r.Kind, r.Policy, r.Rule}
	one := a.rules[key]
	if one == nil {
		if len(a.rules) >= MaxRules {
			a.moreRules++
			return
		}
		one = &rule{place: newPlace(), examples: map[status][]Example{}}
		a.rules[key] = one
	}
	if one.object != a.objects {
		one.object, one.said = a.objects, statuses{}
	}
	if one.said[of] {
		return
	}
	isPlaced := one.said[fail] || one.said[warn] || one.said[failed] || one.said[changed]
	if of != excepted && of != skip && !isPlaced {
		a.addPlace(&one.place, &r.Object)
	}
	one.said[of] = true
	one.counts.add(of)
	if of != skip {
		one.examples[of] = a.addExample(one.examples[of], Example{
			Status: r.Status, Object: ObjectOf(&r.Object), Binding: r.Binding, Template: r.Template, Exception: r.Exception,
			Message: truncate.Runes(r.Message, MaxMessage),
		})
	}
}

// Injection implements audit.Sink.
func (a *Aggregator) Injection(object audit.Object, name string, state audit.Injection) {
	one := a.profiles[name]
	if one == nil {
		if !a.known.Has(name) {
			if a.unknown >= MaxUnknownProfiles {
				a.moreProf++
				return
			}
			a.unknown++
		}
		one = &profile{states: map[audit.Injection]int64{}, place: newPlace(), examples: map[audit.Injection][]Example{}}
		for _, state := range States() {
			one.states[state] = 0
		}
		a.profiles[name] = one
	}
	one.states[state]++
	if state == audit.Current || state == audit.Declined {
		return
	}
	a.addPlace(&one.place, &object)
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
		if r.Exception != "" {
			return excepted, true
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
	case changed:
		c.Change++
	case skip, end:
		c.Skip++
	}
}

func (a *Aggregator) addException(name string) {
	if _, known := a.exceptions[name]; !known && (len(a.exceptions) >= MaxExceptions || !a.reserve(name)) {
		a.moreExcept++
		return
	}
	a.exceptions[name]++
}

func newPlace() place { return place{namespaces: map[string]int64{}} }

// addPlace counts an object. Beyond the bounds it counts in more.
func (a *Aggregator) addPlace(to *place, o *audit.Object) {
	name := o.Namespace
	if _, known := to.namespaces[name]; !known && name != "" {
		if len(to.namespaces) >= MaxNamespaces || !a.reserve(name) {
			to.more++
			return
		}
		name = strings.Clone(name) // a part of a longer string would keep that in memory
	}
	if name != "" {
		to.namespaces[name]++
	}
}

// reserve reports whether there is space for a name, and takes it.
func (a *Aggregator) reserve(name string) bool {
	size := len(name) + entryBytes
	if a.names+size > maxNameBytes {
		return false
	}
	a.names += size
	return true
}

// addExample adds an example if there is space for it.
func (a *Aggregator) addExample(to []Example, x Example) []Example {
	size := len(x.Message) + len(x.Name) + len(x.Namespace) + len(x.Template) + len(x.Exception) + 4*entryBytes
	if len(to) >= a.examples || a.kept+size > maxExampleBytes {
		return to
	}
	a.kept += size
	for _, text := range [...]*string{&x.Message, &x.Name, &x.Namespace, &x.Template, &x.Exception} {
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
		Objects: a.objects, Totals: a.totals, Rules: make([]Rule, 0, len(a.rules)), MoreRules: a.moreRules,
		Exceptions: namedOf(a.exceptions), MoreExceptions: a.moreExcept, MoreProfiles: a.moreProf,
	}
	for key, one := range a.rules {
		r := Rule{Kind: key.kind, Policy: key.policy, Rule: key.rule, Counts: one.counts, Where: one.place.where()}
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
		p := Profile{Profile: name, States: maps.Clone(one.states), Where: one.place.where()}
		for _, state := range States() {
			p.Examples = append(p.Examples, one.examples[state]...)
		}
		out.Injection = append(out.Injection, p)
	}
	return out
}

func (p *place) where() Where {
	return Where{Namespaces: namedOf(p.namespaces), MoreNamespaces: p.more}
}

// namedOf returns the names sorted.
func namedOf(counts map[string]int64) []Named {
	out := make([]Named, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, Named{name, counts[name]})
	}
	return out
}
