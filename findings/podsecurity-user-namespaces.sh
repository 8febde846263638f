#!/bin/sh
# podsecurity-user-namespaces.sh: what `hostUsers: false` changes for Pod Security's restricted level, and what it does not.
#
#	sh findings/podsecurity-user-namespaces.sh
#
# With a user namespace of its own, a pod may run as root at the level restricted: runAsUser 0 and runAsNonRoot false are admitted. procMount Unmasked, which Kubernetes
# itself only takes with a user namespace, is admitted by baseline then and stays forbidden by restricted. A probe's host is forbidden by both, also the loopback address.
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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

func main() {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	check(err)
	changed := false
	for _, c := range []struct {
		pod, security, container string
		baseline, restricted     bool
	}{
		{"", "runAsUser: 0", "", true, false},
		{"hostUsers: false", "runAsUser: 0", "", true, true},
		{"", "runAsNonRoot: false", "", true, false},
		{"hostUsers: false", "runAsNonRoot: false", "", true, true},
		{"", "procMount: Unmasked", "", false, false},
		{"hostUsers: false", "procMount: Unmasked", "", true, false},
		{"hostUsers: false", "", "livenessProbe: {httpGet: {port: 80, host: 127.0.0.1}}", false, false},
	} {
		var pod corev1.Pod
		check(yaml.Unmarshal([]byte(fmt.Sprintf(`
spec:
  %s
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: c
    %s
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      %s
`, c.pod, c.container, c.security)), &pod))
		allowed := map[api.Level]bool{}
		for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
			results := evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
			allowed[level] = policy.AggregateCheckResults(results).Allowed
		}
		fmt.Printf("%s %s %s: baseline %t, restricted %t\n", c.pod, c.security, c.container, allowed[api.LevelBaseline], allowed[api.LevelRestricted])
		changed = changed || allowed[api.LevelBaseline] != c.baseline || allowed[api.LevelRestricted] != c.restricted
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
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

require (
	k8s.io/api v0.37.2
	k8s.io/pod-security-admission v0.37.2
	sigs.k8s.io/yaml v1.6.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/api v0.37.2, k8s.io/pod-security-admission v0.37.2, sigs.k8s.io/yaml v1.6.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
