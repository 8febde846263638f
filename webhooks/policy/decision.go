package policy

import (
	"iter"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
)

// Decision is the answer to one request with what led to it.
type Decision struct {
	// Err is why the request cannot be decided.
	Err error
	// Undecided is an UndecidedError, or nil. Unlike Err it is set for a request that is refused, too.
	Undecided error
	// Violations are all that were found, in the order of the answer, with those
	// that are only warned about or audited and those that are let pass. They are set only if
	// they were requested.
	Violations []Violation
	// Evaluations are what was evaluated, in order. They are recorded only if they were
	// asked for, and then for policies that do not match, too.
	Evaluations []Evaluation

	response admission.Response
}

// Response returns the answer to the API server. It has code 500 if the request cannot be
// decided.
func (d Decision) Response() admission.Response { return d.response }

// Outcome is the result of a rule for one request.
type Outcome string

// The outcomes.
const (
	// Passed is a rule that the request complies with.
	Passed Outcome = "Passed"
	// Violated is a rule that the request violates. The actions say what follows.
	Violated Outcome = "Violated"
	// Failed is a rule that could not be evaluated, under failurePolicy Fail: it
	// counts as violated.
	Failed Outcome = "Failed"
	// Ignored is a rule that could not be evaluated, under failurePolicy Ignore.
	Ignored Outcome = "Ignored"
	// Excepted is a violation that an exception allows.
	Excepted Outcome = "Excepted"
	// Existing is a violation that was there before the update, which does not
	// make it worse.
	Existing Outcome = "Existing"
	// Baselined is a violation that a baseline allows.
	Baselined Outcome = "Baselined"
	// Done is a policy that was evaluated, whatever the results of its rules. Only
	// observations have it.
	Done Outcome = "Evaluated"
)

// Violation is a rule that a request violates.
type Violation struct {
	// Kind is that of the policy: ValidatingAdmissionPolicy or AdmissionPolicy.
	Kind string `json:"kind"`
	// Policy and Binding are names. Binding is "" for the actions that a policy
	// has of its own.
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	// Param is the param that the policy was evaluated with, as namespace/name
	// or name, and "" without.
	Param string `json:"param,omitempty"`
	// Rule names the rule: "validations[memory-limit]", "validations[2]" for one
	// without a name, "podSecurity.hostPorts", "auditAnnotations[0]",
	// "matchConditions". It is "" for a policy or binding that could not be evaluated
	// at all.
	Rule string `json:"rule,omitempty"`
	// Template is the path in the object of the pod template that violates the
	// rule as the pod that it will become, and "" for the object itself.
	Template string `json:"template,omitempty"`
	// Message says what is wrong, without the names of policy and binding.
	Message string `json:"message"`
	// Contact is whom to ask, by the annotation of the binding or policy, or "".
	Contact string `json:"contact,omitempty"`
	// Reason is the code that goes with a refusal.
	Reason metav1.StatusReason `json:"reason,omitempty"`
	// Outcome is Violated, Failed, Excepted, Existing or Baselined.
	Outcome Outcome `json:"outcome"`
	// Actions say what a violation leads to. They have no effect for Excepted,
	// Existing and Baselined. None at all are those of a policy or binding that could not be
	// evaluated, which refuses whatever its actions are.
	Actions []admissionregistrationv1.ValidationAction `json:"actions,omitempty"`
	// Exception is the one that allows it, as namespace/name. Several that exempt containers and allow it together are
	// separated by ", ": Exceptions returns them.
	Exception string `json:"exception,omitempty"`
	// Baseline is the PolicyBaseline that allows it, as namespace/name, and Until is the time
	// until which it does.
	Baseline string     `json:"baseline,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	// Entry is what allows the violation in a PolicyBaseline, nil if nothing can, and Unbaselined
	// is why. They are set only if they were requested, and not for what an exception allows or
	// what was there before an update.
	Entry       *baseline.Entry `json:"-"`
	Unbaselined string          `json:"-"`
	// Unknown says why it is not known whether Exception allows it, and is "" if that is known. Only a
	// Set of ForObjects has such violations.
	Unknown string `json:"unknown,omitempty"`

	// static is StaticMessage.
	static string
	// indexed is "validations[2]" for a rule with a name.
	indexed string
	// containers are as in Rule.
	containers []string
}

// Exceptions yields the titles in the Exception of a Violation or an Observation.
func Exceptions(exception string) iter.Seq[string] {
	return strings.SplitSeq(exception, exceptionSeparator)
}

// HasRule reports whether the violation is of a rule, given by its name or its index.
func (v *Violation) HasRule(rule string) bool {
	return v.Rule == rule || v.indexed != "" && v.indexed == rule
}

// StaticMessage returns the message of the rule without that of its messageExpression: nothing of the
// object is in it. It is "" for what is no validation.
func (v *Violation) StaticMessage() string { return v.static }

// Refuses reports whether the violation alone is enough to refuse the request.
func (v *Violation) Refuses() bool {
	if v.Unknown != "" {
		return false
	}
	if v.Outcome != Violated && v.Outcome != Failed {
		return false
	}
	if v.Actions == nil {
		return true
	}
	return slices.Contains(v.Actions, admissionregistrationv1.Deny)
}

// Why is the reason why a policy was evaluated or not.
type Why string

// The reasons.
const (
	// Evaluated is a policy that was evaluated.
	Evaluated Why = "Evaluated"
	// Exempt is a request for which no policy is evaluated.
	Exempt Why = "Exempt"
	// OtherRequest is a policy whose resource rules do not match the request, or exclude
	// it.
	OtherRequest Why = "OtherRequest"
	// NamespaceNotSelected and ObjectNotSelected are by the selectors of the
	// policy or binding.
	NamespaceNotSelected Why = "NamespaceNotSelected"
	ObjectNotSelected    Why = "ObjectNotSelected"
	// ConditionFalse is a match condition that is false, or one that failed
	// under failurePolicy Ignore.
	ConditionFalse Why = "ConditionFalse"
	// NoParams is a binding whose params do not exist, and that allows that.
	NoParams Why = "NoParams"
	// NotInForce is a policy without a binding.
	NotInForce Why = "NotInForce"
	// Misconfigured is a policy that matches the request and cannot be evaluated for it:
	// failurePolicy decides.
	Misconfigured Why = "Misconfigured"
)

// Evaluation is the result of one policy for one binding, one param, and one pod
// template or the object itself.
type Evaluation struct {
	// Kind, Policy, Binding, Param and Template are as in Violation. What does
	// not match has no param, and no binding if the policy does not match.
	Kind     string `json:"kind"`
	Policy   string `json:"policy"`
	Binding  string `json:"binding,omitempty"`
	Param    string `json:"param,omitempty"`
	Template string `json:"template,omitempty"`
	Why      Why    `json:"why"`
	// Detail says more, for people, and may be empty.
	Detail string `json:"detail,omitempty"`
	// Conditions, Variables and AuditAnnotations are expressions that were
	// evaluated. A variable is evaluated when a rule asks for it.
	Conditions       []Expression `json:"conditions,omitempty"`
	Variables        []Expression `json:"variables,omitempty"`
	Rules            []Rule       `json:"rules,omitempty"`
	AuditAnnotations []Expression `json:"auditAnnotations,omitempty"`
	// Contact is as in Violation.
	Contact string `json:"contact,omitempty"`
	// Cost is what all of it cost, in units of CEL cost.
	Cost int64 `json:"cost"`
}

// Expression is an expression that was evaluated.
type Expression struct {
	// Name is that of the condition, variable or annotation.
	Name string `json:"name"`
	Text string `json:"expression"`
	// Value is what it came to, as JSON if it can be written so, and cut to a
	// length that a person reads. It is "" if Error is not.
	Value string `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	// Cost is without that of the variables that it asks for.
	Cost int64 `json:"cost"`
}

// Rule is a rule that was evaluated.
type Rule struct {
	// Name is as in Violation.
	Name string `json:"name"`
	// Text is the expression, and "" for a check of podSecurity.
	Text    string  `json:"expression,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Message is that of a violation.
	Message string `json:"message,omitempty"`
	// Exception is as in Violation.
	Exception string `json:"exception,omitempty"`
	// Baseline is the PolicyBaseline that allows a violation, as namespace/name.
	Baseline string `json:"baseline,omitempty"`
	// Containers are the names of the containers that Exception exempts: the rule was evaluated again, and holds for the object without
	// them.
	Containers []string `json:"containers,omitempty"`
	// Tried are exceptions from the rule, and baselines with entries of it, that do not allow its violation.
	Tried []TriedException `json:"tried,omitempty"`
	Cost  int64            `json:"cost"`
}

// TriedException is an exception, or a baseline, that does not hold.
type TriedException struct {
	// Exception is the namespace/name of an exception, and Baseline that of a baseline.
	Exception string `json:"exception,omitempty"`
	Baseline  string `json:"baseline,omitempty"`
	// Why says, for people, why it does not: "it has expired".
	Why string `json:"why"`
}

// Observation is what is counted and measured about a policy, or about a rule of
// it, for one request.
type Observation struct {
	// Kind and Policy are those of the policy, and Binding is as in Violation.
	Kind, Policy, Binding string
	// Rule is as in Violation, and "" for all of the policy with one binding: then
	// Elapsed is set, and Outcome is Failed, Ignored, Excepted or Existing for one
	// that could not be evaluated, and Done otherwise.
	Rule    string
	Outcome Outcome
	// Exception and Baseline are as in Violation.
	Exception, Baseline string
	// Cost is in units of CEL cost.
	Cost int64
	// Elapsed is the time that the evaluation took. It is 0 if Spec.Now is nil.
	Elapsed time.Duration
}
