package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// lintConditions reports match conditions that match constraints could say. These
// are decided without evaluating anything, and the registration of the webhook
// can be made of them.
func (s *subject) lintConditions() {
	for _, e := range s.expressions {
		if e.role != condition {
			continue
		}
		subject, values, equal, ok := comparison(e.plain.AST.Expr())
		if !ok {
			continue
		}
		switch subject {
		case "request.operation":
			if equal && !slices.ContainsFunc(s.operations(), func(o operation) bool { return slices.Contains(values, string(o)) }) {
				s.report(MatchCondition, e, "drop the policy, or the condition", "is never true: the rules are about %s alone", operationList(s.operations()))
				continue
			}
			left := slices.DeleteFunc(s.operations(), func(o operation) bool { return slices.Contains(values, string(o)) != equal })
			s.report(MatchCondition, e, "write operations: ["+operationList(left)+"] and drop the condition", "is what operations in resourceRules say")
		case "request.kind.kind", "request.kind.group", "request.resource.resource", "request.resource.group", "request.subResource":
			if equal {
				s.report(MatchCondition, e, "name it in resourceRules and drop the condition", "is what resourceRules say")
			}
		case "request.namespace":
			operator := "In"
			if !equal {
				operator = "NotIn"
			}
			s.report(MatchCondition, e, "write namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: "+operator+", values: ["+
				strings.Join(values, ", ")+"]}]} and drop the condition", "is what namespaceSelector says")
		}
	}
}

// comparison takes apart an expression that compares a field with literals, and
// does nothing else.
func comparison(e ast.Expr) (field string, values []string, equal, ok bool) {
	if isCall(e, operators.LogicalNot) {
		field, values, equal, ok = comparison(e.AsCall().Args()[0])
		return field, values, !equal, ok
	}
	if !isCall(e, operators.Equals) && !isCall(e, operators.NotEquals) && !isCall(e, operators.In) {
		return "", nil, false, false
	}
	args := e.AsCall().Args()
	if isCall(e, operators.In) {
		if args[1].Kind() != ast.ListKind {
			return "", nil, false, false
		}
		for _, element := range args[1].AsList().Elements() {
			value, isText := literal(element)
			if !isText {
				return "", nil, false, false
			}
			values = append(values, value)
		}
		return path(args[0]), values, true, path(args[0]) != ""
	}
	for i := range args {
		if value, isText := literal(args[i]); isText && path(args[1-i]) != "" {
			return path(args[1-i]), []string{value}, isCall(e, operators.Equals), true
		}
	}
	return "", nil, false, false
}
