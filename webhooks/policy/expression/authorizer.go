package expression

import (
	"context"

	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// CachingAuthorizer returns the authorizer for one request, whose answers are cached.
func CachingAuthorizer(ctx context.Context, a authorizer.UnconditionalAuthorizer) authorizer.UnconditionalAuthorizer {
	return admissionauthorizer.NewCachingAuthorizer(&contextAuthorizer{ctx, a})
}

// contextAuthorizer calls an authorizer with the context of a request: the library's
// functions do not pass it on.
type contextAuthorizer struct {
	context    context.Context //nolint:containedctx // it belongs to one request, as this does
	authorizer authorizer.UnconditionalAuthorizer
}

func (a *contextAuthorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.authorizer.Authorize(a.context, attributes) //nolint:contextcheck // that is what it is for
}
