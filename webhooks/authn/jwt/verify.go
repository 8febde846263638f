package jwt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ErrNoKeys means that the issuer's keys are unknown and cannot be fetched.
var ErrNoKeys = errors.New("the issuer's keys are not available")

// Verify verifies the token at a time. A *Refusal is a definite no. Any other error means
// "cannot decide": the keys are unavailable, or the context is done.
//
// The verdict is that of the API server's own authenticator for the same keys and
// all its algorithms, with these differences, all of which reject more, besides
// those of Parse: an object inside a claim has no member twice; a user name is
// empty neither before the prefix of a claim mapping nor behind it (upstream
// rejects that for expressions alone); a distributed groups claim is rejected, where
// upstream fetches it from any address that the token names; times are within the range of
// time.Time; a logout token is no other token; a key fits the algorithm in type, in curve, in having at least 2048 bits of
// RSA, and in its own declaration.
//
// Checks without a key come first, so that neither an expired token nor one for other
// audiences looks up a key. Keys are looked up once, and never because of a signature.
func (a *Authenticator) Verify(ctx context.Context, t *Token, now time.Time, trail Trail) (*Proof, error) {
	return a.VerifyWith(ctx, t, now, trail, nil)
}

// Enrich adds to the user of a verified token whose claims have passed their rules, before
// the rules about the user are applied. Its error is that of VerifyWith.
type Enrich func(ctx context.Context, t *Token, proof *Proof, trail Trail) error

// VerifyWith is Verify with a function that may add groups, nil for none. With one, a token
// whose groups were left out is accepted, as Proof.Overage.
func (a *Authenticator) VerifyWith(ctx context.Context, t *Token, now time.Time, trail Trail, enrich Enrich) (*Proof, error) {
	life, r := a.precheck(t, now, trail)
	switch {
	case r != nil:
		return nil, r
	case t.isLogout():
		return nil, refuse(Claims, "it is a logout token, which logs nobody in")
	}
	if err := a.checkSignature(ctx, t, trail); err != nil {
		return nil, err
	}
	proof := t.proof(&life)
	if err := a.mapUser(ctx, t, proof, trail, enrich); err != nil {
		return nil, err
	}
	return proof, nil
}

// proof returns the Proof of a token that has passed precheck, without a user.
func (t *Token) proof(life *lifetime) *Proof {
	return &Proof{
		ID: t.registered.jti.Text(), Subject: t.registered.sub.Text(), Session: t.sessionID(),
		IssuedAt: clampTime(life.issuedAt), ExpiresAt: clampTime(life.expiresAt),
	}
}

// precheck makes the checks that need no key.
func (a *Authenticator) precheck(t *Token, now time.Time, trail Trail) (lifetime, *Refusal) {
	if trail != nil {
		trail.signedWith(t)
	}
	if t.issuer != a.issuer {
		return lifetime{}, refuse(Foreign, "it is from the issuer "+quote(t.issuer)+", want "+quote(a.issuer))
	}
	life, r := t.registered.check()
	if r != nil {
		return life, r
	}
	if trail != nil {
		trail.lifetime(&t.registered, &life, now)
	}
	switch {
	case len(t.registered.exp) == 0:
		return life, refuse(Expired, "it has no claim exp")
	case life.expiresAt.Before(now):
		return life, refuse(Expired, "it expired at "+clock(life.expiresAt)+", now is "+clock(now))
	case now.Add(notBeforeLeeway).Before(life.notBefore):
		return life, refuse(NotYetValid, "it is not valid before "+clock(life.notBefore)+", now is "+clock(now))
	}
	audience, r := t.registered.audience(a.audiences)
	if trail != nil {
		trail.audience(&t.registered, audience, r, a.audiences)
	}
	return life, r
}

// checkSignature looks up the keys and verifies the signature. The error is a *Refusal or
// means "cannot decide".
func (a *Authenticator) checkSignature(ctx context.Context, t *Token, trail Trail) error {
	if a.keys == nil {
		return ErrNoKeys
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("signature not checked: %w", err)
	}
	keys, err := a.keys.Find(ctx, t.keyID)
	if err != nil {
		return fmt.Errorf("keys of the issuer: %w", err)
	}
	if len(keys) == 0 {
		return refuse(UnknownKey, "the issuer has no key "+quote(t.keyID))
	}
	var (
		digest []byte
		fitted int
	)
	for i := range keys {
		if !t.algorithm.fits(keys[i]) {
			continue
		}
		if fitted++; fitted == 1 {
			digest = t.algorithm.digest(t.signed)
		}
		if t.algorithm.verify(keys[i].Public, digest, t.signature) {
			if trail != nil {
				trail.verifiedWith(&keys[i])
			}
			return nil
		}
	}
	if fitted == 0 {
		return refuse(Algorithm, "it is signed with "+t.algorithm.name+", and no key "+quote(t.keyID)+
			" of the issuer supports that (RSA keys need "+strconv.Itoa(minModulusBits)+" bits, ES256, ES384 and ES512 the curves P-256, P-384 and P-521)")
	}
	return refuse(Signature, "no key "+quote(t.keyID)+" of the issuer verifies the signature, out of "+strconv.Itoa(fitted))
}

// clock formats a time.
func clock(t time.Time) string { return clampTime(t).UTC().Format(time.RFC3339) }

// clampTime returns the time, or the first or last one that RFC 3339, and so JSON, can
// write.
func clampTime(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	const firstSecond, lastSecond = -62135596800, 253402300799
	return time.Unix(min(max(t.Unix(), firstSecond), lastSecond), 0)
}
