#!/bin/sh
# claims-in-cel.sh: numbers and lists of JWT claims in CEL of an AuthenticationConfiguration.
#
#	sh findings/claims-in-cel.sh
#
# Every number of a claim is a double, so that `string(claims.uid)` of 12345678 is "1.2345678e+07"; `string(int(claims.uid))` is "12345678", and small
# numbers look right either way. A claim has the type any: a macro directly on it (`map`, `filter`, `all`, `exists`) does not compile, and needs `dyn()`,
# while `claims.groups.split(",")` compiles and gives Go's []string, which is neither the list of a claim nor a list of CEL values.
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
	"os"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/authentication/cel"
)

func main() {
	var claims map[string]any
	if err := json.Unmarshal([]byte(`{"uid": 12345678, "level": 7, "groups": "a,b", "roles": ["a", "b"]}`), &claims); err != nil {
		panic(err)
	}
	changed := false
	for _, c := range []struct{ expression, want string }{
		{`string(claims.uid)`, "string 1.2345678e+07"},
		{`string(int(claims.uid))`, "string 12345678"},
		{`string(claims.level)`, "string 7"},
		{`claims.roles.map(r, "team:" + r)`, "does not compile"},
		{`dyn(claims.roles).map(r, "team:" + r)`, "[]ref.Val [team:a team:b]"},
		{`claims.groups.split(",")`, "[]string [a b]"},
		{`claims.groups.split(",").map(g, g)`, "[]ref.Val [a b]"},
	} {
		got := evaluate(c.expression, claims)
		fmt.Println(c.expression, "is", got)
		changed = changed || got != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

func evaluate(expression string, claims map[string]any) string {
	compiled, err := cel.NewDefaultCompiler().CompileClaimsExpression(&cel.ClaimMappingExpression{Expression: expression})
	if err != nil {
		return "does not compile"
	}
	value, err := cel.NewClaimsMapper([]cel.CompilationResult{compiled}).EvalClaimMapping(context.Background(), types.DefaultTypeAdapter.NativeToValue(claims).(traits.Mapper))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%T %v", value.EvalResult.Value(), value.EvalResult.Value())
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	github.com/google/cel-go v0.29.2
	k8s.io/apiserver v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/google/cel-go v0.29.2, k8s.io/apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
