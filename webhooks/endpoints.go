package webhooks

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// The paths of the endpoints on the server for reviews.
const (
	MutatePath       = "/mutate"
	ValidatePath     = "/validate"
	AuthenticatePath = "/authenticate"
)

// Endpoint is a row of the table of endpoints. Either Admission or Token is set.
type Endpoint struct {
	// Name is the endpoint's name on the command line, in metrics and in logs.
	Name string
	// Path is its path on the server for reviews.
	Path string
	// Admission decides on an admission request. The raw objects of the request must
	// be valid JSON without space around them, as webhooks/review decodes them. It reads them by
	// review.IndexOf, if there is an index.
	Admission func(context.Context, *Snapshot, admission.Request, Observers) admission.Response
	// Token decides on a token review.
	Token func(context.Context, *Snapshot, authentication.Request) authentication.Response
	// CustomResources reports whether the API server sends Gatehouse's own custom
	// resources to this endpoint. Admission does not decide on these.
	CustomResources bool
}

// Observers count what happens in admission requests. They are not called for dry
// runs, which leave no trace, and must not keep the slices. Either may be nil.
type Observers struct {
	// Profiles gets the verdicts of sidecar profiles on a pod.
	Profiles func([]sidecar.Verdict)
	// Policies gets the results of policies.
	Policies func([]policy.Observation)
}

// Endpoints returns the table of endpoints, in the order in which a request meets
// them. The caller may change its copy.
func Endpoints() []Endpoint {
	return []Endpoint{
		{Name: "authenticate", Path: AuthenticatePath, Token: authenticate},
		{Name: "mutate", Path: MutatePath, Admission: mutate},
		{Name: "validate", Path: ValidatePath, Admission: validate, CustomResources: true},
	}
}

func authenticate(ctx context.Context, s *Snapshot, r authentication.Request) authentication.Response {
	return s.Authn.Review(ctx, r)
}

func mutate(ctx context.Context, s *Snapshot, r admission.Request, o Observers) admission.Response {
	return s.Sidecar.ReviewObserved(ctx, r, review.IndexOf(ctx), o.Profiles) // which observes no dry run
}

func validate(ctx context.Context, s *Snapshot, r admission.Request, o Observers) admission.Response {
	if r.DryRun != nil && *r.DryRun {
		o.Policies = nil
	}
	return s.Policy.ReviewObserved(ctx, r, review.IndexOf(ctx), o.Policies)
}
