package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The configurations that Gatehouse is measured with. All hold the same
// token, and differ in their profiles and policies.
const (
	onePolicy   = "one policy"
	tenPolicies = "ten policies"
	podSecurity = "pod security"
	twoProfiles = "two profiles"
	// manyProfiles has the profiles of twoProfiles, and others, none of which
	// select a pod of the benchmark.
	manyProfiles = "two of 200 profiles"
	parameters   = "parameters"
)

// writeDocuments writes one of the configurations into the directory, as the
// documents of a user. The token expires a day after now.
func writeDocuments(directory, configuration string, now time.Time) error {
	documents := map[string]string{"namespace.yaml": namespaceDocument}
	profiles := []document{telemetryProfile()}
	switch configuration {
	case onePolicy:
		documents["policy.yaml"] = policyDocument
	case tenPolicies:
		documents["policies.yaml"] = tenPolicyDocuments()
	case podSecurity:
		documents["policy.yaml"] = podSecurityDocument
	case twoProfiles:
		profiles = append(profiles, meshProfile())
	case manyProfiles:
		profiles = append(profiles, meshProfile())
		for i := range 198 {
			profiles = append(profiles, otherProfile(i))
		}
	case parameters:
		profiles = []document{parameterProfile()}
	default:
		return fmt.Errorf("unknown configuration %q", configuration)
	}
	var texts []string
	for _, profile := range profiles {
		text, err := json.MarshalIndent(profile, "", "  ")
		if err != nil {
			return err
		}
		texts = append(texts, string(text)+"\n")
	}
	documents["profiles.yaml"] = strings.Join(texts, "---\n")
	token, err := json.MarshalIndent(accessToken(now), "", "  ")
	if err != nil {
		return err
	}
	documents["token.json"] = string(token)
	for name, text := range documents {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// accessToken is the document of benchToken.
func accessToken(now time.Time) v1alpha1.AccessToken {
	_, hash := benchToken()
	return v1alpha1.AccessToken{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AccessToken"},
		ObjectMeta: metav1.ObjectMeta{Name: tokenID},
		Spec: v1alpha1.AccessTokenSpec{
			SHA256:    hash,
			User:      authenticationv1.UserInfo{Username: tokenUser, Groups: []string{tokenGroup}},
			ExpiresAt: metav1.NewTime(now.Add(24 * time.Hour).UTC().Truncate(time.Second)),
		},
	}
}

// namespaceDocument is the context that profiles and policies look up.
const namespaceDocument = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + benchNamespace + `
  labels:
    kubernetes.io/metadata.name: ` + benchNamespace + `
    team: shop
`

// policyDocument is a policy of middle size: three variables, three
// validations, two messages made by expressions. podProblems says the same in
// Go.
const policyDocument = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: containers
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [pods]
  variables:
    - name: containers
      expression: "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
    - name: untagged
      expression: "variables.containers.filter(c, c.image.endsWith(':latest') || !c.image.contains(':'))"
    - name: unlimited
      expression: "variables.containers.filter(c, !has(c.resources) || !has(c.resources.limits) || !('memory' in c.resources.limits))"
  validations:
    - expression: "size(variables.untagged) == 0"
      messageExpression: "'images without a fixed tag: ' + variables.untagged.map(c, c.image).join(', ')"
    - expression: "size(variables.unlimited) == 0"
      messageExpression: "'containers without a memory limit: ' + variables.unlimited.map(c, c.name).join(', ')"
    - expression: "has(object.metadata.labels) && '` + nameLabel + `' in object.metadata.labels"
      message: "label ` + nameLabel + ` is missing"
---
` + bindingHead + `containers
spec:
  policyName: containers
  validationActions: [Deny]
`

// bindingHead is the beginning of a binding's document, up to its name.
const bindingHead = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: `

// podSecurityDocument is the Pod Security Standard restricted as a policy.
const podSecurityDocument = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata:
  name: restricted
spec:
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [pods]
  podSecurity:
    level: restricted
  validationActions: [Deny]
`

// tenPolicyDocuments are ten policies of one rule, each with its binding: the
// rules that policy engines are usually installed for.
func tenPolicyDocuments() string {
	rules := []struct{ name, expression string }{
		{"no-host-network", "!has(object.spec.hostNetwork) || !object.spec.hostNetwork"},
		{"no-host-pid", "!has(object.spec.hostPID) || !object.spec.hostPID"},
		{"no-privileged", "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)"},
		{"no-escalation", "object.spec.containers.all(c, has(c.securityContext) && has(c.securityContext.allowPrivilegeEscalation) && !c.securityContext.allowPrivilegeEscalation)"},
		{"fixed-tags", "object.spec.containers.all(c, c.image.contains(':') && !c.image.endsWith(':latest'))"},
		{"own-registry", "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))"},
		{"memory-limits", "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits)"},
		{"name-label", "has(object.metadata.labels) && '" + nameLabel + "' in object.metadata.labels"},
		{"no-host-path", "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))"},
		{"non-root", "has(object.spec.securityContext) && has(object.spec.securityContext.runAsNonRoot) && object.spec.securityContext.runAsNonRoot"},
	}
	var documents strings.Builder
	for _, rule := range rules {
		fmt.Fprintf(&documents, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: %[1]s
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [pods]
  validations:
    - expression: "%[2]s"
      message: the pod breaks rule %[1]s
---
%[3]s%[1]s
spec:
  policyName: %[1]s
  validationActions: [Deny]
---
`, rule.name, rule.expression, bindingHead)
	}
	return strings.TrimSuffix(documents.String(), "---\n")
}
