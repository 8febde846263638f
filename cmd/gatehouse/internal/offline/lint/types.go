package lint

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// issue is what is wrong with a part of an expression for some kinds.
type issue struct {
	part     int64
	message  string
	hint     string
	kinds    []string
	presence bool
	// structures is true if types do not fit of which one is a structure. As JSON,
	// which expressions see, a structure is a map like any other.
	structures bool
}

// lintTypes reports where expressions do not fit the schemas of the kinds that the policy matches. A policy may distinguish kinds
// itself: an error for some of them is reported only if nothing in the expression, the conditions and the variables tests the kind
// or the presence of a field.
func (s *subject) lintTypes() {
	for _, e := range s.expressions {
		var issues []*issue
		wrong := map[int64]int{} // how many kinds something is wrong with each part for
		for i, checked := range e.kinds {
			for _, err := range checked.Issues {
				found := explain(checked, err)
				wrong[found.part]++
				at := slices.IndexFunc(issues, func(other *issue) bool { return other.part == found.part && other.message == found.message })
				if at < 0 {
					issues, at = append(issues, &found), len(issues)
				}
				issues[at].kinds = append(issues[at].kinds, s.kinds[i].String())
			}
		}
		separatesKinds := len(issues) > 0 && s.mentions(e, distinguishesKinds)
		for _, found := range issues {
			everywhere := s.allKinds && wrong[found.part] == len(s.kinds)
			if !everywhere && (separatesKinds || found.presence) || found.structures {
				continue
			}
			s.reportAt(Type, e, found.part, found.hint, "for %s: %s", strings.Join(found.kinds, ", "), found.message)
		}
	}
}

// explain makes an issue of what the checker says.
func explain(checked typecheck.Checked, err *common.Error) issue {
	message, _, _ := strings.Cut(err.Message, " (in container")
	out := issue{part: err.ExprID, message: strings.ReplaceAll(message, "'", `"`)}
	name := regexp.MustCompile(`^undefined field '([^']*)'$`).FindStringSubmatch(message)
	if name == nil {
		out.structures = mixesStructures(checked, err.ExprID)
		return out
	}
	out.message = "there is no field " + quoted(name[1])
	part := first(checked.AST.Expr(), func(part ast.Expr) bool { return part.ID() == err.ExprID })
	if part == nil {
		return out
	}
	operand, _, optional, ok := selection(part)
	if !ok {
		return out
	}
	out.presence = optional || part.AsSelect().IsTestOnly()
	if structure := checked.Structure(operand); structure != nil {
		out.message += " in " + structure.Name
		out.hint = diagnostic.DidYouMean(name[1], structure.FieldNames()...)
	}
	return out
}

// mixesStructures reports whether a part of an expression takes maps and lists of any kind, and is given a structure.
func mixesStructures(checked typecheck.Checked, id int64) bool {
	part := first(checked.AST.Expr(), func(part ast.Expr) bool { return part.ID() == id })
	switch {
	case part == nil:
		return false
	case part.Kind() == ast.ComprehensionKind:
		return hasStructure(checked, part.AsComprehension().IterRange())
	case part.Kind() != ast.CallKind:
		return false
	}
	call := part.AsCall()
	switch call.FunctionName() {
	case operators.Add, operators.Conditional, operators.Equals, operators.NotEquals, operators.In, operators.Index, operators.OptIndex,
		"orValue", "or", "size":
		return call.IsMemberFunction() && hasStructure(checked, call.Target()) ||
			slices.ContainsFunc(call.Args(), func(e ast.Expr) bool { return hasStructure(checked, e) })
	}
	return false
}

func hasStructure(checked typecheck.Checked, e ast.Expr) bool {
	t := checked.AST.GetType(e.ID())
	for t != nil && t.Kind() != types.StructKind {
		if len(t.Parameters()) == 0 {
			return false
		}
		t = t.Parameters()[len(t.Parameters())-1]
	}
	return t != nil
}

// distinguishesKinds recognises parts of expressions by which an author distinguishes
// kinds.
func distinguishesKinds(e ast.Expr) bool {
	if isCall(e, operators.OptSelect) || isCall(e, operators.OptIndex) || isCall(e, operators.In) {
		return true
	}
	if e.Kind() != ast.SelectKind {
		return false
	}
	if e.AsSelect().IsTestOnly() {
		return true
	}
	return slices.Contains([]string{
		"object.kind", "object.apiVersion", "oldObject.kind", "oldObject.apiVersion",
		"request.kind", "request.resource", "request.subResource",
		"request.requestKind", "request.requestResource", "request.requestSubResource",
	}, path(e))
}
