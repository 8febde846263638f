package jwt

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// breakGlassGroup is v1alpha1.BreakGlassGroup: this package knows nothing of the
// documents of Gatehouse.
const breakGlassGroup = "gatehouse.dev:break-glass"

// reportBreakGlass warns of an issuer whose tokens can give the break-glass group. The guard
// rejects it from every source, but there is no guard if kube-apiserver reads the same
// configuration itself (--authentication-config, or --oidc-*).
func (a *Authenticator) reportBreakGlass(ctx context.Context, t *Token, info *authenticationv1.UserInfo, trail Trail) {
	const group = breakGlassGroup
	if !a.canGive(ctx, t, group) || a.excludes(ctx, t, info, group) || ctx.Err() != nil {
		return
	}
	trail("break-glass", "warning: if kube-apiserver reads this issuer itself (--authentication-config), its tokens can give the group "+quote(group)+
		`: webhooks are not called for its members (hint: a prefix for groups, or the user validation rule !user.groups.exists(g, g.startsWith("gatehouse.dev:")))`)
}

// canGive reports whether the mapping of groups gives the group for some claims. An
// expression is evaluated on this token's claims with the group in place of every string.
func (a *Authenticator) canGive(ctx context.Context, t *Token, group string) bool {
	groups := &a.config.ClaimMappings.Groups
	if groups.Claim != "" {
		return strings.HasPrefix(group, a.groups.prefix)
	}
	if a.expressions.groups == nil {
		return false
	}
	changed, ok := t.changed(func(_ string, value any) any { return replaceStrings(value, group) })
	if !ok {
		return true
	}
	result, _, err := a.expressions.groups.program.ContextEval(ctx, map[string]any{"claims": claimsValue(changed)})
	if err != nil {
		return true // for this token's other claims it may be another
	}
	list, _ := stringList(result)
	return slices.Contains(list, group)
}

// excludes reports whether a rule rejects this token only if it gives the group as well.
func (a *Authenticator) excludes(ctx context.Context, t *Token, info *authenticationv1.UserInfo, group string) bool {
	more := info.DeepCopy()
	more.Groups = append(more.Groups, group)
	for i := range a.expressions.userRules {
		program := a.expressions.userRules[i].program
		if isTrue(ctx, program, "user", userValue(info)) && !isTrue(ctx, program, "user", userValue(more)) {
			return true
		}
	}
	claim := a.config.ClaimMappings.Groups.Claim
	if claim == "" {
		return false
	}
	changed, ok := t.changed(func(name string, value any) any {
		if name != claim {
			return value
		}
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		return append(slices.Clip(list), strings.TrimPrefix(group, a.groups.prefix))
	})
	if slices.ContainsFunc(a.required, func(r requirement) bool { return r.claim.text == claim }) {
		return true
	}
	return ok && slices.ContainsFunc(a.expressions.claimRules, func(r rule) bool {
		return isTrue(ctx, r.program, "claims", claimsValue(t)) && !isTrue(ctx, r.program, "claims", claimsValue(changed))
	})
}

// isTrue reports whether a rule holds.
func isTrue(ctx context.Context, program cel.Program, name string, value any) bool {
	result, _, err := program.ContextEval(ctx, map[string]any{name: value})
	return err == nil && result == types.True
}

// changed returns the token with other claims, for expressions alone.
func (t *Token) changed(change func(name string, value any) any) (*Token, bool) {
	out := &Token{claims: make([]claim, len(t.claims))}
	for i, c := range t.claims {
		var value any
		if err := json.Unmarshal(c.value, &value); err != nil {
			return nil, false
		}
		text, err := json.Marshal(change(c.name.Text(), value))
		if err != nil {
			return nil, false
		}
		out.claims[i] = claim{c.name, text}
	}
	return out, true
}

// replaceStrings replaces each string in a value by a text.
func replaceStrings(value any, text string) any {
	switch v := value.(type) {
	case string:
		return text
	case []any:
		for i := range v {
			v[i] = replaceStrings(v[i], text)
		}
	case map[string]any:
		for name := range v {
			v[name] = replaceStrings(v[name], text)
		}
	}
	return value
}
