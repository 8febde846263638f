#!/bin/sh
# podsecurity-namespace-labels.sh: how Pod Security reads the labels of a namespace.
#
#	sh findings/podsecurity-namespace-labels.sh
#
# A misspelt level of `enforce` enforces restricted, a misspelt one of `warn` warns of nothing. Without a `warn` label, warnings follow the enforced level;
# audit does not. A version without its v ("1.30") is invalid and enforces the latest version, and a version newer than the program's is taken without an error.
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

	"k8s.io/pod-security-admission/api"
)

func main() {
	privileged := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	changed := false
	for _, c := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{api.EnforceLevelLabel: "baseline"}, "enforce baseline:latest, warn baseline:latest, audit privileged:latest, errors 0"},
		{map[string]string{api.EnforceLevelLabel: "basline"}, "enforce restricted:latest, warn privileged:latest, audit privileged:latest, errors 1"},
		{map[string]string{api.WarnLevelLabel: "basline"}, "enforce privileged:latest, warn privileged:latest, audit privileged:latest, errors 1"},
		{map[string]string{api.EnforceLevelLabel: "baseline", api.EnforceVersionLabel: "1.30"}, "enforce baseline:latest, warn baseline:latest, audit privileged:latest, errors 1"},
		{map[string]string{api.EnforceLevelLabel: "baseline", api.EnforceVersionLabel: "v1.99"}, "enforce baseline:v1.99, warn baseline:v1.99, audit privileged:latest, errors 0"},
	} {
		p, errs := api.PolicyToEvaluate(c.labels, api.Policy{Enforce: privileged, Audit: privileged, Warn: privileged})
		got := fmt.Sprintf("enforce %s, warn %s, audit %s, errors %d", p.Enforce.String(), p.Warn.String(), p.Audit.String(), len(errs))
		fmt.Println(c.labels, got)
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
	k8s.io/pod-security-admission v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/pod-security-admission v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
