#!/bin/sh
# openreports-time.sh: how OpenReports writes the time of a result.
#
#	sh findings/openreports-time.sh
#
# Unlike every other time in Kubernetes' API, a result's timestamp is a message of seconds and nanoseconds, and a text by RFC 3339 does not decode. The
# field and `source` are not optional for Go's encoder: a result without a time says 1970, and one without a source has an empty one, which by the field's
# own comment overrides the report's.
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

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
)

func main() {
	written, err := json.Marshal(v1alpha1.ReportResult{Policy: "p"})
	if err != nil {
		panic(err)
	}
	fmt.Println("a result with nothing but a policy:", string(written))
	var result v1alpha1.ReportResult
	err = json.Unmarshal([]byte(`{"policy":"p","timestamp":"2026-01-01T00:00:00Z"}`), &result)
	fmt.Println("a timestamp by RFC 3339:", err)
	if string(written) != `{"source":"","policy":"p","timestamp":{"seconds":0,"nanos":0}}` || err == nil {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	github.com/openreports/reports-api v0.2.1
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/openreports/reports-api v0.2.1"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
