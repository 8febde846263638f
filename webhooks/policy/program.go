package policy

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// CompatibilityVersion is the Kubernetes version whose functions and rules of CEL
// hold for the expressions of policies, unless the configuration says otherwise.
// It is written down, and not taken from the library, so that a new library
// cannot change what an expression means without this line changing. It equals
// the library's environment.DefaultCompatibilityVersion.
const CompatibilityVersion = "1.36"

// program is what the expressions of one policy compile to.
type program struct {
	conditions       []expression.Condition
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
	// readsObjectOnly is true if the rule depends on the object alone.
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
func compileProgram(s *expression.Scope, policy string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, ruleNames []string) *program {
	path, out := field.NewPath("spec"), &program{uncounted: new(atomic.Uint64)}
	var texts []string
	for i := range spec.Validations {
		v := &spec.Validations[i]
		if texts = append(texts, v.Expression); v.MessageExpression != "" {
			texts = append(texts, v.MessageExpression)
		}
	}
	for i := range spec.AuditAnnotations {
		texts = append(texts, spec.AuditAnnotations[i].ValueExpression)
	}
	if !s.FitWith(path, spec.MatchConditions, spec.Variables, texts) {
		return out
	}
	out.conditions = s.CompileConditions(path.Child("matchConditions"), spec.MatchConditions)
	out.variables = s.DeclareVariables(path.Child("variables"), spec.Variables)
	s.Reads = true
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
		compiled.Program = s.Compile(at.Child("expression"), v.Expression, cel.BoolType)
		compiled.readsObjectOnly = compiled.Program != nil && readsObjectOnly(compiled.Program) && !compiled.Reads().IsNothing()
		compiled.messageExpression = s.CompileMessage(at.Child("messageExpression"), v.MessageExpression)
		out.validations = append(out.validations, compiled)
	}
	s.Reads = false
	for i, a := range spec.AuditAnnotations {
		p := s.Compile(path.Child("auditAnnotations").Index(i).Child("valueExpression"), a.ValueExpression, cel.StringType, cel.NullType)
		out.auditAnnotations = append(out.auditAnnotations, auditAnnotation{
			name: fmt.Sprintf("auditAnnotations[%d]", i), key: a.Key, Program: p, published: auditKey(policy, a.Key),
		})
	}
	out.bound, out.uses = s.Bound, s.Uses
	if out.variables != nil {
		out.bound = out.bound.Add(out.variables.Bound())
	}
	s.Seal()
	return out
}
