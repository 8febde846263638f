#!/bin/sh
# webhook-client-certificate-names.sh: which user of the API server's webhook kubeconfig is presented to an admission webhook.
#
#	sh findings/webhook-client-certificate-names.sh
#
# The file that AdmissionConfiguration names (kubeConfigFile) holds users by the webhook's host. A service on port 443 is looked up as name.namespace.svc, then as
# *.namespace.svc, *.svc and *; one on another port needs the port in its exact name, and no wildcard but * finds it. So a wildcard that serves every webhook of a
# namespace stops for the one that moves to port 8443. Hosts of URLs are compared with the case in which they are written.
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
	"path/filepath"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

const users = `{apiVersion: v1, kind: Config, users: [
  {name: a.ns.svc, user: {token: exact}},
  {name: 'b.ns.svc:8443', user: {token: exact with port}},
  {name: '*.ns.svc', user: {token: wildcard of the namespace}},
  {name: example.org, user: {token: url}},
  {name: '*', user: {token: everything else}},
]}`

func main() {
	file := filepath.Join(os.TempDir(), fmt.Sprintf("users-%d", os.Getpid()))
	check(os.WriteFile(file, []byte(users), 0o600))
	defer os.Remove(file)
	resolver, err := webhook.NewDefaultAuthenticationInfoResolver(file)
	check(err)
	changed := false
	see := func(what, want string, config *rest.Config, err error) {
		check(err)
		fmt.Printf("%s: %s\n", what, config.BearerToken)
		changed = changed || config.BearerToken != want
	}
	for _, c := range []struct {
		name string
		port int
		want string
	}{
		{"a", 443, "exact"},
		{"a", 8443, "everything else"},
		{"b", 8443, "exact with port"},
		{"b", 443, "wildcard of the namespace"},
		{"c", 443, "wildcard of the namespace"},
		{"c", 8443, "everything else"},
	} {
		config, err := resolver.ClientConfigForService(c.name, "ns", c.port)
		see(fmt.Sprintf("service %s, port %d", c.name, c.port), c.want, config, err)
	}
	for host, want := range map[string]string{"example.org": "url", "example.org:443": "url", "example.org:8443": "everything else", "Example.org": "everything else"} {
		config, err := resolver.ClientConfigFor(host)
		see("url of "+host, want, config, err)
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
	k8s.io/apiserver v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
