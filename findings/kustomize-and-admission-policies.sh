#!/bin/sh
# kustomize-and-admission-policies.sh: what kustomize's namespace and namePrefix do to admission policies and webhooks.
#
#	sh findings/kustomize-and-admission-policies.sh
#
# `namespace` is put on ValidatingAdmissionPolicies and their bindings, which are cluster-scoped, as on every kind that kustomize does not know as
# cluster-scoped; it does not reach the namespace of a binding's params. `namePrefix` renames a policy and follows it in its bindings' policyName, but not params in paramRef.
# A webhook's service is followed; cert-manager's annotation about the CA of a webhook (namespace/name) is not, and neither is a namespaceSelector by the namespace's name.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const resources = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: policy}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: binding}
spec: {policyName: policy, paramRef: {name: params, namespace: old, parameterNotFoundAction: Deny}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: params, namespace: old}
---
apiVersion: v1
kind: Service
metadata: {name: service, namespace: old}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: webhook, annotations: {cert-manager.io/inject-ca-from: old/certificate}}
webhooks:
- name: a.example.org
  clientConfig: {service: {name: service, namespace: old}}
`

const want = `
ValidatingAdmissionPolicy new-policy: namespace new
ValidatingAdmissionPolicyBinding new-binding: namespace new, policyName new-policy, params old/params
ConfigMap new-params: namespace new
Service new-service: namespace new
ValidatingWebhookConfiguration new-webhook: namespace , service new/new-service, CA from old/certificate
`

func main() {
	files := filesys.MakeFsInMemory()
	check(files.WriteFile("/k/kustomization.yaml", []byte("namespace: new\nnamePrefix: new-\nresources: [resources.yaml]\n")))
	check(files.WriteFile("/k/resources.yaml", []byte(resources)))
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/k")
	check(err)
	var got strings.Builder
	got.WriteString("\n")
	for _, o := range objects.Resources() {
		fmt.Fprintf(&got, "%s %s: namespace %s", o.GetKind(), o.GetName(), o.GetNamespace())
		switch o.GetKind() {
		case "ValidatingAdmissionPolicyBinding":
			fmt.Fprintf(&got, ", policyName %s, params %s/%s", text(o.GetFieldValue("spec.policyName")), text(o.GetFieldValue("spec.paramRef.namespace")), text(o.GetFieldValue("spec.paramRef.name")))
		case "ValidatingWebhookConfiguration":
			fmt.Fprintf(&got, ", service %s/%s, CA from %s", text(o.GetFieldValue("webhooks.0.clientConfig.service.namespace")), text(o.GetFieldValue("webhooks.0.clientConfig.service.name")), o.GetAnnotations()["cert-manager.io/inject-ca-from"])
		}
		got.WriteString("\n")
	}
	fmt.Print(got.String())
	if got.String() != want {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

func text(value any, err error) string {
	check(err)
	return fmt.Sprint(value)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	sigs.k8s.io/kustomize/api v0.21.1
	sigs.k8s.io/kustomize/kyaml v0.21.1
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: sigs.k8s.io/kustomize/api v0.21.1, sigs.k8s.io/kustomize/kyaml v0.21.1"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
