#!/bin/sh
# jsonpatch-lists-by-index.sh: jsonpatch/v2 compares lists index by index.
#
#	sh findings/jsonpatch-lists-by-index.sh
#
# The library with which controller-runtime makes patches (PatchResponseFromRaw) has no edit distance for lists: taking the first of two
# containers away removes the last one and renames the first, and adding one at the front rewrites every element. Fields that only one of
# two containers has would move with the index, and other webhooks' fields with them. Numbers differ by their text, so that 1 and 1.0 give an operation.
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
	"strings"

	"gomodules.xyz/jsonpatch/v2"
)

func main() {
	changed := false
	for _, c := range []struct{ before, after, want string }{
		{
			`{"containers":[{"name":"a"},{"name":"b"}]}`, `{"containers":[{"name":"b"}]}`,
			`{"op":"remove","path":"/containers/1"} {"op":"replace","path":"/containers/0/name","value":"b"}`,
		},
		{
			`{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"z"},{"name":"a"}]}`,
			`{"op":"add","path":"/containers/1","value":{"name":"a"}} {"op":"replace","path":"/containers/0/name","value":"z"}`,
		},
		{`{"args":["x","y","z"]}`, `{"args":["y","z"]}`, `{"op":"remove","path":"/args/2"} {"op":"replace","path":"/args/0","value":"y"} {"op":"replace","path":"/args/1","value":"z"}`},
		{`{"n":1}`, `{"n":1.0}`, `{"op":"replace","path":"/n","value":1.0}`},
	} {
		operations, err := jsonpatch.CreatePatch([]byte(c.before), []byte(c.after))
		if err != nil {
			panic(err)
		}
		var texts []string
		for _, o := range operations {
			texts = append(texts, o.Json())
		}
		got := strings.Join(texts, " ")
		fmt.Println(c.before, "to", c.after, "is", got)
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
	gomodules.xyz/jsonpatch/v2 v2.5.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: gomodules.xyz/jsonpatch/v2 v2.5.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
