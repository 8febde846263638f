package policy

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// CompatibilityVersion is the Kubernetes version whose functions and rules of CEL
// hold for the expressions of policies, unless the configuration says otherwise.
// It is written down, and not taken from the library, so that a new library
// cannot change what an expression means without this line changing. It equals
// the library's environment.DefaultCompatibilityVersion.
const CompatibilityVersion = "1.36"

// program is what the expressions of one policy compile to.
type program struct {
	conditions       []condition
	validations      []ruleProgram
	auditAnnotations []auditAnnotation
	// variables is nil for a policy without.
	variables *expression.Variables
	// uses are the names that any of the expressions mentions.
	uses expression.Uses
	// bound is that of all expressions, each evaluated once.
	bound celcost.Bound
	// uncounted is how often the cost of an observed evaluation could be left uncounted, see review.counting.
	uncounted *atomic.Uint64
}

// condition is a match condition.
type condition struct {
	name string
	*expression.Program
}

// ruleProgram is a validation.
type ruleProgram struct {
	// name is "validations[memory-limit]", or "validations[2]" without a name.
	name string
	// indexed is "validations[2]" for a rule with a name.
	indexed string
	*expression.Program
	// messageExpression is nil for a rule without, and message is the one without its value.
	messageExpression *expression.Program
	message           string
	// readsObjectOnly is true if the rule depends on the object alone. It is known only if
	// it matters.
	readsObjectOnly bool
	reason          metav1.StatusReason
}

// auditAnnotation is an audit annotation.
type auditAnnotation struct {
	// name is "auditAnnotations[2]", and key is that of the policy.
	name, key string
	*expression.Program
	// published is the key in the answer.
	published string
}

// compileProgram reports every expression that does not compile. It compiles none of a
// policy that has too many, or too large ones.
func compileProgram(d validation.Reporter, compiler *expression.Compiler, policy string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, ruleNames []string, reads bool, budget *celbound.Budget) *program {
	s := &scope{Reporter: d, compiler: compiler, declarations: expression.Declarations{Params: spec.ParamKind != nil, Authorizer: true, Budget: budget}}
	path, out := field.NewPath("spec"), &program{uncounted: new(atomic.Uint64)}
	for expression := range expressionsOf(spec) {
		if err := budget.Add(expression); err != nil {
			d.Errorf(path, celbound.DocumentHint, "%v", err)
			return out
		}
	}

	// As in the API server's validation, match conditions have no variables.
	for _, v := range spec.Variables {
		s.variables = append(s.variables, v.Name)
	}
	for i, c := range spec.MatchConditions {
		at := path.Child("matchConditions").Index(i).Child("expression")
		if p := s.compiled(at, c.Expression, s.compiler.CompileCondition); p != nil {
			out.conditions = append(out.conditions, condition{c.Name, p})
			s.declarations.Conditions = append(s.declarations.Conditions, p)
		}
	}
	s.uses &^= expression.UsesNamespace // match conditions see none
	if len(spec.Variables) > 0 {
		out.variables = expression.NewVariables()
		s.declarations.Variables = out.variables
	}
	for i, v := range spec.Variables {
		if strings.TrimSpace(v.Expression) != "" {
			s.refuse(path.Child("variables").Index(i).Child("expression"), v.Expression, compiler.Declare(v.Name, v.Expression, s.declarations))
		}
	}
	s.declarations.Reads = reads
	for i, v := range spec.Validations {
		at := path.Child("validations").Index(i)
		compiled := ruleProgram{name: ruleNames[i], message: strings.TrimSpace(v.Message), reason: metav1.StatusReasonInvalid}
		if indexed := v1alpha1.IndexedRule(i); indexed != compiled.name {
			compiled.indexed = indexed
		}
		if compiled.message == "" {
			compiled.message = "failed expression: " + strings.TrimSpace(v.Expression)
		}
		if v.Reason != nil {
			compiled.reason = *v.Reason
		}
		compiled.Program = s.compile(at.Child("expression"), v.Expression, cel.BoolType)
		compiled.readsObjectOnly = compiled.Program != nil && readsObjectOnly(compiled.Program) && !compiled.Reads().IsNothing()
		compiled.messageExpression = s.message(at.Child("messageExpression"), v.MessageExpression)
		out.validations = append(out.validations, compiled)
	}
	s.declarations.Reads = false
	for i, a := range spec.AuditAnnotations {
		p := s.compile(path.Child("auditAnnotations").Index(i).Child("valueExpression"), a.ValueExpression, cel.StringType, cel.NullType)
		out.auditAnnotations = append(out.auditAnnotations, auditAnnotation{
			name: fmt.Sprintf("auditAnnotations[%d]", i), key: a.Key, Program: p, published: auditKey(policy, a.Key),
		})
	}
	out.bound = s.bound
	if out.variables != nil {
		out.bound = out.bound.Add(out.variables.Bound())
		out.variables.Seal()
	}
	for i := range out.conditions {
		out.conditions[i].Seal()
	}
	out.uses = s.uses
	return out
}

// expressionsOf yields the expressions of a policy.
func expressionsOf(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range spec.MatchConditions {
			if !yield(spec.MatchConditions[i].Expression) {
				return
			}
		}
		for i := range spec.Variables {
			if !yield(spec.Variables[i].Expression) {
				return
			}
		}
		for i := range spec.Validations {
			if v := &spec.Validations[i]; !yield(v.Expression) || v.MessageExpression != "" && !yield(v.MessageExpression) {
				return
			}
		}
		for i := range spec.AuditAnnotations {
			if !yield(spec.AuditAnnotations[i].ValueExpression) {
				return
			}
		}
	}
}

// message compiles a messageExpression, which as upstream cannot ask the
// authorizer.
func (s *scope) message(path *field.Path, text string) *expression.Program {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	without := *s
	without.declarations.Authorizer, without.declarations.Reads = false, false
	compiled := without.compile(path, text, cel.StringType)
	s.uses |= without.uses
	s.bound, s.tooLarge = without.bound, without.tooLarge
	return compiled
}

// scope is what the expressions of one policy may name.
type scope struct {
	validation.Reporter
	compiler     *expression.Compiler
	declarations expression.Declarations
	// variables are the names of the policy's variables, declared or not.
	variables []string
	// uses are the names that the expressions mention.
	uses expression.Uses
	// bound is that of what they cost together, without variables.
	bound celcost.Bound
	// tooLarge is true once the expressions are too large together.
	tooLarge bool
}

// compile compiles an expression, and returns nil if there is none, or if it does
// not compile, which it reports.
func (s *scope) compile(path *field.Path, text string, results ...*cel.Type) *expression.Program {
	return s.compiled(path, text, func(text string, d expression.Declarations) (*expression.Program, *apiservercel.Error) {
		return s.compiler.Compile(text, d, results...)
	})
}

// compiled is compile by a method of the compiler.
func (s *scope) compiled(path *field.Path, text string, by func(string, expression.Declarations) (*expression.Program, *apiservercel.Error)) *expression.Program {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	compiled, err := by(text, s.declarations)
	if err != nil {
		s.refuse(path, text, err)
		return nil
	}
	s.uses |= compiled.Uses()
	s.bound = s.bound.Add(compiled.Bound())
	return compiled
}

// refuse reports why an expression does not compile. That the expressions are too large
// together is reported of the first one that is too much.
func (s *scope) refuse(path *field.Path, expression string, err *apiservercel.Error) {
	if err == nil {
		return
	}
	if errors.Is(err.Cause, celbound.ErrDocument) {
		if s.tooLarge {
			return
		}
		s.tooLarge = true
	}
	s.ExpressionError(path, expression, err, validation.Names{Params: s.declarations.Params, Authorizer: s.declarations.Authorizer, Variables: s.variables})
}
