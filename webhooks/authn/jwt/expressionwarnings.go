package jwt

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/google/cel-go/common/ast"
	"k8s.io/apiserver/pkg/apis/apiserver"
)

// warnings returns what compiles and is seldom meant: a number that becomes text in scientific notation, and a list that upstream does
// not take for one.
func (r *recorder) warnings(config *apiserver.JWTAuthenticator) []Warning {
	var list []Warning
	add := func(field, text string, mayBeList bool) {
		compiled := r.asts[text]
		if text == "" || compiled == nil {
			return
		}
		root := ast.NavigateAST(compiled.NativeRep())
		calls := func(names ...string) []ast.NavigableExpr {
			return ast.MatchDescendants(root, func(e ast.NavigableExpr) bool {
				return e.Kind() == ast.CallKind && slices.Contains(names, e.AsCall().FunctionName())
			})
		}
		var checked []string
		for _, call := range calls("int", "uint", "type") {
			checked = append(checked, claimPath(argument(call)))
		}
		for _, call := range calls("string") {
			if path := claimPath(argument(call)); path != "" && !slices.Contains(checked, path) {
				list = append(list, Warning{
					Field: field, Code: "number-as-text",
					Message: fmt.Sprintf("string(%s) of a number is written as that of a double: 12345678 becomes 1.2345678e+07", path),
					Hint:    fmt.Sprintf("write string(int(%s)) if the claim is a number, and %[1]s alone if it is a string", path),
				})
			}
		}
		if mayBeList && slices.ContainsFunc(results(root), isStringSlice) {
			list = append(list, Warning{
				Field: field, Code: "never-matches",
				Message: "the result is a list that cannot be mapped: every token with such a claim is rejected",
				Hint:    "write .map(g, g) behind it, as in " + text + ".map(g, g)",
			})
		}
	}
	m := &config.ClaimMappings
	add("claimMappings.username.expression", m.Username.Expression, false)
	add("claimMappings.groups.expression", m.Groups.Expression, true)
	add("claimMappings.uid.expression", m.UID.Expression, false)
	for i := range m.Extra {
		add(fmt.Sprintf("claimMappings.extra[%d].valueExpression", i), m.Extra[i].ValueExpression, true)
	}
	for i := range config.ClaimValidationRules {
		add(claimRulePath(i)+".expression", config.ClaimValidationRules[i].Expression, false)
	}
	return list
}

// argument returns the first argument of a call.
func argument(call ast.NavigableExpr) ast.Expr {
	if args := call.AsCall().Args(); len(args) > 0 {
		return args[0]
	}
	return nil
}

// claimPath returns the text of a selection below claims, "" for another expression.
func claimPath(e ast.Expr) string {
	if e != nil && e.Kind() == ast.IdentKind && e.AsIdent() == "claims" {
		return "claims"
	}
	if e != nil && e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		if of := claimPath(e.AsSelect().Operand()); of != "" {
			return of + "." + e.AsSelect().FieldName()
		}
	}
	return ""
}

// results returns the expressions one of which is the result of an expression.
func results(e ast.Expr) []ast.Expr {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "_?_:_" {
		args := e.AsCall().Args()
		return slices.Concat(results(args[1]), results(args[2]))
	}
	return []ast.Expr{e}
}

// isStringSlice reports whether the value of an expression is a []string of Go, which upstream's mapping does not take for a list.
func isStringSlice(e ast.Expr) bool {
	return e.Kind() == ast.CallKind && slices.Contains([]string{"split", "findAll"}, e.AsCall().FunctionName())
}

// scientific matches the text of a large number that was a double.
var scientific = regexp.MustCompile(`(?:^|[^0-9.])[0-9](?:\.[0-9]+)?e\+[0-9]{2}`)

// numberHint returns a hint about numbers in scientific notation among the values of an expression, "" for none.
func numberHint(values []string) string {
	if slices.ContainsFunc(values, scientific.MatchString) {
		return " (hint: a number of a claim is a double: string(int(claims.…)) writes it out)"
	}
	return ""
}
