package jwt

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/apis/apiserver"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Trail gets each step of a verification, for people: its subject, and its result on one
// line. It may be nil.
//
// The step of a rule is its path, such as claimValidationRules[0].
type Trail func(step, found string)

// signedWith reports the header.
func (t Trail) signedWith(token *Token) {
	found := "signed with " + token.algorithm.name
	if token.keyID == "" {
		t("header", found+", names no key")
		return
	}
	t("header", found+", key "+quote(token.keyID))
}

// verifiedWith reports the key that verified the signature.
func (t Trail) verifiedWith(key *Key) {
	if key.ID == "" {
		t("signature", "verified with a key that has no id")
		return
	}
	t("signature", "verified with key "+quote(key.ID))
}

// lifetime reports when the token is valid, and which claims about that it lacks.
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

// audience reports the audiences of the token, and which of them is accepted, if one is.
func (t Trail) audience(r *registered, taken string, no *Refusal, wanted []string) {
	which := "none is"
	if no == nil {
		which = quote(taken) + " is"
	}
	t("audience", r.audiences()+": "+which+" among issuer.audiences ("+quoteAll(wanted)+")")
}

// mapped reports a part of the user and its origin, unless nothing maps it.
func (t Trail) mapped(part string, values []string, err error, from string) {
	switch {
	case from == "":
	case err != nil:
		t(part, "error, "+from)
	default:
		t(part, orNone(quoteSome(values))+", "+from+numberHint(values))
	}
}

// extra reports a key of extra.
func (t Trail) extra(x *extraMapping, found string) {
	t("extra", bounded(x.key)+" = "+found+", "+from("", "", x.text))
}

// extraValues reports the values of a key of extra.
func (t Trail) extraValues(x *extraMapping, values []string, ok bool) {
	if !ok {
		t.extra(x, "error: neither a string nor a list of strings")
		return
	}
	t.extra(x, orNone(quoteSome(values))+numberHint(values))
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

// rule reports the result of a rule, or why it could not be evaluated.
func (t Trail) rule(ctx context.Context, r *rule, held types.Bool, isBool bool, err error) {
	found := strconv.FormatBool(bool(held))
	if err != nil {
		found = whyNot(ctx, err)
	} else if !isBool {
		found = "error: does not result in a boolean"
	}
	t(r.path, found+": "+bounded(r.text))
}

// whyNot returns why an expression could not be evaluated.
func whyNot(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "no time"
	}
	return "error: " + boundedError(err)
}

// fromEither returns the origin of a user name or of groups.
func fromEither(m *apiserver.PrefixedClaimOrExpression) string {
	prefix := ""
	if m.Prefix != nil {
		prefix = *m.Prefix
	}
	return from(m.Claim, prefix, m.Expression)
}

// from returns the origin of a part of the user, "" for none.
func from(claim, prefix, expression string) string {
	switch {
	case expression != "":
		return "from the expression " + bounded(expression)
	case claim == "":
		return ""
	case prefix == "":
		return "from the claim " + quote(claim)
	}
	return "from the claim " + quote(claim) + " behind the prefix " + quote(prefix)
}

// listed returns a string as a list, which is empty for an empty string.
func listed(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// orNone returns a string, or a word for its absence.
func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// maxListed bounds the reported values of a list.
const maxListed = 20

// quoteSome quotes the first maxListed values of a list.
func quoteSome(all []string) string {
	if len(all) <= maxListed {
		return quoteAll(all)
	}
	return quoteAll(all[:maxListed]) + ", and " + strconv.Itoa(len(all)-maxListed) + " more"
}
