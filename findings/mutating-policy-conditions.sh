#!/bin/sh
# mutating-policy-conditions.sh: a match condition changes what the mutations of a MutatingAdmissionPolicy can do.
#
#	sh findings/mutating-policy-conditions.sh
#
# The JSON patch `[JSONPatch{op: "add", path: "/spec/containers/-", value: object.spec.containers[0]}]` copies a container. With a match
# condition that is true it is an error: "type conversion error from struct type v1.Container to *structpb.Value". Match conditions see
# the object through its Go type (LazyObject.UseSchemalessTypeRef), and this stays set for the mutations of the policy, and of the
# policies after it. Without, mutations see the object as JSON. Custom resources are JSON in both.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOM'
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	ctx, mode := context.Background(), environment.StoredExpressions
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	check(err)
	condition := matchconditions.NewMatcher(compiler.CompileCondition([]plugincel.ExpressionAccessor{&matchconditions.MatchCondition{Name: "c", Expression: "true"}},
		plugincel.OptionalVariableDeclarations{}, mode), nil, "policy", "mutate", "p")
	mutation := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{
		Expression: `[JSONPatch{op: "add", path: "/spec/containers/-", value: object.spec.containers[0]}]`,
	}, plugincel.OptionalVariableDeclarations{HasPatchTypes: true}, mode))
	for _, conditions := range []bool{false, true} {
		kind := corev1.SchemeGroupVersion.WithKind("Pod")
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}}}
		attributes := &admission.VersionedAttributes{
			Attributes:    admission.NewAttributesRecord(pod, nil, kind, "default", "web", corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil),
			VersionedKind: kind,
		}
		attributes.VersionedObject.Set(pod)
		if conditions {
			check(condition.Match(ctx, attributes, nil, nil).Error)
		}
		_, err := mutation.Patch(ctx, patch.Request{VersionedAttributes: attributes, ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme)}, celconfig.RuntimeCELCostBudget)
		fmt.Printf("match condition %t: error %v\n", conditions, err)
		if fails := err != nil && strings.Contains(err.Error(), "struct type v1.Container"); fails != conditions {
			fmt.Println("this has changed")
			os.Exit(1)
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOM
cat >go.mod <<'EOM'
module finding

go 1.26

require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/client-go v0.37.2
)
EOM
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
