package jwt

import (
	"context"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// evaluation evaluates the expressions of one configuration on one token. It is
// nil if there is none that looks at claims.
type evaluation struct {
	ctx    context.Context //nolint:containedctx // lives as long as one call of Verify
	claims *lazy.MapValue
}

func (a *Authenticator) evaluation(ctx context.Context, t *Token) *evaluation {
	x := &a.expressions
	if x.Username == nil && x.Groups == nil && x.UID == nil && x.Extra == nil && x.ClaimValidationRules == nil {
		return nil
	}
	return &evaluation{ctx: ctx, claims: claimsValue(t)}
}

// text evaluates an expression that results in a string.
func (e *evaluation) text(expression authenticationcel.ClaimsMapper, what string) (string, error) {
	result, err := expression.EvalClaimMapping(e.ctx, e.claims)
	if err != nil {
		return "", failed(e.ctx, what, err)
	}
	if result.EvalResult.Type() != types.StringType {
		return "", refuse(Claims, "the "+what+" expression results in a "+bounded(result.EvalResult.Type().TypeName())+", want a string")
	}
	text, ok := result.EvalResult.Value().(string)
	if !ok {
		return "", refuse(Claims, "the "+what+" expression results in no string")
	}
	return text, nil
}

// texts evaluates an expression that results in a string or a list of strings.
func (e *evaluation) texts(expression authenticationcel.ClaimsMapper, what string) ([]string, error) {
	result, err := expression.EvalClaimMapping(e.ctx, e.claims)
	if err != nil {
		return nil, failed(e.ctx, what, err)
	}
	list, ok := textList(result.EvalResult)
	if !ok {
		return nil, refuse(Claims, "the "+what+" expression does not result in a string or a list of strings")
	}
	return list, nil
}

// extra adds the results of the extra mappings to a map, which may be nil.
func (e *evaluation) extra(expressions authenticationcel.ClaimsMapper, extra map[string]authenticationv1.ExtraValue) (map[string]authenticationv1.ExtraValue, error) {
	results, err := expressions.EvalClaimMappings(e.ctx, e.claims)
	if err != nil {
		return nil, failed(e.ctx, "extra", err)
	}
	for _, result := range results {
		mapping, ok := result.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
		if !ok {
			return nil, fmt.Errorf("extra mapping is a %T", result.ExpressionAccessor)
		}
		list, ok := textList(result.EvalResult)
		if !ok {
			return nil, refuse(Claims, "the expression for the extra key "+quote(mapping.Key)+" does not result in a string or a list of strings")
		}
		if len(list) == 0 {
			continue
		}
		if extra == nil {
			extra = make(map[string]authenticationv1.ExtraValue, len(results))
		}
		extra[mapping.Key] = list
	}
	return extra, nil
}

func (a *Authenticator) checkClaimRules(e *evaluation) error {
	if a.expressions.ClaimValidationRules == nil {
		return nil
	}
	results, err := a.expressions.ClaimValidationRules.EvalClaimMappings(e.ctx, e.claims)
	if err != nil {
		return failed(e.ctx, "claim validation", err)
	}
	return holds(results, "claim")
}

func (a *Authenticator) checkUserRules(ctx context.Context, info *authenticationv1.UserInfo) error {
	if a.expressions.UserValidationRules == nil {
		return nil
	}
	results, err := a.expressions.UserValidationRules.EvalUser(ctx, userValue(info))
	if err != nil {
		return failed(ctx, "user validation", err)
	}
	return holds(results, "user")
}

// holds checks that every rule results in true.
func holds(results []authenticationcel.EvaluationResult, what string) error {
	for _, result := range results {
		if held, ok := result.EvalResult.(types.Bool); ok && bool(held) {
			continue
		}
		detail := "the " + what + " validation expression " + quote(result.ExpressionAccessor.GetExpression())
		if result.EvalResult.Type() != types.BoolType {
			return refuse(Claims, detail+" results in no boolean")
		}
		detail += " failed"
		if message := message(result.ExpressionAccessor); message != "" {
			detail += ": " + message
		}
		return refuse(Claims, detail)
	}
	return nil
}

// message is what the configuration says about a rule that does not hold.
func message(rule authenticationcel.ExpressionAccessor) string {
	switch rule := rule.(type) {
	case *authenticationcel.ClaimValidationCondition:
		return rule.Message
	case *authenticationcel.UserValidationCondition:
		return rule.Message
	}
	return ""
}

// failed is the outcome of an expression that could not be evaluated: a no, for
// the same token will fail again, unless the time was up.
func failed(ctx context.Context, what string, err error) error {
	if over := ctx.Err(); over != nil {
		return fmt.Errorf("%s not evaluated: %w", what, over)
	}
	return refuse(Claims, "the "+what+" expression cannot be evaluated: "+boundedError(err))
}

// textList is the value as a list of strings, without empty ones, as upstream
// converts it. Null is an empty list.
func textList(value ref.Val) ([]string, bool) {
	switch value.Type().TypeName() {
	case types.StringType.TypeName():
		text, ok := value.Value().(string)
		if !ok || text == "" {
			return nil, ok
		}
		return []string{text}, true
	case types.NullType.TypeName():
		return nil, true
	case types.ListType.TypeName():
		var list []string
		switch elements := value.Value().(type) {
		case []any:
			for _, element := range elements {
				text, ok := element.(string)
				if !ok {
					return nil, false
				}
				list = appendText(list, text)
			}
		case []ref.Val:
			for _, element := range elements {
				text, ok := element.Value().(string)
				if !ok {
					return nil, false
				}
				list = appendText(list, text)
			}
		default:
			return nil, false
		}
		return list, true
	}
	return nil, false
}

func appendText(list []string, text string) []string {
	if text == "" {
		return list
	}
	return append(list, text)
}
