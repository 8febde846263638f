package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// logoutIssuer is an issuer that ends sessions. Its keys are in a file.
const logoutIssuer = "https://sessions.example.org"

// sessionIssuer signs the tokens of logoutIssuer.
type sessionIssuer struct{ signer jose.Signer }

// newSessionIssuer writes the configuration of the issuer into a directory.
func newSessionIssuer(t *testing.T, dir string) *sessionIssuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil)
	must(t, err)
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	must(t, err)
	issuers := issuersDocument(apiserverv1.JWTAuthenticator{
		Issuer:        apiserverv1.Issuer{URL: logoutIssuer, Audiences: []string{"kubernetes"}},
		ClaimMappings: apiserverv1.ClaimMappings{Username: apiserverv1.PrefixedClaimOrExpression{Claim: "sub", Prefix: new("sso:")}},
	})
	ours := gatehouseDocument(v1alpha1.AuthenticationConfiguration{JWT: v1alpha1.JWTConfiguration{Issuers: []v1alpha1.JWTIssuer{{URL: logoutIssuer, KeysFile: "keys.jwks"}}}})
	must(t, os.WriteFile(filepath.Join(dir, "keys.jwks"), keys, 0o600))
	for name, document := range map[string]any{"issuers.yaml": issuers, "ours.yaml": ours} {
		text, err := yaml.Marshal(document)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return &sessionIssuer{signer}
}

// sign returns a token with more claims.
func (i *sessionIssuer) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": logoutIssuer, "aud": "kubernetes", "jti": rand.Text(), "iat": time.Now().Unix(), "exp": time.Now().Add(2 * time.Minute).Unix()}
	maps.Copy(all, claims)
	token, err := jwt.Signed(i.signer).Claims(all).Serialize()
	must(t, err)
	return token
}

// logout returns a logout token.
func (i *sessionIssuer) logout(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := maps.Clone(claims)
	all["events"] = map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}
	return i.sign(t, all)
}

// A session that ends at its issuer ends here, on every replica, whichever of them the issuer tells. A subject that is
// logged out can log in again.
func (c *tokenCluster) backChannelLogout(t *testing.T) {
	post := func(replica int, token string) error {
		body := strings.NewReader(url.Values{"logout_token": {token}}.Encode())
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.servers[replica].Reviews.String()+"/logout", body)
		must(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := c.client(t).Do(request)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Cache-Control") != "no-store" {
			return fmt.Errorf("got %s %v (%w)", response.Status, response.Header, err)
		}
		return nil
	}
	laptop := c.sessions.sign(t, map[string]any{"sub": "jane", "sid": "laptop"})
	phone := c.sessions.sign(t, map[string]any{"sub": "jane", "sid": "phone"})
	c.everyReplica(t, laptop, true)
	for i, forged := range []string{laptop, laptop[:len(laptop)-8], c.sessions.logout(t, map[string]any{"sid": "laptop", "nonce": "n"})} {
		if post(0, forged) == nil {
			t.Errorf("forged logout token %d is accepted", i)
		}
	}
	ofLaptop := c.sessions.logout(t, map[string]any{"sub": "jane", "sid": "laptop"})
	must(t, errors.Join(post(0, ofLaptop), post(1, ofLaptop))) // again changes nothing
	c.everyReplica(t, laptop, false)
	c.everyReplica(t, phone, true)
	must(t, post(1, c.sessions.logout(t, map[string]any{"sub": "jane"})))
	c.everyReplica(t, phone, false)
	c.everyReplica(t, c.sessions.sign(t, map[string]any{"sub": "jane", "sid": "next", "iat": time.Now().Add(2 * time.Second).Unix()}), true)
	// As long as an issuer may make them. The subject goes last, because it ends all of its sessions.
	sub, sid := strings.Repeat("j", 255), strings.Repeat("s", 1024)
	for _, last := range []struct {
		session string
		ends    map[string]any
	}{{sid, map[string]any{"sid": sid}}, {"another", map[string]any{"sub": sub}}} {
		long := c.sessions.sign(t, map[string]any{"sub": sub, "sid": last.session, "iat": time.Now().Add(-time.Minute).Unix()})
		c.everyReplica(t, long, true)
		must(t, post(0, c.sessions.logout(t, last.ends)))
		c.everyReplica(t, long, false)
	}
	out, err := c.Kubectl(t.Context(), "get", "tokenrevocations", "--selector", "gatehouse.dev/logout=true", "--output", "name").Output()
	if must(t, err); strings.Count(string(out), "tokenrevocation.gatehouse.dev/logout-") != 4 {
		t.Errorf("there are %s", out)
	}
}
