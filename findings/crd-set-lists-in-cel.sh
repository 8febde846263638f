#!/bin/sh
# crd-set-lists-in-cel.sh: how lists with x-kubernetes-list-type compare and add in rules of a CustomResourceDefinition.
#
#	sh findings/crd-set-lists-in-cel.sh
#
# A list of type set is equal to another in any order, and `+` leaves out what is there already; an atomic list is compared in order. So the same
# rule gives another verdict when only the merge strategy of the list changes.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"
	"math"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
)

func main() {
	changed := false
	for _, c := range []struct {
		listType, rule string
		want           bool
	}{
		{"atomic", `self.list == ["b", "a"]`, false},
		{"set", `self.list == ["b", "a"]`, true},
		{"atomic", `(self.list + ["a", "c"]).size() == 4`, true},
		{"set", `(self.list + ["a", "c"]).size() == 3`, true},
	} {
		listType := c.listType
		structural, err := schema.NewStructural(&apiextensions.JSONSchemaProps{
			Type: "object", XValidations: apiextensions.ValidationRules{{Rule: c.rule}},
			Properties: map[string]apiextensions.JSONSchemaProps{
				"list": {Type: "array", XListType: &listType, Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "string"}}},
			},
		})
		if err != nil {
			panic(err)
		}
		errs, _ := cel.NewValidator(structural, true, math.MaxInt64).Validate(context.Background(), nil, structural, map[string]any{"list": []any{"a", "b"}}, nil, math.MaxInt64)
		fmt.Printf("list [a b] of type %s, rule %s: %t\n", c.listType, c.rule, len(errs) == 0)
		changed = changed || (len(errs) == 0) != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	k8s.io/apiextensions-apiserver v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apiextensions-apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
