package registration

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// configurationsOf are the webhook configurations that some options make.
func configurationsOf(t *testing.T, change ...func(*Options)) (validating []admissionregistrationv1.ValidatingWebhookConfiguration, mutating []admissionregistrationv1.MutatingWebhookConfiguration) {
	t.Helper()
	for _, d := range admissionOf(t, options(change...)).Documents {
		switch c := d.object.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			validating = append(validating, *c)
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			mutating = append(mutating, *c)
		}
	}
	return validating, mutating
}

func TestNotSent(t *testing.T) {
	t.Parallel()
	about := func(failurePolicy admissionregistrationv1.FailurePolicyType, rules ...testRule) v1alpha1.AdmissionPolicySpec {
		spec := own(specWith(failurePolicy, rules...))
		spec.WorkloadTemplates = v1alpha1.IgnoreTemplates
		return spec
	}
	services := named("", "v1", "services", create, update)
	custom := []workload.Kind{{Group: "argoproj.io", Kind: "Rollout", Resource: "rollouts", Template: []string{"spec", "template"}}}
	const hint = ": not sent to Gatehouse (hint: serve --manage-registration, or "
	for name, c := range map[string]struct {
		spec      v1alpha1.AdmissionPolicySpec
		workloads []workload.Kind
		more      testRule
		want      []string
	}{
		"pods and workloads are sent":             {spec: about("", named("", "v1", "pods", create, update), named("apps,batch", "v1", "deployments,jobs", create))},
		"in any version":                          {spec: about("", named("apps", "*,v1beta1", "deployments", create))},
		"no rule":                                 {spec: about("")},
		"a resource that is not":                  {spec: about("", services), want: []string{"services:CREATE,UPDATE" + hint}},
		"and may fail open":                       {spec: about("Ignore", services), want: []string{"services:CREATE,UPDATE" + hint}},
		"until it is":                             {spec: about("", services), more: services},
		"for one operation":                       {spec: about("", services), more: named("", "v1", "services", create), want: []string{"services:UPDATE" + hint}},
		"by a wildcard":                           {spec: about("", services), more: named("*", "*", "*", "*")},
		"a subresource, which a wildcard has not": {spec: about("", named("apps", "v1", "deployments/scale", update)), more: named("apps", "*", "*", "*"), want: []string{"deployments.apps/scale:UPDATE" + hint}},
		"all operations, of which some are sent":  {spec: about("", named("", "v1", "pods", admissionregistrationv1.OperationAll))},
		"everything, of which some is sent":       {spec: about("", named("*", "*", "*/*", admissionregistrationv1.OperationAll))},
		"neither of two groups":                   {spec: about("", named("apps,batch", "v1", "services", create)), want: []string{"services.apps:CREATE, services.batch:CREATE" + hint}},
		"never by design": {
			spec: about("", named("", "v1", "nodes/status,events,services", create)),
			want: []string{"events, nodes/status: never sent to Gatehouse by design, so that a cluster can start and recover without it", "services:CREATE" + hint},
		},
		"its own documents":         {spec: about("", named("gatehouse.dev", "*", "*", create)), want: []string{"*: never sent"}},
		"workloads of pods":         {spec: own(specWith("", named("", "v1", "pods", create))), workloads: custom, want: []string{"rollouts.argoproj.io:CREATE,UPDATE" + hint}},
		"workloads that are wrong":  {spec: own(specWith("", named("", "v1", "pods", create))), workloads: slices.Concat(custom, custom)},
		"unless templates are not":  {spec: about("", named("", "v1", "pods", create)), workloads: custom},
		"more than can be said":     {spec: about("", named("", "v1", "a,b,c,d,e,f,g,h", create)), want: []string{"a:CREATE, b:CREATE, c:CREATE and 5 more" + hint}},
		"more than can be compared": {spec: about("", named(strings.Repeat("a,", 100), strings.Repeat("v1,", 100), "a", create))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			validating, _ := configurationsOf(t, func(o *Options) {
				o.SelfSigned, o.CustomResources = true, true
			})
			validating[0].Webhooks[0].Rules = append(validating[0].Webhooks[0].Rules, c.more.RuleWithOperations)
			got := NotSent(&v1alpha1.AdmissionPolicy{Spec: c.spec}, c.workloads, SentBy(validating))
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestProfilesNotSent(t *testing.T) {
	t.Parallel()
	_, mutating := configurationsOf(t)
	if got := ProfilesNotSent(mutating); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	if got := ProfilesNotSent(nil); len(got) != 1 || !strings.HasPrefix(got[0], "no webhook sends new pods to Gatehouse") {
		t.Errorf("got %q", got)
	}
}

// What is missing is shown with what adds it; in a managed registration, what it waits for.
func TestNotSentHints(t *testing.T) {
	t.Parallel()
	validating, _ := configurationsOf(t, func(o *Options) { o.SelfSigned, o.CustomResources = true, true })
	p := &v1alpha1.AdmissionPolicy{Spec: own(specWith("", named("", "v1", "services,pods", create, update)))}
	p.Spec.WorkloadTemplates = v1alpha1.IgnoreTemplates
	sent := SentBy(validating)
	for what, c := range map[string]struct {
		sent *Sent
		want string
	}{
		"by people":      {sent, "services:CREATE,UPDATE: not sent to Gatehouse (hint: serve --manage-registration, or gatehouse manifests --config with this policy)"},
		"managed":        {sent.Managed(""), "services:CREATE,UPDATE: not sent to Gatehouse yet: Gatehouse adds that to its webhook configurations within seconds"},
		"managed, waits": {sent.Managed("waiting"), "services:CREATE,UPDATE: not sent to Gatehouse yet: waiting"},
	} {
		if got := NotSent(p, nil, c.sent); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
}

func TestMatchesEverything(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule testRule
		want bool
	}{
		"everything":                   {named("*", "*", "*/*", create), true},
		"everything but subresources":  {named("*", "v1", "*", create), true},
		"a subresource of all":         {named("*", "*", "*/scale", update), false},
		"all resources of a group":     {named("apps", "*", "*/*", create), false},
		"a resource in all the groups": {named("*", "*", "pods", create), false},
	} {
		if got := MatchesEverything(&v1alpha1.AdmissionPolicy{Spec: own(specWith("", c.rule))}); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	if MatchesEverything(&v1alpha1.AdmissionPolicy{}) {
		t.Error("a policy without rules matches everything")
	}
}
