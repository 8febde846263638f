#!/bin/sh
# cel-addresses-urls-versions.sh: what Kubernetes' CEL functions for addresses, URLs and versions take.
#
#	sh findings/cel-addresses-urls-versions.sh
#
# isIP refuses an IPv4 address in IPv6 form; isCIDR takes host bits, and such a range is not equal to its masked form. isURL is true of a path and of mailto:,
# so that it does not say that there is a host. Versions are equal without their build metadata, and normalizing takes leading zeros away. Sets are
# equivalent whatever repeats.
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

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

func main() {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv()
	changed := false
	for _, c := range []struct {
		expression string
		want       bool
	}{
		{`isIP("::ffff:10.0.0.1")`, false},
		{`isIP("::1") && ip("::1") == ip("0:0:0:0:0:0:0:1")`, true},
		{`isCIDR("10.0.0.1/8")`, true},
		{`cidr("10.0.0.1/8") == cidr("10.0.0.0/8")`, false},
		{`cidr("10.0.0.1/8").masked() == cidr("10.0.0.0/8")`, true},
		{`isURL("example.org")`, false},
		{`isURL("/path")`, true},
		{`isURL("mailto:user@example.org") && url("mailto:user@example.org").getHost() == ""`, true},
		{`isSemver("v1.2.3")`, false},
		{`semver("1.2.3+a") == semver("1.2.3+b")`, true},
		{`semver("v01.2", true) == semver("1.2.0")`, true},
		{`sets.equivalent([1], [1, 1])`, true},
	} {
		ast, issues := env.Compile(c.expression)
		check(issues.Err())
		program, err := env.Program(ast)
		check(err)
		value, _, err := program.Eval(cel.NoVars())
		check(err)
		fmt.Println(c.expression, "is", value)
		changed = changed || value.Value() != c.want
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
