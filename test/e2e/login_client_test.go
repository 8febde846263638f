package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support/dex"
)

// The API server's own client understands the answers about tokens of every kind, in both versions.
func (p *place) testClient(t *testing.T) {
	p = p.elsewhere(t)
	jwt, login := p.idToken(t, p.issuer, dex.Client, p.jane), p.login(t, p.directory.with("jane")).in(t)
	access := p.issueHere(t, "vault", "--user", "robot", "--audience", "vault")
	p.grant(t, "behind-vault", "--user", "robot")
	last := len(login) - 4
	damaged := login[:last] + string(login[last]^1) + login[last+1:]
	for _, version := range []string{"v1", "v1beta1"} {
		for _, test := range []struct {
			name, token, audience string
			user                  string // nobody
		}{
			{"JWT", jwt, "kubernetes", "dex:jane@example.org"},
			{"login token", login, "kubernetes", "ldap:jane"},
			{"access token", access, "vault", "robot"},
			{"access token for another audience", access, "kubernetes", ""},
			{"damaged login token", damaged, "kubernetes", ""},
			{"JWT of nobody", p.idToken(t, p.foreign, dex.Client, p.jane), "kubernetes", ""},
		} {
			t.Run(version+" "+test.name, func(t *testing.T) {
				audiences := authenticator.Audiences{test.audience}
				client, err := webhook.New(&rest.Config{
					Host: "https://" + p.server.Reviews.String() + "/authenticate",
					TLSClientConfig: rest.TLSClientConfig{
						CAFile: p.path("ca.crt"), CertFile: p.path("client.crt"), KeyFile: p.path("client.key"),
					},
				}, version, audiences, wait.Backoff{Steps: 1})
				must(t, err)
				response, ok, err := client.AuthenticateToken(authenticator.WithAudiences(t.Context(), audiences), test.token)
				if err != nil || ok != (test.user != "") || ok && response.User.GetName() != test.user {
					t.Errorf("got %+v, %t, %v, want the user %q", response, ok, err, test.user)
				}
			})
		}
	}
}
