package e2e

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/dex"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// A configuration by which nobody could log in any more, or that cannot be read, does not take the place of one by which
// people do.
func TestBrokenLoginConfigurationIsNotUsed(t *testing.T) {
	t.Parallel()
	s := prepareSite(t, "lockout")
	jane := s.person("jane", "dev")
	issuer := dex.New(t, dex.Options{Users: []dex.User{jane}})
	d := s.newDirectory(t, "jane")
	configuration := d.configuration(t, s)
	s.writeDocument(t, "issuers.yaml", issuersDocument(issuerOf(issuer, "dex:")))
	s.writeDocument(t, "configuration.yaml", gatehouseDocument(configuration))
	s.start(t)
	ofIssuer, ofDirectory := s.idToken(t, issuer, dex.Client, jane), s.login(t, d.with("jane")).accepted(t)
	people := func() error {
		return errors.Join(isAuthenticated(s.review(t, ofIssuer)), isAuthenticated(s.review(t, ofDirectory)))
	}
	must(t, people())

	with := func(change func(*apiserverv1.JWTAuthenticator)) any {
		changed := issuerOf(issuer, "dex:")
		change(&changed)
		return issuersDocument(changed)
	}
	guard := func(prefix v1alpha1.RequiredPrefix) any {
		changed := configuration
		changed.Guard.Prefixes = []v1alpha1.RequiredPrefix{prefix}
		return gatehouseDocument(changed)
	}
	for _, test := range []struct {
		name, file string
		document   any
		says       []string
	}{
		{"an expression that does not compile", "issuers.yaml", with(func(j *apiserverv1.JWTAuthenticator) { j.ClaimMappings.Username.Expression = "claims.(" }), []string{"jwt[0].claimMappings.username.expression"}},
		{"a login key that is not there", "configuration.yaml", func() any {
			changed := configuration
			changed.Login = &v1alpha1.LoginConfiguration{Keys: []v1alpha1.LoginKey{{Name: "gone", File: s.private + "/gone.key"}}}
			return gatehouseDocument(changed)
		}(), []string{"login.keys[0]", "gone.key"}},
		{"a filter that is none", "configuration.yaml", func() any {
			changed := configuration
			changed.Directories = []v1alpha1.Directory{configuration.Directories[0]}
			changed.Directories[0].UserSearch.Filter = "(uid={}"
			return gatehouseDocument(changed)
		}(), []string{"directories[0].userSearch.filter"}},
		{"a prefix that nobody of the directory has", "configuration.yaml", guard(v1alpha1.RequiredPrefix{Source: "ldap", Username: "corp:"}), []string{"guard.prefixes[0].username", "corp:"}},
		{"a field that there is not", "configuration.yaml", map[string]any{
			"apiVersion": "gatehouse.dev/v1alpha1", "kind": "AuthenticationConfiguration", "directoriess": []any{},
		}, []string{"directoriess", `"directories"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			failed, err := s.server.Metric(t.Context(), "gatehouse_config_loads_total", `result="error"`)
			must(t, err)
			file := s.writeDocument(t, test.file, test.document)
			good := map[string]any{"issuers.yaml": issuersDocument(issuerOf(issuer, "dex:")), "configuration.yaml": gatehouseDocument(configuration)}[test.file]
			defer s.writeDocument(t, test.file, good)
			support.Eventually(t, "the metric of what could not be used", func() error {
				must(t, people())
				now, err := s.server.Metric(t.Context(), "gatehouse_config_loads_total", `result="error"`)
				if err == nil && now == failed {
					err = errNotYet
				}
				return err
			})
			s.login(t, d.with("jane")).accepted(t)
			must(t, people())

			said, err := gatehouse.Run(t.Context(), "lint", "--config", s.documents)
			if code, ok := errors.AsType[*exec.ExitError](err); !ok || code.ExitCode() != 1 {
				t.Errorf("lint says %v, want the exit code 1", err)
			}
			if err != nil {
				said += err.Error()
			}
			for _, want := range append(test.says, test.file) {
				if !strings.Contains(said, want) {
					t.Errorf("lint does not say %q:\n%s", want, said)
				}
			}
			if t.Failed() {
				t.Logf("the document is %s", file)
			}
		})
	}
}
