package cabundle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

// requestTimeout bounds every request. One that is not answered is tried again.
const requestTimeout = 10 * time.Second

// problem is an error and its class. A problem of the class that was reported last is
// not reported again: the text of an error may differ each time, for example by the
// port of a connection.
type problem struct {
	class apierr.Class
	err   error
}

// The classes of problems that are no errors of an API server.
const (
	classInjector    apierr.Class = "injector"
	classAuthorities apierr.Class = "authorities"
	classUnverified  apierr.Class = "unverified"
	classMissing     apierr.Class = "missing"
	classPublisher   apierr.Class = "publisher"
)

// writeProblem returns the problem of a patch of a target that failed.
func writeProblem(t target, err error) *problem {
	return requestProblem(t, "cannot write its caBundle", "patch", err)
}

// readProblem returns the problem of a request by the verbs that failed.
func readProblem(t target, verbs string, err error) *problem {
	return requestProblem(t, "cannot be read", verbs, err)
}

func requestProblem(t target, what, verbs string, err error) *problem {
	class, hint := apierr.Classify(err), ""
	switch class {
	case apierr.Forbidden:
		hint = fmt.Sprintf("grant %s on %s with resourceNames [%q] in a ClusterRole, and bind it to this user", verbs, t.kind.resource(), t.name)
	case apierr.Unauthorized:
		hint = "the API server rejects the credentials: check the token of the ServiceAccount, or the kubeconfig"
	case apierr.Invalid:
		hint = "apply the output of gatehouse manifests again, a webhook may be missing"
	case apierr.Conflict:
		hint = "another client changes it all the time: find it with kubectl get --show-managed-fields"
	case apierr.None, apierr.Unserved, apierr.NotFound, apierr.AlreadyExists, apierr.Expired, apierr.Unavailable, apierr.Unreachable:
		class, hint = apierr.Unreachable, "check that the API server can be reached"
	}
	return &problem{class, fmt.Errorf("%s: %s: %w (hint: %s)", t, what, err, hint)}
}

// bounded returns a context for one request.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
}

var errNoAnswer = fmt.Errorf("no answer within %s", requestTimeout)

// explained returns the error of a request, or errNoAnswer if its context timed out.
func explained(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}
