// Package audit decides about the objects that exist in a cluster, each as its creation would be decided now.
//
// Run lists objects one kind and one page at a time, so that neither memory nor the load of the API server grows with
// their number. The Outcome says what was left out: rules that depend on the request, kinds that may not be read, with the
// missing right, and what was not read because the audit ended early.
package audit

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
)

// Status is the status of a result, with the values of OpenReports.
type Status string

// The statuses. An audit reports no result for a rule that an object complies with: it is counted
// as Pass.
const (
	Pass Status = "pass"
	// Fail is a violation that refuses the creation of the object.
	Fail Status = "fail"
	// Warn is a violation that warns or is audited and does not refuse.
	Warn Status = "warn"
	// Error is an object, or a rule for an object, that cannot be decided.
	Error Status = "error"
	// Change is an object that a mutating policy would change.
	Change Status = "change"
	// Skip is a rule that an audit cannot evaluate, see Skipped, and a violation that a
	// PolicyException exempts or a PolicyBaseline allows, see Result.Exception and Result.Baseline.
	Skip Status = "skip"
)

// Object identifies an object of the cluster.
type Object struct {
	schema.GroupVersionKind
	// Namespace is "" for cluster-scoped kinds.
	Namespace string
	Name      string
	UID       string
	// Controller is the workload whose controller has made a pod, with an empty name for a pod without one.
	Controller Controller
}

// Controller is a workload: the Deployment of a ReplicaSet, and the CronJob of a Job.
type Controller struct {
	schema.GroupKind
	Name string
}

// Home returns the namespace that an object is in or, for a Namespace, is: by it the API server
// selects what it sends to webhooks. It is "" for other cluster-scoped objects.
func (o *Object) Home() string {
	if o.Group == "" && o.Kind == "Namespace" {
		return o.Name
	}
	return o.Namespace
}

// Result is one rule for one object.
type Result struct {
	Object Object
	Status Status
	// Kind is that of the policy: AdmissionPolicy, ValidatingAdmissionPolicy, MutatingAdmissionPolicy, SidecarProfile, or
	// that of an error that no policy causes, "".
	Kind string
	// Policy, Binding, Rule, Template, Exception and Baseline are as in policy.Violation.
	Policy, Binding, Rule, Template, Exception, Baseline string
	// Message is for people. It holds no value of a Secret.
	Message string
	// User sent the request, for a result that is about one.
	User string
	// Entry is that of the violation in a PolicyBaseline, and nil if it can be in none or Options.Entries is not set. Then
	// NotCovered says why it can be in none.
	Entry      *baseline.Entry
	NotCovered string
	// HasEnded reports, with Options.Entries, whether the object makes no pod any more: a pod or a Job that has finished, or a
	// ReplicaSet of an earlier revision.
	HasEnded bool
}

// Injection is the state of the sidecars of one profile in one pod or pod template.
type Injection string

// The injection states.
const (
	// Current is a pod with the sidecars of the active revision of the profile.
	Current Injection = "current"
	// Stale is a pod with those of another revision.
	Stale Injection = "stale"
	// Missing is a pod that would get sidecars if it were created now, and has none.
	Missing Injection = "missing"
	// Declined is a pod that the profile selects and that opts out, or does not opt in.
	Declined Injection = "declined"
	// Extra is a pod with sidecars that it would not get now.
	Extra Injection = "extra"
)

// Sink receives what an audit finds, as it goes. Its methods are called by one goroutine.
type Sink interface {
	// Object is called once for each object, before its results.
	Object(Object)
	// Result is called for every result but Pass, in the order of the objects.
	Result(Result)
	// Injection is called for each profile that matches a pod, or is in it.
	Injection(object Object, profile string, state Injection)
}

// Skipped is a rule that an audit does not evaluate.
type Skipped struct {
	Kind   string `json:"kind"`
	Policy string `json:"policy"`
	// Rule is "" for the whole policy.
	Rule string `json:"rule,omitempty"`
	// Reason is for people: "it reads request.userInfo, which an audit does not know".
	Reason string `json:"reason"`
}

// Coverage is what an audit has read of one resource.
//
// The resource "*" stands for those of an API group that cannot be discovered; its kind is "".
type Coverage struct {
	schema.GroupVersionResource `json:"-"`

	Kind string `json:"kind"`
	// Objects is the number of objects that were decided.
	Objects int64 `json:"objects"`
	// Complete reports whether all objects were read and decided.
	Complete bool `json:"complete"`
	// Problem says why not, for people, and Right names the missing right, as "list secrets".
	Problem string `json:"problem,omitempty"`
	Right   string `json:"right,omitempty"`
	// Policies are the AdmissionPolicies that match the resource, itself or by the pod template in it.
	Policies []string `json:"-"`
}

// Outcome sums up an audit.
type Outcome struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Digest is that of the configuration.
	Digest string `json:"digest"`
	// Complete reports whether all objects of all resources were decided.
	Complete bool       `json:"complete"`
	Coverage []Coverage `json:"coverage"`
	Skipped  []Skipped  `json:"skipped,omitempty"`
	// Unknown are resources that policies name and the cluster does not have.
	Unknown []string `json:"unknown,omitempty"`
}
