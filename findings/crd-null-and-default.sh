#!/bin/sh
# crd-null-and-default.sh: what becomes of a null in a custom resource before it is validated.
#
#	sh findings/crd-null-and-default.sh
#
# A null is not an error where the schema allows none: a field with a default gets the default, one without is removed, and then may be missed as required. With nullable,
# null stays and no default comes. A null in a list gets the default of the items; without one it stays, and is invalid. So a client that writes null to clear a field gets the default back.
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

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
)

func main() {
	def := apiextensions.JSON("standard")
	properties := &apiextensions.JSONSchemaProps{Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{
		"plain":    {Type: "string"},
		"default":  {Type: "string", Default: &def},
		"nullable": {Type: "string", Nullable: true, Default: &def},
		"names":    {Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "string"}}},
		"list":     {Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "string", Default: &def}}},
	}}
	structural, err := schema.NewStructural(properties)
	check(err)
	validator, _, err := validation.NewSchemaValidator(properties)
	check(err)
	changed := false
	for _, c := range []struct {
		object, want string
		valid        bool
	}{
		{`{"plain":null,"nullable":"x","default":"x"}`, `{"default":"x","nullable":"x"}`, true},
		{`{"default":null,"nullable":"x"}`, `{"default":"standard","nullable":"x"}`, true},
		{`{"default":"x","nullable":null}`, `{"default":"x","nullable":null}`, true},
		{`{"default":"x","nullable":"x","list":[null]}`, `{"default":"x","list":["standard"],"nullable":"x"}`, true},
		{`{"default":"x","nullable":"x","names":[null]}`, `{"default":"x","names":[null],"nullable":"x"}`, false},
	} {
		var object map[string]any
		check(json.Unmarshal([]byte(c.object), &object))
		// As the API server decodes custom resources.
		defaulting.PruneNonNullableNullsWithoutDefaults(object, structural)
		defaulting.Default(object, structural)
		errs := validation.ValidateCustomResource(nil, object, validator)
		got, err := json.Marshal(object)
		check(err)
		fmt.Printf("%s becomes %s, valid %t\n", c.object, got, len(errs) == 0)
		changed = changed || string(got) != c.want || (len(errs) == 0) != c.valid
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
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apiextensions-apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
