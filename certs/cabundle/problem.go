package cabundle

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

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

// requestProblem returns the problem of a request that failed.
func requestProblem(ctx context.Context, t target, verb string, err error) *problem {
	class := apierr.Classify(err)
	r := kube.Request{Object: t.String(), Verb: verb, Resource: t.kind.Resource()}
	r.Right = fmt.Sprintf("a ClusterRole must allow %s of the %s %q", verb, r.Resource, t.name)
	explained := r.Explain(ctx, err)
	switch class {
	case apierr.Invalid:
		explained = fmt.Errorf("%w (hint: apply the output of gatehouse manifests again, a webhook may be missing)", explained)
	case apierr.Conflict:
		explained = fmt.Errorf("%w (hint: another client changes it all the time: find it with kubectl get --show-managed-fields)", explained)
	case apierr.Forbidden, apierr.Unauthorized:
	case apierr.None, apierr.Unserved, apierr.NotFound, apierr.AlreadyExists, apierr.Expired, apierr.Unavailable, apierr.Unreachable:
		class = apierr.Unreachable
	}
	return &problem{class, explained}
}
