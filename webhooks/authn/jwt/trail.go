package jwt

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Trail is told each step of a verification, for people: what was looked at and
// what was found, which is one line. Nil is told nothing.
//
// A rule has its path as the step, such as claimValidationRules[0], and is told of
// by itself, also behind one that does not hold.
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

// lifetime returns when the token is good. Claims that it does not have are told
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

// audience returns whom the token is for, and which of these is taken, if one is.
func (t Trail) audience(r *registered, taken string, no *Refusal, wanted []string) {
	which := "none is"
	if no == nil {
		which = quote(taken) + " is"
	}
	t("audience", r.audiences()+": "+which+" among issuer.audiences ("+quoteAll(wanted)+")")
}

// mapped reports a part of the user, and where it comes from. A part that nothing
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

// extra reports a key of extra.
func (t Trail) extra(x *extraMapping, found string) {
	t("extra", bounded(x.key)+" = "+found+", "+from("", "", x.text))
}

// extraValues reports the values of a key of extra.
func (t Trail) extraValues(x *extraMapping, values []string, ok bool) {
	if !ok {
		t.extra(x, "error: no string and no list of strings")
		return
	}
	t.extra(x, orNone(quoteSome(values)))
}

const notLookedAt = "not looked at: "

// rule reports the result of a rule, or why it could not be evaluated.
func (t Trail) rule(ctx context.Context, r *rule, held types.Bool, isBool bool, err error) {
	found := strconv.FormatBool(bool(held))
	if err != nil {
		found = whyNot(ctx, err)
	} else if !isBool {
		found = "error: results in no boolean"
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

// fromEither is from for a mapping of a user name or of groups.
func fromEither(m *apiserver.PrefixedClaimOrExpression) string {
	prefix := ""
	if m.Prefix != nil {
		prefix = *m.Prefix
	}
	return from(m.Claim, prefix, m.Expression)
}

// from is where a part of the user comes from, "" for nowhere.
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
