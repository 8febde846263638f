package expression

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// use is what a value is for: what must hold for it in the newer object so that the rule
// does not become false, or an error, where it was true. An error in the older object
// requires nothing: the newer one cannot be worse.
type use uint8

const (
	// exactly requires the same value, and of a list the same order.
	exactly use = iota
	// holds requires of a condition that it stays true if it was, and fails that it
	// stays false if it was.
	holds
	fails
	// anyOrder requires of a list the same elements, and fewer no others.
	anyOrder
	fewer
	// empty requires of a list that it stays empty if it was.
	empty
)

// ofCondition returns the use of what is joined to a condition by "and" and "or".
func (u use) ofCondition() use {
	if u == holds || u == fails {
		return u
	}
	return exactly
}

// negated returns the use of what is negated for a condition.
func (u use) negated() use {
	switch u {
	case holds:
		return fails
	case fails:
		return holds
	case exactly, anyOrder, fewer, empty:
	}
	return exactly
}

// visitSizeComparison notes what is read by a comparison of a size, or of a value with an
// empty list or map, and returns false for any other call.
func (r *reader) visitSizeComparison(c ast.CallExpr, u use) bool {
	exchanged, ok := mirrored(c.FunctionName())
	if !ok {
		return false
	}
	args := c.Args()
	left, right := args[0], args[1]
	for _, operator := range []string{c.FunctionName(), exchanged} {
		if of, use, is, ok := comparedSize(operator, left, right, u); ok {
			list := r.visit(of, use)
			list.element(use)
			r.visit(right, exactly).readWhole()
			if is == ofAnySize {
				r.addCause(causeOf(sizedBy(list)))
			} else {
				r.addPresence(is == notEmpty, sizedBy(list))
			}
			return true
		}
		left, right = right, left
	}
	return false
}

// mirrored returns an operator that compares with its sides exchanged, and false for
// any other function.
func mirrored(operator string) (string, bool) {
	switch operator {
	case operators.Equals, operators.NotEquals:
		return operator, true
	case operators.Less:
		return operators.Greater, true
	case operators.LessEquals:
		return operators.GreaterEquals, true
	case operators.Greater:
		return operators.Less, true
	case operators.GreaterEquals:
		return operators.LessEquals, true
	default:
		return "", false
	}
}

// sizeIs is what a comparison of a size says if it is true.
type sizeIs uint8

const (
	ofAnySize sizeIs = iota
	isEmpty
	notEmpty
)

// comparedSize returns the value whose size is compared, its use and what the comparison
// says, if the left side is a size or the right side is empty.
func comparedSize(operator string, left, right ast.Expr, u use) (of ast.Expr, _ use, is sizeIs, ok bool) {
	limit, isNumber := int64(0), true
	if left.Kind() == ast.CallKind {
		of = sized(left.AsCall())
	}
	switch {
	case of != nil:
		limit, isNumber = number(right)
	case isEmptyLiteral(right) && (operator == operators.Equals || operator == operators.NotEquals):
		of = left
	default:
		return nil, exactly, ofAnySize, false
	}
	// A small size is wanted if the comparison is to be true, or to be false. The limit for
	// "none" is 0, or 1 for the operators that exclude it.
	wanted, least := holds, int64(0)
	switch operator {
	case operators.Less:
		least = 1
	case operators.NotEquals, operators.Greater:
		wanted = fails
	case operators.GreaterEquals:
		wanted, least = fails, 1
	}
	none := isNumber && limit == least
	if !none && (operator == operators.Equals || operator == operators.NotEquals) {
		return of, anyOrder, ofAnySize, true
	}
	switch {
	case none && wanted == holds:
		is = isEmpty
	case none:
		is = notEmpty
	}
	switch {
	case u != wanted:
		return of, anyOrder, is, true
	case none:
		return of, empty, is, true
	default:
		return of, fewer, is, true
	}
}

// sized returns what a call gives the size of, or nil.
func sized(c ast.CallExpr) ast.Expr {
	switch {
	case c.FunctionName() != "size":
		return nil
	case c.IsMemberFunction() && len(c.Args()) == 0:
		return c.Target()
	case !c.IsMemberFunction() && len(c.Args()) == 1:
		return c.Args()[0]
	default:
		return nil
	}
}

func number(e ast.Expr) (int64, bool) {
	if e.Kind() != ast.LiteralKind {
		return 0, false
	}
	n, ok := e.AsLiteral().(types.Int)
	return int64(n), ok
}

func isEmptyLiteral(e ast.Expr) bool {
	return e.Kind() == ast.ListKind && e.AsList().Size() == 0 || e.Kind() == ast.MapKind && e.AsMap().Size() == 0
}
