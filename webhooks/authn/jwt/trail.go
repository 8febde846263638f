package jwt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Trail is told each step of a verification, for people: what was looked at and
// what was found. Nil is told nothing.
//
// Rules and mappings are told of one by one and decide nothing: they are
// evaluated once more, together, for the verdict.
type Trail func(step, found string)

// signedWith tells of the header.
func (t Trail) signedWith(token *Token) {
	found := "signed with " + token.algorithm.String()
	if token.keyID == "" {
		t("header", found+", names no key")
		return
	}
	t("header", found+", key "+quote(token.keyID))
}

// verifiedWith tells of the key that verified the signature.
func (t Trail) verifiedWith(key *Key) {
	if key.ID == "" {
		t("signature", "verified with a key that has no id")
		return
	}
	t("signature", "verified with key "+quote(key.ID))
}

// lifetime tells when the token is good. Claims that it does not have are told
// of as well.
func (t Trail) lifetime(r *registered, life *lifetime, now time.Time) {
	var found []string
	for _, c := range []struct {
		what, name string
		value      rawjson.Value
		at         time.Time
	}{{"issued", "iat", r.iat, life.issuedAt}, {"not before", "nbf", r.nbf, life.notBefore}, {"expires", "exp", r.exp, life.expiresAt}} {
		if len(c.value) == 0 || c.value.Kind() == rawjson.Null {
			found = append(found, "no "+c.name)
			continue
		}
		found = append(found, c.what+" "+clock(c.at)+" ("+c.name+")")
	}
	t("lifetime", strings.Join(append(found, "now "+clock(now)), ", "))
}

// audience tells whom the token is for, and which of these is taken, "" for none.
func (t Trail) audience(r *registered, taken string, wanted []string) {
	if taken != "" {
		taken = quote(taken)
	}
	t("audience", r.audiences()+", of which "+orNone(taken)+" is taken; issuer.audiences has "+quoteAll(wanted))
}

// mapped tells of a part of the user, and where it comes from. A part that nothing
// maps is not told of.
func (t Trail) mapped(part string, values []string, err error, from string) {
	switch {
	case from == "":
	case err != nil:
		t(part, "error, "+from)
	default:
		t(part, orNone(quoteSome(values))+", "+from)
	}
}

// from is where a part of the user comes from, "" for nowhere.
func from(claim string, prefix *string, expression string) string {
	switch {
	case expression != "":
		return "from the expression " + bounded(expression)
	case claim == "":
		return ""
	case prefix == nil || *prefix == "":
		return "from the claim " + quote(claim)
	}
	return "from the claim " + quote(claim) + " behind the prefix " + quote(*prefix)
}

// listed is a text of a part of the user as a list, which is empty without it.
func listed(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// orNone is the text, or a word for its absence.
func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// maxListed is how many values of a list are told.
const maxListed = 20

// quoteSome is quoteAll of as many as are told.
func quoteSome(all []string) string {
	if len(all) <= maxListed {
		return quoteAll(all)
	}
	return quoteAll(all[:maxListed]) + ", and " + strconv.Itoa(len(all)-maxListed) + " more"
}

// programs are expressions by their text, each by itself.
type programs struct {
	claims map[string]authenticationcel.ClaimsMapper
	user   map[string]authenticationcel.UserMapper
}

// recorder is a compiler that keeps each expression by itself. Upstream's mapper,
// which Verify asks, has them together, and knows nothing of those before one
// that cannot be evaluated.
type recorder struct {
	authenticationcel.Compiler
	programs programs
}

func newRecorder(compiler authenticationcel.Compiler) *recorder {
	return &recorder{compiler, programs{make(map[string]authenticationcel.ClaimsMapper), make(map[string]authenticationcel.UserMapper)}}
}

// CompileClaimsExpression implements authenticationcel.Compiler.
func (r *recorder) CompileClaimsExpression(expression authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	result, err := r.Compiler.CompileClaimsExpression(expression)
	if err == nil {
		r.programs.claims[expression.GetExpression()] = authenticationcel.NewClaimsMapper([]authenticationcel.CompilationResult{result})
	}
	return result, err
}

// CompileUserExpression implements authenticationcel.Compiler.
func (r *recorder) CompileUserExpression(expression authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	result, err := r.Compiler.CompileUserExpression(expression)
	if err == nil {
		r.programs.user[expression.GetExpression()] = authenticationcel.NewUserMapper([]authenticationcel.CompilationResult{result})
	}
	return result, err
}

// tellExtra tells of the extra keys, that of the claim jti first, as they were
// before the rules. After one that cannot be evaluated upstream looks at no other.
func (a *Authenticator) tellExtra(info *authenticationv1.UserInfo, e *evaluation, trail Trail) {
	const step = "extra"
	if id := info.Extra[user.CredentialIDKey]; len(id) > 0 {
		trail(step, user.CredentialIDKey+" = "+quoteSome(id)+`, from the claim "jti"`)
	}
	looking := true
	for _, mapping := range a.config.ClaimMappings.Extra {
		source := ", " + from("", nil, mapping.ValueExpression)
		if !looking {
			trail(step, quote(mapping.Key)+" not looked at"+source)
			continue
		}
		result, err := a.programs.claims[mapping.ValueExpression].EvalClaimMapping(e.ctx, e.claims)
		if err != nil {
			looking = false
			trail(step, mapping.Key+" = "+whyNot(e.ctx, err)+source)
			continue
		}
		values, ok := textList(result.EvalResult)
		if !ok {
			trail(step, mapping.Key+" = "+bounded(result.EvalResult.Type().TypeName())+", want a string or a list of strings"+source)
			continue
		}
		trail(step, mapping.Key+" = "+orNone(quoteSome(values))+source)
	}
}

// ruleTeller tells of rules.
type ruleTeller struct {
	trail Trail
	// looking is whether the next rule is looked at, and holding whether all rules
	// so far have held.
	looking, holding bool
}

// tellRules tells of each rule what it results in, in the order in which Verify
// looks at them: claims with a value, up to one that does not have it; expressions
// about claims, all of them unless one cannot be evaluated; and the same about the
// user.
func (a *Authenticator) tellRules(ctx context.Context, t *Token, info *authenticationv1.UserInfo, e *evaluation, trail Trail) {
	rules := ruleTeller{trail: trail, looking: true, holding: true}
	for i, rule := range a.config.ClaimValidationRules {
		if rule.Claim != "" {
			rules.required(claimRulePath(i), t, requirement{named(rule.Claim), rule.RequiredValue})
		}
	}
	for i, rule := range a.config.ClaimValidationRules {
		if rule.Expression != "" {
			rules.expression(ctx, claimRulePath(i), rule.Expression, func() (authenticationcel.EvaluationResult, error) {
				return a.programs.claims[rule.Expression].EvalClaimMapping(ctx, e.claims)
			})
		}
	}
	rules.looking = rules.holding
	who := userValue(info)
	for i, rule := range a.config.UserValidationRules {
		rules.expression(ctx, fmt.Sprintf("userValidationRules[%d]", i), rule.Expression, func() (authenticationcel.EvaluationResult, error) {
			results, err := a.programs.user[rule.Expression].EvalUser(ctx, who)
			if err != nil || len(results) != 1 {
				return authenticationcel.EvaluationResult{}, cmpError(err)
			}
			return results[0], nil
		})
	}
}
