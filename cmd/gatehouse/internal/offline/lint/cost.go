package lint

import (
	"math"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// The sizes for which costs are estimated: those of large objects. For the largest ones any nested loop would be too expensive.
const (
	manyElements = 30
	longText     = 128
)

// lintCost reports expressions that may cost more than the API server allows.
func (s *subject) lintCost() {
	total := uint64(0)
	for _, e := range s.expressions {
		cost := estimate(e)
		if limit := uint64(celconfig.PerCallLimit); cost > limit {
			s.report(Expensive, e, "take loops apart with variables, or narrow the lists down first",
				"costs up to %d for lists of %d elements; at %d the API server gives up, and %s", cost, manyElements, limit, s.consequence())
			continue
		}
		total += cost
	}
	if total > celconfig.RuntimeCELCostBudget {
		s.warn(Expensive, s.expressions[0].path.Root(), "make several policies of it",
			"the expressions cost up to %d for lists of %d elements; at %d the API server gives up, and %s",
			total, manyElements, celconfig.RuntimeCELCostBudget, s.consequence())
	}
}

// estimate returns the maximum cost of an expression for the sizes above, or 0 if it is unknown.
func estimate(e *expression) uint64 {
	sizes := sizes{}
	cost, err := checker.Cost(e.typed().AST, &library.CostEstimator{SizeEstimator: sizes}, checker.PresenceTestHasCost(false))
	if err != nil || cost.Max == math.MaxUint64 {
		return 0
	}
	return cost.Max
}

// sizes implements checker.CostEstimator.
type sizes struct{}

// EstimateSize returns the size of a value.
func (sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	switch node.Type().Kind() { //nolint:exhaustive // others have the size 1 anyway
	case types.StringKind, types.BytesKind:
		return &checker.SizeEstimate{Max: longText}
	case types.ListKind, types.MapKind, types.StructKind, types.DynKind, types.AnyKind:
		return &checker.SizeEstimate{Max: manyElements}
	case types.OpaqueKind:
		return &checker.SizeEstimate{Max: longText}
	case types.TypeKind, types.NullTypeKind:
		return &checker.SizeEstimate{Min: 1, Max: 1}
	default:
		return nil
	}
}

// EstimateCallCost leaves calls to the API server's own estimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
