#!/bin/sh
# authentication-configuration-reload.sh: a changed AuthenticationConfiguration takes effect only if every issuer in it answers at that time.
#
#	sh findings/authentication-configuration-reload.sh
#
# kube-apiserver starts with a file in which one issuer is away, and tokens of the others log in. If a running one gets the same file, nothing of the change takes effect, for no issuer: an added issuer is unknown, and a
# removed one goes on. It is tried again each minute; the log and apiserver_authentication_config_controller_automatic_reloads_total with status failure are all that says so. So removing an issuer needs every
# other one up. The authenticator is the API server's own, with 15 seconds in place of its minute.
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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/klog/v2"
	kube "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
)

func main() {
	klog.SetLogger(logr.Discard())
	ctx := context.Background()
	removed, added, away := newIssuer(), newIssuer(), newIssuer()
	away.server.Close()
	next := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{added.config(), away.config()}}

	fmt.Println("started with one issuer; then the file names an added issuer and one that is away:")
	before, update := newServer(ctx, &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{removed.config()}})
	waitFor(ctx, before, removed)
	// The API server gives an update a minute, and tries again each minute.
	forUpdate, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err := update(forUpdate, next)
	fmt.Println("    update:", strings.ReplaceAll(fmt.Sprint(err), away.server.URL, "https://away"))
	removedLogsIn, addedLogsIn := before.logsIn(ctx, removed), before.logsIn(ctx, added)
	fmt.Printf("    a token of the removed issuer logs in: %t, of the added one: %t\n", removedLogsIn, addedLogsIn)

	fmt.Println("started with the same file as the second:")
	fresh, _ := newServer(ctx, next)
	waitFor(ctx, fresh, added)
	freshRemoved, freshAdded := fresh.logsIn(ctx, removed), fresh.logsIn(ctx, added)
	fmt.Printf("    a token of the removed issuer logs in: %t, of the added one: %t\n", freshRemoved, freshAdded)
	if err == nil || !removedLogsIn || addedLogsIn || freshRemoved || !freshAdded {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// server is the API server's authentication.
type server struct{ authenticator.Request }

func newServer(ctx context.Context, config *apiserver.AuthenticationConfiguration) (server, func(context.Context, *apiserver.AuthenticationConfiguration) error) {
	request, update, _, _, err := kube.Config{AuthenticationConfig: config, OIDCSigningAlgs: []string{"ES256"}}.New(ctx)
	check(err)
	return server{request}, update
}

func (s server) logsIn(ctx context.Context, i *issuer) bool {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+i.token())
	_, ok, err := s.AuthenticateRequest(r)
	return ok && err == nil
}

// waitFor waits until the issuer's keys have been fetched.
func waitFor(ctx context.Context, s server, i *issuer) {
	for n := 0; !s.logsIn(ctx, i); n++ {
		if n == 300 {
			panic("no login in 30 seconds")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// issuer is an OpenID Connect issuer.
type issuer struct {
	server *httptest.Server
	key    *ecdsa.PrivateKey
}

func newIssuer() *issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	i := &issuer{key: key}
	i.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "key"}}}
		if strings.HasSuffix(r.URL.Path, "/openid-configuration") {
			answer = map[string]string{"issuer": i.server.URL, "jwks_uri": i.server.URL + "/keys"}
		}
		w.Header().Set("Content-Type", "application/json")
		check(json.NewEncoder(w).Encode(answer))
	}))
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.server.StartTLS()
	return i
}

func (i *issuer) config() apiserver.JWTAuthenticator {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	empty := ""
	return apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: i.server.URL, Audiences: []string{"audience"}, CertificateAuthority: string(authority)},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &empty}},
	}
}

func (i *issuer) token() string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "key"}}, nil)
	check(err)
	claims, err := json.Marshal(map[string]any{"iss": i.server.URL, "aud": "audience", "sub": "somebody", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()})
	check(err)
	signed, err := signer.Sign(claims)
	check(err)
	token, err := signed.CompactSerialize()
	check(err)
	return token
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
	github.com/go-jose/go-jose/v4 v4.1.8
	github.com/go-logr/logr v1.4.3
	k8s.io/apiserver v0.37.0
	k8s.io/klog/v2 v2.140.0
	k8s.io/kubernetes v1.37.0
)

replace (
	k8s.io/api => k8s.io/api v0.37.0
	k8s.io/apiextensions-apiserver => k8s.io/apiextensions-apiserver v0.37.0
	k8s.io/apimachinery => k8s.io/apimachinery v0.37.0
	k8s.io/apiserver => k8s.io/apiserver v0.37.0
	k8s.io/cli-runtime => k8s.io/cli-runtime v0.37.0
	k8s.io/client-go => k8s.io/client-go v0.37.0
	k8s.io/cloud-provider => k8s.io/cloud-provider v0.37.0
	k8s.io/cluster-bootstrap => k8s.io/cluster-bootstrap v0.37.0
	k8s.io/code-generator => k8s.io/code-generator v0.37.0
	k8s.io/component-base => k8s.io/component-base v0.37.0
	k8s.io/component-helpers => k8s.io/component-helpers v0.37.0
	k8s.io/controller-manager => k8s.io/controller-manager v0.37.0
	k8s.io/cri-api => k8s.io/cri-api v0.37.0
	k8s.io/cri-client => k8s.io/cri-client v0.37.0
	k8s.io/cri-streaming => k8s.io/cri-streaming v0.37.0
	k8s.io/csi-translation-lib => k8s.io/csi-translation-lib v0.37.0
	k8s.io/dynamic-resource-allocation => k8s.io/dynamic-resource-allocation v0.37.0
	k8s.io/endpointslice => k8s.io/endpointslice v0.37.0
	k8s.io/externaljwt => k8s.io/externaljwt v0.37.0
	k8s.io/kms => k8s.io/kms v0.37.0
	k8s.io/kube-aggregator => k8s.io/kube-aggregator v0.37.0
	k8s.io/kube-controller-manager => k8s.io/kube-controller-manager v0.37.0
	k8s.io/kube-proxy => k8s.io/kube-proxy v0.37.0
	k8s.io/kube-scheduler => k8s.io/kube-scheduler v0.37.0
	k8s.io/kubectl => k8s.io/kubectl v0.37.0
	k8s.io/kubelet => k8s.io/kubelet v0.37.0
	k8s.io/metrics => k8s.io/metrics v0.37.0
	k8s.io/mount-utils => k8s.io/mount-utils v0.37.0
	k8s.io/pod-security-admission => k8s.io/pod-security-admission v0.37.0
	k8s.io/sample-apiserver => k8s.io/sample-apiserver v0.37.0
	k8s.io/streaming => k8s.io/streaming v0.37.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/go-jose/go-jose/v4 v4.1.8, github.com/go-logr/logr v1.4.3, k8s.io/apiserver v0.37.0, k8s.io/klog/v2 v2.140.0, k8s.io/kubernetes v1.37.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
