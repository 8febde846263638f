package jwt

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// registered are the claims with a meaning that no configuration gives them.
type registered struct {
	iss, sub, aud, exp, nbf, iat, jti, nonce, atHash rawjson.Value
	claimNames, claimSources                         rawjson.Value
}

// slot returns where the claim with this name is stored, nil for any other.
func (r *registered) slot(name []byte) *rawjson.Value {
	switch string(name) {
	case `"iss"`:
		return &r.iss
	case `"sub"`:
		return &r.sub
	case `"aud"`:
		return &r.aud
	case `"exp"`:
		return &r.exp
	case `"nbf"`:
		return &r.nbf
	case `"iat"`:
		return &r.iat
	case `"jti"`:
		return &r.jti
	case `"nonce"`:
		return &r.nonce
	case `"at_hash"`:
		return &r.atHash
	case `"_claim_names"`:
		return &r.claimNames
	case `"_claim_sources"`:
		return &r.claimSources
	}
	return nil
}

// foldsClaim reports whether the name, which is not that of a registered claim, differs from
// one only in case, and returns that one. encoding/json, and so upstream, reads one as the
// other.
func foldsClaim(name []byte) (string, bool) {
	if !mayFold(name) {
		return "", false
	}
	return folds(name, "iss", "sub", "aud", "exp", "nbf", "iat", "jti", "nonce", "at_hash", "_claim_names", "_claim_sources")
}

// foldsHeader is foldsClaim for the header.
func foldsHeader(name []byte) (string, bool) {
	if !mayFold(name) {
		return "", false
	}
	return folds(name, "alg", "kid", "crit", "b64")
}

// mayFold reports whether the name has letters that are not lower case. A lower-case name
// is not another spelling of a lower-case one.
func mayFold(name []byte) bool {
	return slices.ContainsFunc(name, func(b byte) bool { return b >= 'A' && b <= 'Z' || b >= utf8.RuneSelf })
}

func folds(name []byte, known ...string) (string, bool) {
	text := name[1 : len(name)-1]
	for _, k := range known {
		if bytes.EqualFold(text, []byte(k)) {
			return k, true
		}
	}
	return "", false
}

// lifetime has the times of a token.
type lifetime struct {
	issuedAt, expiresAt, notBefore time.Time
}

// notBeforeLeeway is how far the issuer's clock may be ahead, as upstream. There
// is no leeway at the end.
const notBeforeLeeway = time.Minute

// check checks the types of the registered claims as upstream's reader does.
func (r *registered) check() (lifetime, *Refusal) {
	var l lifetime
	for _, c := range []struct {
		name  string
		value rawjson.Value
	}{{"sub", r.sub}, {"nonce", r.nonce}, {"at_hash", r.atHash}} {
		if !isStringOrNull(c.value) {
			return l, refuse(Malformed, "the claim "+c.name+" is "+c.value.Kind().String()+", want a string")
		}
	}
	for _, c := range []struct {
		name  string
		value rawjson.Value
		to    *time.Time
	}{{"exp", r.exp, &l.expiresAt}, {"iat", r.iat, &l.issuedAt}, {"nbf", r.nbf, &l.notBefore}} {
		if len(c.value) == 0 || c.name == "nbf" && c.value.Kind() == rawjson.Null {
			continue
		}
		at, ok := numericDate(c.value)
		if !ok {
			return l, refuse(Malformed, "the claim "+c.name+" is "+quote(string(c.value))+", want a number of seconds")
		}
		*c.to = at
	}
	return l, r.checkClaimNames()
}

// checkClaimNames checks that each distributed claim names an existing source.
func (r *registered) checkClaimNames() *Refusal {
	if len(r.claimNames) == 0 && len(r.claimSources) == 0 {
		return nil
	}
	// This is rare, and its exact reading is encoding/json's.
	var (
		names   map[string]string
		sources map[string]struct {
			Endpoint    string `json:"endpoint"`
			AccessToken string `json:"access_token"`
		}
	)
	if len(r.claimNames) > 0 && json.Unmarshal(r.claimNames, &names) != nil {
		return refuse(Malformed, "the claim _claim_names does not map claims to names of sources")
	}
	if len(r.claimSources) > 0 && json.Unmarshal(r.claimSources, &sources) != nil {
		return refuse(Malformed, "the claim _claim_sources does not map names to sources")
	}
	for _, source := range names {
		if _, ok := sources[source]; !ok || source == "" {
			return refuse(Malformed, "the claim _claim_names names a source that is not in _claim_sources")
		}
	}
	return nil
}

// maxSeconds bounds the seconds from 1970, in either direction: time.Time holds not much
// more, and upstream wraps around.
const maxSeconds = 1 << 62

// numericDate reads a NumericDate as upstream does: a number, or a string that
// holds one, without its fraction.
func numericDate(v rawjson.Value) (time.Time, bool) {
	switch v.Kind() {
	case rawjson.Number:
	case rawjson.String:
		text := []byte(v.Text())
		inner, err := rawjson.Parse(text)
		if err != nil || inner.Kind() != rawjson.Number || len(inner) != len(text) {
			return time.Time{}, false
		}
		v = inner
	case rawjson.Null, rawjson.Bool, rawjson.Array, rawjson.Object, rawjson.Invalid:
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || f > maxSeconds || f < -maxSeconds {
			return time.Time{}, false
		}
		seconds = int64(f)
	}
	if seconds > maxSeconds || seconds < -maxSeconds {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0), true
}

// audience returns the first audience of the token that is among the wanted.
func (r *registered) audience(wanted []string) (string, *Refusal) {
	switch r.aud.Kind() {
	case rawjson.Invalid, rawjson.Null:
	case rawjson.String:
		if i := wantedIndex(wanted, r.aud); i >= 0 {
			return wanted[i], nil
		}
	case rawjson.Array:
		found := -1
		for _, element := range r.aud.Elements() {
			if !isStringOrNull(element) {
				return "", refuse(Malformed, "the claim aud has "+element.Kind().String()+" in it, want strings")
			}
			if found < 0 {
				found = wantedIndex(wanted, element)
			}
		}
		if found >= 0 {
			return wanted[found], nil
		}
	case rawjson.Bool, rawjson.Number, rawjson.Object:
		return "", refuse(Malformed, "the claim aud is "+r.aud.Kind().String()+", want a string or a list of strings")
	}
	return "", refuse(Audience, "it is for "+r.audiences()+", want one of "+quoteAll(wanted))
}

// audiences returns the claim aud as it is written, for people.
func (r *registered) audiences() string {
	if len(r.aud) == 0 {
		return "no audience"
	}
	return bounded(string(r.aud))
}

func wantedIndex(wanted []string, v rawjson.Value) int {
	for i, w := range wanted {
		if v.Is(w) {
			return i
		}
	}
	return -1
}
