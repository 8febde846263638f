package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// enforcedAfter is how long after its creation a policy may not be enforced by every API server. It takes about a second, and their clocks
// differ.
const enforcedAfter = 10 * time.Second

// grantPolicy proves who has granted. Nothing in an object says who wrote it, because its author writes all of it, and Gatehouse's own
// webhook is not asked while it is down. The API server's policy is always asked: what was created since it exists has passed it, and so
// has each later change. A Grant from before may be anybody's, and so may all of them while the policy is missing or another one.
type grantPolicy struct {
	policy, binding         *follower
	wantPolicy, wantBinding any // the specs
}

// newGrantPolicy returns the proof, whose followers do not run yet.
func (c *Cluster) newGrantPolicy() (*grantPolicy, error) {
	policy, binding, err := registration.GrantPolicy()
	if err != nil {
		return nil, err
	}
	of := func(kind string) *follower {
		return c.newFollower(Target{Kind: admissionregistrationv1.SchemeGroupVersion.WithKind(kind), Name: install.GrantPolicy})
	}
	return &grantPolicy{of("ValidatingAdmissionPolicy"), of("ValidatingAdmissionPolicyBinding"), policy.Spec, binding.Spec}, nil
}

// enforced is since when the policy is enforced. If it is not, why says so.
type enforced struct {
	since     time.Time
	why, hint string
}

// state returns since when the policy is enforced.
func (g *grantPolicy) state() enforced {
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	if missing := cmp.Or(g.policy.readInto(&policy), g.binding.readInto(&binding)); missing != nil {
		return *missing
	}
	// The API server counts changes of a spec in the generation, which nobody else writes. A spec that is right again may have been another one
	// for a while.
	const other, edited, first = " is not the one of this version of Gatehouse", " was changed since it was created", 1
	switch {
	case !equality.Semantic.DeepEqual(policy.Spec, g.wantPolicy):
		return notEnforced("the spec of " + g.policy.named() + other)
	case !equality.Semantic.DeepEqual(binding.Spec, g.wantBinding):
		return notEnforced("the spec of " + g.binding.named() + other)
	case policy.Generation != first:
		return notEnforced("the spec of " + g.policy.named() + edited)
	case binding.Generation != first:
		return notEnforced("the spec of " + g.binding.named() + edited)
	}
	e := enforced{since: policy.CreationTimestamp.Time}
	if binding.CreationTimestamp.After(e.since) {
		e.since = binding.CreationTimestamp.Time
	}
	e.since = e.since.Add(enforcedAfter)
	return e
}

func notEnforced(why string) enforced {
	return enforced{why: why, hint: "delete the policy and its binding, as far as they exist, and install both again: upgrade the chart, or apply the output of gatehouse manifests --custom-resources; " +
		"ten seconds later, delete the Grant and create it again"}
}

// notRead is why and what to do while the policy or its binding cannot be read.
func notRead(why string) *enforced {
	return &enforced{why: why, hint: "the Grant counts as soon as Gatehouse can read this; if it lasts, give Gatehouse its rights anew: upgrade the chart, or apply the output of gatehouse manifests --custom-resources"}
}

// readInto reads the object of a follower that follows one. It returns why and what to do if it cannot be read, and nil else.
func (f *follower) readInto(into any) *enforced {
	object, read := f.get(f.Namespace, f.Name)
	one, _ := object.(*param)
	switch {
	case !read && f.state.Load().err != nil:
		return notRead("Gatehouse cannot read " + f.named() + ": " + f.state.Load().err.Error())
	case !read:
		return notRead("Gatehouse has not read " + f.named() + " yet")
	case one == nil:
		return new(notEnforced(f.named() + " does not exist"))
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, into); err != nil {
		return new(notEnforced(f.named() + " cannot be read: " + err.Error()))
	}
	return nil
}

// named returns the kind and the name of what a follower of one object follows.
func (f *follower) named() string { return "the " + f.Kind.Kind + " " + strconv.Quote(f.Name) }

// unchecked begins the message about a Grant that gives nothing.
const unchecked = "the API server may not have checked that this user may grant, so Gatehouse gives nothing: "

// check returns a Grant with an error if the API server may not have checked who granted it, and what is not a Grant as it is.
func (e *enforced) check(r *config.Resource) *config.Resource {
	g, ok := r.Value.(*v1alpha1.Grant)
	if !ok {
		return r
	}
	d := diagnostic.Diagnostic{Severity: diagnostic.Error, Source: config.ClusterSource, Object: r.Object(), Field: "spec.grantedBy", Hint: e.hint}
	switch {
	case e.why != "":
		d.Message = unchecked + e.why
	case g.CreationTimestamp.Time.Before(e.since):
		d.Message = fmt.Sprintf(unchecked+"the Grant was created at %s, and the API server checks Grants since %s",
			g.CreationTimestamp.UTC().Format(time.RFC3339), e.since.UTC().Format(time.RFC3339))
		d.Hint = "delete the Grant and create it again"
	default:
		return r
	}
	out := *r
	out.Found = append(slices.Clip(out.Found), d)
	out.Sum += " " + d.Message // it is another version for all that compare what is used
	return &out
}
