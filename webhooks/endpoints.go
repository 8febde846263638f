package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// The paths of the endpoints on the server for reviews.
const (
	MutatePath       = "/mutate"
	ValidatePath     = "/validate"
	AuthenticatePath = "/authenticate"
	AuthorizePath    = "/authorize"
)

// AuthorizeName is the name of the endpoint that decides on access.
const AuthorizeName = "authorize"

// Endpoint is a row of the table of endpoints. One of Admission, Token and Access is set.
type Endpoint struct {
	// Name is the endpoint's name on the command line, in metrics and in logs.
	Name string
	// Path is its path on the server for reviews.
	Path string
	// Admission decides on an admission request, by the Snapshot and the Input alone. The
	// context carries the deadline and nothing else.
	Admission func(context.Context, *Snapshot, Input) admission.Response
	// Token decides on a token review. Pause may be nil, see authn.Input.
	Token func(ctx context.Context, s *Snapshot, r authentication.Request, pause func(wait func())) authentication.Response
	// Access decides on a subject access review, by the scope of the user's token. It never allows.
	Access func(context.Context, *Snapshot, *authorizationv1.SubjectAccessReviewSpec) authz.Decision
	// CustomResources reports whether the API server sends Gatehouse's own custom
	// resources to this endpoint. Admission does not decide on these.
	CustomResources bool
}

// Input is an admission request for an endpoint.
type Input struct {
	// Request is the request. Its raw objects are checked: each must be JSON without members
	// that occur twice, no deeper than rawjson.MaxDepth and no larger than MaxObjectBytes.
	Request admission.Request
	// Checked says that the objects have been checked already, and have no space around them,
	// as webhooks/review decodes them. They are not checked again then.
	Checked bool
	// Index is that of the AdmissionReview that the objects are part of, nil for none.
	Index *rawjson.Index
	Observers
}

// MaxObjectBytes bounds each object of a request: as many bytes as webhooks/review reads of a
// whole review.
const MaxObjectBytes = 32 << 20

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
		{Name: AuthorizeName, Path: AuthorizePath, Access: authorize},
		{Name: "mutate", Path: MutatePath, Admission: mutate},
		{Name: "validate", Path: ValidatePath, Admission: validate, CustomResources: true},
	}
}

func authenticate(ctx context.Context, s *Snapshot, r authentication.Request, pause func(wait func())) authentication.Response {
	return s.Authn.Decide(ctx, authn.Input{Token: r.Spec.Token, Audiences: r.Spec.Audiences, Pause: pause}).Response()
}

func authorize(_ context.Context, s *Snapshot, r *authorizationv1.SubjectAccessReviewSpec) authz.Decision {
	return s.Authn.Scopes().Decide(r)
}

func mutate(ctx context.Context, s *Snapshot, in Input) admission.Response {
	if err := in.prepare(); err != nil {
		return admission.Errored(codeCannotDecide, err)
	}
	changed := s.Mutation.Decide(ctx, mutation.Input{Request: in.Request})
	if in.Policies != nil {
		if observations := observe(&changed); len(observations) > 0 {
			in.Policies(observations)
		}
	}
	switch {
	case changed.Err != nil || changed.Refusal != nil:
		response := changed.Response()
		annotate(&response, &changed)
		return response
	case changed.Object != nil:
		in.Request.Object.Raw, in.Index = changed.Object, nil
	}
	response := s.inject(ctx, in)
	if response.Allowed && len(changed.Patch) > 0 {
		// The patches apply one after the other: together they make the object of the request what both have made of it.
		response.Patches = append(changed.Patch, response.Patches...)
	}
	annotate(&response, &changed)
	return response
}

// inject injects sidecars into a pod.
func (s *Snapshot) inject(ctx context.Context, in Input) admission.Response {
	if s.Sidecar.IsEmpty() {
		return sidecar.Decision{}.Response() // without reading the pod
	}
	d := s.Sidecar.Decide(ctx, sidecar.Input{Request: in.Request, Checked: true, Index: in.Index})
	if in.Profiles != nil && len(d.Verdicts) > 0 {
		in.Profiles(d.Verdicts)
	}
	return d.Response()
}

func validate(ctx context.Context, s *Snapshot, in Input) admission.Response {
	if err := in.prepare(); err != nil {
		return admission.Errored(codeCannotDecide, err)
	}
	return s.Policy.Decide(ctx, policy.Input{Request: in.Request, Checked: true, Index: in.Index, Observe: in.Policies}).Response()
}

// codeCannotDecide leaves the decision to the webhook's failurePolicy.
const codeCannotDecide = 500

// prepare checks the objects of the request unless they are checked already, and drops the
// observers of a dry run.
func (in *Input) prepare() error {
	if r := &in.Request; r.DryRun != nil && *r.DryRun {
		in.Observers = Observers{}
	}
	if in.Checked {
		return nil
	}
	var err error
	check := func(name string, raw []byte) []byte {
		var index rawjson.Index
		switch {
		case len(raw) == 0:
			return raw
		case len(raw) > MaxObjectBytes:
			err = errors.Join(err, fmt.Errorf("%s: %d bytes, more than %d", name, len(raw), MaxObjectBytes))
			return raw
		}
		if failed := index.Read(raw); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
		}
		return bytes.Trim(raw, " \t\r\n")
	}
	r := &in.Request
	r.Object.Raw, r.OldObject.Raw, r.Options.Raw = check("object", r.Object.Raw), check("oldObject", r.OldObject.Raw), check("options", r.Options.Raw)
	return err
}
