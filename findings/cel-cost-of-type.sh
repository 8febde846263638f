#!/bin/sh
# cel-cost-of-type.sh: what comparing a value's type costs by cel-go's estimate, and by evaluation.
#
#	sh findings/cel-cost-of-type.sh
#
# The estimate of `type(x) == int` is 1.8e18 at most, with cel-go's own estimator and with that of k8s.io/apiserver, which decides
# whether a validation rule of a CustomResourceDefinition is within its budget; evaluation counts a few units. A type has no size in the
# estimator, and a comparison of what has no known size counts as one of the largest value. Comparing with a value, `x == 1`, counts 2.
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
	"github.com/google/cel-go/checker"
	"k8s.io/apiserver/pkg/cel/library"
)

// sizes knows no size.
type sizes struct{}

func (sizes) EstimateSize(checker.AstNode) *checker.SizeEstimate { return nil }

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func main() {
	env, err := cel.NewEnv(cel.Variable("x", cel.DynType))
	check(err)
	for _, c := range []struct {
		text string
		huge bool
	}{{"x == 1", false}, {"type(x) == int", true}} {
		ast, issues := env.Compile(c.text)
		check(issues.Err())
		plain, err := env.EstimateCost(ast, sizes{})
		check(err)
		kubernetes, err := env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: sizes{}})
		check(err)
		program, err := env.Program(ast, cel.CostTracking(nil))
		check(err)
		_, details, err := program.Eval(map[string]any{"x": 1})
		check(err)
		fmt.Printf("%s: at most %d by cel-go, %d by k8s.io/apiserver; evaluation counts %d\n", c.text, plain.Max, kubernetes.Max, *details.ActualCost())
		const most = 1_000_000_000_000
		if (plain.Max > most) != c.huge || (kubernetes.Max > most) != c.huge || *details.ActualCost() > 10 {
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
echo "version: cel-go v0.29.2, k8s.io/apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
