// Package replay decides the reviews of a recording again under another configuration, and compares the answers with those
// that were recorded. Run is the entry point, and Report its result.
//
// Each review is decided alone: a replay does not know what clients would have done after another answer. If an answer
// depends on something that the recording does not have, the review counts as undecided, with the reason.
package replay

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Change is how the answer to a review differs under the candidate configuration.
type Change string

// The changes, in the order in which reports list them.
const (
	// NewlyRefused is a request that was admitted. Of an access review, which is never allowed, that is one inside of the scope.
	NewlyRefused Change = "newly-refused"
	// NewlyAdmitted is one that was refused.
	NewlyAdmitted Change = "newly-admitted"
	// ChangedPatch is a mutation that differs, appears or disappears.
	ChangedPatch Change = "changed-patch"
	// NewWarnings is a request that gets a warning that it did not get.
	NewWarnings Change = "new-warnings"
	// NoLongerDecidable is a request that the candidate itself cannot decide, as a server would
	// not: the failurePolicy of the webhook then decides.
	NoLongerDecidable Change = "no-longer-decidable"
)

// Changes returns all changes in the order of reports.
func Changes() []Change {
	return []Change{NewlyRefused, NewlyAdmitted, ChangedPatch, NewWarnings, NoLongerDecidable}
}

// Result is the result of one review.
type Result struct {
	// Review describes the review.
	Review Subject
	// Changes are none if the candidate answers as before, or if it is not known: see Undecided.
	Changes []Change
	// Undecided is why the replay cannot decide, "" if it can: a value is redacted or was not
	// recorded.
	Undecided string
	// Rules are the rules of policies, or the profiles, that the
	// changes come from, sorted.
	Rules []Rule
	// Before and After are the answers. They are kept for examples and --show alone.
	Before, After *Answer
}

// Rule is a part of a configuration that a change comes from.
type Rule struct {
	// Kind and Name are those of the policy or profile, or ScopeKind and the scope of a token.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Rule is as in policy.Violation, and "" for a profile.
	Rule string `json:"rule,omitempty"`
}

// Subject says what a review is about. It holds nothing of the object but names.
type Subject struct {
	// Recording is the name of the file, and ID that of the review in it.
	Recording string    `json:"recording,omitempty"`
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	Endpoint  string    `json:"endpoint"`
	User      string    `json:"user,omitempty"`
	Operation string    `json:"operation,omitempty"`
	// Kind is the kind with its group, as "Deployment.apps", and Name is the name of the
	// object, or generateName with an asterisk; of a login, the ID of the token. Of an access
	// review, Operation is the verb, Kind the resource, as "deployments.apps", and Name the name or the path.
	Kind        string `json:"kind,omitempty"`
	SubResource string `json:"subResource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// Workload is the object that people know: "Deployment/checkout" for a pod of its
	// ReplicaSet, as far as owner and name show it, otherwise kind and name of the object.
	Workload string `json:"workload,omitempty"`
	DryRun   bool   `json:"dryRun,omitempty"`
}

// Answer is an answer to a review.
type Answer struct {
	// Decision is "allowed", "denied" or "unknown" (the server cannot decide), or "no-opinion" of an access review inside of the scope.
	Decision string `json:"decision"`
	Message  string `json:"message,omitempty"`
	// Warnings are in the order of the answer.
	Warnings []string `json:"warnings,omitempty"`
	// Patch is the JSON patch, "" without one.
	Patch string `json:"patch,omitempty"`
	// Violations are those of an answer that was computed.
	Violations []policy.Violation `json:"violations,omitempty"`
	// Profiles are the verdicts about profiles, by name.
	Profiles map[string]string `json:"profiles,omitempty"`
}

// Report sums up a replay.
type Report struct {
	// Reviews is the number of reviews, and Unchanged that of those with the same answer.
	Reviews   int64 `json:"reviews"`
	Unchanged int64 `json:"unchanged"`
	// Changed are the numbers of reviews by change.
	Changed map[Change]int64 `json:"changed"`
	// Undecided are the numbers of reviews that the replay cannot decide, by reason.
	Undecided map[string]int64 `json:"undecided,omitempty"`
	// Gaps is the number of reviews that the server could not record.
	Gaps int64 `json:"gaps,omitempty"`
	// Begin and End are the times of the first and the last review.
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	// Groups are the changes by rule, namespace and kind, the most frequent first.
	Groups []Group `json:"groups,omitempty"`
	// Problems are files that could not be read to their end, each with its error. What was
	// read before counts.
	Problems []string `json:"problems,omitempty"`
	// Notes say of what the recording is a sample (record.Header.Share), which segments are unfinished, and how many logins there are.
	Notes []string `json:"notes,omitempty"`
}

// Group are reviews with the same change for the same reason.
type Group struct {
	Change    Change `json:"change"`
	Rule      Rule   `json:"rule"`
	Namespace string `json:"namespace,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Reviews   int64  `json:"reviews"`
	// Workloads and Users are the distinct ones, sorted, at most MaxNames; MoreWorkloads and
	// MoreUsers are true if there are more.
	Workloads     []string `json:"workloads,omitempty"`
	MoreWorkloads bool     `json:"moreWorkloads,omitempty"`
	Users         []string `json:"users,omitempty"`
	MoreUsers     bool     `json:"moreUsers,omitempty"`
	// Examples are the first reviews of the group, at most three.
	Examples []Example `json:"examples,omitempty"`
}

// Example is one review of a group.
type Example struct {
	Review Subject `json:"review"`
	Before *Answer `json:"before,omitempty"`
	After  *Answer `json:"after,omitempty"`
}

// The bounds of a Group.
const (
	// MaxNames bounds the workloads, and the users, of a group.
	MaxNames = 50
	// MaxExamples bounds the examples of a group.
	MaxExamples = 3
)

// UndecidedReviews returns the number of reviews that the replay cannot decide.
func (r *Report) UndecidedReviews() (n int64) {
	for _, of := range r.Undecided {
		n += of
	}
	return n
}
