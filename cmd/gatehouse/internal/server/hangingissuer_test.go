package server_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/issuers"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// TestHangingIssuer sends more forged tokens than there are slots, for keys of an issuer
// that does not answer. Other tokens are still answered.
func TestHangingIssuer(t *testing.T) {
	t.Parallel()
	gaveUp := make(chan struct{}, 100) // has a value once nobody waits for the issuer any more
	hanging := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		gaveUp <- struct{}{}
	}))
	defer hanging.Close()
	known := issuers.New(issuers.Options{Log: slog.New(slog.DiscardHandler), Waiting: server.KeyWaits()})
	defer known.Close()

	token, hash := authn.NewToken("ci", [25]byte{})
	good := v1alpha1.AccessToken{ObjectMeta: metav1.ObjectMeta{Name: "ci"}}
	good.Spec.SHA256, good.Spec.ExpiresAt = hash, metav1.NewTime(time.Now().Add(time.Hour))
	good.Spec.User = authenticationv1.UserInfo{Username: "ci"}
	spec := authn.Spec{
		Now: time.Now, Tokens: []authn.Token{{AccessToken: good}},
		Issuers: []authn.Issuer{{Config: &apiserver.JWTAuthenticator{
			Issuer:        apiserver.Issuer{URL: hanging.URL, Audiences: []string{"kubernetes"}, CertificateAuthority: caOf(hanging.Certificate())},
			ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: new("")}},
		}}},
	}
	known.Provide(&spec)
	handler := newReviews(t, tokens(spec))
	ask := func(token string) string {
		body := fmt.Sprintf(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":%q}}`, token)
		return call(t, handler, "/authenticate", body, certified(time.Now().Add(time.Hour), true)).Body.String()
	}

	forged := max(16, 8*runtime.GOMAXPROCS(0))
	answers := make(chan string, forged)
	for n := range forged {
		go func() { answers <- ask(forge(hanging.URL, n)) }()
	}
	for range forged - server.KeyWaits() {
		select {
		case answer := <-answers:
			if !strings.Contains(answer, `"error"`) {
				t.Errorf("a forged token is answered %s", answer)
			}
		case <-gaveUp:
			t.Fatal("forged tokens wait for an issuer that hangs, and hold the slots")
		}
	}
	if answer := ask(token); !strings.Contains(answer, `"authenticated":true`) {
		t.Errorf("a good token is answered %s", answer)
	}
	if len(gaveUp) > 0 {
		t.Error("a good token waits for an issuer that hangs")
	}
	hanging.CloseClientConnections() // the others need not wait
	for range server.KeyWaits() {
		<-answers
	}
}

// forge is a token of the issuer that is signed with nothing.
func forge(issuer string, n int) string {
	text := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	claims := fmt.Sprintf(`{"iss":%q,"aud":"kubernetes","sub":"jane","exp":%d}`, issuer, time.Now().Add(time.Hour).Unix())
	return text(fmt.Sprintf(`{"alg":"RS256","kid":"forged-%d"}`, n)) + "." + text(claims) + "." + text(strings.Repeat("x", 256))
}

func caOf(certificate *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
}
