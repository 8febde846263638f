package cluster

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// unservedError is the error for a kind that the API server does not have, in
// the words of the API server's own policies.
type unservedError struct {
	kind   schema.GroupVersionKind
	reason string
}

func (e *unservedError) Error() string {
	if e.kind.Group == v1alpha1.GroupVersion.Group {
		return fmt.Sprintf("cannot read custom resources of kind %s: %s", e.kind.Kind, e.reason)
	}
	return fmt.Sprintf("failed to find resource referenced by paramKind: '%v': %s", e.kind, e.reason)
}

// Is reports whether the target is the error for kinds that are not served.
func (e *unservedError) Is(target error) bool { return target == policy.ErrNotServed }

// classify returns the class of an error for metrics, and for a log that has one line
// for each: None, Forbidden, Unserved or Unreachable.
func classify(err error) apierr.Class {
	if _, unserved := errors.AsType[*unservedError](err); unserved || apierrors.IsNotFound(err) {
		return apierr.Unserved
	}
	if class := apierr.Classify(err); class == apierr.None || class.IsDenied() {
		return class.Coarse()
	}
	return apierr.Unreachable
}
