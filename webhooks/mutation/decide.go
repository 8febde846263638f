package mutation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// Input is a request on which policies decide.
type Input struct {
	Request admission.Request
	// Explain requests Decision.Evaluations.
	Explain bool
}

// Decide returns how the policies change the object of a request. It keeps nothing of the request.
//
// As in the API server, which policies match is decided by the object as it was sent, and match conditions see it as the policies
// before changed it. If anything has changed, the policies with reinvocationPolicy IfNeeded that ran before the last change run
// once more.
func (s *Set) Decide(ctx context.Context, in Input) Decision {
	policies := s.policies
	if !in.Explain {
		if policies = s.about(in.Request.Resource.Resource); len(policies) == 0 {
			return Decision{}
		}
	}
	return s.decide(ctx, in, policies)
}

// decide is Decide with the policies in an order.
func (s *Set) decide(ctx context.Context, in Input, policies []*compiledPolicy) Decision {
	r := s.newDecider(ctx, in, policies)
	r.decide()
	d := Decision{Err: r.err, Refusal: r.refusal, Failures: r.failures, Applied: r.applied, Evaluations: r.evaluations}
	if d.Refusal == nil && d.Err == nil {
		d.Refusal = refuse(r)
	}
	if d.Refusal == nil && d.Err == nil && r.dirty {
		d.Object, d.Patch, d.Err = r.result()
	}
	return d
}

func (s *Set) newDecider(ctx context.Context, in Input, policies []*compiledPolicy) *decider {
	r := &decider{
		set: s, context: ctx, explain: in.Explain, policies: policies,
		invoked: map[invocationKey]bool{}, again: map[invocationKey]bool{},
	}
	r.Init(in.Request, s.lookups.Objects, r, s.selectors)
	return r
}

// review is one call of Decide.
type decider struct {
	matching.Request
	set      *Set
	context  context.Context //nolint:containedctx // it belongs to one call, like everything here
	policies []*compiledPolicy
	// current is the object as the policies have changed it, in the version in which it was sent, nil until it is needed.
	current *version
	// original is the object as it was sent.
	original runtime.Object
	// isPartial is true as long as current and original have the metadata alone. Nothing has read or changed anything else then.
	isPartial bool
	// labels are those of the object and of the old one, nil until they are read.
	labels [2]*labels.Set

	explain     bool
	evaluations []Evaluation
	failures    []Failure
	applied     []Application
	// refusal is an error that refuses the request whatever failurePolicy says, and err is why there is no decision.
	refusal *metav1.Status
	err     error

	// dirty is true once a mutation was applied, whether it changed anything or not.
	dirty bool
	// reinvoking is true for the second time that the policies run. invoked are those that have run and may run again, and again
	// those that are to.
	reinvoking     bool
	invoked, again map[invocationKey]bool

	input   expression.Input
	spent   int64
	caching authorizer.UnconditionalAuthorizer
}

// invocation is a policy as a binding applies it, with a param, which may be nil.
type invocation struct {
	policy   *compiledPolicy
	binding  *binding
	param    *matching.Param
	resource schema.GroupVersionResource
}

// invocationKey names an invocation.
type invocationKey struct{ policy, binding, param string }

func (i *invocation) key() invocationKey {
	return invocationKey{i.policy.name, i.binding.name, i.param.Name()}
}

func (r *decider) hasEnded() bool { return r.err != nil || r.refusal != nil }

func (r *decider) decide() {
	if matching.IsExempt(r.Requested.GroupResource()) {
		r.explainf(Evaluation{Why: Exempt}, "no policy is evaluated for %s", r.Requested.GroupResource())
		return
	}
	if r.Operation == admissionv1.Delete || !isPresent(r.Object.Raw) {
		return // there is nothing to change
	}
	r.run()
	// A refusal ends it, and so does a policy that has failed.
	if r.dirty && !r.hasEnded() && refuse(r) == nil {
		r.reinvoking, r.current = true, r.newVersion(r.current.object(), r.current.VersionedKind, r.current.resource)
		r.run()
	}
}

// run runs all policies that match.
func (r *decider) run() {
	invocations := r.matchPolicies()
	for i := range invocations {
		if r.hasEnded() {
			return
		}
		r.invoke(&invocations[i])
	}
	if r.dirty && len(invocations) > 0 {
		r.reinvokeEarlier()
	}
}

// reinvokeEarlier makes all policies run again that have run and may.
func (r *decider) reinvokeEarlier() {
	for key := range r.invoked {
		r.again[key] = true
	}
	clear(r.invoked)
}

// matchPolicies returns what is to be invoked for the request.
func (r *decider) matchPolicies() (out []invocation) {
	var by *matching.Constraints
	var matched matching.Match
	for _, p := range r.policies {
		if len(p.bindings) == 0 {
			r.explainf(Evaluation{Policy: p.name, Why: NotInForce}, "no binding puts it in force")
			continue
		}
		if by != p.match {
			by, matched = p.match, p.match.Match(&r.Request)
		}
		if r.err != nil {
			return nil
		}
		if !r.isMatch(p, "", matched) {
			continue
		}
		if err := cmpErr(p.broken, func() error { return matching.CheckParamKind(r.set.lookups.Objects, p.spec.ParamKind) }); err != nil {
			r.fail(p, "", fmt.Errorf("failed to configure policy: %w", err), "")
			continue
		}
		for i := range p.bindings {
			b := &p.bindings[i]
			if b.match != nil && !r.isMatch(p, b.name, b.match.Match(&r.Request)) {
				continue
			}
			params := []*matching.Param{nil}
			if b.params.Ref != nil {
				var err error
				if params, err = b.params.Find(r.set.lookups.Objects, r.Namespace); err != nil {
					r.fail(p, b.name, fmt.Errorf("failed to configure binding: %w", err), "")
					continue
				}
			}
			if len(params) == 0 {
				r.explainf(Evaluation{Policy: p.name, Binding: b.name, Why: NoParams}, "")
			}
			for _, param := range params {
				out = append(out, invocation{p, b, param, matched.Resource})
			}
		}
	}
	return out
}

// cmpErr returns the error, or else that of the function.
func cmpErr(err error, or func() error) error {
	if err != nil {
		return err
	}
	return or()
}

// isMatch reports whether a policy, or a binding of it, matches.
func (r *decider) isMatch(p *compiledPolicy, binding string, m matching.Match) bool {
	if r.err != nil {
		return false
	}
	e := Evaluation{Policy: p.name, Binding: binding}
	switch m.Outcome {
	case matching.Matches:
		return true
	case matching.Unknown:
		what := "policy"
		if binding != "" {
			what = "binding"
		}
		r.fail(p, binding, fmt.Errorf("failed to configure %s: %w", what, m.Err), "")
		return false
	case matching.OtherRequest:
		e.Why = OtherRequest
	case matching.OtherNamespace:
		e.Why = NamespaceNotSelected
	case matching.OtherObject:
		e.Why = ObjectNotSelected
	}
	r.explainf(e, "")
	return false
}

// fail notes that a policy could not be evaluated.
func (r *decider) fail(p *compiledPolicy, binding string, err error, reason metav1.StatusReason) {
	failure := Failure{Policy: p.name, Binding: binding, Message: err.Error(), Ignored: p.ignores, reason: reason}
	if reason != "" || !r.reinvoking || !slices.Contains(r.failures, failure) { // what is configured is the same both times
		r.failures = append(r.failures, failure)
	}
	if reason == "" {
		r.explainf(Evaluation{Policy: p.name, Binding: binding, Why: Failed}, "%s", err)
	}
}

func (r *decider) explainf(e Evaluation, format string, args ...any) {
	if r.explain {
		e.Detail, e.Again = fmt.Sprintf(format, args...), r.reinvoking
		r.evaluations = append(r.evaluations, e)
	}
}

// maxCost is what all policies together may spend on a request.
const maxCost = 10 * celconfig.RuntimeCELCostBudget

// invoke runs the mutations of a policy, each on the object as the one before left it.
func (r *decider) invoke(i *invocation) {
	p, e := i.policy, Evaluation{Policy: i.policy.name, Binding: i.binding.name, Param: i.param.Name(), Why: Evaluated}
	v, err := r.version(i)
	if err != nil {
		if r.err == nil {
			r.fail(p, i.binding.name, err, "")
		}
		return
	}
	if p.uses.Has(expression.UsesNamespace) {
		if _, known := r.NamespaceObject(); !known {
			r.fail(p, i.binding.name, r.UnknownNamespace("namespaceObject is used"), "")
			return
		}
	}
	condition, err := r.matchConditions(i, v)
	if !r.checkLimits(p) {
		return
	}
	switch {
	case err != nil && !p.ignores:
		r.fail(p, i.binding.name, err, metav1.StatusReasonInvalid)
		e.Why = Failed
		r.explainf(e, "%s", err)
		return
	case condition != "":
		e.Why = ConditionNotMet
		r.explainf(e, "%s", condition)
		return
	}
	if r.reinvoking && !r.again[i.key()] {
		return
	}
	before, wasPartial, spent := v.object(), r.isPartial, r.spent
	for k := range p.mutations {
		m := r.mutate(i, v, k)
		if r.explain {
			e.Mutations = append(e.Mutations, m)
		}
		if r.hasEnded() || !r.checkLimits(p) {
			r.explainf(e, "")
			return
		}
	}
	r.explainf(e, "")
	if wasPartial && !r.isPartial {
		before = r.completed(before)
	}
	changed := !isEqual(before, v.object())
	r.applied = append(r.applied, Application{Policy: p.name, Binding: i.binding.name, Changed: changed, Cost: r.spent - spent})
	if changed {
		r.reinvokeEarlier()
		if err := r.adopt(v); err != nil {
			r.fail(p, i.binding.name, err, metav1.StatusReasonInvalid)
		}
	}
	if p.reinvoked {
		r.invoked[i.key()] = true
	}
}

// mutate evaluates and applies the k-th mutation of a policy. An error leaves the object as it was.
func (r *decider) mutate(i *invocation, v *version, k int) Mutation {
	m := &i.policy.mutations[k]
	out := Mutation{Index: k, Kind: m.kind, Text: m.Text()}
	before := v.object()
	object, cost, err := r.patched(i, v, m)
	out.Cost = cost
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &status):
		r.refusal = &status.ErrStatus
		out.Error = err.Error()
	case err != nil:
		r.fail(i.policy, i.binding.name, err, metav1.StatusReasonInvalid)
		out.Error = err.Error()
	default:
		v.update(object)
		r.dirty = true
		if r.explain {
			out.Changes = changesOf(before, object)
		}
	}
	return out
}

// checkLimits ends the review if its time or its cost is used up, and reports whether it goes on.
func (r *decider) checkLimits(p *compiledPolicy) bool {
	if err := context.Cause(r.context); err != nil {
		r.err = fmt.Errorf("no decision in time, at %s %q: %w", policyKind, p.name, err)
	} else if r.spent > maxCost {
		r.err = fmt.Errorf("the policies for this request cost more than %d, at %s %q", int64(maxCost), policyKind, p.name)
	}
	return r.err == nil
}

var _ matching.Source = (*decider)(nil)

// Labels returns the labels of the object, or of the old one, and false if the request does not have it.
func (r *decider) Labels(old bool) (set labels.Set, present bool) {
	raw, n := r.Object.Raw, 0
	if old {
		raw, n = r.OldObject.Raw, 1
	} else if r.current != nil {
		if object, ok := r.current.object().(metav1.Object); ok {
			return object.GetLabels(), true
		}
	}
	if !isPresent(raw) {
		return nil, false
	}
	if r.labels[n] == nil {
		var object struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &object); err != nil {
			r.err = fmt.Errorf("%s: %w", [...]string{"object", "oldObject"}[n], err)
		}
		r.labels[n] = new(labels.Set(object.Metadata.Labels))
	}
	return *r.labels[n], true
}

// UnknownNamespace returns the error for the namespace of the request that is not known.
func (r *decider) UnknownNamespace(why string) error {
	return fmt.Errorf("namespace %q is not known, and %s", r.Namespace, why)
}

// isPresent reports whether a request has an object.
func isPresent(raw []byte) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

// isEqual reports whether two forms of an object are equal, as upstream compares them.
func isEqual(a, b runtime.Object) bool {
	if _, custom := a.(*unstructured.Unstructured); !custom {
		may := differing(a, b)
		if may == nil {
			return true
		}
		a, b = may.of(a), may.of(b)
	}
	return apiequality.Semantic.DeepEqual(a, b)
}

// result returns the object and the patch.
func (r *decider) result() ([]byte, patchOperations, error) {
	before := r.original
	if !r.isPartial {
		before = before.DeepCopyObject() // the current object may share memory with it
		r.fill(before)
	}
	return graftPatch(r.Object.Raw, before, r.current.object())
}

// fill fills in the defaults of an object.
func (r *decider) fill(object runtime.Object) {
	(&interfaces{schemas: r.set.lookups.Schemas}).Default(object)
}
