package drill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// hook is a webhook of a configuration, compiled.
type hook struct {
	// configuration is KIND/NAME, and place where it was read.
	configuration, name string
	mutates             bool
	place               Place
	annotations         map[string]string
	client              admissionregistrationv1.WebhookClientConfig
	rules               []admissionregistrationv1.RuleWithOperations
	match               admissionregistrationv1.MatchResources
	given               []admissionregistrationv1.MatchCondition
	// fails reports whether a request fails for which there is no answer.
	fails      bool
	timeout    time.Duration
	sideEffect admissionregistrationv1.SideEffectClass
	reinvokes  bool

	constraints *matching.Constraints
	conditions  []expression.Condition
	// broken is why it is not known what is sent to the webhook, nil if it is.
	broken error
}

// title names a webhook.
func (h *hook) title() string { return h.configuration + " " + h.name }

// backend names what answers: a Service, NAMESPACE/NAME, or the host of a URL.
func (h *hook) backend() string {
	switch {
	case h.client.Service != nil:
		return h.client.Service.Namespace + "/" + h.client.Service.Name
	case h.client.URL != nil:
		host, _, _ := strings.Cut(strings.TrimPrefix(*h.client.URL, "https://"), "/")
		return "https://" + host
	default:
		return "nothing"
	}
}

// hasConditions reports whether anything but the rules narrows what is sent.
func (h *hook) hasConditions() bool {
	return len(h.given) > 0 || h.constraints != nil && (h.constraints.Namespaces != nil || h.constraints.Objects != nil)
}

// ofMutating returns the webhook of a configuration that has its defaults.
func ofMutating(c *admissionregistrationv1.MutatingWebhookConfiguration, w *admissionregistrationv1.MutatingWebhook, place Place) *hook {
	h := newHook("MutatingWebhookConfiguration/"+c.Name, w.Name, c.Annotations, place, w.FailurePolicy, w.MatchPolicy, w.SideEffects, w.TimeoutSeconds)
	h.mutates, h.reinvokes = true, w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
	h.client, h.rules, h.given = w.ClientConfig, w.Rules, w.MatchConditions
	h.match.NamespaceSelector, h.match.ObjectSelector = w.NamespaceSelector, w.ObjectSelector
	return h
}

// ofValidating is ofMutating for a webhook that validates.
func ofValidating(c *admissionregistrationv1.ValidatingWebhookConfiguration, w *admissionregistrationv1.ValidatingWebhook, place Place) *hook {
	h := newHook("ValidatingWebhookConfiguration/"+c.Name, w.Name, c.Annotations, place, w.FailurePolicy, w.MatchPolicy, w.SideEffects, w.TimeoutSeconds)
	h.client, h.rules, h.given = w.ClientConfig, w.Rules, w.MatchConditions
	h.match.NamespaceSelector, h.match.ObjectSelector = w.NamespaceSelector, w.ObjectSelector
	return h
}

func newHook(
	configuration, name string, annotations map[string]string, place Place, failure *admissionregistrationv1.FailurePolicyType,
	match *admissionregistrationv1.MatchPolicyType, effects *admissionregistrationv1.SideEffectClass, timeout *int32,
) *hook {
	h := &hook{configuration: configuration, name: name, annotations: annotations, place: place}
	h.fails = *failure != admissionregistrationv1.Ignore
	h.match.MatchPolicy = match
	h.timeout = time.Duration(*timeout) * time.Second
	if effects != nil {
		h.sideEffect = *effects
	}
	return h
}

// maxRules is how many rules of one webhook are compared with each request.
const maxRules = 1000

// compile compiles what decides about calls. What the API server would reject makes the webhook broken.
func (h *hook) compile(selectors *matching.Selectors, compiler *expression.Compiler, stop func() error) {
	var errs []error
	for _, s := range []*metav1.LabelSelector{h.match.NamespaceSelector, h.match.ObjectSelector} {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			errs = append(errs, fmt.Errorf("a selector is invalid: %w", err))
		}
	}
	if len(h.rules) > maxRules {
		errs = append(errs, fmt.Errorf("it has more than %d rules", maxRules))
	}
	var found diagnostic.List
	scope, path := expression.NewScope(validation.Reporter{Object: h.configuration, List: &found}, compiler, false, nil, stop), field.NewPath("matchConditions")
	if scope.FitWith(path, h.given, nil, nil) {
		h.conditions = scope.CompileConditions(path, h.given)
		scope.Seal()
	}
	for i := range found {
		if found[i].Severity == diagnostic.Error {
			errs = append(errs, fmt.Errorf("%s: %s", found[i].Field, found[i].Message))
		}
	}
	if h.broken = errors.Join(errs...); h.broken != nil {
		return
	}
	for _, r := range h.rules {
		h.match.ResourceRules = append(h.match.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	h.constraints = selectors.Compile(&h.match)
}

// call is what the API server does about a request and a webhook.
type call uint8

const (
	// notCalled: the webhook has no say.
	notCalled call = iota
	// called: the webhook must answer, or its failurePolicy decides.
	called
	// refused: a match condition fails, and failurePolicy Fail refuses the request, whether the webhook is up or not.
	refused
	// unsure: it is not known.
	unsure
)

// errObjectUnknown is why it is not known what a selector or a condition makes of a request.
var errObjectUnknown = errors.New("the object of the request is not known")

// calls returns what the API server does about the request, as its
// k8s.io/apiserver/pkg/admission/plugin/webhook/generic.(*Webhook).ShouldCallHook does. The error says why it is not known, or which
// condition fails. DependsOnRights is true for a webhook that is called unless the user has a right for which a condition asks.
func (h *hook) calls(ctx context.Context, r *request) (c call, dependsOnRights bool, err error) {
	switch {
	case h.broken != nil:
		return unsure, false, h.broken
	case len(h.rules) == 0 || r.isExempt():
		return notCalled, false, nil
	}
	m := h.constraints.Match(&r.Request)
	unknown := m.Err
	switch m.Outcome {
	case matching.OtherRequest, matching.OtherNamespace:
		return notCalled, false, nil
	case matching.OtherObject:
		if !r.objectUnknown {
			return notCalled, false, nil
		}
		unknown = errObjectUnknown
	case matching.Unknown, matching.Matches:
	}
	// The API server converts an object to the version that the rules name, which is not done here.
	r.opaque = r.objectUnknown || unknown == nil && m.Resource != r.Requested && !r.IsRenamed(m.Resource)
	c, dependsOnRights, err = h.evaluate(ctx, r)
	if c != notCalled && unknown != nil {
		return unsure, false, unknown
	}
	return c, dependsOnRights, err
}

// evaluate evaluates the match conditions for a request that the rules and selectors match.
func (h *hook) evaluate(ctx context.Context, r *request) (call, bool, error) {
	if len(h.conditions) == 0 {
		return called, false, nil
	}
	asks := false
	for i := range h.conditions {
		asks = asks || h.conditions[i].Uses().Has(expression.UsesAuthorizer)
	}
	c, err := h.evaluateWith(ctx, r, false)
	if !asks || c == unsure {
		return c, false, err
	}
	// Nobody is asked who has which right: the call counts if it is made for a user without it, or with it.
	other, otherErr := h.evaluateWith(ctx, r, true)
	if c == other {
		return c, false, err
	}
	if c == notCalled {
		return other, true, otherErr
	}
	return c, true, err
}

// evaluateWith is evaluate for a user who has every right, or none.
func (h *hook) evaluateWith(ctx context.Context, r *request, rights bool) (call, error) {
	r.rights, r.authorizer, r.resourceAuthorizer = rights, nil, nil
	var input expression.Input
	input.Reset(r, nil, nil)
	phase := input.Phase(celconfig.RuntimeCELCostBudgetMatchConditions)
	var failed, unknown error
	for i := range h.conditions {
		condition := &h.conditions[i]
		if r.opaque && condition.Uses().Has(expression.UsesObject|expression.UsesOldObject) {
			unknown = fmt.Errorf("%w, and the match condition %q reads it", errObjectUnknown, condition.Name)
			continue
		}
		value, _, err := phase.Eval(ctx, condition.Program)
		switch evaluation := (*expression.EvaluationError)(nil); {
		case ctx.Err() != nil:
			return unsure, context.Cause(ctx)
		case err != nil && errors.As(err, &evaluation):
			failed = errors.Join(failed, fmt.Errorf("the match condition %q fails: %w", condition.Name, evaluation.Cause))
		case err != nil:
			return h.failure(fmt.Errorf("the match conditions cost more than the API server allows: %w", err))
		case value == types.False:
			return notCalled, nil
		}
	}
	switch {
	case unknown != nil:
		return unsure, unknown
	case failed != nil:
		return h.failure(failed)
	default:
		return called, nil
	}
}

// failure returns what the API server does if match conditions fail.
func (h *hook) failure(err error) (call, error) {
	if h.fails {
		return refused, err
	}
	return notCalled, nil
}
