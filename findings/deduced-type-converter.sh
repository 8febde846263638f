#!/bin/sh
# deduced-type-converter.sh: what an apply configuration does to lists without the schema of the kind.
#
#	sh findings/deduced-type-converter.sh
#
# managedfields.NewDeducedTypeConverter needs no schema, and so serves offline tools that evaluate mutating admission policies. It replaces whole
# lists: an apply configuration that adds one init container deletes those that exist, and one that sets a container's env deletes its args and image.
# client-go has the schemas of all built-in kinds without a cluster (applyconfigurations.NewTypeConverter); with it the lists are merged by their keys.
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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	before = `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {initContainers: [{name: a, image: a}], containers: [{name: c, image: c, args: [x]}]}}`
	apply  = `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {initContainers: [{name: b, image: b}], containers: [{name: c, env: [{name: E, value: e}]}]}}`
)

func main() {
	deduced := merge(managedfields.NewDeducedTypeConverter())
	schema := merge(applyconfigurations.NewTypeConverter(scheme.Scheme))
	fmt.Printf("deduced:\n%s\nby the schema:\n%s", deduced, schema)
	if deduced != "containers:\n- env:\n  - name: E\n    value: e\n  name: c\ninitContainers:\n- image: b\n  name: b\n" ||
		schema != "containers:\n- args:\n  - x\n  env:\n  - name: E\n    value: e\n  image: c\n  name: c\ninitContainers:\n- image: a\n  name: a\n- image: b\n  name: b\n" {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// merge returns the spec of the pod after the apply configuration.
func merge(types managedfields.TypeConverter) string {
	object, err := types.ObjectToTyped(parse(before))
	check(err)
	configuration, err := types.ObjectToTyped(parse(apply))
	check(err)
	merged, err := object.Merge(configuration)
	check(err)
	result, err := types.TypedToObject(merged)
	check(err)
	text, err := yaml.Marshal(result.(*unstructured.Unstructured).Object["spec"])
	check(err)
	return string(text)
}

func parse(text string) *unstructured.Unstructured {
	object := map[string]any{}
	check(yaml.Unmarshal([]byte(text), &object))
	return &unstructured.Unstructured{Object: object}
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
	k8s.io/apimachinery v0.37.2
	k8s.io/client-go v0.37.2
	sigs.k8s.io/yaml v1.6.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apimachinery v0.37.2, k8s.io/client-go v0.37.2, sigs.k8s.io/yaml v1.6.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
