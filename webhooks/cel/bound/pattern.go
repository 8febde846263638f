package bound

import (
	"regexp/syntax"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// IsPattern reports whether a function takes a regular expression. One that is
// written down is compiled with the expression and kept, a hundred bytes for each
// of its parts, and repetitions are written out: (abc){1000} has 3,000 parts.
func IsPattern(function string) bool {
	return function == "matches" || function == "find" || function == "findAll"
}

// patternSize returns how many parts a regular expression has, with its repetitions
// written out, if it is written down.
func patternSize(e ast.Expr) int {
	if e.Kind() != ast.LiteralKind {
		return 0
	}
	text, ok := e.AsLiteral().(types.String)
	if !ok {
		return 0
	}
	return PatternSize(string(text))
}

// PatternSize returns how many parts a regular expression has, with its repetitions
// written out. It is 0 for what is none.
func PatternSize(text string) int {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0
	}
	parts, classes := expandedSize(parsed)
	return min(largest, parts+classes/lettersPerPart)
}

// lettersPerPart is how many letters of classes take as much memory as a part.
const lettersPerPart = 25

// expandedSize counts the parts of a regular expression with its repetitions, and the
// letters of its classes, which repetitions share.
func expandedSize(r *syntax.Regexp) (parts, classes int) {
	parts = max(1, len(r.Rune))
	if r.Op == syntax.OpCharClass {
		parts, classes = 1, len(r.Rune)
	}
	for _, sub := range r.Sub {
		p, c := expandedSize(sub)
		parts, classes = min(largest, parts+p), min(largest, classes+c)
	}
	if r.Op == syntax.OpRepeat {
		parts = min(largest, parts*max(1, r.Min, r.Max))
	}
	return parts, classes
}

// Patterns returns how large the regular expressions are that are written down in an
// expression.
func Patterns(root ast.Expr) int {
	sum := 0
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || !IsPattern(e.AsCall().FunctionName()) {
			return
		}
		for _, arg := range e.AsCall().Args() {
			sum = min(largest, sum+patternSize(arg))
		}
	}))
	return sum
}
