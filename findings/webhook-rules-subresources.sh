#!/bin/sh
# webhook-rules-subresources.sh: what the resources of a webhook's rule match.
#
#	sh findings/webhook-rules-subresources.sh
#
# `pods/*` matches pods themselves, not only their subresources; `*` matches no subresource; `*/*` and `*/status` do. A Namespace counts as
# cluster-scoped for `scope`, although its review names it as its own namespace: a rule on namespaces with scope Namespaced matches nothing.
# The same matcher serves webhook configurations and the match constraints of admission policies.
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

	registration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

func main() {
	changed := false
	for _, c := range []struct {
		rule                  string
		scope                 registration.ScopeType
		resource, subresource string
		want                  bool
	}{
		{"pods/*", registration.AllScopes, "pods", "", true},
		{"pods/*", registration.AllScopes, "pods", "status", true},
		{"*", registration.AllScopes, "pods", "", true},
		{"*", registration.AllScopes, "pods", "status", false},
		{"*/status", registration.AllScopes, "pods", "status", true},
		{"*/*", registration.AllScopes, "pods", "", true},
		{"namespaces", registration.NamespacedScope, "namespaces", "", false},
		{"namespaces", registration.ClusterScope, "namespaces", "", true},
	} {
		matcher := rules.Matcher{
			Rule: registration.RuleWithOperations{
				Operations: []registration.OperationType{registration.Create},
				Rule:       registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{c.rule}, Scope: &c.scope},
			},
			Attr: admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "a", "a", schema.GroupVersionResource{Version: "v1", Resource: c.resource},
				c.subresource, admission.Create, &metav1.CreateOptions{}, false, nil),
		}
		got := matcher.Matches()
		fmt.Printf("rule %q, scope %s, for %s %q: %t\n", c.rule, c.scope, c.resource, c.subresource, got)
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
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/api v0.37.2, k8s.io/apimachinery v0.37.2, k8s.io/apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
