// Package admission validates Gatehouse's own custom resources at kubectl apply: an
// invalid one is rejected with all its errors, instead of being stored without effect.
//
// An object is decoded as strictly as a document of the directory, and compiled with its
// dependencies in the active configuration. It is rejected for its own errors, and for
// those that it causes in other objects. Earlier errors of others are no reason, and
// neither is a reference to an object that does not exist yet: objects can be applied in
// any order.
package admission

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Group is the API group whose objects are reviewed here.
const Group = "gatehouse.dev"

// The number of objects that are reviewed at one time, for callers with a verified
// certificate and for all others: an object can take tens of megabytes and seconds.
const (
	maxVerified   = 2
	maxUnverified = 1
)

// Options is what a Reviewer needs.
type Options struct {
	// Current returns the active configuration, which is never nil and never changes. It
	// is called once a review, by several goroutines. It is required.
	Current func() *config.Config
	// NotSent returns warnings about requests that an object matches and that the
	// registrations do not send. The object is a pointer to a type of
	// webhooks/api/v1alpha1 and must not be changed. It may be nil, and is safe for
	// concurrent use otherwise.
	NotSent func(object any) []string
	// Offline has a document of an object's name in the configuration count as the old
	// version of the object. Otherwise such a document overrides the object, and there is
	// a warning.
	Offline bool
}

// Reviewer reviews objects of the group gatehouse.dev. It is safe for concurrent
// use.
type Reviewer struct {
	options              Options
	verified, unverified slots
	compiler             compiler
}

// slots has an element for each review in progress.
type slots chan struct{}

// New returns a Reviewer.
func New(o Options) *Reviewer {
	return &Reviewer{options: o, verified: make(slots, maxVerified), unverified: make(slots, maxUnverified)}
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
	s := r.unverified
	if verified {
		s = r.verified
	}
	kind, ours := kindOf(&req)
	if !ours {
		return allowed(nil)
	}
	response, err := s.run(ctx, func() func() admission.Response {
		o, err := readRequest(&req, kind)
		return func() admission.Response {
			if err != nil {
				return admission.Errored(http.StatusInternalServerError, err)
			}
			if o.isUnchanged() {
				return allowed(nil)
			}
			return answer(o, r.diagnose(o.resource(), func() error { return context.Cause(ctx) }))
		}
	})
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return response
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

// run runs work in a slot until the context ends. Work that goes on after that, until it
// checks the context, keeps its slot. Read decodes the request before the work, whatever
// happens to the context: after the call the memory of the request is reused.
func (s slots) run(ctx context.Context, read func() (work func() admission.Response)) (admission.Response, error) {
	late := func() error { return fmt.Errorf("no decision in time: %w", context.Cause(ctx)) }
	if ctx.Err() != nil {
		return admission.Response{}, late()
	}
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return admission.Response{}, late()
	}
	type outcome struct {
		response admission.Response
		panicked any
		stack    []byte
	}
	done := make(chan outcome, 1)
	var work func() admission.Response
	func() {
		defer func() {
			if work == nil { // it panics
				<-s
			}
		}()
		work = read()
	}()
	go func() {
		var o outcome
		defer func() {
			if o.panicked = recover(); o.panicked != nil {
				o.stack = debug.Stack()
			}
			<-s
			done <- o
		}()
		o.response = work()
	}()
	select {
	case o := <-done:
		if o.panicked != nil {
			// The codec recovers from panics in the goroutine of the request.
			panic(fmt.Sprintf("%v\n%s", o.panicked, o.stack))
		}
		if ctx.Err() != nil {
			return admission.Response{}, late() // the work may have stopped early
		}
		return o.response, nil
	case <-ctx.Done():
		return admission.Response{}, late()
	}
}

// diagnose returns the errors of an object and those that it causes in others, and the
// warnings, in a fixed order. The list is incomplete once stop returns an error.
func (r *Reviewer) diagnose(one *config.Resource, stop func() error) diagnostic.List {
	found := one.Found
	if one.Value != nil {
		current := r.options.Current()
		found = append(slices.Clip(found), r.compile(current, one, stop).WithoutFollowers(found)...)
		if !r.options.Offline {
			found = append(found, shadowWarnings(current, one)...)
		}
		if r.options.NotSent != nil && found.Err() == nil {
			for _, remark := range r.options.NotSent(one.Value) {
				found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Warning, Source: config.ClusterSource, Object: one.Object(), Message: remark})
			}
		}
	}
	found.Sort()
	return distinct(found)
}

// compile compiles an object with its dependencies.
func (r *Reviewer) compile(current *config.Config, one *config.Resource, stop func() error) diagnostic.List {
	switch v := one.Value.(type) {
	case *v1alpha1.SidecarProfile:
		return diagnoseProfile(current, v, stop)
	case *v1alpha1.AdmissionPolicy:
		return r.compiler.diagnosePolicy(current, v, stop)
	case *v1alpha1.AdmissionPolicyBinding:
		return r.compiler.diagnoseBinding(current, v, stop)
	case *v1alpha1.PolicyException:
		return r.compiler.diagnoseException(current, v, stop)
	case *v1alpha1.AccessToken:
		return diagnoseToken(current, v)
	case *v1alpha1.TokenRevocation:
		return diagnoseRevocation(current, v)
	default:
		return nil
	}
}
