package tokens

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// maxQuoted bounds, in characters, what others have written and an error repeats.
const maxQuoted = 2000

// explain returns an error of the API server for people, of what was asked about an
// object, or about all of a kind if it has no name.
func explain(err error, verb, resource, name string) error {
	class := apierr.Classify(err)
	unreached := apierr.Unreached(err)
	switch {
	case err == nil:
		return nil
	case class == apierr.AlreadyExists:
		return fmt.Errorf("%s %w", object(kindOf(resource), name), ErrExists)
	case class == apierr.Unserved:
		return fmt.Errorf("the API server has no %s in %s (hint: apply the CRDs: %s)", resource, v1alpha1.GroupVersion, crds.ApplyCommand)
	case class == apierr.NotFound, class == apierr.Conflict: // another object has its name
		return fmt.Errorf("%s %w", object(kindOf(resource), name), ErrNotFound)
	case apierr.LacksRight(err, verb):
		return &markedError{fmt.Sprintf("%s (hint: %s)", singleLine(err.Error()), apierr.BindHint(apierr.RoleAdmin, "", verb, resource+" in "+v1alpha1.GroupVersion.Group)), ErrForbidden}
	case class == apierr.Invalid, class == apierr.Forbidden:
		return &markedError{findings(err, object(kindOf(resource), name)).Error(), ErrRefused}
	case unreached != nil:
		return errors.New(singleLine(unreached.Error()))
	default:
		return errors.New(singleLine(err.Error()))
	}
}

// markedError is an error of the API server, in its words, that callers can tell apart with errors.Is.
type markedError struct {
	text string
	mark error
}

func (e *markedError) Error() string { return e.text }
func (e *markedError) Unwrap() error { return e.mark }

// findings returns a diagnostic for each cause of a refusal.
func findings(err error, object string) diagnostic.List {
	one := diagnostic.Diagnostic{Severity: diagnostic.Error, Source: config.ClusterSource, Object: object}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 {
		one.Message = singleLine(err.Error())
		return diagnostic.List{one}
	}
	var list diagnostic.List
	for _, cause := range status.ErrStatus.Details.Causes {
		one.Field, one.Message = singleLine(cause.Field), singleLine(cause.Message)
		list = append(list, one)
	}
	return list
}

// singleLine returns what the API server says on one line, with tokens redacted.
func singleLine(text string) string {
	text = strings.Join(strings.Fields(truncate.Runes(text, maxQuoted)), " ")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, text)
	return diagnostic.Diagnostic{Message: text}.Redacted().Message
}

// kindOf returns the kind of a resource.
func kindOf(resource string) string {
	switch resource {
	case tokenResource:
		return kind
	case grantResource:
		return grantKind
	default:
		return "TokenRevocation"
	}
}
