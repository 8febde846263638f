package cluster

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// trouble is a class of errors of the API server, for metrics and so that a log
// tells of each once.
type trouble string

const (
	none trouble = ""
	// forbidden is a right that is missing, or credentials that are not taken.
	forbidden trouble = "forbidden"
	// unserved is a kind that the API server does not have.
	unserved trouble = "unserved"
	// misplaced is a namespace for a kind that is in none.
	misplaced trouble = "misplaced"
	// unreachable is everything else.
	unreachable trouble = "unreachable"
)

// unservedError is the error for a kind that the API server does not have, in
// the words of the API server's own policies.
type unservedError struct {
	kind   schema.GroupVersionKind
	reason string
}

func (e *unservedError) Error() string {
	if e.kind.Group == v1alpha1.GroupVersion.Group {
		return fmt.Sprintf("there are no custom resources of kind %s: %s", e.kind.Kind, e.reason)
	}
	return fmt.Sprintf("failed to find resource referenced by paramKind: '%v': %s", e.kind, e.reason)
}

// Is reports whether the target is the error for kinds that are not served.
func (e *unservedError) Is(target error) bool { return target == policy.ErrNotServed }

var errMisplaced = errors.New("paramRef.namespace is given, and objects of the kind are in no namespace")

func classify(err error) trouble {
	_, kindUnserved := errors.AsType[*unservedError](err)
	switch {
	case err == nil:
		return none
	case kindUnserved:
		return unserved
	case errors.Is(err, errMisplaced):
		return misplaced
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return forbidden
	default:
		return unreachable
	}
}
