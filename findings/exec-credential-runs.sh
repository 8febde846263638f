#!/bin/sh
# exec-credential-runs.sh: when client-go runs an exec credential plugin.
#
#	sh findings/exec-credential-runs.sh
#
# A credential that has expired when the plugin prints it is used, and the plugin runs again for each request. After a 401 the plugin runs at once, but the request
# is not sent again: the caller sees "Unauthorized" although the new credential would do. Without expirationTimestamp it runs once for the life of the process. To a server
# without TLS no credential is sent, and the plugin does not run.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(dir)
	changed := false
	for _, c := range []struct {
		name, credential string
		serve            func(http.Handler) *httptest.Server
		code             int
		runs             int
	}{
		{"no-expiry", `{"token":"t"}`, httptest.NewTLSServer, 200, 1},
		{"later", `{"token":"t","expirationTimestamp":"2999-01-01T00:00:00Z"}`, httptest.NewTLSServer, 200, 1},
		{"expired", `{"token":"t","expirationTimestamp":"2020-01-01T00:00:00Z"}`, httptest.NewTLSServer, 200, 3},
		{"unauthorized", `{"token":"t"}`, httptest.NewTLSServer, 401, 4},
		{"without-tls", `{"token":"t"}`, httptest.NewServer, 200, 0},
	} {
		requests := 0
		server := c.serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.code)
			fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a"}}`)
		}))
		runs, plugin, config := filepath.Join(dir, c.name+".runs"), filepath.Join(dir, c.name), filepath.Join(dir, c.name+".kubeconfig")
		check(os.WriteFile(runs, nil, 0o600))
		check(os.WriteFile(plugin, []byte("#!/bin/sh\necho run >>"+runs+"\necho '"+`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":`+c.credential+"}'\n"), 0o700))
		cluster := fmt.Sprintf("{server: '%s', insecure-skip-tls-verify: %t}", server.URL, strings.HasPrefix(server.URL, "https"))
		check(os.WriteFile(config, []byte(fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: %s}],
  users: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: '%s', interactiveMode: Never}}}]}`, cluster, plugin)), 0o600))
		rest, err := clientcmd.BuildConfigFromFlags("", config)
		check(err)
		client, err := kubernetes.NewForConfig(rest)
		check(err)
		for range 3 {
			_, err = client.CoreV1().Namespaces().Get(context.Background(), "a", metav1.GetOptions{})
		}
		server.Close()
		text, readErr := os.ReadFile(runs)
		check(readErr)
		got := strings.Count(string(text), "run")
		fmt.Printf("%s: three calls, %d requests, the plugin ran %d times, last error: %v\n", c.name, requests, got, err)
		changed = changed || got != c.runs || requests != 3
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
	k8s.io/apimachinery v0.37.2
	k8s.io/client-go v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/apimachinery v0.37.2, k8s.io/client-go v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
