package admission_test

import (
	"fmt"
	"testing"
)

// profileNumbered is a profile like those in use: a native sidecar with parameters,
// ports and a volume, for one team.
func profileNumbered(n int) string {
	return fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: agent-%[1]d}
spec:
  match: {namespaceSelector: {matchLabels: {team: team-%[1]d}}}
  injection: OptOut
  parameters:
  - {name: level, type: enum, default: info, enum: [debug, info, error]}
  - {name: memory, type: quantity, default: 256Mi, maximum: 1Gi}
  template:
    spec:
      initContainers:
      - name: agent-%[1]d
        image: registry.example.com/agent:1.42.7
        restartPolicy: Always
        args: ["--level=${params.level}"]
        ports: [{name: agent, containerPort: 15020}]
        resources: {limits: {memory: "${params.memory}"}, requests: {cpu: 100m}}
        volumeMounts: [{name: agent-%[1]d, mountPath: /var/spool/agent}]
      volumes: [{name: agent-%[1]d, emptyDir: {}}]
`, n)
}

// policyNumbered is a policy of five rules.
func policyNumbered(n int) string {
	return fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: rules-%[1]d}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE]}]}
  variables: [{name: all, expression: "object.spec.containers + object.spec.?initContainers.orValue([])"}]
  validations:
  - {expression: "variables.all.all(c, c.image.startsWith('registry.example.com/'))", message: images are ours}
  - {expression: "variables.all.all(c, !c.image.endsWith(':latest'))", message: no latest}
  - {expression: "variables.all.all(c, has(c.resources) && has(c.resources.limits))", message: limits}
  - {expression: "!has(object.spec.hostNetwork) || !object.spec.hostNetwork", message: no host network}
  - {expression: "object.metadata.name != 'rules-%[1]d'", messageExpression: "'not ' + object.metadata.name"}
  validationActions: [Deny]
`, n)
}

// BenchmarkReview reviews one object beside many others.
func BenchmarkReview(b *testing.B) {
	const profiles, policies = 100, 1000
	var all []string
	for i := range profiles {
		all = append(all, profileNumbered(i))
	}
	for i := range policies {
		all = append(all, policyNumbered(i))
	}
	r := reviewer(configOf(b, all...))
	for _, bc := range []struct{ name, document string }{
		{"profile", profileNumbered(7)},
		{"policy", policyNumbered(7)},
		{"binding", "{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: rules-7, validationActions: [Deny]}}"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			req := about(b, bc.document, "")
			b.ReportAllocs()
			for b.Loop() {
				if response := r.Review(b.Context(), req, true); !response.Allowed {
					b.Fatal(text(b, response))
				}
			}
		})
	}
}
