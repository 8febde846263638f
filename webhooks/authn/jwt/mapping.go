package jwt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationtokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// mapUser maps the claims of a verified token to the user of a proof that has its ID, and
// applies all rules, in upstream's order. The error is a *Refusal or means "cannot decide".
func (a *Authenticator) mapUser(ctx context.Context, t *Token, proof *Proof, trail Trail, enrich Enrich) error {
	if r := t.checkNested(); r != nil {
		return r
	}
	proof.Overage = enrich != nil && a.isOverage(t)
	if r := a.distributed(t); r != nil && !proof.Overage {
		return r
	}
	e := a.expressions.evaluation(ctx, t)
	if err := a.mapParts(t, &proof.User, proof.ID, e, trail); err != nil {
		return err
	}
	if enrich == nil {
		return a.checkRules(ctx, t, &proof.User, e, trail, nil)
	}
	return a.checkRules(ctx, t, &proof.User, e, trail, func() error { return enrich(ctx, t, proof, trail) })
}

// checkNested rejects a claim with an object that has a member twice.
func (t *Token) checkNested() *Refusal {
	for _, c := range t.claims {
		if r := checkNested("the claim", c.name, c.value); r != nil {
			return r
		}
	}
	return nil
}

// isOverage reports whether a token says that its groups were left out because there are
// too many: Entra ID makes groups a distributed claim, whose address is never asked here, or
// writes the claim hasgroups.
func (a *Authenticator) isOverage(t *Token) bool {
	if t.claim([]byte(`"hasgroups"`)).IsTrue() {
		return true
	}
	for name := range t.registered.claimNames.Members() {
		if name.Is("groups") || a.groups.claim.text != "" && name.Is(a.groups.claim.text) {
			return true
		}
	}
	return false
}

// sessionID returns the claim sid, "" if it is absent or not a string.
func (t *Token) sessionID() string {
	if sid := t.claim([]byte(`"sid"`)); sid.Kind() == rawjson.String {
		return sid.Text()
	}
	return ""
}

// mapParts maps each part of the user.
func (a *Authenticator) mapParts(t *Token, info *authenticationv1.UserInfo, tokenID string, e *evaluation, trail Trail) error {
	var err error
	info.Username, err = a.mapUsername(t, e)
	if trail != nil {
		trail.mapped("username", listed(info.Username), err, fromEither(&a.config.ClaimMappings.Username))
	}
	if err != nil {
		return err
	}
	info.Groups, err = a.mapGroups(t, e)
	if trail != nil {
		trail.mapped("groups", info.Groups, err, fromEither(&a.config.ClaimMappings.Groups))
	}
	if err != nil {
		return err
	}
	info.UID, err = a.mapUID(t, e)
	if trail != nil {
		trail.mapped("uid", listed(info.UID), err, from(a.config.ClaimMappings.UID.Claim, "", a.config.ClaimMappings.UID.Expression))
	}
	if err != nil {
		return err
	}
	info.Extra, err = a.mapExtra(tokenID, e, trail)
	return err
}

// distributed rejects a token whose groups are at another place. Upstream would fetch them
// from any address that the token names. If the groups are not distributed, upstream still
// reads where other claims are.
func (a *Authenticator) distributed(t *Token) *Refusal {
	names, sources := t.registered.claimNames, t.registered.claimSources
	if len(a.groups.claim.quoted) == 0 || len(names) == 0 || len(t.claim(a.groups.claim.quoted)) > 0 {
		return nil
	}
	for name := range names.Members() {
		if name.Is(a.groups.claim.text) {
			return refuse(Claims, "the claim "+quote(a.groups.claim.text)+" is a distributed claim, which is not supported; "+
				"configure the issuer to write it into the token")
		}
	}
	var read map[string]struct{ JWT string }
	if len(sources) == 0 || json.Unmarshal(sources, &read) != nil {
		return refuse(Claims, "there is a claim _claim_names, and _claim_sources does not map names to sources")
	}
	return nil
}

func (a *Authenticator) mapUsername(t *Token, e *evaluation) (string, error) {
	if a.expressions.username != nil {
		username, err := e.text(a.expressions.username, "username")
		if err != nil {
			return "", err
		}
		if username == "" {
			return "", refuse(Claims, "the username expression results in an empty name")
		}
		return username, nil
	}
	value, r := textClaim(t, a.username.claim)
	if r != nil {
		return "", r
	}
	if a.username.claim.text == "email" {
		// As upstream: where the token says whether it was verified, it must have been.
		if verified := t.claim([]byte(`"email_verified"`)); len(verified) > 0 && !verified.IsTrue() {
			return "", refuse(Claims, `the claim "email_verified" is `+bounded(string(verified))+", want true")
		}
	}
	if value.Is("") || value.Kind() == rawjson.Null {
		return "", refuse(Claims, "the claim "+quote(a.username.claim.text)+" is the user name, and is empty")
	}
	return a.username.prefixed(value), nil
}

// prefixed returns the text of a value with the prefix.
func (m *mapping) prefixed(v rawjson.Value) string {
	if v.Kind() != rawjson.String || bytes.IndexByte(v, '\\') >= 0 {
		return m.prefix + v.Text()
	}
	return m.prefix + string(v[1:len(v)-1]) // in one allocation
}

func (a *Authenticator) mapGroups(t *Token, e *evaluation) ([]string, error) {
	if a.expressions.groups != nil {
		return e.list(a.expressions.groups, "groups")
	}
	if len(a.groups.claim.quoted) == 0 {
		return nil, nil
	}
	value := t.claim(a.groups.claim.quoted)
	switch value.Kind() {
	case rawjson.Invalid, rawjson.Null:
		return nil, nil
	case rawjson.String:
		return []string{a.groups.prefixed(value)}, nil
	case rawjson.Array:
		groups := make([]string, 0, value.Len())
		for _, element := range value.Elements() {
			if !isStringOrNull(element) {
				return nil, refuse(Claims, "the claim "+quote(a.groups.claim.text)+" has "+element.Kind().String()+" in it, want a string or a list of strings")
			}
			groups = append(groups, a.groups.prefixed(element))
		}
		return groups, nil
	case rawjson.Bool, rawjson.Number, rawjson.Object:
	}
	return nil, refuse(Claims, "the claim "+quote(a.groups.claim.text)+" is "+value.Kind().String()+", want a string or a list of strings")
}

func (a *Authenticator) mapUID(t *Token, e *evaluation) (string, error) {
	if len(a.uid.claim.quoted) > 0 {
		uid, r := textClaim(t, a.uid.claim)
		if r != nil {
			return "", r
		}
		return uid.Text(), nil
	}
	if a.expressions.uid == nil {
		return "", nil
	}
	return e.text(a.expressions.uid, "uid")
}

// mapExtra maps the keys of extra. As upstream, an expression that cannot be evaluated is
// the error also if one before it results in another type.
func (a *Authenticator) mapExtra(tokenID string, e *evaluation, trail Trail) (map[string]authenticationv1.ExtraValue, error) {
	var extra map[string]authenticationv1.ExtraValue
	if id := authenticationtokenjwt.CredentialIDForJTI(tokenID); id != "" {
		extra = map[string]authenticationv1.ExtraValue{user.CredentialIDKey: {id}}
		if trail != nil {
			trail("extra", user.CredentialIDKey+" = "+quote(id)+`, from the claim "jti"`)
		}
	}
	var mismatch error
	for i := range a.expressions.extra {
		x := &a.expressions.extra[i]
		result, _, err := x.program.ContextEval(e.ctx, e.claims)
		if err != nil {
			if trail != nil {
				trail.extra(x, whyNot(e.ctx, err))
			}
			return extra, failed(e.ctx, "extra", &x.expression, err)
		}
		values, ok := stringList(result)
		if !ok {
			mismatch = cmp.Or(mismatch, error(refuse(Claims, "the expression for the extra key "+quote(x.key)+" "+noList(result))))
		}
		if trail != nil {
			trail.extraValues(x, values, ok)
		}
		if len(values) > 0 {
			if extra == nil {
				extra = make(map[string]authenticationv1.ExtraValue, len(a.expressions.extra))
			}
			extra[x.key] = values
		}
	}
	return extra, mismatch
}

// textClaim returns a claim that must exist and be a string. As in upstream's decoder, null
// is an empty one.
func textClaim(t *Token, claim name) (rawjson.Value, *Refusal) {
	value := t.claim(claim.quoted)
	switch {
	case len(value) == 0:
		return nil, refuse(Claims, "there is no claim "+quote(claim.text))
	case !isStringOrNull(value):
		return nil, refuse(Claims, "the claim "+quote(claim.text)+" is "+value.Kind().String()+", want a string")
	}
	return value, nil
}

// extraOf returns the extra in the type that upstream gives to expressions.
func extraOf(info *authenticationv1.UserInfo) map[string][]string {
	extra := make(map[string][]string, len(info.Extra))
	for key, values := range info.Extra {
		extra[key] = slices.Clone([]string(values))
	}
	return extra
}
