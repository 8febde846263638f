package registration

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

// configurationsOf are the webhook configurations that some options make.
func configurationsOf(t *testing.T, change ...func(*Options)) (validating []admissionregistrationv1.ValidatingWebhookConfiguration, mutating []admissionregistrationv1.MutatingWebhookConfiguration) {
	t.Helper()
	a := admissionOf(t, options(change...))
	for _, d := range a.Documents {
		switch c := d.object.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			validating = append(validating, *c)
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			mutating = append(mutating, *c)
		}
	}
	return validating, mutating
}

func withResources(o *Options) { o.SelfSigned, o.CustomResources = true, true }

func TestNotSent(t *testing.T) {
	t.Parallel()
	about := func(failurePolicy admissionregistrationv1.FailurePolicyType, rules ...admissionregistrationv1.NamedRuleWithOperations) v1alpha1.AdmissionPolicySpec {
		spec := own(specWith(failurePolicy, rules...))
		spec.WorkloadTemplates = v1alpha1.IgnoreTemplates
		return spec
	}
	validate := func(text string) func(*Options) {
		return func(o *Options) { withResources(o); o.Validate = rulesOf(text) }
	}
	open := func(text string) func(*Options) {
		return func(o *Options) { withResources(o); o.ValidateOpen = rulesOf(text) }
	}
	services := about("", named("", "v1", "services", create, update))
	custom := []workload.Kind{{Group: "argoproj.io", Kind: "Rollout", Resource: "rollouts", Template: []string{"spec", "template"}}}
	for name, c := range map[string]struct {
		spec      v1alpha1.AdmissionPolicySpec
		workloads []workload.Kind
		options   func(*Options)
		change    func(*admissionregistrationv1.ValidatingWebhookConfiguration)
		want      []string
	}{
		"pods and workloads are sent as it is":    {spec: about("", named("", "v1", "pods", create, update), named("apps,batch", "v1", "deployments,jobs", create))},
		"a resource of none of the groups":        {spec: about("", named("apps,batch", "v1", "services", create)), want: []string{"CREATE of services.apps, services.batch: not sent"}},
		"any version of them":                     {spec: about("", named("apps", "*", "deployments", create))},
		"what is not there any more":              {spec: about("", named("apps", "v1beta1", "deployments", create))},
		"a policy that fails open, sent anyway":   {spec: about("Ignore", named("", "v1", "pods", create))},
		"a policy that is about nothing":          {spec: about("")},
		"a resource that is not":                  {spec: services, want: []string{"CREATE, UPDATE of services: not sent to Gatehouse (hint: gatehouse manifests --validate services:CREATE,UPDATE, or in the chart webhooks.validate.extraRules)"}},
		"… until it is":                           {spec: services, options: validate("services")},
		"… in another version too":                {spec: about("", named("networking.k8s.io", "v1beta1", "ingresses", create)), options: validate("ingresses.v1.networking.k8s.io")},
		"… but by a webhook of another operation": {spec: services, options: validate("services:DELETE"), want: []string{"CREATE, UPDATE of services: not sent"}},
		"… but for one operation":                 {spec: services, options: validate("services:CREATE"), want: []string{"UPDATE of services: not sent to Gatehouse (hint: gatehouse manifests --validate services:UPDATE,"}},
		"… but while Gatehouse answers only":      {spec: services, options: open("services"), want: []string{"CREATE, UPDATE of services: sent by a fail-open webhook, unlike the policy (hint: gatehouse manifests --validate, or in the chart webhooks.validate.extraRules)"}},
		"… which is enough to fail open":          {spec: about("Ignore", services.MatchConstraints.ResourceRules...), options: open("services")},
		"… and a policy that fails open":          {spec: about("Ignore", services.MatchConstraints.ResourceRules...), want: []string{"(hint: gatehouse manifests --validate-open services:CREATE,UPDATE,"}},
		"all operations on what only two are sent of": {
			spec: about("", named("", "v1", "pods", admissionregistrationv1.OperationAll)),
			want: []string{"DELETE of pods: not sent"},
		},
		"all operations on a connection": {spec: about("", named("", "v1", "pods/exec", admissionregistrationv1.OperationAll)), options: validate("pods/exec")},
		"subresources are something else": {
			spec: about("", named("", "v1", "pods/*", update)),
			want: []string{"UPDATE of pods/*: not sent to Gatehouse (hint: failurePolicy Ignore, and gatehouse manifests --validate-open, because that must not fail closed)"},
		},
		"a resource of a group": {spec: about("", named("*", "*", "*", create)), options: validate("*.apps"), want: []string{"CREATE of *.*: not sent"}},
		"everything":            {spec: about("", named("*", "*", "*/*", admissionregistrationv1.OperationAll)), options: validate("*.*/*:*")},
		"never by design, alone": {
			spec: about("", named("", "v1", "nodes,events", create)),
			want: []string{"events, nodes: never sent to Gatehouse by design, so that a cluster can start and recover without it"},
		},
		"never by design, among others": {
			spec: about("", named("", "v1", "nodes/status,services", create)),
			want: []string{"nodes/status: never sent", "CREATE of services: not sent"},
		},
		"its own documents": {spec: about("", named("gatehouse.dev", "*", "*", create)), want: []string{"*.gatehouse.dev: never sent"}},
		"workloads of pods": {
			spec: own(specWith("", named("", "v1", "pods", create))), workloads: custom,
			want: []string{"CREATE, UPDATE of rollouts.argoproj.io: not sent"},
		},
		"workloads of pods, of which the usual ones are sent": {spec: own(specWith("", named("", "v1", "pods", create)))},
		"… and those that cannot be used do not count": {
			spec: own(specWith("", named("", "v1", "pods", create))), workloads: slices.Concat(custom, custom),
		},
		"… unless templates are not checked": {spec: about("", named("", "v1", "pods", create)), workloads: custom},
		"several, and what to say for all of them": {
			spec: about("", named("", "v1", "services,secrets", create, update), named("networking.k8s.io", "v1", "ingresses", remove)),
			want: []string{"DELETE of ingresses.networking.k8s.io; CREATE, UPDATE of secrets, services: not sent to Gatehouse (hint: gatehouse manifests --validate, or"},
		},
		"more than can be said": {
			spec: about("", named("", "v1", "a,b,c,d,e,f,g,h,i,j,k,l", create)),
			want: []string{"CREATE of a, b, c and 9 more: not sent to Gatehouse (hint: gatehouse manifests --validate, or"},
		},
		"what must not fail closed": {
			spec: about("", named("", "v1", "pods/status,services", update)),
			want: []string{"UPDATE of pods/status, services: not sent to Gatehouse (hint: failurePolicy Ignore, and gatehouse manifests --validate-open, because that must not fail closed)"},
		},
		"three of them, with values that have room": {
			spec: about("", named("", "v1", "a,b,c", create)),
			want: []string{"CREATE of a, b, c: not sent to Gatehouse (hint: gatehouse manifests --validate a:CREATE,b:CREATE,c:CREATE, or in the chart webhooks.validate.extraRules)"},
		},
		"long names": {
			spec: about("", named("gateway.networking.example.org", "v1", "httproutepolicies,backendtlspolicies,referencegrants", create, update)),
			want: []string{"CREATE, UPDATE of backendtlspolicies.gateway.networking.example.org and 2 more: not sent to Gatehouse (hint: gatehouse manifests --validate, or the chart's extraRules)"},
		},
		"more than can be compared": {
			spec: about("", named(strings.Repeat("a,", 100), strings.Repeat("v1,", 100), "a", create)),
			want: []string{"the policy names more than 5000 combinations"},
		},
		"no webhook": {spec: services, change: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks = nil }, want: []string{"CREATE, UPDATE of services: not sent"}},
		"a webhook for one version exactly": {
			spec: about("", named("apps", "v1", "deployments", create), named("apps", "v2", "deployments", create)),
			change: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].MatchPolicy = new(admissionregistrationv1.Exact)
			},
			want: []string{"CREATE of deployments.apps: not sent"},
		},
		"a webhook without a failure policy": {
			spec:   about("", named("", "v1", "pods", create)),
			change: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks[0].FailurePolicy = nil },
		},
		"a webhook of somebody else, and that for documents": {
			spec: services,
			change: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].ClientConfig.Service.Path = new("/other")
				for i := range c.Webhooks {
					c.Webhooks[i].Rules = rulesOf("*.*/*:*")
				}
			},
			want: []string{"CREATE, UPDATE of services: not sent"},
		},
		"a webhook with a condition of its own": {
			spec: about("", named("", "v1", "pods", create)),
			change: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].MatchConditions = append(c.Webhooks[0].MatchConditions, admissionregistrationv1.MatchCondition{Name: "policies", Expression: "false"})
			},
			want: []string{`webhook "fail.validate.gatehouse.dev": the match condition "policies" may exclude requests that the policy matches`},
		},
		"by URL": {spec: services, options: func(o *Options) {
			withURL(o)
			o.CustomResources, o.Validate = true, rulesOf("services")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := withResources
			if c.options != nil {
				change = c.options
			}
			configs, _ := configurationsOf(t, change)
			if c.change != nil {
				c.change(&configs[0])
			}
			got := NotSent(&v1alpha1.AdmissionPolicy{Spec: c.spec}, c.workloads, configs)
			matches := len(got) == len(c.want)
			for i := range min(len(got), len(c.want)) {
				matches = matches && strings.Contains(got[i], c.want[i])
			}
			if !matches {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			for _, remark := range got {
				// kubectl apply shows 200 runes, with the kind and name of the policy before them.
				if len(remark) > maxRemark {
					t.Errorf("%d bytes: %s", len(remark), remark)
				}
			}
		})
	}
}

// What a registration is made for is sent by it.
func TestWhatIsRegisteredForIsSent(t *testing.T) {
	t.Parallel()
	policies := map[string]v1alpha1.AdmissionPolicySpec{
		"pods and their workloads": own(specWith("", named("", "v1", "pods", create, update))),
		"two failure policies":     own(specWith("Ignore", named("*", "*", "*", create), named("", "v1", "pods/exec", connect))),
		"many things":              own(specWith("Fail", named("apps", "v1,v2", "deployments/scale,*", update, remove), named("", "*", "services/*", admissionregistrationv1.OperationAll))),
	}
	for name, about := range policies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			about.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
			p := ours("p", *about.Upstream())
			p.Spec = about
			configs, _ := configurationsOf(t, func(o *Options) {
				o.Spec = spec()
				o.Spec.Policy.AdmissionPolicies = append(o.Spec.Policy.AdmissionPolicies, p)
			})
			if got := NotSent(&v1alpha1.AdmissionPolicy{Spec: about}, nil, configs); len(got) > 0 {
				t.Errorf("not sent: %q", got)
			}
		})
	}
}

func TestProfilesNotSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*admissionregistrationv1.MutatingWebhookConfiguration)
		want   string
	}{
		"as printed":       {func(*admissionregistrationv1.MutatingWebhookConfiguration) {}, ""},
		"no webhooks":      {func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Webhooks = nil }, "no webhook sends pods to Gatehouse"},
		"the first alone":  {func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Webhooks = c.Webhooks[:1] }, "pods that do not ask for injection are not sent"},
		"the second alone": {func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Webhooks = c.Webhooks[1:] }, "pods that ask for injection are not sent"},
		"one for all pods": {func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks = c.Webhooks[:1]
			c.Webhooks[0].MatchConditions = nil
		}, ""},
		"of updates": {func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].Rules[0].Operations = []admissionregistrationv1.OperationType{update}
			}
		}, "no webhook sends pods to Gatehouse"},
		"to another path": {func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.Service.Path = nil
			}
		}, "no webhook sends pods to Gatehouse"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, configs := configurationsOf(t, withResources)
			c.change(&configs[0])
			got := ProfilesNotSent(configs)
			if (c.want == "") != (len(got) == 0) || !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := ProfilesNotSent(nil); len(got) != 1 {
		t.Errorf("without configurations: %q", got)
	}
}

// What comes by kubectl apply later must not be kept back by what is known now.
func TestCustomResourcesAreRegisteredForAny(t *testing.T) {
	t.Parallel()
	secrets := conditioned("secrets", "", []testRule{named("", "v1", "secrets", create)}, `request.userInfo.username != "robot"`)
	for name, change := range map[string]func(*Options){
		"custom resources": withResources,
		"more to validate": func(o *Options) { o.Validate = rulesOf("services") },
		"and fails open":   func(o *Options) { o.ValidateOpen = rulesOf("services") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			validating, mutating := configurationsOf(t, change, func(o *Options) {
				o.Spec = spec()
				o.Spec.Sidecar.Profiles = nil
				o.Spec.Policy.AdmissionPolicies = append(o.Spec.Policy.AdmissionPolicies, secrets)
			})
			var sent []string
			for _, w := range validating[0].Webhooks {
				for _, c := range w.MatchConditions {
					if !slices.Contains(ownConditions(), c) {
						t.Errorf("%s has %+v", w.Name, c)
					}
				}
				for _, r := range w.Rules {
					sent = append(sent, r.Resources...)
				}
			}
			if !slices.Contains(sent, "secrets") || !slices.Contains(sent, "ingresses") {
				t.Errorf("of the configuration only %q is sent", sent)
			}
			resources := name == "custom resources"
			if slices.Contains(sent, "pods") != resources || (len(mutating) > 0) != resources {
				t.Errorf("%q is sent, and there are %d mutating configurations", sent, len(mutating))
			}
		})
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	a := admissionOf(t, options(func(o *Options) { o.PublishCABundle, o.CustomResources = true, true }))
	whole, err := YAML("", a.Documents)
	if err != nil {
		t.Fatal(err)
	}
	var together []string
	for _, part := range Parts() {
		some, err := YAML("", Only(a.Documents, part))
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 || strings.Contains(string(some), "WebhookConfiguration\n") != (part == PartRegistration) || strings.Contains(string(some), "kind: Issuer\n") != (part == PartCertificates) {
			t.Errorf("%s is:\n%s", part, some)
		}
		if strings.Contains(string(some), "kind: ValidatingAdmissionPolicy\n") != (part == PartGuard) {
			t.Errorf("%s is:\n%s", part, some)
		}
		together = append(together, string(some))
	}
	if strings.Join(together, "---\n") != string(whole) {
		t.Error("the parts together are not the whole")
	}
}
