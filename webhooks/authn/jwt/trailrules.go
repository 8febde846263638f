package jwt

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationtokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
)

// What is told of expressions decides nothing: for the verdict they are evaluated
// by upstream's mappers, with a trail and without.

// reportExtra reports the extra keys, the one that every token with an id has
// first. Upstream evaluates them in order, up to one that cannot be.
func (a *Authenticator) reportExtra(tokenID string, e *evaluation, trail Trail) {
	const step = "extra"
	if id := authenticationtokenjwt.CredentialIDForJTI(tokenID); id != "" {
		trail(step, user.CredentialIDKey+" = "+quote(id)+`, from the claim "jti"`)
	}
	looking := true
	for _, mapping := range a.config.ClaimMappings.Extra {
		key, source := bounded(mapping.Key)+" = ", ", "+from("", "", mapping.ValueExpression)
		if !looking {
			trail(step, key+"not looked at"+source)
			continue
		}
		result, _, err := a.programs.claims[mapping.ValueExpression].ContextEval(e.ctx, e.variables())
		if err != nil {
			looking = false
			trail(step, key+whyNot(e.ctx, err)+source)
			continue
		}
		values, ok := textList(result)
		if !ok {
			trail(step, key+"error: no string and no list of strings"+source)
			continue
		}
		trail(step, key+orNone(quoteSome(values))+source)
	}
}

// variables are what upstream's mappers give to an expression about claims.
func (e *evaluation) variables() map[string]any { return map[string]any{"claims": e.claims} }

// ruleReporter reports rules.
type ruleReporter struct {
	trail Trail
	// looking is whether the next rule is looked at, and holding whether all rules
	// so far have held.
	looking, holding bool
}

// reportRules reports what each rule results in, in the order in which rules are
// looked at: claims that must have a value, up to one that does not have it; then
// expressions about claims, up to one that cannot be evaluated; then, if all of
// these hold, the same about the user.
func (a *Authenticator) reportRules(ctx context.Context, t *Token, info *authenticationv1.UserInfo, e *evaluation, trail Trail) {
	rules := ruleReporter{trail, true, true}
	for i, rule := range a.config.ClaimValidationRules {
		if rule.Claim != "" {
			rules.required(claimRulePath(i), &requirement{newName(rule.Claim), rule.RequiredValue}, t)
		}
	}
	for i, rule := range a.config.ClaimValidationRules {
		if rule.Expression != "" {
			rules.expression(ctx, claimRulePath(i), rule.Expression, a.programs.claims[rule.Expression], e.variables())
		}
	}
	rules.looking = rules.holding
	who := map[string]any{"user": userValue(info)}
	for i, rule := range a.config.UserValidationRules {
		rules.expression(ctx, fmt.Sprintf("userValidationRules[%d]", i), rule.Expression, a.programs.user[rule.Expression], who)
	}
	a.reportBreakGlass(ctx, t, info, trail)
}

func claimRulePath(i int) string { return fmt.Sprintf("claimValidationRules[%d]", i) }

const notLookedAt = "not looked at: "

// required reports a claim that must have a value.
func (r *ruleReporter) required(path string, want *requirement, t *Token) {
	if !r.looking {
		r.trail(path, notLookedAt+"the claim "+quote(want.claim.text)+" must be "+quote(want.value))
		return
	}
	if no := want.check(t); no != nil {
		r.looking, r.holding = false, false
		r.trail(path, "false: "+no.Detail)
		return
	}
	r.trail(path, "true: the claim "+quote(want.claim.text)+" is "+quote(want.value))
}

// expression reports an expression.
func (r *ruleReporter) expression(ctx context.Context, path, text string, program cel.Program, variables map[string]any) {
	text = bounded(text)
	if !r.looking {
		r.trail(path, notLookedAt+text)
		return
	}
	result, _, err := program.ContextEval(ctx, variables)
	held, isBool := result.(types.Bool)
	switch {
	case err != nil:
		r.looking, r.holding = false, false
		r.trail(path, whyNot(ctx, err)+": "+text)
	case !isBool:
		r.holding = false
		r.trail(path, "error: results in no boolean: "+text)
	default:
		r.holding = r.holding && bool(held)
		r.trail(path, fmt.Sprintf("%t: %s", held, text))
	}
}

// whyNot is why an expression could not be evaluated.
func whyNot(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "no time"
	}
	return "error: " + boundedError(err)
}
