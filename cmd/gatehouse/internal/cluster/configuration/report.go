package configuration

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/status"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// report returns what became of each custom resource. NotSent and native may be nil.
func report(of *resolve.Resolution, notSent func(object any) (notSent, warnings []string), problems *Problems, native *Native) status.Report {
	r := status.Report{Digest: of.Digest(), Rejected: problems.Rejected(), Outcomes: make([]status.Outcome, 0, len(of.Candidates))}
	for _, one := range of.Candidates {
		o := status.Outcome{
			Object:   status.Object{Kind: one.Read.Kind, Namespace: one.Read.Namespace, Name: one.Read.Name, UID: one.Read.UID, Generation: one.Read.Generation},
			Use:      one.Use(),
			Findings: one.Found, NoParams: problems.paramsOf(one.Read.Kind, one.Read.Name),
		}
		switch x := one.Read.Value.(type) {
		case *v1alpha1.AdmissionPolicy:
			if native != nil {
				o.Native = native.condition(of.Config, o.Kind, o.Name)
			}
		case *v1alpha1.PolicyException:
			if x.Spec.ExpiresAt != nil {
				o.Expires = x.Spec.ExpiresAt.Time
			}
		case *policy.Baseline:
			o.Expires, o.Entries = x.Spec.ExpiresAt.Time, x.Entries()
		case *v1alpha1.Grant:
			o.Begins, o.Expires = x.Spec.NotBefore.Time, x.Spec.ExpiresAt.Time
			o.Gives = strings.Join(x.Spec.Groups, ", ") + " to " + x.Spec.Subject.User
			if !o.Expires.IsZero() {
				o.Remove = o.Expires.Add(of.Config.Authn.Configuration.RetainGrants())
			}
		}
		if notSent != nil && one.Read.Found.Err() == nil {
			o.NotSent, o.Warnings = notSent(one.Read.Value)
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	return r
}

// counts returns how many resources there are, by kind and by which version is active.
func counts(of *resolve.Resolution) map[string]map[string]int {
	n := map[string]map[string]int{}
	for _, kind := range config.ResourceKinds() {
		n[kind.Kind] = map[string]int{}
		for _, use := range []resolve.Use{resolve.Current, resolve.Previous, resolve.Unused} {
			n[kind.Kind][strings.ToLower(string(use))] = 0
		}
	}
	for _, one := range of.Candidates {
		n[one.Read.Kind][strings.ToLower(string(one.Use()))]++
	}
	return n
}
