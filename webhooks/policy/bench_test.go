package policy_test

import (
	"context"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// typicalPolicy has what policies of public libraries have: a match condition,
// a variable, three rules and a messageExpression.
const typicalPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [%[2]q], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: [%[3]q]}
  matchConditions:
  - {name: not-system, expression: "!request.userInfo.username.startsWith('system:node:')"}
  variables:
  - {name: containers, expression: "object.spec.containers + object.spec.?initContainers.orValue([])"}
  validations:
  - expression: variables.containers.all(c, c.image.startsWith('registry.example.com/'))
    messageExpression: "'images not from our registry: ' + variables.containers.filter(c, !c.image.startsWith('registry.example.com/')).map(c, c.name).join(', ')"
  - {expression: "variables.containers.all(c, has(c.resources.limits) && 'memory' in c.resources.limits)", message: memory limit}
  - {expression: "'team' in object.metadata.labels", message: label team}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}`

const smallPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [%[2]q], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: [%[3]q]}
  validations:
  - {expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: label team}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}`

const restrictedPolicy = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: restricted}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["pods"]}
  podSecurity: {level: restricted}
  validationActions: [Deny]`

// many is n policies of which the first few are about pods and every other about
// a resource of its own.
func many(t testing.TB, template string, pods, n int) policy.Spec {
	t.Helper()
	var spec policy.Spec
	for i := range n {
		group, resource := "", "pods"
		if i >= pods {
			group, resource = "example.com", fmt.Sprintf("things%d", i)
		}
		one := specOf(t, fmt.Sprintf(template, fmt.Sprintf("p%04d", i), group, resource))
		spec.Policies = append(spec.Policies, one.Policies...)
		spec.Bindings = append(spec.Bindings, one.Bindings...)
	}
	return spec
}

// byNamespace is n policies about pods, each for a namespace of its own but the
// first few, which are for the pod's.
func byNamespace(t testing.TB, own, n int) policy.Spec {
	t.Helper()
	spec := many(t, smallPolicy, n, n)
	for i := range spec.Bindings {
		name := "shop"
		if i >= own {
			name = fmt.Sprintf("ns%d", i)
		}
		spec.Bindings[i].Spec.MatchResources = &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": name}},
		}
	}
	return spec
}

func BenchmarkReview(b *testing.B) {
	pod := review(b, readFile(b, "testdata/pod.json"))
	for _, bench := range []struct {
		name string
		spec func() policy.Spec
	}{
		{"none of 1 matches", func() policy.Spec { return many(b, smallPolicy, 0, 1) }},
		{"none of 1000 match", func() policy.Spec { return many(b, smallPolicy, 0, 1000) }},
		{"small/1 policy", func() policy.Spec { return many(b, smallPolicy, 1, 1) }},
		{"small/10 policies", func() policy.Spec { return many(b, smallPolicy, 10, 10) }},
		{"small/10 of 1000 match", func() policy.Spec { return many(b, smallPolicy, 10, 1000) }},
		{"small/10 of 1000 for pods match", func() policy.Spec { return byNamespace(b, 10, 1000) }},
		{"typical/1 policy", func() policy.Spec { return many(b, typicalPolicy, 1, 1) }},
		{"typical/10 policies", func() policy.Spec { return many(b, typicalPolicy, 10, 10) }},
		{"podSecurity restricted", func() policy.Spec { return specOf(b, restrictedPolicy) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			set, err := policy.Compile(bench.spec())
			must(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if response := set.Decide(context.Background(), policy.Input{Request: pod}).Response(); !response.Allowed {
					b.Fatal(message(response))
				}
			}
		})
	}
}
