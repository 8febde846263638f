package replay_test

import (
	"fmt"
)

// everything is a configuration that reads all that can be recorded.
func everything() string {
	return documents(
		shop, `apiVersion: v1
kind: Namespace
metadata: {name: bank, labels: {team: bank, pod-security.kubernetes.io/enforce: baseline}, annotations: {sidecar.gatehouse.dev/inject: "false"}}`,
		role, fmt.Sprintf(limits, "shop"),
		admissionPolicy("images", "object.spec.containers.all(c, !c.image.endsWith(':latest'))"),
		admissionPolicy("warns", "object.metadata.name != 'b'", "  validationActions: [Warn, Audit]"),
		admissionPolicy("team", "params.data.team == object.metadata.labels.team", withParams), fmt.Sprintf(binding, "team"),
		admissionPolicy("may", "authorizer.group('').resource('pods').namespace('shop').check('get').allowed()"),
		admissionPolicy("namespaces", "namespaceObject.metadata.labels.team != 'bank' || object.metadata.name != 'c'"),
		admissionPolicy("standard", "true", "  podSecurity: {level: baseline, version: latest}", "  validationActions: [Deny]"),
		admissionPolicy("workloads", "object.spec.containers.all(c, c.image != 'registry.example/app:latest')"),
		`apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: x, namespace: gatehouse-system}
spec: {reason: tests, policies: [{name: images}], match: {namespaceSelector: {matchLabels: {team: shop}}}, expiresAt: "2026-11-20T12:30:00Z"}`,
		`apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: mesh}
spec:
  injection: OptOut
  parameters: [{name: level, type: string, default: "info"}]
  template:
    spec:
      containers: [{name: proxy, image: "registry.example/proxy:1", args: ["--level=${params.level}", "--app=${pod.metadata.?name.orValue('')}"], env: [{name: LONG, value: value-of-the-profile}]}]`,
	)
}
