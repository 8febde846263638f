package compile

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

const enforcedSources = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: images}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{name: registry, expression: "object.spec.containers.all(c, c.image.startsWith('ours/'))"}]
  validationActions: [Deny]
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  workloadTemplates: Ignore
  validations: [{expression: "object.metadata.name != 'red'"}]
  validationActions: [Deny]
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: labels}
spec:
  podSecurity: {level: baseline, namespaceLabels: Honor}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "object.metadata.name != 'red'"}]
  workloadTemplates: Ignore
  validationActions: [Deny]
---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyConfiguration

exceptions: {namespaces: [exceptions]}
`

const enforcedException = `---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: legacy, namespace: exceptions}
spec:
  policies: [{name: images}]
  match: {namespaces: [legacy]}
  reason: "#1"
  expiresAt: "2027-01-01T00:00:00Z"
`

// inCluster returns compiled documents as an API server has them.
func inCluster(t *testing.T, c *config.Config, options Options) (all []metav1.Object) {
	t.Helper()
	out, err := Compile(c, options)
	if err != nil {
		t.Fatal(err)
	}
	for i := range out.Documents {
		text, err := json.Marshal(out.Documents[i].Object())
		if err != nil {
			t.Fatal(err)
		}
		p, b := new(admissionregistrationv1.ValidatingAdmissionPolicy), new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		var into metav1.Object = p
		if out.Documents[i].Binding != nil {
			into = b
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
		p.Spec, b.Spec = *validation.DefaultPolicySpec(&p.Spec), *validation.DefaultBindingSpec(&b.Spec)
		into.SetGeneration(3)
		all = append(all, into)
	}
	return all
}

// TestEnforcedBy says what documents in a cluster enforce: what compiling gives is compared, and not what annotations claim.
func TestEnforcedBy(t *testing.T) {
	t.Parallel()
	load := func(text string) *config.Config {
		c, found := config.InspectText("config.yaml", []byte(text))
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	ends := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	const first, template, names = "images.gatehouse.dev", "images.spec.template.gatehouse.dev", "names.gatehouse.dev"
	policyOf := func(all []metav1.Object, name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		for _, o := range all {
			if p, is := o.(*admissionregistrationv1.ValidatingAdmissionPolicy); is && p.Name == name {
				return p
			}
		}
		t.Fatalf("there is no %s", name)
		return nil
	}
	without := func(all []metav1.Object, kind string, wanted ...string) []metav1.Object {
		return slices.DeleteFunc(all, func(o metav1.Object) bool {
			_, isPolicy := o.(*admissionregistrationv1.ValidatingAdmissionPolicy)
			return slices.Contains(wanted, o.GetName()) && isPolicy == (kind == policyKind)
		})
	}
	for name, test := range map[string]struct {
		made, now string // configurations
		options   Options
		at        time.Time
		change    func(all []metav1.Object) []metav1.Object
		want      map[string]string
		text      string
	}{
		"active":                       {want: map[string]string{"images": "Enforced", "names": "Enforced", "labels": "PartlyEnforced"}, text: "labels of the namespace decide the level"},
		"compiled for another version": {options: Options{Kubernetes: "1.37"}, want: map[string]string{"images": "Enforced", "names": "Enforced", "labels": "PartlyEnforced"}},
		"none":                         {change: func([]metav1.Object) []metav1.Object { return nil }},
		"one source": {
			change: func(all []metav1.Object) []metav1.Object {
				return slices.DeleteFunc(all, func(o metav1.Object) bool { return o.GetAnnotations()[FromAnnotation] != "AdmissionPolicy/names" })
			},
			want: map[string]string{"names": "Enforced"},
		},
		"without a binding": {
			change: func(all []metav1.Object) []metav1.Object { return without(all, "", first) },
			want:   map[string]string{"images": "OutOfDate", "names": "Enforced", "labels": "PartlyEnforced"}, text: "is missing: ValidatingAdmissionPolicyBinding/" + first + " (hint: gatehouse compile --exclude-namespace gatehouse-system,kube-system, and apply the result)",
		},
		"without a template": {
			change: func(all []metav1.Object) []metav1.Object { return without(all, policyKind, template) },
			want:   map[string]string{"images": "OutOfDate", "names": "Enforced", "labels": "PartlyEnforced"}, text: "is missing: ValidatingAdmissionPolicy/" + template,
		},
		"another spec": {
			change: func(all []metav1.Object) []metav1.Object {
				policyOf(all, names).Spec.Validations[0].Expression = "true"
				return all
			},
			want: map[string]string{"images": "Enforced", "names": "OutOfDate", "labels": "PartlyEnforced"}, text: "is not what gatehouse compile makes now: ValidatingAdmissionPolicy/" + names,
		},
		"another action": {
			change: func(all []metav1.Object) []metav1.Object {
				for _, o := range all {
					if b, is := o.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); is && b.Name == names {
						b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
					}
				}
				return all
			},
			want: map[string]string{"images": "Enforced", "names": "OutOfDate", "labels": "PartlyEnforced"},
		},
		"a binding of a policy that is not there, named as one of a file": {
			change: func(all []metav1.Object) []metav1.Object {
				for _, o := range all {
					if b, is := o.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); is && b.Name == names {
						b.Spec.PolicyName += ".static.k8s.io"
					}
				}
				return all
			},
			want: map[string]string{"images": "Enforced", "names": "OutOfDate", "labels": "PartlyEnforced"},
		},
		"a policy named as one of a file, and its binding is not": {
			change: func(all []metav1.Object) []metav1.Object {
				policyOf(all, names).Name += ".static.k8s.io"
				return all
			},
			want: map[string]string{"images": "Enforced", "names": "OutOfDate", "labels": "PartlyEnforced"},
		},
		"annotations copied to another spec": {
			change: func(all []metav1.Object) []metav1.Object {
				p := policyOf(all, names)
				p.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: p.Spec.MatchConstraints, Validations: []admissionregistrationv1.Validation{{Expression: "true"}}}
				return all
			},
			want: map[string]string{"images": "Enforced", "names": "OutOfDate", "labels": "PartlyEnforced"},
		},
		"another hash is only a claim": {
			change: func(all []metav1.Object) []metav1.Object {
				policyOf(all, names).Annotations[HashAnnotation] = "0"
				return all
			},
			want: map[string]string{"images": "Enforced", "names": "Enforced", "labels": "PartlyEnforced"},
		},
		"without the label": {
			change: func(all []metav1.Object) []metav1.Object {
				policyOf(all, names).Labels = nil
				return all
			},
			want: map[string]string{"images": "Enforced", "names": "OutOfDate", "labels": "PartlyEnforced"}, text: "is missing: ValidatingAdmissionPolicy/" + names,
		},
		"one too many": {
			change: func(all []metav1.Object) []metav1.Object {
				old := policyOf(all, names).DeepCopy()
				old.Name = "names.spec.template.gatehouse.dev"
				return append(all, old)
			},
			want: map[string]string{"images": "Enforced", "names": "OutOfDate", "labels": "PartlyEnforced"}, text: "is no longer made, and must be deleted: ValidatingAdmissionPolicy/names.spec",
		},
		"the source has changed": {
			now:  strings.Replace(enforcedSources, "'ours/'", "'theirs/'", 1),
			want: map[string]string{"images": "OutOfDate", "names": "Enforced", "labels": "PartlyEnforced"},
		},
		"the source is gone": {
			now:  strings.Replace(enforcedSources, "{name: images}", "{name: other}", 1),
			want: map[string]string{"names": "Enforced", "labels": "PartlyEnforced"},
		},
		"with an exception":      {made: enforcedSources + enforcedException, want: map[string]string{"images": "Enforced", "names": "Enforced", "labels": "PartlyEnforced"}},
		"an exception has ended": {made: enforcedSources + enforcedException, at: ends, want: map[string]string{"images": "ExceptionEnded", "names": "Enforced", "labels": "PartlyEnforced"}, text: "ended at 2027-01-01T00:00:00Z"},
		"an exception has ended, and its annotation is gone": {
			made: enforcedSources + enforcedException, at: ends,
			change: func(all []metav1.Object) []metav1.Object {
				for _, o := range all {
					delete(o.GetAnnotations(), ExpiresAnnotation)
				}
				return all
			},
			want: map[string]string{"images": "OutOfDate", "names": "Enforced", "labels": "PartlyEnforced"},
		},
		"an exception is new": {now: enforcedSources + enforcedException, want: map[string]string{"images": "OutOfDate", "names": "Enforced", "labels": "PartlyEnforced"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.made == "" {
				test.made = enforcedSources
			}
			if test.now == "" {
				test.now = test.made
			}
			if test.options.Kubernetes == "" {
				test.options.Kubernetes = "1.36"
			}
			if test.at.IsZero() {
				test.at = before
			}
			test.options.Now = before
			if test.options.ExcludeNamespaces == nil {
				test.options.ExcludeNamespaces = []string{"gatehouse-system", "kube-system"}
			}
			all := inCluster(t, load(test.made), test.options)
			if test.change != nil {
				all = test.change(all)
			}
			c := load(test.now)
			list, made, err := EnforcedBy(c, []string{"kube-system", "gatehouse-system"}, all, test.at)
			if err != nil {
				t.Fatal(err)
			}
			got, text := map[string]string{}, ""
			for _, e := range list {
				got[e.Name] = e.State
				text += e.Text + "\n"
				if e.IsWhole() != (e.State == v1alpha1.EnforcedReason) || Of(list, e.Kind, e.Name).Text != e.Text {
					t.Errorf("%+v is not found", e)
				}
			}
			for name, state := range test.want {
				if got[name] != state {
					t.Errorf("%s is %q, want %q", name, got[name], state)
				}
			}
			if len(got) != len(test.want) || !strings.Contains(text, test.text) || len(made) != len(all) && name != "without the label" {
				t.Errorf("got %v, %d of %d made, text %s", got, len(made), len(all), text)
			}
			// What the API server enforces wholly is left out, and nothing else.
			left := Without(c.Policy, list)
			for _, p := range c.Policy.AdmissionPolicies {
				is := slices.ContainsFunc(left.AdmissionPolicies, func(l policy.AdmissionPolicy) bool { return l.Name == p.Name })
				if is == (got[p.Name] == v1alpha1.EnforcedReason) {
					t.Errorf("%s is left out: %t", p.Name, !is)
				}
			}
		})
	}
}
