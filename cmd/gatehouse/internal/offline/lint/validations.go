package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// lintUnusedVariables reports variables that no expression names. If an expression
// does not compile, it may name any.
func (s *subject) lintUnusedVariables() {
	if s.broken {
		return
	}
	used := map[string]bool{}
	for _, e := range s.expressions {
		walk(e.plain.AST.Expr(), func(part ast.Expr) {
			if name := variableOf(part); name != "" {
				used[name] = true
			}
		})
	}
	for i, v := range s.spec.Variables {
		if !used[v.Name] {
			s.warn(UnusedVariable, field.NewPath("spec", "variables").Index(i).Child("name"), "drop it", "no expression uses variables.%s", v.Name)
		}
	}
}

// lintMessages reports validations whose expression is all that people get to read.
func (s *subject) lintMessages() {
	for i := range s.spec.Validations {
		v := &s.spec.Validations[i]
		if strings.TrimSpace(v.Expression) != "" && strings.TrimSpace(v.Message) == "" && strings.TrimSpace(v.MessageExpression) == "" {
			s.warn(MissingMessage, field.NewPath("spec", "validations").Index(i), "say in message what is wrong and what to do",
				"has no message: users whose request is denied read %s", quoted("failed expression: "+strings.TrimSpace(v.Expression)))
		}
	}
}

// lintDuplicates reports validations with the expression of an earlier one.
func (s *subject) lintDuplicates() {
	var seen []*expression
	for _, e := range s.expressions {
		if e.role != validation {
			continue
		}
		written := unparse(e.plain, e.parsed.NativeRep().Expr())
		same := slices.IndexFunc(seen, func(other *expression) bool { return unparse(other.plain, other.parsed.NativeRep().Expr()) == written })
		if same >= 0 && written != "" {
			s.warn(Duplicate, e.path, "drop one of the two", "is the same as %s", seen[same].path)
			continue
		}
		seen = append(seen, e)
	}
}
