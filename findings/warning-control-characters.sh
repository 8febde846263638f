#!/bin/sh
# warning-control-characters.sh: what becomes of an admission warning with a tab or a newline.
#
#	sh findings/warning-control-characters.sh
#
# The API server puts warnings into a header by NewWarningHeader of apimachinery, which refuses a text with any control character instead of
# replacing it; the caller drops the warning. So a warning whose text quotes a value with a tab in it never reaches the user, and a rollout by
# warnings looks clean. Quotes, backslashes and letters outside ASCII are fine.
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

	"k8s.io/apimachinery/pkg/util/net"
)

func main() {
	changed := false
	for text, valid := range map[string]bool{
		"image is not allowed":             true,
		"image \"a\\b\" ist nicht zulässig": true,
		"label has the value a\tb":         false,
		"first line\nsecond line":          false,
	} {
		header, err := net.NewWarningHeader(299, "-", text)
		fmt.Printf("%q: header %q, error %v\n", text, header, err)
		changed = changed || (err == nil) != valid
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
	k8s.io/apimachinery v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apimachinery v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
