package tokens

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/version"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// maxQuoted bounds, in characters, what others have written and an error repeats.
const maxQuoted = 2000

// explain is an error of the API server for people, of what was asked about an
// object, or about all of a kind if it has no name.
func explain(err error, verb, resource, name string) error {
	switch {
	case err == nil:
		return nil
	case verb == "create" && apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s %w", object(kindOf(resource), name), ErrExists)
	case isUnserved(err):
		return fmt.Errorf("the API server has no %s in %s (hint: apply the definitions: %s)", resource, v1alpha1.GroupVersion, version.Remedy)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %w", object(kindOf(resource), name), ErrNotFound)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s %w (hint: try again)", object(kindOf(resource), name), ErrChanged)
	case apierrors.IsUnauthorized(err):
		return errors.New("the API server does not take the credentials of the kubeconfig (hint: kubectl auth whoami, with the same kubeconfig and context)")
	case lacksRight(err, verb):
		return &rightError{fmt.Sprintf("%s (hint: a ClusterRole must allow %s of %s in %s)", said(err), verb, resource, v1alpha1.GroupVersion.Group)}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return &refusedError{findings(err, object(kindOf(resource), name))}
	}
	if _, answered := errors.AsType[*apierrors.StatusError](err); !answered && verb != "list" && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %s (hint: look with kubectl get %s)", errUncertain, said(err), strings.TrimSpace(resource+" "+name))
	}
	return errors.New(said(err))
}

// isUnserved tells a kind that the API server does not have from an object that is
// not there.
func isUnserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// lacksRight tells a right that is missing from a refusal of an admission plugin:
// both are Forbidden.
func lacksRight(err error, verb string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "+verb+" resource ")
}

// rightError is an ErrForbidden in the words of the API server, which say whose
// right to what is missing.
type rightError struct{ text string }

func (e *rightError) Error() string { return e.text }
func (*rightError) Unwrap() error   { return ErrForbidden }

// refusedError is an ErrRefused with everything that is wrong.
type refusedError struct{ findings diagnostic.List }

func (e *refusedError) Error() string   { return e.findings.Error() }
func (e *refusedError) Unwrap() []error { return []error{ErrRefused, e.findings} }

// findings are what a refusal says, each cause by itself if it has some.
func findings(err error, object string) diagnostic.List {
	one := diagnostic.Diagnostic{Severity: diagnostic.Error, Source: config.ClusterSource, Object: object}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 {
		one.Message = said(err)
		return diagnostic.List{one}
	}
	var list diagnostic.List
	for _, cause := range status.ErrStatus.Details.Causes {
		one.Field, one.Message = line(cause.Field), line(cause.Message)
		list = append(list, one)
	}
	return list
}

// said is what the API server said, on one line, without the text of a token.
func said(err error) string { return line(err.Error()) }

func line(text string) string {
	text = strings.Join(strings.Fields(strict.Cut(text, maxQuoted)), " ")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, text)
	return diagnostic.Diagnostic{Message: text}.Redacted().Message
}

// kindOf is the kind of a resource.
func kindOf(resource string) string {
	if resource == tokenResource {
		return kind
	}
	return "TokenRevocation"
}
