package jwt

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// minRSABits is the least that RFC 7518, section 3.3, allows. maxRSABits is
	// the most that Go's TLS verifies: larger ones only cost time.
	minRSABits, maxRSABits = 2048, 8192
	// maxExponent is the largest that Go verifies with.
	maxExponent = 1<<31 - 1
	// MaxKeys bounds the keys of an issuer: a token without a key id may be
	// compared with all of them. The largest sets that are known have some
	// twenty.
	MaxKeys = 100
	// maxReasons bounds how many keys that cannot be used a message tells of.
	maxReasons = 5
)

// KeySet holds the usable keys of a JSON Web Key Set (RFC 7517). It is immutable, and safe for concurrent use.
type KeySet struct {
	// Ignored says which keys were left out, and why. It is empty if none was.
	Ignored string

	// all is in the order of ids.
	all  []Key
	byID map[string][]Key
}

var _ Keys = (*KeySet)(nil)

// NewKeySet returns a set of keys.
func NewKeySet(keys ...Key) *KeySet {
	s := &KeySet{all: slices.Clone(keys), byID: map[string][]Key{}}
	slices.SortStableFunc(s.all, func(a, b Key) int { return strings.Compare(a.ID, b.ID) })
	for _, key := range s.all {
		s.byID[key.ID] = append(s.byID[key.ID], key)
	}
	return s
}

// All returns the keys in the order of their ids.
func (s *KeySet) All() []Key { return s.all }

// Find implements Keys, for keys that never change.
func (s *KeySet) Find(_ context.Context, id string) ([]Key, error) { return s.Keys(id), nil }

// Keys returns the keys with an id, or all keys for "".
func (s *KeySet) Keys(id string) []Key {
	if id == "" {
		return s.all
	}
	return s.byID[id]
}

// Equal reports whether two sets have the same keys.
func (s *KeySet) Equal(other *KeySet) bool {
	return slices.EqualFunc(s.all, other.all, func(a, b Key) bool {
		public, ok := a.Public.(interface{ Equal(x crypto.PublicKey) bool })
		return ok && a.ID == b.ID && a.Algorithm == b.Algorithm && public.Equal(b.Public)
	})
}

// ParseKeySet returns the keys in a JSON Web Key Set (RFC 7517) that can be used to
// verify signatures: RSA with 2048 to 8192 bits, and EC with P-256, P-384 or
// P-521, with use "sig" or none. Others are left out, as the RFC says, in the
// order of their ids.
//
// An error says that the text is no key set, that no key can be used, or that
// there is a key in it that is not public, private or symmetric: then whoever
// could read it can sign, and no key of the set can be trusted. It quotes no more
// than the ids of keys.
func ParseKeySet(jwks []byte) (*KeySet, error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	switch repeated, err := kjson.UnmarshalStrict(jwks, &document, kjson.DisallowDuplicateFields); {
	case err != nil:
		return nil, errors.New("is not a JSON Web Key Set: not the expected JSON")
	case len(repeated) > 0:
		return nil, errors.New("is not a JSON Web Key Set: a name occurs twice in it")
	}
	if len(document.Keys) == 0 {
		return nil, errors.New("has no keys: must be a JSON Web Key Set with at least one")
	}
	var (
		keys            []Key
		ignored, secret []string
	)
	for n, raw := range document.Keys {
		key, err := parseKey(raw)
		switch where := fmt.Sprintf("keys[%d]", n); {
		case errors.Is(err, errSecret):
			secret = append(secret, where)
		case err != nil:
			ignored = append(ignored, where+" "+err.Error())
		default:
			keys = append(keys, key)
		}
	}
	switch {
	case len(secret) > 0:
		return nil, fmt.Errorf("%s: must be public: %w (hint: create new keys, and publish only their public parts)", some(secret), errSecret)
	case len(keys) == 0:
		return nil, fmt.Errorf("has no usable key: %s", some(ignored))
	case len(keys) > MaxKeys:
		return nil, fmt.Errorf("has %d keys: must be at most %d", len(keys), MaxKeys)
	}
	s := NewKeySet(keys...)
	s.Ignored = some(ignored)
	return s, nil
}

// some joins a list and bounds its length.
func some(list []string) string {
	if more := len(list) - maxReasons; more > 0 {
		list = append(list[:maxReasons:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}

var errSecret = errors.New("anyone who read this key can sign tokens")

// parseKey returns one key of a set. The error says why it cannot be used, without
// quoting more than its id and type.
func parseKey(raw []byte) (Key, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return Key{}, errors.New("is not an object")
	}
	// Before anything else looks at it: checking a private key is work.
	for _, name := range []string{"k", "d", "p", "q", "dp", "dq", "qi", "oth", "priv"} {
		if value, has := members[name]; has && string(value) != "null" {
			return Key{}, errSecret
		}
	}
	texts := map[string]string{}
	for _, name := range []string{"kid", "kty", "use", "alg", "crv"} {
		var text string
		if value, has := members[name]; has && json.Unmarshal(value, &text) != nil {
			return Key{}, fmt.Errorf("has a %s that is not a string", name)
		}
		texts[name] = text
	}
	named := func(format string, args ...any) error {
		return fmt.Errorf("%s %s", quoted(texts["kid"]), fmt.Sprintf(format, args...))
	}
	if use := texts["use"]; use != "" && use != "sig" {
		return Key{}, named("has use %s: must be sig", quoted(use))
	}
	if kty := texts["kty"]; kty == "oct" {
		return Key{}, errSecret
	} else if kty != "RSA" && kty != "EC" {
		return Key{}, named("has kty %s: must be RSA or EC", quoted(kty))
	}
	var key jose.JSONWebKey
	// Its errors may quote what is in the key.
	if key.UnmarshalJSON(raw) != nil {
		return Key{}, named("is not a key of kty %s, crv %s", quoted(texts["kty"]), quoted(texts["crv"]))
	}
	allowed, err := algorithmsOf(key.Key)
	if err != nil {
		return Key{}, named("%s", err.Error())
	}
	if alg := texts["alg"]; alg != "" && !slices.Contains(allowed, alg) {
		return Key{}, named("has alg %s: must be one of %s", quoted(alg), strings.Join(allowed, ", "))
	}
	return Key{ID: key.KeyID, Algorithm: key.Algorithm, Public: key.Key}, nil
}

// algorithmsOf returns the algorithms that a key can be used with (RFC 7518, section 3.1), or an
// error says why it cannot be used.
func algorithmsOf(key any) ([]string, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		switch bits := key.N.BitLen(); {
		case bits < minRSABits || bits > maxRSABits:
			return nil, fmt.Errorf("has %d bits: must have %d to %d", bits, minRSABits, maxRSABits)
		case key.N.Bit(0) == 0 || key.E < 3 || key.E%2 == 0 || key.E > maxExponent:
			return nil, errors.New("is not an RSA key")
		}
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case *ecdsa.PublicKey:
		switch key.Curve.Params().BitSize {
		case 256:
			return []string{"ES256"}, nil
		case 384:
			return []string{"ES384"}, nil
		case 521:
			return []string{"ES512"}, nil
		}
	}
	return nil, errors.New("is not a public key")
}

// quoted returns a string of a key for a message.
func quoted(text string) string { return fmt.Sprintf("%q", truncate.Bytes(text, 200)) }
