package policy

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// Recording is implemented by Objects that answer from a recording.
type Recording interface {
	// MissingNamespace returns an error that wraps ErrUnanswered if it was not recorded
	// whether the namespace is known, and nil otherwise.
	MissingNamespace(name string) error
}

// UndecidedError is the Decision.Err of a request of a recording on whose decision a part of
// the configuration depends that reads what is not known or was not recorded.
type UndecidedError struct {
	// Where names the policy, or the condition of an exception.
	Where string
	// Err says what is read. It wraps ErrUnanswered.
	Err error
}

// Error returns both.
func (e *UndecidedError) Error() string { return e.Where + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *UndecidedError) Unwrap() error { return e.Err }

// noteUndecided notes why a part of the configuration is undecided. The first reason is kept.
func (v *decider) noteUndecided(where string, err error) {
	if v.undecided == nil {
		v.undecided = &UndecidedError{where, err}
	}
}

// UnknownNamespace returns the error for a namespace that is not known, and why that matters.
func (r *request) UnknownNamespace(why string) error {
	if err := r.decider.missingNamespace(r.Namespace); err != nil {
		return err
	}
	return fmt.Errorf("namespace %q is not known, and %s (hint: if it is new, try again in a few seconds)", r.Namespace, why)
}

// missingNamespace returns an error if a namespace is not known because it was not recorded.
func (v *decider) missingNamespace(name string) error {
	if recording, ok := v.set.objects.(Recording); ok {
		return recording.MissingNamespace(name)
	}
	return nil
}

// noticingAuthorizer notes in the review that an answer was not recorded: an expression may go on
// without it, as if it were a no.
type noticingAuthorizer struct {
	authorizer.UnconditionalAuthorizer

	decider *decider
}

func (a *noticingAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := a.UnconditionalAuthorizer.Authorize(ctx, attributes)
	if err != nil && errors.Is(err, ErrUnanswered) {
		a.decider.unanswered = err
	}
	return decision, reason, err //nolint:wrapcheck // it is that of the authorizer
}

// unansweredError returns the error of an expression that has asked the authorizer, or a variable of
// which has, for what was not recorded.
func (v *decider) unansweredError(program *expression.Program) *expression.EvaluationError {
	if v.unanswered == nil || !program.Uses().Has(expression.UsesAuthorizer) {
		return nil
	}
	return &expression.EvaluationError{Expression: program.Text(), Cause: v.unanswered}
}
