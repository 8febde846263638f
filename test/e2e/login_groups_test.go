package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The groups of a token without any come from the UserInfo endpoint of a real issuer and, nested, from a real directory. While
// these are away, nobody has fewer groups than before, and nobody gets in of whom nothing is known.
func TestGroupsOutsideTheToken(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	jane, bob := w.person("jane", "dev", "eng"), w.person("bob")
	issuer := newDex(t, dexOptions{Users: []dexUser{jane, bob}})
	d := w.newDirectory(t, "jane", "bob")
	s := prepareSite(t, "groups")
	thin := issuerOf(issuer, "dex:")
	thin.ClaimMappings.Groups = apiserverv1.PrefixedClaimOrExpression{}
	s.writeDocument(t, "issuers.yaml", issuersDocument(thin))
	configured := d.configuration(t, s)
	configured.Login = nil // The directory is for groups alone.
	configured.JWT.Issuers = []v1alpha1.JWTIssuer{{URL: issuer.Issuer(), GroupSources: []v1alpha1.GroupSource{
		{
			Name: "userinfo", GroupsPrefix: new("dex:"), CacheTTL: &metav1.Duration{Duration: 10 * time.Second},
			UserInfo: &v1alpha1.UserInfoGroups{URL: issuer.Issuer() + "/userinfo"}, CertificateAuthority: string(issuer.CertPEM()),
		},
		{Name: "corp", LDAP: &v1alpha1.LDAPGroups{Directory: "ldap"}, User: `claims.email.split("@")[0]`, OnUnknown: v1alpha1.OnUnknownUseToken},
	}}}
	s.writeDocument(t, "login.yaml", gatehouseDocument(configured))
	s.start(t)

	ofJane, ofBob := w.idToken(t, issuer, dexClient, jane), w.idToken(t, issuer, dexClient, bob)
	wants := func(token, groups, marks string) {
		t.Helper()
		status := s.review(t, token)
		var marked []string
		for _, key := range []string{"groups.gatehouse.dev/missing", "groups.gatehouse.dev/stale"} {
			marked = append(marked, status.User.Extra[key]...)
		}
		if got := strings.Join(status.User.Groups, " "); !status.Authenticated || got != groups || strings.Join(marked, " ") != marks {
			t.Errorf("got %+v, want the groups %q and the marks %q", status, groups, marks)
		}
	}
	all := "dex:dev dex:eng ldap:dev ldap:eng ldap:friends ldap:staff"
	wants(ofJane, all, "")

	issuer.Kill()
	d.Stop()
	wants(ofJane, all, "") // in memory
	if status := s.review(t, ofBob); status.Authenticated || status.Error == "" {
		t.Errorf("got %+v of somebody whose groups nobody knows, want that the server cannot decide", status)
	}
	support.Eventually(t, "stale groups", func() error {
		if status := s.review(t, ofJane); !slices.Equal(status.User.Extra["groups.gatehouse.dev/stale"], []string{"userinfo"}) {
			return errNotYet
		}
		return nil
	})
	wants(ofJane, all, "userinfo")

	must(t, issuer.Start(t.Context())) // with other keys
	ofBob = w.idToken(t, issuer, dexClient, bob)
	support.Eventually(t, "a source that answers again", func() error { return isAuthenticated(s.review(t, ofBob)) })
	wants(ofBob, "", "corp")
}
