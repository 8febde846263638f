package jwt

import (
	"github.com/google/cel-go/cel"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// programs are compiled expressions by their text, about claims and about the
// user.
type programs struct{ claims, user map[string]cel.Program }

func newPrograms() programs {
	return programs{make(map[string]cel.Program), make(map[string]cel.Program)}
}

// recorder is a compiler that keeps each program. Upstream's mappers, which give
// the verdict, evaluate several together, and say nothing of those beside one
// that cannot be evaluated.
type recorder struct {
	authenticationcel.Compiler
	programs programs
}

// CompileClaimsExpression implements authenticationcel.Compiler.
func (r *recorder) CompileClaimsExpression(expression authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	result, err := r.Compiler.CompileClaimsExpression(expression)
	r.programs.claims[expression.GetExpression()] = result.Program
	return result, err
}

// CompileUserExpression implements authenticationcel.Compiler.
func (r *recorder) CompileUserExpression(expression authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	result, err := r.Compiler.CompileUserExpression(expression)
	r.programs.user[expression.GetExpression()] = result.Program
	return result, err
}
