#!/bin/sh
# jwks-certificate-members.sh: members of a JWKS that nobody verifies tokens with, and what they do to the set.
#
#	sh findings/jwks-certificate-members.sh
#
# Most programs only use n and e, but go-jose checks x5c and x5t of every key, and one that does not fit makes the whole set unreadable: an x5t in hex or with padding, an x5c of the former key after a rotation, or
# x5c without n and e. The certificate's end does not count, and an x5t in hex inside base64url is taken, as some issuers write it. Values of use and key_ops are not looked at.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func main() {
	key, other := newKey(), newKey()
	expired, foreign := certificate(key, time.Unix(1000, 0)), certificate(other, time.Now().Add(time.Hour))
	thumbprint := sha1.Sum(expired)
	url, std := base64.RawURLEncoding.EncodeToString, base64.StdEncoding.EncodeToString
	changed := false
	for _, c := range []struct {
		name    string
		members map[string]any // of the second key
		want    bool
	}{
		{"n and e alone", nil, true},
		{"x5c of a certificate that has expired", map[string]any{"x5c": []string{std(expired)}}, true},
		{"x5c of another key", map[string]any{"x5c": []string{std(foreign)}}, false},
		{"x5c in base64url", map[string]any{"x5c": []string{url(expired)}}, false},
		{"x5c in place of n and e", map[string]any{"x5c": []string{std(expired)}, "n": nil, "e": nil}, false},
		{"x5t", map[string]any{"x5t": url(thumbprint[:])}, true},
		{"x5t with padding", map[string]any{"x5t": base64.URLEncoding.EncodeToString(thumbprint[:])}, false},
		{"x5t in hex", map[string]any{"x5t": hex.EncodeToString(thumbprint[:])}, false},
		{"x5t in hex in base64url", map[string]any{"x5t": url([]byte(hex.EncodeToString(thumbprint[:])))}, true},
		{"x5t of another certificate than x5c", map[string]any{"x5c": []string{std(expired)}, "x5t": url(make([]byte, 20))}, false},
		{"key_ops and use that are unknown", map[string]any{"key_ops": []string{"unknown"}, "use": "unknown"}, true},
	} {
		second := map[string]any{"kty": "RSA", "kid": "second", "n": url(key.N.Bytes()), "e": "AQAB"}
		for name, value := range c.members {
			second[name] = value
			if value == nil {
				delete(second, name)
			}
		}
		first := map[string]any{"kty": "RSA", "kid": "first", "n": url(other.N.Bytes()), "e": "AQAB"}
		content, err := json.Marshal(map[string]any{"keys": []any{first, second}})
		check(err)
		var set jose.JSONWebKeySet
		err = json.Unmarshal(content, &set)
		fmt.Printf("%s: readable %t", c.name, err == nil)
		if err != nil {
			fmt.Print(", ", err)
		}
		fmt.Println()
		changed = changed || (err == nil) != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

func newKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check(err)
	return key
}

func certificate(key *rsa.PrivateKey, end time.Time) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}, NotBefore: time.Unix(0, 0), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(err)
	return der
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require github.com/go-jose/go-jose/v4 v4.1.8
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/go-jose/go-jose/v4 v4.1.8"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
