// Package summary sums up what an audit finds, by rule, profile and namespace: its memory does not
// grow with the number of objects.
package summary

import "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"

// MaxMessage is the length of the longest message of an example, in characters.
const MaxMessage = 1000

// Summary sums up the results of an audit.
type Summary struct {
	// Objects is the number of objects that were decided.
	Objects int64 `json:"objects"`
	// Totals are the numbers of objects for which any rule says so.
	Totals Counts `json:"totals"`
	// Rules are those with a result other than pass, the one with the most failures first.
	Rules []Rule `json:"rules"`
	// Exceptions are those that exempt an object, sorted by name.
	Exceptions []Named `json:"exceptions,omitempty"`
	// Baselines are those that allow violations, sorted by name.
	Baselines []Named `json:"baselines,omitempty"`
	// Injection has the profiles that match a pod or are in one, sorted by name.
	Injection []Profile `json:"injection,omitempty"`
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
	// Baselined is the number of objects with a violation that a PolicyBaseline allows.
	Baselined int64 `json:"baselined,omitempty"`
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
	// Namespaces are those of the objects that fail, warn, cannot be decided or would be changed, sorted.
	Namespaces []Named `json:"namespaces,omitempty"`
	// Users are those of the requests, if the results are about requests.
	Users []Named `json:"users,omitempty"`
	// Examples are the first objects of each status, failures first.
	Examples []Example `json:"examples,omitempty"`
}

// Example is a result for one object.
type Example struct {
	// Status is that of the result. For an excepted object it is skip, and Exception is set; for a baselined one, Baseline.
	Status audit.Status `json:"status,omitempty"`
	// State is that of the injection, for an example of a profile.
	State audit.Injection `json:"state,omitempty"`
	Object
	User      string `json:"user,omitempty"`
	Binding   string `json:"binding,omitempty"`
	Template  string `json:"template,omitempty"`
	Exception string `json:"exception,omitempty"`
	Baseline  string `json:"baseline,omitempty"`
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
	// Namespaces are those of the objects that are stale, missing or extra, sorted.
	Namespaces []Named `json:"namespaces,omitempty"`
	// Examples are the first objects that are stale, missing or extra, of each state.
	Examples []Example `json:"examples,omitempty"`
}

// States returns the injection states in the order of reports.
func States() []audit.Injection {
	return []audit.Injection{audit.Current, audit.Stale, audit.Missing, audit.Declined, audit.Extra}
}
