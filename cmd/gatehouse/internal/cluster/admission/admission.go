// Package admission validates Gatehouse's own custom resources at kubectl apply: an invalid one is rejected with all its
// errors, instead of being stored without effect.
//
// It decodes an object as strictly as a document of the directory, and compiles it alone, with the settings of the active
// configuration. Problems with other objects, such as a binding whose policy does not exist, are left to the conditions of
// the object, so that objects can be applied in any order.
package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Group is the API group whose objects are reviewed here.
const Group = "gatehouse.dev"

// The number of objects that are reviewed at one time, for callers with a verified
// certificate and for all others: an object can take tens of megabytes and seconds.
const (
	maxVerified   = 2
	maxUnverified = 1
)

// Reviewer reviews objects of the group gatehouse.dev. It is safe for concurrent
// use.
type Reviewer struct {
	current              func() *config.Config
	verified, unverified slots

	// declarations are what expressions are compiled with: making them takes longer than compiling most policies.
	mu           sync.Mutex
	version      string // the PolicyConfiguration's version of CEL that declarations are of
	declarations *policy.Set
}

// slots has an element for each review in progress.
type slots chan struct{}

// New returns a Reviewer. Current returns the active configuration, which is never nil and
// never changes. It is called once a review, by several goroutines.
func New(current func() *config.Config) *Reviewer {
	return &Reviewer{current: current, verified: make(slots, maxVerified), unverified: make(slots, maxUnverified)}
}

// Review decides on one request. Verified says that the caller has a verified certificate:
// other callers wait for each other, and no verified caller waits for them. It validates
// objects that are created, or whose spec changes; everything else is allowed. So is every
// update of an object that is being deleted: an invalid object must not keep its
// finalizers.
//
// A rejection is Invalid (422), with a cause for each error. The answer is "cannot decide",
// code 500, if the request cannot be decoded, or if the context ends first. A dry run is
// like any other request.
func (r *Reviewer) Review(ctx context.Context, req admission.Request, verified bool) admission.Response {
	kind, ours := kindOf(&req)
	if !ours {
		return allowed(nil)
	}
	s := r.unverified
	if verified {
		s = r.verified
	}
	late := func() admission.Response {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("no decision in time: %w", context.Cause(ctx)))
	}
	select {
	case s <- struct{}{}:
		defer func() { <-s }()
	case <-ctx.Done():
		return late()
	}
	if ctx.Err() != nil { // both were possible
		return late()
	}
	o, err := readRequest(&req, kind)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if o.isUnchanged() {
		return allowed(nil)
	}
	found := r.diagnose(o.resource(), func() error { return context.Cause(ctx) })
	if ctx.Err() != nil {
		return late() // compiling may have stopped early
	}
	return answer(o, found)
}

// Concerns reports whether a request is about an object of the group. Policies never
// match these.
func Concerns(req *admission.Request) bool { return req.Resource.Group == Group }

// kindOf returns the kind of the object of a request, and false if it needs no review.
func kindOf(req *admission.Request) (kind string, ours bool) {
	if !Concerns(req) || req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return "", false
	}
	for _, r := range resources() {
		if r.plural == req.Resource.Resource {
			return r.kind, true
		}
	}
	return "", false
}

// diagnose returns the errors and warnings of an object, in a fixed order. The list is
// incomplete once stop returns an error.
func (r *Reviewer) diagnose(one *config.Resource, stop func() error) diagnostic.List {
	found := one.Found
	if one.Value != nil {
		current := r.current()
		err := r.compile(current, one.Value, stop)
		compiled, ok := errors.AsType[diagnostic.List](err)
		if err != nil && !ok && stop() == nil {
			panic(fmt.Errorf("compiling: %w", err)) // a bug: it ends the review, and not the program
		}
		compiled = slices.DeleteFunc(compiled, func(d diagnostic.Diagnostic) bool { return isAboutOthers(one.Value, &d) })
		found = append(slices.Clip(found), compiled.WithoutFollowers(found)...)
		found = append(found, expired(one, current.Policy.Now)...)
	}
	found.Sort()
	return slices.CompactFunc(found, func(a, b diagnostic.Diagnostic) bool {
		return a.Severity == b.Severity && a.Object == b.Object && a.Field == b.Field && a.Message == b.Message
	})
}

// compile compiles an object alone. The error is a diagnostic.List, which may have warnings only, unless stop ended it.
func (r *Reviewer) compile(current *config.Config, object any, stop func() error) error {
	policies := policy.Spec{
		Configuration: current.Policy.Configuration, Objects: current.Policy.Objects, Authorizer: current.Policy.Authorizer, Now: current.Policy.Now, Stop: stop, KeepBroken: true,
	}
	identities := authn.Spec{Configuration: current.Authn.Configuration, Now: current.Authn.Now}
	if identities.Now == nil {
		identities.Now = time.Now
	}
	switch v := object.(type) {
	case *v1alpha1.SidecarProfile:
		set, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{{Source: config.ClusterSource, SidecarProfile: *v}}, Namespaces: current.Sidecar.Namespaces, Stop: stop})
		return warningsOr(err, set)
	case *v1alpha1.AdmissionPolicy:
		policies.AdmissionPolicies = []policy.AdmissionPolicy{{Source: config.ClusterSource, AdmissionPolicy: *v}}
	case *v1alpha1.AdmissionPolicyBinding:
		policies.AdmissionPolicyBindings = []policy.AdmissionPolicyBinding{{Source: config.ClusterSource, AdmissionPolicyBinding: *v}}
	case *v1alpha1.PolicyException:
		policies.Exceptions = []policy.Exception{{Source: config.ClusterSource, PolicyException: *v}}
	case *policy.Baseline:
		b := *v
		b.Source = config.ClusterSource
		policies.Baselines = []policy.Baseline{b}
	case *v1alpha1.AccessToken:
		identities.Tokens = []authn.Token{{Source: config.ClusterSource, AccessToken: *v}}
		set, err := authn.Compile(identities)
		return warningsOr(err, set)
	case *v1alpha1.TokenRevocation:
		identities.Revocations = []authn.Revocation{{Source: config.ClusterSource, TokenRevocation: *v}}
		set, err := authn.Compile(identities)
		return warningsOr(err, set)
	case *v1alpha1.Grant:
		identities.Grants = []authn.Grant{{Source: config.ClusterSource, Grant: *v}}
		set, err := authn.Compile(identities)
		return warningsOr(err, set)
	default:
		return nil
	}
	policies.Previous = r.declarationsOf(policies.Configuration)
	set, err := policy.Compile(policies)
	return warningsOr(err, set)
}

// warningsOr returns the warnings of a compiled set as an error, or why there is no set.
func warningsOr(err error, set interface{ Warnings() diagnostic.List }) error {
	if err != nil {
		return err
	}
	return set.Warnings()
}

// isAboutOthers reports whether a diagnostic of an object that was compiled alone says only that another object is not there. A token
// is compiled with the guard's configuration, and without the issuers and directories that it names.
func isAboutOthers(object any, d *diagnostic.Diagnostic) bool {
	warning := d.Severity == diagnostic.Warning
	switch v := object.(type) {
	case *v1alpha1.SidecarProfile:
		return warning && strings.HasPrefix(d.Field, "spec.placement.") ||
			d.Field == "spec.rollout.replaces" && v.Spec.Rollout != nil && v.Spec.Rollout.Replaces != v.Name
	case *v1alpha1.AdmissionPolicy:
		return warning && d.Field == "" // no binding
	case *v1alpha1.AdmissionPolicyBinding:
		return warning && d.Field == "spec.policyName"
	case *v1alpha1.PolicyException:
		return warning && strings.HasPrefix(d.Field, "spec.policies[") && strings.HasSuffix(d.Field, "].name")
	case *policy.Baseline:
		return warning && strings.HasPrefix(d.Field, "spec.rules[")
	case *v1alpha1.AccessToken, *v1alpha1.TokenRevocation, *v1alpha1.Grant:
		return d.Object == "AuthenticationConfiguration"
	default:
		return false
	}
}

// expired warns of an exception, a baseline or a Grant that has no effect any more by the clock of the configuration: without one, what expires has
// expired.
func expired(one *config.Resource, now func() time.Time) diagnostic.List {
	var at time.Time
	what := "the exception has no effect"
	switch x := one.Value.(type) {
	case *v1alpha1.PolicyException:
		if x.Spec.ExpiresAt == nil {
			return nil
		}
		at = x.Spec.ExpiresAt.Time
	case *policy.Baseline:
		if x.Spec.ExpiresAt.IsZero() {
			return nil // an error
		}
		at, what = x.Spec.ExpiresAt.Time, "the baseline allows nothing"
	case *v1alpha1.Grant:
		if x.Spec.ExpiresAt.IsZero() {
			return nil // an error
		}
		at, what = x.Spec.ExpiresAt.Time, "the Grant gives nothing"
	default:
		return nil
	}
	if now != nil && now().Before(at) {
		return nil
	}
	return diagnostic.List{{
		Severity: diagnostic.Warning, Source: config.ClusterSource, Object: one.Object(), Field: "spec.expiresAt",
		Message: fmt.Sprintf("%q has passed: %s", at.UTC().Format(time.RFC3339), what),
		Hint:    "delete it, or set a later time",
	}}
}

// declarationsOf returns a Set without policies for the configured version of CEL, nil if
// the configuration is invalid.
func (r *Reviewer) declarationsOf(configuration *policy.Configuration) *policy.Set {
	version := ""
	if configuration != nil {
		version = configuration.CELCompatibilityVersion
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.declarations == nil || r.version != version {
		set, err := policy.Compile(policy.Spec{Configuration: configuration})
		if err != nil {
			return nil // compile reports why
		}
		r.declarations, r.version = set, strings.Clone(version)
	}
	return r.declarations
}
