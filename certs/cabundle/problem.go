package cabundle

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// requestTimeout bounds every request. One that is not answered is tried again.
const requestTimeout = 10 * time.Second

// problem is what goes wrong, with the words for it. The class reports whether it is
// still the same that was reported: the words of an error may differ each time,
// by the port of a connection for example.
type problem struct {
	class string
	err   error
}

// The classes of problems.
const (
	classForbidden    = "forbidden"
	classUnauthorized = "unauthorized"
	classInvalid      = "invalid"
	classUnreachable  = "unreachable"
	classConflict     = "conflict"
	classInjector     = "injector"
	classAuthorities  = "authorities"
	classUnverified   = "unverified"
	classMissing      = "missing"
	classPublisher    = "publisher"
)

// watchProblem is a request to list or watch a target that failed.
func watchProblem(t target, err error) *problem {
	return requestProblem(t, "cannot be read", "list and watch", err)
}

// getProblem is a request to get a target that failed.
func getProblem(t target, err error) *problem {
	return requestProblem(t, "cannot be read", "get", err)
}

// writeProblem is a patch of a target that failed.
func writeProblem(t target, err error) *problem {
	return requestProblem(t, "its caBundle cannot be written", "patch", err)
}

func requestProblem(t target, what, verbs string, err error) *problem {
	switch {
	case apierrors.IsForbidden(err):
		return &problem{classForbidden, fmt.Errorf("%s: %s: grant %s on %s with resourceNames [%q] in a ClusterRole, and bind it to who asks: %w", t, what, verbs, t.kind.resource, t.name, err)}
	case apierrors.IsUnauthorized(err):
		return &problem{classUnauthorized, fmt.Errorf("%s: %s: the API server does not know who asks: check the token of the ServiceAccount, or the kubeconfig: %w", t, what, err)}
	case apierrors.IsInvalid(err):
		return &problem{classInvalid, fmt.Errorf("%s: %s: apply the output of gatehouse manifests again, an entry may have gone: %w", t, what, err)}
	case apierrors.IsConflict(err):
		return &problem{classConflict, fmt.Errorf("%s: %s: somebody else changes it all the time: %w", t, what, err)}
	default:
		return &problem{classUnreachable, fmt.Errorf("%s: %s, and is tried again: check that the API server can be reached: %w", t, what, err)}
	}
}

// bounded is a context for one request.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
}

var errNoAnswer = fmt.Errorf("no answer within %s", requestTimeout)

// explained is the error of a request, with the cause of the context's end where
// that is the reason.
func explained(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}
