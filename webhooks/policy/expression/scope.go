package expression

import (
	"errors"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// Condition is a match condition.
type Condition struct {
	Name string
	*Program
}

// Scope compiles the expressions of one document, and reports those that do not compile.
type Scope struct {
	validation.Reporter
	Declarations
	// Uses are the names that the expressions mention, and Bound is that of what they cost together, without variables.
	Uses  Uses
	Bound celcost.Bound

	compiler *Compiler
	// names are those of the variables, declared or not.
	names []string
	// tooLarge is true once the expressions are too large together.
	tooLarge bool
}

// NewScope returns the scope of a document that has params or has none, and has these variables, which are not declared yet. Stop is
// that of its budget.
func NewScope(r validation.Reporter, compiler *Compiler, params bool, variables []admissionregistrationv1.Variable, stop func() error) *Scope {
	s := &Scope{Reporter: r, compiler: compiler, Declarations: Declarations{Params: params, Authorizer: true, Budget: &celbound.Budget{Stop: stop}}}
	for _, v := range variables {
		s.names = append(s.names, v.Name)
	}
	return s
}

// Fits reports whether expressions are few and short enough to be compiled. It reports those that are not.
func (s *Scope) Fits(path *field.Path, expressions ...string) bool {
	for _, expression := range expressions {
		if err := s.Budget.Add(expression); err != nil {
			s.Errorf(path, celbound.DocumentHint, "%v", err)
			return false
		}
	}
	return true
}

// FitWith is Fits for the expressions of a policy: its match conditions, its variables and others.
func (s *Scope) FitWith(path *field.Path, conditions []admissionregistrationv1.MatchCondition, variables []admissionregistrationv1.Variable, others []string) bool {
	for i := range conditions {
		others = append(others, conditions[i].Expression)
	}
	for i := range variables {
		others = append(others, variables[i].Expression)
	}
	return s.Fits(path, others...)
}

// CompileConditions compiles match conditions. As in the API server's validation, they have no variables.
func (s *Scope) CompileConditions(path *field.Path, given []admissionregistrationv1.MatchCondition) (out []Condition) {
	for i, c := range given {
		if p := s.compiled(path.Index(i).Child("expression"), c.Expression, s.compiler.CompileCondition); p != nil {
			out = append(out, Condition{c.Name, p})
			s.Conditions = append(s.Conditions, p)
		}
	}
	s.Uses &^= UsesNamespace // match conditions see none
	return out
}

// CheckConditions warns of match conditions that are never true, so that a document, which it calls what, does nothing, and reports whether
// there are none.
func CheckConditions(r validation.Reporter, path *field.Path, what string, conditions []Condition) bool {
	may := true
	for i, c := range conditions {
		if c.IsNever() {
			r.NeverTrue(path.Index(i).Child("expression"), c.Text(), what)
			may = false
		}
	}
	return may
}

// DeclareVariables compiles and declares variables, for what is compiled from now on. It returns nil for none.
func (s *Scope) DeclareVariables(path *field.Path, given []admissionregistrationv1.Variable) *Variables {
	if len(given) > 0 {
		s.Variables = NewVariables()
	}
	for i, v := range given {
		if strings.TrimSpace(v.Expression) != "" {
			s.refuse(path.Index(i).Child("expression"), v.Expression, s.compiler.Declare(v.Name, v.Expression, s.Declarations))
		}
	}
	return s.Variables
}

// Compile compiles an expression, and returns nil if there is none, or if it does not compile.
func (s *Scope) Compile(path *field.Path, text string, results ...*cel.Type) *Program {
	return s.compiled(path, text, func(text string, d Declarations) (*Program, *apiservercel.Error) {
		return s.compiler.Compile(text, d, results...)
	})
}

// CompileMessage compiles a messageExpression, which as upstream cannot ask the authorizer.
func (s *Scope) CompileMessage(path *field.Path, text string) *Program {
	without := *s
	without.Authorizer, without.Reads = false, false
	compiled := without.Compile(path, text, cel.StringType)
	s.Uses |= without.Uses
	s.Bound, s.tooLarge = without.Bound, without.tooLarge
	return compiled
}

// Seal drops what is kept for compiling more expressions.
func (s *Scope) Seal() {
	if s.Variables != nil {
		s.Variables.Seal()
	}
	for _, c := range s.Conditions {
		c.Seal()
	}
}

// compiled is Compile by a method of the compiler.
func (s *Scope) compiled(path *field.Path, text string, by func(string, Declarations) (*Program, *apiservercel.Error)) *Program {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	compiled, err := by(text, s.Declarations)
	if err != nil {
		s.refuse(path, text, err)
		return nil
	}
	s.Uses |= compiled.Uses()
	s.Bound = s.Bound.Add(compiled.Bound())
	return compiled
}

// refuse reports why an expression does not compile. That the expressions are too large
// together is reported of the first one that is too much.
func (s *Scope) refuse(path *field.Path, expression string, err *apiservercel.Error) {
	if err == nil {
		return
	}
	if errors.Is(err.Cause, celbound.ErrDocument) {
		if s.tooLarge {
			return
		}
		s.tooLarge = true
	}
	s.ExpressionError(path, expression, err, validation.Names{Params: s.Params, Authorizer: s.Authorizer, Variables: s.names})
}
