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
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// hook is a webhook of a configuration, compiled.
type hook struct {
	webhook.WebhookAccessor

	// configuration is KIND/NAME, and place where it was read.
	configuration string
	place         Place
	annotations   map[string]string
	mutates       bool
	// fails reports whether a request fails for which there is no answer, and reinvokes whether it may be called twice.
	fails, reinvokes bool
	timeout          time.Duration

	constraints *matching.Constraints
	conditions  []expression.Condition
	// broken is why it is not known what is sent to the webhook, nil if it is.
	broken error
}

// newHook returns a webhook that has its defaults.
func newHook(configuration string, of metav1.Object, w webhook.WebhookAccessor, place Place) *hook {
	h := &hook{WebhookAccessor: w, configuration: configuration + "/" + of.GetName(), place: place, annotations: of.GetAnnotations()}
	h.fails, h.timeout = *w.GetFailurePolicy() != admissionregistrationv1.Ignore, time.Duration(*w.GetTimeoutSeconds())*time.Second
	if m, mutates := w.GetMutatingWebhook(); mutates {
		h.mutates, h.reinvokes = true, *m.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
	}
	return h
}

// title names a webhook.
func (h *hook) title() string { return h.configuration + " " + h.GetName() }

// service returns the Service that answers, and its port, nil for a URL.
func (h *hook) service() (*admissionregistrationv1.ServiceReference, int32) {
	if s := h.GetClientConfig().Service; s != nil {
		return s, *s.Port
	}
	return nil, 0
}

// backend names what answers: a Service, NAMESPACE/NAME, or the host of a URL.
func (h *hook) backend() string {
	client := h.GetClientConfig()
	switch {
	case client.Service != nil:
		return client.Service.Namespace + "/" + client.Service.Name
	case client.URL != nil:
		host, _, _ := strings.Cut(strings.TrimPrefix(*client.URL, "https://"), "/")
		return "https://" + host
	default:
		return "nothing"
	}
}

// sent names the operations and resources of the rules, some of them.
func (h *hook) sent() string {
	rules := h.GetRules()
	var names []string
	for i := range rules[:min(maxDescribed, len(rules))] {
		r := &rules[i]
		var resources, operations []string
		for _, group := range r.APIGroups[:min(maxDescribed, len(r.APIGroups))] {
			for _, resource := range r.Resources[:min(maxDescribed, len(r.Resources))] {
				resources = append(resources, strings.TrimSuffix(resource+"."+group, "."))
			}
		}
		for _, o := range r.Operations[:min(maxOperations, len(r.Operations))] {
			operations = append(operations, string(o))
		}
		names = append(names, strings.Join(operations, ",")+" "+describeSome(resources, len(r.APIGroups)*len(r.Resources)))
	}
	text := strings.Join(names, "; ")
	if more := len(rules) - len(names); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// maxOperations is how many operations there are.
const maxOperations = 4

// isNarrowed reports whether anything but the rules narrows what is sent.
func (h *hook) isNarrowed() bool {
	return len(h.GetMatchConditions()) > 0 || h.constraints.Namespaces != nil || h.constraints.Objects != nil
}

// maxRules is how many rules of one webhook are compared with each request.
const maxRules = 1000

// compile compiles what decides about calls. What the API server would reject makes the webhook broken.
func (h *hook) compile(selectors *matching.Selectors, compiler *expression.Compiler, stop func() error) {
	var errs []error
	for _, s := range []*metav1.LabelSelector{h.GetNamespaceSelector(), h.GetObjectSelector()} {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			errs = append(errs, fmt.Errorf("a selector is invalid: %w", err))
		}
	}
	if len(h.GetRules()) > maxRules {
		errs = append(errs, fmt.Errorf("it has more than %d rules", maxRules))
	}
	var found diagnostic.List
	scope, path := expression.NewScope(validation.Reporter{Object: h.configuration, List: &found}, compiler, false, nil, stop), field.NewPath("matchConditions")
	if scope.FitWith(path, h.GetMatchConditions(), nil, nil) {
		h.conditions = scope.CompileConditions(path, h.GetMatchConditions())
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
	match := admissionregistrationv1.MatchResources{MatchPolicy: h.GetMatchPolicy(), NamespaceSelector: h.GetNamespaceSelector(), ObjectSelector: h.GetObjectSelector()}
	for _, r := range h.GetRules() {
		match.ResourceRules = append(match.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	h.constraints = selectors.Compile(&match)
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
	if !h.mutates && r.validated != nil {
		r = r.validated
	}
	switch {
	case h.broken != nil:
		return unsure, false, h.broken
	case len(h.GetRules()) == 0 || r.isExempt():
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
	r.opaque = r.objectUnknown || r.redacted || unknown == nil && m.Resource != r.Requested && !r.IsRenamed(m.Resource)
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
