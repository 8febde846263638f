package jwt

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// expression is a compiled CEL expression.
type expression struct {
	text    string
	program cel.Program
}

// expressions are those of a configuration. A mapping without one is nil.
type expressions struct {
	username, groups, uid *expression
	extra                 []extraMapping
	claimRules, userRules []rule
}

// extraMapping maps claims to a key of extra.
type extraMapping struct {
	expression

	key string
}

// recorder is upstream's compiler and keeps each program by its text. Upstream's mappers
// evaluate several programs together and return nothing of those beside one that fails.
type recorder struct {
	authenticationcel.Compiler

	claims, user map[string]cel.Program
}

func newRecorder() *recorder {
	return &recorder{authenticationcel.NewDefaultCompiler(), map[string]cel.Program{}, map[string]cel.Program{}}
}

// CompileClaimsExpression implements authenticationcel.Compiler.
func (r *recorder) CompileClaimsExpression(expression authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	result, err := r.Compiler.CompileClaimsExpression(expression)
	r.claims[expression.GetExpression()] = result.Program
	return result, err
}

// CompileUserExpression implements authenticationcel.Compiler.
func (r *recorder) CompileUserExpression(expression authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	result, err := r.Compiler.CompileUserExpression(expression)
	r.user[expression.GetExpression()] = result.Program
	return result, err
}

// expressions returns those of a configuration that has been compiled.
func (r *recorder) expressions(config *apiserver.JWTAuthenticator) expressions {
	mapping := func(text string) *expression {
		if text == "" {
			return nil
		}
		return &expression{text, r.claims[text]}
	}
	m := &config.ClaimMappings
	x := expressions{username: mapping(m.Username.Expression), groups: mapping(m.Groups.Expression), uid: mapping(m.UID.Expression)}
	for _, e := range m.Extra {
		x.extra = append(x.extra, extraMapping{*mapping(e.ValueExpression), e.Key})
	}
	for i, one := range config.ClaimValidationRules {
		if one.Expression != "" {
			x.claimRules = append(x.claimRules, rule{expression{one.Expression, r.claims[one.Expression]}, claimRulePath(i), one.Message})
		}
	}
	for i, one := range config.UserValidationRules {
		path := "userValidationRules[" + strconv.Itoa(i) + "]"
		x.userRules = append(x.userRules, rule{expression{one.Expression, r.user[one.Expression]}, path, one.Message})
	}
	return x
}

// ClaimExpression is a CEL expression over claims that results in a string.
type ClaimExpression struct{ expression }

// CompileClaimExpression compiles an expression over claims.
func CompileClaimExpression(text string) (*ClaimExpression, error) {
	result, err := authenticationcel.NewDefaultCompiler().CompileClaimsExpression(&authenticationcel.ClaimMappingExpression{Expression: text})
	if err != nil {
		return nil, fmt.Errorf("compile expression: %w", err)
	}
	return &ClaimExpression{expression{text, result.Program}}, nil
}

// Text evaluates the expression on a verified token. A *Refusal is a definite no.
func (x *ClaimExpression) Text(ctx context.Context, t *Token, what string) (string, error) {
	e := &evaluation{ctx: ctx, claims: map[string]any{"claims": claimsValue(t)}}
	return e.text(&x.expression, what)
}

// evaluation evaluates expressions on the claims of one token. It is nil for a
// configuration without any.
type evaluation struct {
	ctx    context.Context //nolint:containedctx // lives as long as one call of Verify
	claims map[string]any
}

func (x *expressions) evaluation(ctx context.Context, t *Token) *evaluation {
	if x.username == nil && x.groups == nil && x.uid == nil && x.extra == nil && x.claimRules == nil {
		return nil
	}
	return &evaluation{ctx: ctx, claims: map[string]any{"claims": claimsValue(t)}}
}

// text evaluates an expression that results in a string.
func (e *evaluation) text(x *expression, what string) (string, error) {
	result, _, err := x.program.ContextEval(e.ctx, e.claims)
	if err != nil {
		return "", failed(e.ctx, what, x, err)
	}
	text, ok := result.(types.String)
	if !ok {
		return "", refuse(Claims, "the "+what+" expression results in a "+bounded(result.Type().TypeName())+", want a string")
	}
	return string(text), nil
}

// list evaluates an expression that results in a string or a list of strings.
func (e *evaluation) list(x *expression, what string) ([]string, error) {
	result, _, err := x.program.ContextEval(e.ctx, e.claims)
	if err != nil {
		return nil, failed(e.ctx, what, x, err)
	}
	list, ok := stringList(result)
	if !ok {
		return nil, refuse(Claims, "the "+what+" expression "+noList(result))
	}
	return list, nil
}

// failed is the outcome of an expression that could not be evaluated: a no, for the same
// token will fail again, unless the time was up.
func failed(ctx context.Context, what string, x *expression, err error) error {
	if over := ctx.Err(); over != nil {
		return fmt.Errorf("%s not evaluated: %w", what, over)
	}
	// In upstream's words.
	err = fmt.Errorf("expression '%s' resulted in error: %w", x.text, err)
	return refuse(Claims, "the "+what+" expression cannot be evaluated: "+boundedError(err))
}

// stringList returns the value as a list of strings, without empty ones, as upstream
// converts it, and whether it is one. Null is an empty list.
func stringList(value ref.Val) ([]string, bool) {
	switch value := value.(type) {
	case types.String:
		return appendNonEmpty(nil, string(value)), true
	case types.Null:
		return nil, true
	}
	if value.Type().TypeName() != types.ListType.TypeName() {
		return nil, false
	}
	var list []string
	switch elements := value.Value().(type) {
	case []any:
		for _, element := range elements {
			text, ok := element.(string)
			if !ok {
				return nil, false
			}
			list = appendNonEmpty(list, text)
		}
	case []ref.Val:
		for _, element := range elements {
			text, ok := element.Value().(string)
			if !ok {
				return nil, false
			}
			list = appendNonEmpty(list, text)
		}
	default:
		return nil, false
	}
	return list, true
}

// noList says that the result of an expression is no list of strings. That of split and of similar functions is one in CEL, and none
// for upstream's mapping, until a macro has made it anew.
func noList(value ref.Val) string {
	if _, ok := value.Value().([]string); ok {
		return "results in a list that cannot be mapped (hint: write .map(g, g) behind it)"
	}
	return "does not result in a string or a list of strings"
}

func appendNonEmpty(list []string, text string) []string {
	if text == "" {
		return list
	}
	return append(list, text)
}
