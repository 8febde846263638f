#!/bin/sh
# token-webhook-calls.sh: how often the API server calls a token webhook for one token, by the answer.
#
#	sh findings/token-webhook-calls.sh
#
# A "no" is cached, a "no" with status.error is not, so that each request with that token is another call. Of HTTP errors, 429, 500, 502 and 504 are tried five times, while
# 503, which asks a client to come back, is tried once, as are 401 and 404. A "yes" that also has an error is a yes. The authenticator and the cache are the API server's own,
# with its number of attempts and a shorter pause.
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
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func main() {
	klog.SetLogger(logr.Discard())
	changed := false
	for _, c := range []struct {
		code          int
		status        string
		yes           bool
		first, second int32
	}{
		{200, `{"authenticated":false}`, false, 1, 0},
		{200, `{"authenticated":false,"error":"unknown token"}`, false, 1, 1},
		{200, `{"authenticated":true,"user":{"username":"jane"},"error":"a source is slow"}`, true, 1, 0},
		{401, `{}`, false, 1, 1},
		{404, `{}`, false, 1, 1},
		{429, `{}`, false, 5, 5},
		{500, `{}`, false, 5, 5},
		{502, `{}`, false, 5, 5},
		{503, `{}`, false, 1, 1},
		{504, `{}`, false, 5, 5},
	} {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.code)
			fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":%s}`, c.status)
		}))
		authenticator, err := webhook.New(&rest.Config{Host: server.URL}, "v1", []string{"api"}, wait.Backoff{Duration: time.Millisecond, Factor: 1.5, Steps: 5})
		if err != nil {
			panic(err)
		}
		cached := cache.New(authenticator, false, time.Minute, time.Minute)
		_, yes, _ := cached.AuthenticateToken(context.Background(), "token")
		first := calls.Load()
		_, _, _ = cached.AuthenticateToken(context.Background(), "token")
		second := calls.Load() - first
		server.Close()
		fmt.Printf("%d %s: authenticated %t, %d calls for the first request, %d for the second\n", c.code, c.status, yes, first, second)
		changed = changed || yes != c.yes || first != c.first || second != c.second
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
	github.com/go-logr/logr v1.4.3
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/client-go v0.37.2
	k8s.io/klog/v2 v2.140.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/go-logr/logr v1.4.3, k8s.io/apimachinery v0.37.2, k8s.io/apiserver v0.37.2, k8s.io/client-go v0.37.2, k8s.io/klog/v2 v2.140.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
