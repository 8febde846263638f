// Package summary sums up what an audit finds in bounded memory, whatever tenants name their
// objects and however many of them there are.
package summary

import "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"

// The bounds of a Summary. Totals count everything.
const (
	// MaxRules bounds the rules.
	MaxRules = 2000
	// MaxExceptions bounds the exceptions.
	MaxExceptions = 1000
	// MaxUnknownProfiles bounds the profiles that are not in the configuration: status
	// annotations of pods name them.
	MaxUnknownProfiles = 20
	// MaxNamespaces bounds the namespaces of a rule or profile.
	MaxNamespaces = 1000
	// MaxMessage is the length of the longest message of an example, in characters.
	MaxMessage = 1000
	// maxNameBytes bounds the names of namespaces and exceptions, and maxExampleBytes
	// the examples, each of all rules and profiles together.
	maxNameBytes, maxExampleBytes = 8 << 20, 8 << 20
	// entryBytes is about what an entry of a map costs beside its name.
	entryBytes = 64
)

// Summary sums up the results of an audit.
type Summary struct {
	// Objects is the number of objects that were decided.
	Objects int64 `json:"objects"`
	// Totals are the numbers of objects for which any rule says so.
	Totals Counts `json:"totals"`
	// Rules are those with a result other than pass, the one with the most failures first.
	// MoreRules is the number of results of rules beyond MaxRules.
	Rules     []Rule `json:"rules"`
	MoreRules int64  `json:"moreRules,omitempty"`
	// Exceptions are those that exempt an object, sorted by name. MoreExceptions is the
	// number of exempted violations beyond MaxExceptions.
	Exceptions     []Named `json:"exceptions,omitempty"`
	MoreExceptions int64   `json:"moreExceptions,omitempty"`
	// Injection has the profiles that match a pod or are in one, sorted by name.
	// MoreProfiles is the number of pods with unknown profiles beyond MaxUnknownProfiles.
	Injection    []Profile `json:"injection,omitempty"`
	MoreProfiles int64     `json:"moreProfiles,omitempty"`
}

// Counts are numbers of objects. For one rule an object counts once in each of them, however
// many bindings, params or templates the rule has.
type Counts struct {
	Fail int64 `json:"fail"`
	Warn int64 `json:"warn"`
	// Error is the number of objects that cannot be decided.
	Error int64 `json:"error"`
	// Excepted is the number of objects that a PolicyException exempts, and Skip that of
	// those which an audit cannot decide by its nature.
	Excepted int64 `json:"excepted"`
	Skip     int64 `json:"skip"`
	// Change is the number of objects that a mutating policy would change.
	Change int64 `json:"change,omitempty"`
}

// Named is a name and the number of its objects.
type Named struct {
	Name    string `json:"name"`
	Objects int64  `json:"objects"`
}

// Rule sums up the results of a rule of a policy.
type Rule struct {
	// Kind, Policy and Rule are as in audit.Result.
	Kind   string `json:"kind,omitempty"`
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Counts
	// Where says where the objects are that fail, warn, cannot be decided or would be changed.
	Where
	// Examples are the first objects of each status, failures first.
	Examples []Example `json:"examples,omitempty"`
}

// Where says in which namespaces objects are: the first MaxNamespaces that were seen, sorted.
type Where struct {
	Namespaces []Named `json:"namespaces,omitempty"`
	// MoreNamespaces is the number of objects of further ones.
	MoreNamespaces int64 `json:"moreNamespaces,omitempty"`
}

// Example is a result for one object.
type Example struct {
	// Status is that of the result. For an excepted object it is skip, and Exception is set.
	Status audit.Status `json:"status,omitempty"`
	// State is that of the injection, for an example of a profile.
	State audit.Injection `json:"state,omitempty"`
	Object
	Binding   string `json:"binding,omitempty"`
	Template  string `json:"template,omitempty"`
	Exception string `json:"exception,omitempty"`
	// Message is shortened to MaxMessage.
	Message string `json:"message,omitempty"`
}

// Object identifies an object.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// Profile sums up the injection of a profile.
type Profile struct {
	Profile string `json:"profile"`
	// States are the numbers of objects by state. All states are there.
	States map[audit.Injection]int64 `json:"states"`
	// Where says where the objects are that are stale, missing or extra.
	Where
	// Examples are the first objects that are stale, missing or extra, of each state.
	Examples []Example `json:"examples,omitempty"`
}

// States returns the injection states in the order of reports.
func States() []audit.Injection {
	return []audit.Injection{audit.Current, audit.Stale, audit.Missing, audit.Declined, audit.Extra}
}
