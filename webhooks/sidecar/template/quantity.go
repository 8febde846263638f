package template

import (
	"regexp"

	celast "github.com/google/cel-go/common/ast"
)

// hugeQuantity is a JSON string that is a quantity with an exponent of three
// digits or more. Comparing one takes minutes, which neither the cost limit nor
// the context ends, and the API server lets a pod have one.
var hugeQuantity = regexp.MustCompile(`"[+-]?[0-9.]+[eE][+-]?[0-9]{3,}"`)

// callsQuantity reports whether an expression makes quantities of texts.
func callsQuantity(expr celast.Expr) bool {
	calls := false
	celast.PostOrderVisit(expr, celast.NewExprVisitor(func(e celast.Expr) {
		calls = calls || e.Kind() == celast.CallKind && e.AsCall().FunctionName() == "quantity"
	}))
	return calls
}

// hasHugeQuantity reports whether something that an expression can make a quantity
// of is one that cannot be compared.
func (in *Input) hasHugeQuantity() bool {
	if hugeQuantity.Match(in.Pod) {
		return true
	}
	if in.Namespace != nil {
		for _, texts := range [...]map[string]string{in.Namespace.Labels, in.Namespace.Annotations} {
			for _, text := range texts {
				if hugeQuantity.MatchString(`"` + text + `"`) {
					return true
				}
			}
		}
	}
	return false
}
