package jwt

import (
	"cmp"
	"context"
	"strconv"

	"github.com/google/cel-go/common/types"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// rule is an expression that must result in true.
type rule struct {
	expression

	// path is its place in the configuration, for trails, and message the words for a token
	// that violates it.
	path, message string
}

func claimRulePath(i int) string { return "claimValidationRules[" + strconv.Itoa(i) + "]" }

// checkRules applies the rules in upstream's order: claims that must have a value, up to
// one that does not have it; then all expressions about claims; then, if all of these
// hold, those about the user. The trail gets what each results in. Enrich, which may be nil,
// is called before the rules about the user, if all others hold.
func (a *Authenticator) checkRules(ctx context.Context, t *Token, info *authenticationv1.UserInfo, e *evaluation, trail Trail, enrich func() error) error {
	for i := range a.required {
		if err := a.required[i].check(t, trail); err != nil {
			return err
		}
	}
	if rules := a.expressions.claimRules; rules != nil {
		if err := checkRules(ctx, rules, e.claims, "claim", trail); err != nil {
			return err
		}
	}
	if enrich != nil {
		if err := enrich(); err != nil {
			return err
		}
	}
	if rules := a.expressions.userRules; rules != nil {
		return checkRules(ctx, rules, map[string]any{"user": userValue(info)}, "user", trail)
	}
	return nil
}

// checkRules applies rules to variables. As upstream, a rule that cannot be evaluated is the
// error also if one before it is violated.
func checkRules(ctx context.Context, rules []rule, variables map[string]any, what string, trail Trail) error {
	var violated error
	for i := range rules {
		r := &rules[i]
		result, _, err := r.program.ContextEval(ctx, variables)
		held, isBool := result.(types.Bool)
		if trail != nil {
			trail.rule(ctx, r, held, isBool, err)
		}
		switch {
		case err != nil:
			return failed(ctx, what+" validation", &r.expression, err)
		case !isBool:
			violated = cmp.Or(violated, r.refusal(what, " does not result in a boolean"))
		case !bool(held):
			violated = cmp.Or(violated, r.refusal(what, " failed"))
		}
	}
	return violated
}

// refusal refuses a token because of a rule.
func (r *rule) refusal(what, problem string) error {
	detail := "the " + what + " validation expression " + quote(r.text) + problem
	if r.message != "" && problem == " failed" {
		detail += ": " + r.message
	}
	return refuse(Claims, detail)
}

// check returns an error if the claim does not have its value.
func (r *requirement) check(t *Token, trail Trail) error {
	value, no := textClaim(t, r.claim)
	if no == nil && value.Text() != r.value {
		no = refuse(Claims, "the claim "+quote(r.claim.text)+" is "+quote(value.Text())+", want "+quote(r.value))
	}
	if no != nil {
		if trail != nil {
			trail(r.path, "false: "+no.Detail)
		}
		return no
	}
	if trail != nil {
		trail(r.path, "true: the claim "+quote(r.claim.text)+" is "+quote(r.value))
	}
	return nil
}
