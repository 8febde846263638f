// Package admission answers for Gatehouse's own kinds at kubectl apply: a custom
// resource that could not be used is refused with everything that is wrong with
// it, where it would otherwise be stored and do nothing.
//
// An object is read as strictly as a document of the directory, and compiled with
// what it depends on in the configuration that is in use. It is refused for its
// own errors, and for those that it makes in others. What was wrong with others
// before is no reason, and neither is that something which it names is not there
// yet: whoever applies several objects at once need not know their order.
package admission

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/followon"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Group is the API group whose objects are reviewed here.
const Group = "gatehouse.dev"

// How many objects are reviewed at one time, for callers with a verified certificate and
// for all others: reading and compiling an object can take tens of megabytes and seconds.
const (
	verifiedAtOneTime   = 2
	unverifiedAtOneTime = 1
)

// Options is what a Reviewer needs.
type Options struct {
	// Current is the configuration in use. It is called once a review, possibly by
	// several goroutines, and what it returns is never nil and never changes. It is
	// required.
	Current func() *config.Config
	// NotSent returns remarks, for people, on what an object is about and the
	// registrations do not send. The object is a pointer to a type of
	// webhooks/api/v1alpha1 and must not be changed. It may be nil, and is safe for
	// concurrent use otherwise.
	NotSent func(object any) []string
	// Offline says that the configuration is a directory which stands for the
	// cluster, so that a document of an object's name is the object as it was before.
	// Otherwise such a document counts in place of the object, of which there is a
	// warning.
	Offline bool
}

// Reviewer reviews objects of the group gatehouse.dev. It is safe for concurrent
// use.
type Reviewer struct {
	options              Options
	verified, unverified slots
	compiler             compiler
}

// slots has a place for each review under way.
type slots chan struct{}

// New is a Reviewer.
func New(o Options) *Reviewer {
	return &Reviewer{options: o, verified: make(slots, verifiedAtOneTime), unverified: make(slots, unverifiedAtOneTime)}
}

// Review decides on one request of a caller that has shown a verified certificate. It is about an object that is created, or whose
// spec changes; everything else is allowed. So is every update of an object that
// is being deleted: whoever removes a finalizer must not have to mend the object
// first.
//
// A refusal is Invalid (422), with a cause for each error. The answer is "cannot
// decide", code 500, if the request cannot be read, or if the context ends first.
// A dry run is like any other request: nothing is kept of either.
func (r *Reviewer) Review(ctx context.Context, req admission.Request) admission.Response {
	return r.review(ctx, r.verified, &req)
}

// ReviewUnverified is Review for any other caller, who may be anybody. Such callers wait
// for each other, and nobody waits for them.
func (r *Reviewer) ReviewUnverified(ctx context.Context, req admission.Request) admission.Response {
	return r.review(ctx, r.unverified, &req)
}

func (r *Reviewer) review(ctx context.Context, s slots, req *admission.Request) admission.Response {
	kind, ours := kindOf(req)
	if !ours {
		return allowed(nil)
	}
	response, err := s.within(ctx, func() func() admission.Response {
		given, err := readRequest(req, kind)
		return func() admission.Response {
			if err != nil {
				return admission.Errored(http.StatusInternalServerError, err)
			}
			if given.untouched() {
				return allowed(nil)
			}
			return answer(given, r.judge(given.object(), func() error { return context.Cause(ctx) }))
		}
	})
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return response
}

// Before has a method of the Reviewer answer the requests that are about the group, and
// a next handler all others: no policy is about these.
func (r *Reviewer) Before(next, review func(context.Context, admission.Request) admission.Response) func(context.Context, admission.Request) admission.Response {
	return func(ctx context.Context, req admission.Request) admission.Response {
		if Concerns(&req) {
			return review(ctx, req)
		}
		return next(ctx, req)
	}
}

// Concerns reports whether a request at the endpoint for policies is one for a
// Reviewer. Policies are never about these.
func Concerns(req *admission.Request) bool { return req.Resource.Group == Group }

// kindOf is the kind that a request is about, and false if it is not one to be
// reviewed.
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

// within does work until the context ends. Work that goes on then, until it looks at the
// context, holds its slot, so that there is never more of it than slots. What it needs of
// the request it reads before, whatever becomes of the context: the memory of the request
// is another's after the call.
func (s slots) within(ctx context.Context, read func() (work func() admission.Response)) (admission.Response, error) {
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
			// Whoever recovers from a review's panics does so in its own goroutine.
			panic(fmt.Sprintf("%v\n%s", o.panicked, o.stack))
		}
		if ctx.Err() != nil {
			return admission.Response{}, late() // the work may have ended early
		}
		return o.response, nil
	case <-ctx.Done():
		return admission.Response{}, late()
	}
}

// judge is everything that there is to say about an object, in a fixed order: its
// errors and those that it makes in others, and warnings. It is incomplete once stop
// returns an error.
func (r *Reviewer) judge(one *config.Resource, stop func() error) diagnostic.List {
	found := one.Found
	if one.Value != nil {
		current := r.options.Current()
		found = append(slices.Clip(found), followon.Without(found, r.compile(current, one, stop))...)
		if !r.options.Offline {
			found = append(found, shadowed(current, one)...)
		}
		if r.options.NotSent != nil && found.Err() == nil { // what is wrong is not what it is about
			for _, remark := range r.options.NotSent(one.Value) {
				found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Warning, Source: config.ClusterSource, Object: one.Object(), Message: remark})
			}
		}
	}
	found.Sort()
	return distinct(found)
}

// compile compiles an object with what it depends on.
func (r *Reviewer) compile(current *config.Config, one *config.Resource, stop func() error) diagnostic.List {
	switch v := one.Value.(type) {
	case *v1alpha1.SidecarProfile:
		return judgeProfile(current, v, stop)
	case *v1alpha1.AdmissionPolicy:
		return r.compiler.judgePolicy(current, v, stop)
	case *v1alpha1.AdmissionPolicyBinding:
		return r.compiler.judgeBinding(current, v, stop)
	case *v1alpha1.PolicyException:
		return r.compiler.judgeException(current, v, stop)
	case *v1alpha1.AccessToken:
		return judgeToken(current, v)
	case *v1alpha1.TokenRevocation:
		return judgeRevocation(current, v)
	default:
		return nil
	}
}
