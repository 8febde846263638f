#!/bin/sh
# apply-configuration-atomic-fields.sh: which fields of a pod an ApplyConfiguration of a MutatingAdmissionPolicy cannot set.
#
#	sh findings/apply-configuration-atomic-fields.sh
#
# A mutation may set no atomic list, map or struct, which server-side apply may: not tolerations, nodeSelector, args, envFrom, capabilities.drop, dnsConfig.options, nor an
# environment variable from a field of the pod. imagePullSecrets and ownerReferences are lists by key, and their elements are atomic, so that no element can be added. Of
# topologySpreadConstraints everything but the labelSelector can be set. JSONPatch is the way there. An element of a list by key without its key is no error:
# it is another element. The merge is the one of the API server.
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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func main() {
	types := applyconfigurations.NewTypeConverter(scheme.Scheme)
	changed := false
	for _, c := range []struct {
		configuration string
		taken         bool
	}{
		{"{metadata: {labels: {a: b}, finalizers: [example.org/a]}}", true},
		{"{metadata: {ownerReferences: [{apiVersion: v1, kind: Node, name: a, uid: a}]}}", false},
		{"{spec: {tolerations: [{key: a, operator: Exists}]}}", false},
		{"{spec: {nodeSelector: {a: b}}}", false},
		{"{spec: {imagePullSecrets: [{name: a}]}}", false},
		{"{spec: {dnsConfig: {options: [{name: ndots, value: '1'}]}}}", false},
		{"{spec: {schedulingGates: [{name: example.org/a}]}}", true},
		{"{spec: {readinessGates: [{conditionType: a}]}}", false},
		{"{spec: {topologySpreadConstraints: [{topologyKey: a, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}]}}", true},
		{"{spec: {topologySpreadConstraints: [{topologyKey: a, whenUnsatisfiable: DoNotSchedule, maxSkew: 1, labelSelector: {}}]}}", false},
		{"{spec: {securityContext: {seccompProfile: {type: RuntimeDefault}}}}", true},
		{"{spec: {containers: [{name: c, securityContext: {capabilities: {drop: [ALL]}}}]}}", false},
		{"{spec: {containers: [{name: c, resources: {limits: {cpu: 1}}}]}}", true},
		{"{spec: {containers: [{name: c, args: [a]}]}}", false},
		{"{spec: {containers: [{name: c, env: [{name: A, value: b}]}]}}", true},
		{"{spec: {containers: [{name: c, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}}", false},
		{"{spec: {containers: [{name: c, envFrom: [{configMapRef: {name: a}}]}]}}", false},
		{"{spec: {containers: [{image: a}]}}", true},
	} {
		var pod corev1.Pod
		check(yaml.Unmarshal([]byte("{metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"), &pod))
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		configuration := map[string]any{}
		check(yaml.Unmarshal([]byte(c.configuration), &configuration))
		object := &unstructured.Unstructured{Object: configuration}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		_, err := patch.ApplyStructuredMergeDiff(types, &pod, object)
		fmt.Printf("%s: %v\n", c.configuration, err)
		changed = changed || (err == nil) != c.taken
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
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
	k8s.io/apiserver v0.37.2
	k8s.io/client-go v0.37.2
	sigs.k8s.io/yaml v1.6.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/api v0.37.2, k8s.io/apimachinery v0.37.2, k8s.io/apiserver v0.37.2, k8s.io/client-go v0.37.2, sigs.k8s.io/yaml v1.6.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
