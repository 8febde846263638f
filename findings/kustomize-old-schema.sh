#!/bin/sh
# kustomize-old-schema.sh: kustomize merges lists of built-in kinds by a schema of Kubernetes 1.21.
#
#	sh findings/kustomize-old-schema.sh
#
# In a strategic merge patch, matchConditions of a webhook, and matchConditions and variables of an admission policy, are replaced as a whole, because kustomize's schema does not have these fields yet; the API server
# merges them by name, as its own strategic merge patch does. So a patch that adds one condition removes the others without a word, and a webhook is called for what it had excluded.
# The webhooks themselves are older, and are merged by name by both.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi/kubernetesapi"
	"sigs.k8s.io/yaml"
)

const (
	webhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: object}
webhooks:
- name: a.example.org
  failurePolicy: Ignore
  matchConditions: [{name: first, expression: "true"}]
- name: b.example.org
`
	webhooksPatch = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: object}
webhooks:
- name: a.example.org
  matchConditions: [{name: second, expression: "true"}]
`
	policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: object}
spec:
  matchConditions: [{name: first, expression: "true"}]
  variables: [{name: first, expression: "1"}]
`
	policyPatch = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: object}
spec:
  matchConditions: [{name: second, expression: "true"}]
  variables: [{name: second, expression: "2"}]
`
)

func main() {
	changed := false
	for _, c := range []struct {
		object, patch         string
		into                  any
		paths                 []string
		byKustomize, byServer string
	}{
		{webhooks, webhooksPatch, registration.ValidatingWebhookConfiguration{}, []string{"webhooks", "0", "matchConditions"}, "second", "second first"},
		{webhooks, webhooksPatch, registration.ValidatingWebhookConfiguration{}, []string{"webhooks"}, "a.example.org b.example.org", "a.example.org b.example.org"},
		{policy, policyPatch, registration.ValidatingAdmissionPolicy{}, []string{"spec", "matchConditions"}, "second", "second first"},
		{policy, policyPatch, registration.ValidatingAdmissionPolicy{}, []string{"spec", "variables"}, "second", "second first"},
	} {
		server, err := strategicpatch.StrategicMergePatch(toJSON(c.object), toJSON(c.patch), c.into)
		check(err)
		byKustomize, byServer := names(kustomize(c.object, c.patch), c.paths), names(server, c.paths)
		fmt.Printf("%s: kustomize [%s], API server [%s]\n", strings.Join(c.paths, "."), byKustomize, byServer)
		changed = changed || byKustomize != c.byKustomize || byServer != c.byServer
	}
	fmt.Println("kustomize's schema of the built-in kinds:", kubernetesapi.DefaultOpenAPI)
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// kustomize returns the object with a strategic merge patch by kustomize.
func kustomize(object, patch string) []byte {
	files := filesys.MakeFsInMemory()
	check(files.WriteFile("/k/kustomization.yaml", []byte("resources: [object.yaml]\npatches: [{path: patch.yaml}]\n")))
	check(files.WriteFile("/k/object.yaml", []byte(object)))
	check(files.WriteFile("/k/patch.yaml", []byte(patch)))
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/k")
	check(err)
	content, err := objects.AsYaml()
	check(err)
	return toJSON(string(content))
}

// names returns the names of the list's elements.
func names(content []byte, path []string) string {
	var value any
	check(json.Unmarshal(content, &value))
	for _, name := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			value = v[0]
		}
	}
	var all []string
	for _, element := range value.([]any) {
		all = append(all, element.(map[string]any)["name"].(string))
	}
	return strings.Join(all, " ")
}

func toJSON(text string) []byte {
	content, err := yaml.YAMLToJSON([]byte(text))
	check(err)
	return content
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
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	sigs.k8s.io/kustomize/api v0.21.1
	sigs.k8s.io/kustomize/kyaml v0.21.1
	sigs.k8s.io/yaml v1.6.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/api v0.37.2, k8s.io/apimachinery v0.37.2, sigs.k8s.io/kustomize/api v0.21.1, sigs.k8s.io/kustomize/kyaml v0.21.1, sigs.k8s.io/yaml v1.6.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
