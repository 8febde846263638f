// Package policy decides by policies whether a request is allowed: it is the endpoint /validate. Compile makes a Set from
// policies, bindings and exceptions, and Set.Decide decides about one request.
//
// Policies are Kubernetes' own ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding documents, unchanged, and
// AdmissionPolicy documents of gatehouse.dev. The API server's own library compiles and evaluates their expressions, so
// that upstream documents have upstream's results. Unlike upstream, an answer names every violation, not only the first.
//
// Results differ from upstream's in a few cases. An expression that does not compile is an error of the configuration;
// upstream fails when it evaluates it. For an unknown namespace, the failurePolicy of the policy decides; upstream fails
// the request. A messageExpression that is not shown is evaluated only if the rules were expensive. Quantities of more
// than 100 digits, lists.range beyond a million elements, and regular expressions of more than 10,000 parts fail; upstream
// takes minutes for them. In a custom resource, 1.0 arrives as the integer 1, because the API server writes it so for
// webhooks.
//
// A Set is immutable, and Decide is a pure function of the Set and the request. A request passes four steps: match,
// evaluate, judge and answer.
//
// The package has more than 4,000 lines, because the steps read the fields of compiled policies, bindings, selectors and
// exceptions: in two packages, about 60 fields would be exported for the other one alone. What needs none of these fields
// is apart: the checks of documents in policy/validation, expressions in policy/expression, and the Pod Security Standards
// in podsecurity.
package policy

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// Policy is a ValidatingAdmissionPolicy and where it was read from.
type Policy struct {
	// Source is the file, and the number of the document in it where it has
	// several: "policies/base.yaml#2". It is used in diagnostics only.
	Source string
	admissionregistrationv1.ValidatingAdmissionPolicy
}

// Binding is a ValidatingAdmissionPolicyBinding and where it was read.
type Binding struct {
	// Source is as in Policy.
	Source string
	admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// AdmissionPolicy is an AdmissionPolicy and where it was read.
type AdmissionPolicy struct {
	// Source is as in Policy.
	Source string
	v1alpha1.AdmissionPolicy
}

// AdmissionPolicyBinding is an AdmissionPolicyBinding and where it was read.
type AdmissionPolicyBinding struct {
	// Source is as in Policy.
	Source string
	v1alpha1.AdmissionPolicyBinding
}

// Exception is a PolicyException and where it was read.
type Exception struct {
	// Source is as in Policy.
	Source string
	v1alpha1.PolicyException
}

// Baseline is a PolicyBaseline and where it was read.
type Baseline struct {
	// Source is as in Policy.
	Source string
	// PolicyBaseline is the document without its rules, which are in Rules, and without
	// spec.notCovered.
	v1alpha1.PolicyBaseline

	// Rules are the rules without the names of objects, which would be most of the memory
	// of a large baseline.
	Rules []baseline.Rule
}

// NewBaseline returns the baseline of a document, and what is wrong with its entries, which are left out.
func NewBaseline(document *v1alpha1.PolicyBaseline) (*Baseline, field.ErrorList) {
	out := &Baseline{PolicyBaseline: *document}
	var problems field.ErrorList
	out.Rules, problems = baseline.Compact(&document.Spec)
	out.Spec.Rules, out.Spec.NotCovered = nil, nil
	return out, problems
}

// Entries returns the number of violations that the baseline allows.
func (b *Baseline) Entries() (n int) {
	for i := range b.Rules {
		n += len(b.Rules[i].Digests)
	}
	return n
}

// MarshalJSON writes a document that allows the same, without the names of objects.
func (b *Baseline) MarshalJSON() ([]byte, error) {
	document := b.PolicyBaseline
	document.Spec.Rules = baseline.Expand(b.Rules)
	return json.Marshal(&document) //nolint:wrapcheck // it is that of the API type
}

// Configuration is a PolicyConfiguration and where it was read.
type Configuration struct {
	// Source is as in Policy.
	Source string
	v1alpha1.PolicyConfiguration
}

// Objects are the namespaces and params that policies read.
type Objects = matching.Objects

// ErrNotServed is wrapped by errors of Objects that say that API servers do not
// serve a kind in its version.
var ErrNotServed = matching.ErrNotServed

// ErrUnanswered is wrapped by errors of Objects and of the authorizer that say that it is not
// known what the answer would be, such as for what a recording does not hold. What depends on
// such an answer is undecided.
var ErrUnanswered = errors.New("it is not known what the answer would be")

// Injector returns a pod as the mutating endpoint will change it, as JSON, and unchanged
// if there is nothing to inject. Workload is the kind and name, as "Deployment/checkout",
// of the pod's owner. The pod is checked JSON. Refusal says why the mutating endpoint will
// reject the pod, which is then returned unchanged; an error means that it cannot decide.
type Injector func(ctx context.Context, namespace, workload string, pod []byte) (injected []byte, refusal string, err error)

// Spec is the input of Compile. Its zero value makes a Set that allows everything.
type Spec struct {
	Policies                []Policy
	Bindings                []Binding
	AdmissionPolicies       []AdmissionPolicy
	AdmissionPolicyBindings []AdmissionPolicyBinding
	Exceptions              []Exception
	Baselines               []Baseline
	// Configuration may be nil, for the defaults.
	Configuration *Configuration
	// Objects may be nil: then no namespace and no param is known.
	Objects Objects
	// Authorizer answers what expressions ask of authorizer. If it is nil, an
	// expression that asks fails.
	Authorizer authorizer.UnconditionalAuthorizer
	// Inject may be nil: then pod templates are checked as they are.
	Inject Injector
	// Now is the time by which exceptions and baselines expire, and by which evaluations
	// are measured. If it is nil, one that expires has expired.
	Now func() time.Time
	// Previous may be a Set of an earlier configuration: policies and conditions of
	// exceptions that have not changed are not compiled again.
	Previous *Set
	// KeepBroken keeps policies with expressions that do not compile: what they
	// match, their failurePolicy decides. Their diagnostics are among the Set's
	// warnings, as errors. Without it they are Compile's error. With it, conditions
	// of exceptions that do nothing are not compiled.
	KeepBroken bool
	// FollowsParams leaves out warnings of params that do not exist: the caller reports Set.MissingParams, as long as it
	// has some.
	FollowsParams bool
	// Option is for all expressions, and may be nil.
	Option celbound.Option
	// Stop returns an error once Compile is to end, as a context's Err does. Compile calls
	// it before each expression and returns its error. It may be nil.
	Stop func() error
}

// Lookups are what policies read besides the request.
type Lookups struct {
	Objects    Objects
	Authorizer authorizer.UnconditionalAuthorizer
	Inject     Injector
	Now        func() time.Time
}

// Lookups returns those that the Set was compiled with.
func (s *Set) Lookups() Lookups { return Lookups{s.objects, s.authorizer, s.inject, s.now} }

// With returns the Set with other lookups, which may be nil as in Spec. It costs no
// compilation. Whether kinds of params are served remains as at the compilation.
func (s *Set) With(l Lookups) *Set {
	with := *s
	if with.objects, with.authorizer, with.inject, with.now = l.Objects, l.Authorizer, l.Inject, l.Now; l.Objects == nil {
		with.objects = matching.Nothing{}
	}
	return &with
}
