package authn

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// A login token reads
//
//	gatehouse-login_<key>_<claims>.<mac>
//
// The key is the name of the key that signed it, a DNS-1123 label. The claims are
// JSON in base64url, and the MAC is the HMAC-SHA-256 of all before the dot, in
// base64url: the same service issues and verifies tokens, so there is no public
// key. Nothing of a token is stored. A token ends early by a TokenRevocation, or when its
// directory or its key is removed from the configuration.
const loginPrefix = "gatehouse-login_"

// isLoginToken reports by its shape whether a token is for this backend.
func isLoginToken(token string) bool { return strings.HasPrefix(token, loginPrefix) }

// loginClaims are the claims of a login token. Times are seconds since 1970.
type loginClaims struct {
	ID       string                    `json:"id"`
	Source   string                    `json:"dir"`
	User     authenticationv1.UserInfo `json:"user"`
	Audience []string                  `json:"aud,omitempty"`
	IssuedAt int64                     `json:"iat"`
	Expires  int64                     `json:"exp"`
	// Session is when the password was entered, and Ends the end of the session: until
	// then the token is renewed without a password. For a JWT, they are its own times.
	Session int64 `json:"ses"`
	Ends    int64 `json:"end"`
	// JWT is set in place of Name and Entry if a JWT was exchanged for the token. Source is then its issuer.
	JWT *exchanged `json:"jwt,omitempty"`
	// Name is the name that was typed, by which the directory finds the entry again, and
	// Entry the hash of the entry's key, which differs for another entry of the name.
	Name  string `json:"name,omitempty"`
	Entry string `json:"ent,omitempty"`
	// Scope is the name of the scope that narrows the session, "" for none. A renewal keeps it.
	Scope string `json:"scp,omitempty"`
}

// loginTokens authenticates login tokens.
type loginTokens struct {
	keys []LoginKey
	// sources are the names of directories and the URLs of issuers.
	sources sets.Set[string]
	now     func() time.Time
}

// sign returns the token with these claims, signed by the first key.
func (l *loginTokens) sign(claims *loginClaims) (string, error) {
	data, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	key := &l.keys[0]
	text := loginPrefix + key.Name + "_" + base64.RawURLEncoding.EncodeToString(data)
	return text + "." + base64.RawURLEncoding.EncodeToString(macOf(key.Secret, text)), nil
}

func macOf(secret []byte, text string) []byte {
	mac := hmac.New(sha256.New, secret)
	_, _ = io.WriteString(mac, text) // a hash takes everything
	return mac.Sum(nil)
}

// verify returns the claims of a token that one of the keys has signed. It does not check
// the time. Without claims, the verdict says why.
func (l *loginTokens) verify(token string) (*loginClaims, verdict) {
	no := func(reason Reason, detail string) verdict {
		return verdict{outcome: No, reason: reason, detail: detail}
	}
	name, rest, found := strings.Cut(token[len(loginPrefix):], "_")
	if !found || !isLabel(name) {
		return nil, no(ReasonMalformed, "a login token has the form "+loginPrefix+"<key>_<claims>.<mac>")
	}
	payload, sum, found := strings.Cut(rest, ".")
	if !found {
		return nil, no(ReasonMalformed, "the token is truncated")
	}
	i := slices.IndexFunc(l.keys, func(k LoginKey) bool { return k.Name == name })
	if i < 0 {
		// Not a no: another replica may have loaded a new key already.
		return nil, verdict{
			outcome: Unknown, reason: ReasonUnknownKey, message: "unknown key of a login token",
			detail: "the key " + quote(strings.Clone(name)) + " is not among the login keys",
		}
	}
	strict := base64.RawURLEncoding.Strict()
	got, err := strict.DecodeString(sum)
	if err != nil || strings.ContainsAny(sum, "\r\n") || !hmac.Equal(got, macOf(l.keys[i].Secret, token[:len(token)-len(sum)-1])) {
		return nil, no(ReasonSignature, "")
	}
	// From here on the token is authentic.
	data, err := strict.DecodeString(payload)
	if err != nil {
		return nil, no(ReasonMalformed, "")
	}
	claims := &loginClaims{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(claims); err != nil {
		// Not a no: a newer replica understands what it has written.
		return nil, verdict{
			outcome: Unknown, reason: ReasonVersion, message: "a login token of another version of Gatehouse",
			detail: "the claims are of another version of Gatehouse",
		}
	}
	return claims, verdict{}
}

// authenticate is the authenticator of login tokens. It needs no context: it
// waits for nothing.
func (l *loginTokens) authenticate(_ context.Context, in *Input, e *explanation) verdict {
	token, audiences := in.Token, in.Audiences
	claims, v := l.verify(token)
	if claims == nil {
		if e != nil {
			e.add("signature", "%s", v.reason)
		}
		return v
	}
	v = verdict{outcome: No, source: claims.Source, tokenID: claims.ID}
	now := l.now()
	// A token is as old as its session: one that was renewed where a revocation was
	// not known yet does not outlive it.
	v.issuedAt, v.expiresAt = time.Unix(claims.Session, 0), time.Unix(claims.Expires, 0)
	if e != nil {
		e.add("signature", "verified with the key that the token names")
		e.add("times", "issued %s, expires %s, session ends %s, now %s",
			stamp(claims.IssuedAt), stamp(claims.Expires), stamp(claims.Ends), stamp(now.Unix()))
		what := "directory"
		if claims.JWT != nil {
			what = "issuer"
		}
		e.add(what, "%s", quote(claims.Source))
	}
	if !l.sources.Has(claims.Source) {
		// Not a no: another replica may have loaded a new directory already.
		v.outcome, v.reason, v.message = Unknown, ReasonSourceGone, "unknown directory or issuer of a login token"
		v.detail = quote(claims.Source) + " is not configured"
		v.source = ""
		return v
	}
	if !now.Before(v.expiresAt) {
		v.reason, v.detail = ReasonExpired, "it expired at "+stamp(claims.Expires)
		return v
	}
	good, ok := goodAudiences(claims.Audience, audiences)
	if !ok {
		v.reason, v.detail = ReasonAudience, fmt.Sprintf("the token is valid for %q", claims.Audience)
		return v
	}
	v.outcome, v.reason = Yes, ReasonOK
	v.identity, v.audiences = &claims.User, good
	if of := claims.JWT; of != nil {
		v.claims = jwtClaims{of.ID, of.Session, of.Subject}
	}
	if claims.Scope != "" {
		v.scope = &v1alpha1.TokenScope{Name: claims.Scope}
	}
	return v
}

// mint returns a token for an identity that the guard has accepted.
func (l *logins) mint(claims *loginClaims) (string, error) {
	var id [10]byte
	if _, err := io.ReadFull(l.random, id[:]); err != nil {
		return "", fmt.Errorf("random bytes: %w", err)
	}
	claims.ID = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(id[:])
	return l.tokens.sign(claims)
}

// unix returns the time of a claim.
func unix(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// stamp formats a time in seconds.
func stamp(seconds int64) string { return unix(seconds).Format(time.RFC3339) }

// isOf reports whether the token was issued for this account, and not for another one of
// the same name.
func (c *loginClaims) isOf(account *Account) bool {
	return c.Entry == entryOf(account.Key) && c.User.UID == account.User.UID
}

// entryOf returns the hash of an entry's key.
func entryOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}
