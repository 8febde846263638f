#!/bin/sh
# crd-format-duration.sh: what `format: duration` of a CustomResourceDefinition takes.
#
#	sh findings/crd-format-duration.sh
#
# The format is that of kube-openapi's strfmt, not of Go: "2 days", "1d" and "P1D" are valid, and a rule in CEL sees 48 and 24 hours, while a controller whose Go type
# has metav1.Duration there cannot decode the stored object. The other way about, formats that do not exist, such as `quantity` or `port`, are no error and check nothing.
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
	"encoding/json"
	"fmt"
	"math"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	changed := false
	for _, c := range []struct {
		format, value, rule string
		valid, decodes      bool
	}{
		{"duration", "48h", `self == duration("48h")`, true, true},
		{"duration", "2 days", `self == duration("48h")`, true, false},
		{"duration", "1d", `self == duration("24h")`, true, false},
		{"duration", "P1D", "true", true, false},
		{"duration", "soon", "true", false, false},
		{"quantity", "soon", "true", true, false},
	} {
		properties := &apiextensions.JSONSchemaProps{Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{
			"value": {Type: "string", Format: c.format, XValidations: apiextensions.ValidationRules{{Rule: c.rule}}},
		}}
		structural, err := schema.NewStructural(properties)
		check(err)
		validator, _, err := validation.NewSchemaValidator(properties)
		check(err)
		object := map[string]any{"value": c.value}
		errs := validation.ValidateCustomResource(nil, object, validator)
		if len(errs) == 0 {
			errs, _ = cel.NewValidator(structural, true, math.MaxInt64).Validate(context.Background(), nil, structural, object, nil, math.MaxInt64)
		}
		var duration metav1.Duration
		text, err := json.Marshal(c.value)
		check(err)
		decodes := json.Unmarshal(text, &duration) == nil
		fmt.Printf("format %s, %q, rule %s: valid %t, metav1.Duration decodes it: %t\n", c.format, c.value, c.rule, len(errs) == 0, decodes)
		changed = changed || (len(errs) == 0) != c.valid || decodes != c.decodes
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
	k8s.io/apiextensions-apiserver v0.37.2
	k8s.io/apimachinery v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apiextensions-apiserver v0.37.2, k8s.io/apimachinery v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
