#!/bin/sh
# jwks-one-unknown-key.sh: what one key of an unknown type does to a JWKS.
#
#	sh findings/jwks-one-unknown-key.sh
#
# RFC 7517, section 5, says that keys whose type an implementation does not understand should be ignored. go-jose, with which most Go programs read an
# issuer's keys, refuses the whole set instead: an issuer that adds one key of another kty or curve ends all logins,
# also those whose keys are still there.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"
)

// known is the example of RFC 7517, appendix A.1.
const known = `{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","kid":"1"}`

func main() {
	changed := false
	for _, c := range []struct {
		other string
		taken bool
	}{
		{`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"2"}`, true},
		{`{"kty":"OKP","crv":"X25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"2"}`, false},
		{`{"kty":"EC","crv":"secp256k1","x":"eb5mfvncu6xVoGKVzocLBwKb_NstzijZWfKBWxb4F5g","y":"SDradyajxGVdpPv8DhEIqP0XtEimhVQZnEfQj_sQ1Lg","kid":"2"}`, false},
	} {
		var set jose.JSONWebKeySet
		err := json.Unmarshal([]byte(`{"keys":[`+known+`,`+c.other+`]}`), &set)
		fmt.Printf("with %s: error %v\n", c.other, err)
		changed = changed || (err == nil) != c.taken
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	github.com/go-jose/go-jose/v4 v4.1.8
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/go-jose/go-jose/v4 v4.1.8"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
