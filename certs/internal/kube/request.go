// Package kube has what certificates need of an API server: the classification of its
// errors in words for an administrator, and a loop that watches one object.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// Timeout bounds every request: long enough for a busy API server, and short enough
	// that an isolated replica still checks its clock.
	Timeout = 10 * time.Second
	// MaxTextLength bounds text of the API server in a message, in characters.
	MaxTextLength = 300
)

// requestError is the error of a request with a message for an administrator. The error that
// it wraps is for programs and is not shown: it may hold the body of the request.
type requestError struct {
	text string
	err  error
}

// NewError returns an error with a text for people that wraps another for programs.
func NewError(text string, err error) error { return &requestError{text, err} }

func (e *requestError) Error() string { return e.text }
func (e *requestError) Unwrap() error { return e.err }

// Request describes a request to an API server, for messages.
type Request struct {
	// Object is its object: "Secret gatehouse-system/gatehouse-ca".
	Object string
	// Verb and resource are as in a Role.
	Verb, Resource string
	// Right is the remedy if the right is missing.
	Right string
}

// apiStatus is an error that the API server answered.
type apiStatus interface {
	error
	apierrors.APIStatus
}

// Explain returns why a request failed, without any part of its body. The context is that of
// the request.
func (r *Request) Explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w", r.Object, context.Canceled)
	}
	problem, hint := r.describe(err)
	text := r.Object + ": " + problem
	if hint != "" {
		text += " (hint: " + hint + ")"
	}
	return NewError(text, err)
}

func (r *Request) describe(err error) (problem, hint string) {
	status, answered := errors.AsType[apiStatus](err)
	if !answered {
		return r.unanswered(err)
	}
	message := Sanitize(status.Status().Message)
	switch {
	case apierr.Classify(err) == apierr.Unauthorized:
		return "the API server rejects the credentials of this program", "check the token of its service account, or the kubeconfig"
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "its namespace is being deleted", "wait until it is gone and create it again, or use another namespace"
	case apierrors.IsForbidden(err):
		if denied := deniedRight.FindStringSubmatch(message); denied != nil {
			return fmt.Sprintf("user %q may not %q %s", denied[1], denied[2], r.Resource), r.Right
		}
		return fmt.Sprintf("the API server refuses to %s it: %s", r.Verb, message), ""
	case apierrors.IsNotFound(err) && (r.Verb == "create" || r.Verb == "patch"):
		return "its namespace does not exist", "create the namespace, or use another one"
	case apierr.Classify(err) == apierr.Unavailable:
		return fmt.Sprintf("the API server cannot %s it now: %s", r.Verb, message), ""
	default:
		return fmt.Sprintf("the API server did not %s it: %s", r.Verb, message), ""
	}
}

// deniedRight matches the message about a missing right. Admission plugins answer with the
// same code for other reasons.
var deniedRight = regexp.MustCompile(`User "([^"]+)" cannot ([a-z]+) resource `)

// unanswered explains a request without an answer.
func (r *Request) unanswered(err error) (problem, hint string) {
	timeout, ok := errors.AsType[net.Error](err)
	if errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout() {
		return fmt.Sprintf("the API server did not answer in time when asked to %s it", r.Verb), "check that it runs, and that network policies allow the connection"
	}
	failed, sent := errors.AsType[*url.Error](err)
	if !sent {
		return fmt.Sprintf("cannot %s it: %s", r.Verb, Sanitize(err.Error())), ""
	}
	return "the API server cannot be reached: " + Sanitize(failed.Err.Error()), "check its address and that it runs, and for a certificate the CA in the kubeconfig"
}

// maybeKey matches what may be a line of a key in PEM or base64.
var maybeKey = regexp.MustCompile(`[A-Za-z0-9+/=]{32,}`)

// Sanitize returns text of another program on one line, truncated, and without anything that
// may be a part of a key: some admission webhooks repeat the object.
func Sanitize(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return truncate.Runes(maybeKey.ReplaceAllString(text, "[withheld]"), MaxTextLength)
}

// IsMissing reports whether an object does not exist although its kind does.
func IsMissing(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// IsAnswer reports whether an error is an answer of the API server.
func IsAnswer(err error) bool { return err != nil && apierr.Classify(err) != apierr.Unreachable }

// IsInvalidField reports whether an object was rejected because of the value of a field.
func IsInvalidField(err error, field string) bool {
	status, ok := errors.AsType[apiStatus](err)
	if !ok || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == field && (c.Type == metav1.CauseTypeForbidden || c.Type == metav1.CauseTypeFieldValueInvalid)
	})
}

// ManagedByLabel is the recommended label for the manager of an object.
const ManagedByLabel = "app.kubernetes.io/managed-by"

// ManagedBy is the value of ManagedByLabel on objects that Gatehouse makes.
const ManagedBy = "gatehouse"
