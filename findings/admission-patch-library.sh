#!/bin/sh
# admission-patch-library.sh: what the API server's patch library accepts in a webhook's patch.
#
#	sh findings/admission-patch-library.sh
#
# The API server applies patches of mutating webhooks with json-patch.v4, which does not follow RFC 6902 everywhere: `replace` of a member
# that does not exist adds it, `copy` of one puts null, `test` of one against null passes, and an index of -1 is the last element, while
# `remove` and `move` of a missing member fail as the RFC says. `test` compares numbers by their text: 1 is not 1.0.
# So a webhook's patch that another library accepts or refuses may end otherwise in the cluster.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func main() {
	changed := false
	for _, c := range []struct{ document, patch, want string }{
		{`{"a":{}}`, `[{"op":"replace","path":"/a/b","value":1}]`, `{"a":{"b":1}}`},
		{`{"a":{}}`, `[{"op":"copy","from":"/a/b","path":"/a/c"}]`, `{"a":{"c":null}}`},
		{`{"a":{}}`, `[{"op":"test","path":"/a/b","value":null}]`, `{"a":{}}`},
		{`{"a":[1,2]}`, `[{"op":"remove","path":"/a/-1"}]`, `{"a":[1]}`},
		{`{"a":{}}`, `[{"op":"remove","path":"/a/b"}]`, "an error"},
		{`{"a":{}}`, `[{"op":"move","from":"/a/b","path":"/a/c"}]`, "an error"},
		{`{"a":1.0}`, `[{"op":"test","path":"/a","value":1}]`, "an error"},
	} {
		patch, err := jsonpatch.DecodePatch([]byte(c.patch))
		got := "an error"
		if err == nil {
			if result, err := patch.Apply([]byte(c.document)); err == nil {
				got = string(result)
			}
		}
		fmt.Println(c.document, "with", c.patch, "gives", got)
		changed = changed || got != c.want
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
	gopkg.in/evanphx/json-patch.v4 v4.13.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: gopkg.in/evanphx/json-patch.v4 v4.13.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
