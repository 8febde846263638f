package authn_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// groupService knows groups of users.
type groupService struct {
	answer authn.GroupAnswer
	cached bool
	err    error
	asked  []authn.GroupQuery
}

func (s *groupService) Cached(*authn.GroupQuery) (authn.GroupAnswer, bool) { return s.answer, s.cached }

func (s *groupService) Lookup(_ context.Context, q *authn.GroupQuery) (authn.GroupAnswer, error) {
	s.asked = append(s.asked, *q)
	return s.answer, s.err
}

// knows returns a service that gives these groups.
func knows(groups ...string) *groupService {
	return &groupService{answer: authn.GroupAnswer{Groups: groups, At: noon.Add(-time.Minute)}}
}

// groupSpec is that of an issuer with sources.
func groupSpec(s signer, sources []v1alpha1.GroupSource, services ...*groupService) authn.Spec {
	one := issuer()
	one.Keys = s.keys()
	for _, service := range services {
		one.Groups = append(one.Groups, service)
	}
	c := &authn.Configuration{Source: "login.yaml"}
	c.JWT.Issuers = []v1alpha1.JWTIssuer{{URL: issuerURL, GroupSources: sources}}
	return authn.Spec{Issuers: []authn.Issuer{one}, Configuration: c, Now: atNoon}
}

// httpSource is a source named corp.
func httpSource(edit ...func(*v1alpha1.GroupSource)) v1alpha1.GroupSource {
	source := v1alpha1.GroupSource{Name: "corp", HTTP: &v1alpha1.HTTPGroups{URL: "https://groups.example/v1", TokenFile: "token"}, GroupsPrefix: new("corp:")}
	for _, one := range edit {
		one(&source)
	}
	return source
}

func TestGroupSources(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	down := errors.New("dial tcp 10.0.0.7: refused")
	useToken := func(g *v1alpha1.GroupSource) { g.OnUnknown = v1alpha1.OnUnknownUseToken }
	overage := func(g *v1alpha1.GroupSource) { g.Ask = v1alpha1.AskOnOverage }
	leftOut := map[string]any{"groups": nil, "_claim_names": map[string]string{"groups": "src1"}, "_claim_sources": map[string]any{"src1": map[string]string{"endpoint": "https://evil.example"}}}
	for name, test := range map[string]struct {
		claims  map[string]any
		source  v1alpha1.GroupSource
		service *groupService
		edit    func(*authn.Spec)
		reason  authn.Reason
		groups  string // the user's, or what the detail holds
		extra   string
		asked   int
	}{
		"found":                 {nil, httpSource(), knows("corp:a", "dev"), nil, authn.ReasonOK, "dev corp:a", "", 1},
		"in memory":             {nil, httpSource(), &groupService{cached: true, answer: knows("corp:a").answer}, nil, authn.ReasonOK, "dev corp:a", "", 0},
		"certainly none":        {nil, httpSource(), knows(), nil, authn.ReasonOK, "dev", "", 1},
		"unknown":               {nil, httpSource(), &groupService{err: down}, nil, authn.ReasonGroups, `groups of "corp": dial tcp`, "", 1},
		"unknown, token's own":  {nil, httpSource(useToken), &groupService{err: down}, nil, authn.ReasonOK, "dev", "groups.gatehouse.dev/missing=corp", 1},
		"stale":                 {nil, httpSource(), &groupService{answer: authn.GroupAnswer{Groups: []string{"corp:a"}, At: noon.Add(-time.Hour), Stale: true}}, nil, authn.ReasonOK, "dev corp:a", "groups.gatehouse.dev/stale=corp", 1},
		"not left out":          {nil, httpSource(overage), knows("corp:a"), nil, authn.ReasonOK, "dev", "", 0},
		"left out":              {leftOut, httpSource(overage), knows("corp:a"), nil, authn.ReasonOK, "corp:a", "", 1},
		"left out, no endpoint": {map[string]any{"hasgroups": true}, httpSource(overage), knows("corp:a"), nil, authn.ReasonOK, "dev corp:a", "", 1},
		"left out, no source":   {leftOut, httpSource(), knows(), func(s *authn.Spec) { s.Configuration.JWT.Issuers = nil }, authn.ReasonClaims, "distributed claim", "", 0},
		"reserved":              {nil, httpSource(), knows("corp:a", "system:masters"), nil, authn.ReasonGuard, `groups of "corp": groups[1]: "system:masters" is reserved`, "", 1},
		"reserved, allowed for the token": {nil, httpSource(), knows("system:masters"), func(s *authn.Spec) {
			s.Configuration.Guard.AllowedGroups = []v1alpha1.AllowedGroup{{Name: "system:masters", Sources: []string{issuerURL}}}
		}, authn.ReasonGuard, `"system:masters" is reserved`, "", 1},
		"break-glass":    {nil, httpSource(), knows(v1alpha1.BreakGlassGroup), nil, authn.ReasonGuard, "only impersonation", "", 1},
		"empty":          {nil, httpSource(), knows(""), nil, authn.ReasonGuard, `groups[0]: "" must not be empty`, "", 1},
		"control":        {nil, httpSource(), knows("corp:a\nb"), nil, authn.ReasonGuard, "control", "", 1},
		"another prefix": {nil, httpSource(func(g *v1alpha1.GroupSource) { g.RequiredPrefix = "corp:k8s-" }), knows("corp:k8s-a", "corp:b"), nil, authn.ReasonGuard, `groups[1]: "corp:b" must begin with "corp:k8s-"`, "", 1},
		"the issuer's prefix": {nil, httpSource(), knows("corp:a"), func(s *authn.Spec) {
			s.Configuration.Guard.Prefixes = []v1alpha1.RequiredPrefix{{Source: issuerURL, Groups: "d"}}
		}, authn.ReasonGuard, `"corp:a" must begin with "d"`, "", 1},
		"a rule about the user": {nil, httpSource(), knows("corp:a"), func(s *authn.Spec) {
			s.Issuers[0].Config.UserValidationRules = []apiserver.UserValidationRule{{Expression: `!("corp:a" in user.groups)`}}
		}, authn.ReasonClaims, "user validation", "", 1},
		"a rule about claims": {nil, httpSource(), knows("corp:a"), func(s *authn.Spec) {
			s.Issuers[0].Config.ClaimValidationRules = []apiserver.ClaimValidationRule{{Expression: "false"}}
		}, authn.ReasonClaims, "claim validation", "", 0},
		"another claim":   {map[string]any{"oid": "o-1"}, httpSource(func(g *v1alpha1.GroupSource) { g.User = "claims.oid" }), knows("corp:a"), nil, authn.ReasonOK, "dev corp:a", "", 1},
		"no such claim":   {nil, httpSource(func(g *v1alpha1.GroupSource) { g.User = "claims.oid" }), knows("corp:a"), nil, authn.ReasonClaims, "no such key: oid", "", 0},
		"an empty claim":  {map[string]any{"oid": ""}, httpSource(func(g *v1alpha1.GroupSource) { g.User = "claims.oid" }), knows("corp:a"), nil, authn.ReasonClaims, "is empty", "", 0},
		"expired":         {map[string]any{"exp": noon.Unix() - 1}, httpSource(), knows("corp:a"), nil, authn.ReasonExpired, "expired", "", 0},
		"nobody is asked": {nil, httpSource(), nil, nil, authn.ReasonGroups, "not asked here", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := groupSpec(s, []v1alpha1.GroupSource{test.source})
			if test.service != nil {
				spec.Issuers[0].Groups = []authn.GroupLookup{test.service}
			}
			if test.edit != nil {
				test.edit(&spec)
			}
			set, err := authn.Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			paused := 0
			d := set.Decide(t.Context(), authn.Input{Token: s.sign(t, test.claims), Explain: true, Pause: func(wait func()) { paused++; wait() }})
			if d.Reason != test.reason {
				t.Fatalf("%s: %s", d.Reason, d.Detail)
			}
			if test.reason != authn.ReasonOK {
				if !strings.Contains(d.Detail, test.groups) {
					t.Errorf("detail %q, want %q", d.Detail, test.groups)
				}
			} else if got := strings.Join(d.Status.User.Groups, " "); got != test.groups {
				t.Errorf("groups %q, want %q", got, test.groups)
			}
			extra := ""
			for _, key := range slices.Sorted(maps.Keys(d.Status.User.Extra)) {
				if strings.HasPrefix(key, "groups.") {
					extra += key + "=" + strings.Join(d.Status.User.Extra[key], ",")
				}
			}
			if extra != test.extra {
				t.Errorf("extra %q, want %q", extra, test.extra)
			}
			if test.service != nil && (len(test.service.asked) != test.asked || paused != test.asked) {
				t.Errorf("asked %d times, paused %d times, want %d", len(test.service.asked), paused, test.asked)
			}
			if strings.Contains(d.Status.Error, "10.0.0.7") {
				t.Errorf("the API server is told %q", d.Status.Error)
			}
		})
	}
	t.Run("forged", func(t *testing.T) {
		t.Parallel()
		service := knows("corp:a")
		set, err := authn.Compile(groupSpec(s, []v1alpha1.GroupSource{httpSource()}, service))
		if err != nil {
			t.Fatal(err)
		}
		if d := set.Decide(t.Context(), authn.Input{Token: newSigner(t).sign(t, nil)}); d.Reason != authn.ReasonSignature || len(service.asked) > 0 {
			t.Errorf("%s, and %d look-ups", d.Reason, len(service.asked))
		}
	})
	t.Run("origins", func(t *testing.T) {
		t.Parallel()
		userInfo := v1alpha1.GroupSource{Name: "userinfo", UserInfo: &v1alpha1.UserInfoGroups{URL: "https://issuer.example/userinfo"}, RequiredPrefix: "u"}
		first, second := knows("corp:a"), &groupService{answer: authn.GroupAnswer{Groups: []string{"u"}, At: noon.Add(-time.Hour), Stale: true}}
		set, err := authn.Compile(groupSpec(s, []v1alpha1.GroupSource{httpSource(), userInfo}, first, second))
		if err != nil {
			t.Fatal(err)
		}
		token := s.sign(t, nil)
		var got []string
		d := set.Decide(t.Context(), authn.Input{Token: token})
		for i := range d.Groups {
			got = append(got, d.Groups[i].Describe(noon)+": "+strings.Join(d.Groups[i].Groups, ","))
		}
		if want := []string{"the token: dev", "corp, 1m0s old: corp:a", "userinfo, 1h0m0s old, because the source does not answer: u"}; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		// Only a UserInfo endpoint gets the token.
		if first.asked[0].Token != "" || second.asked[0].Token != token || first.asked[0].Subject != "jane" {
			t.Errorf("%+v, %+v", first.asked, second.asked)
		}
		if d.Detail == "" {
			t.Error("the operator is not told that groups are stale")
		}
	})
}

func TestCheckGroupSources(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	with := func(edit func(*v1alpha1.GroupSource)) []v1alpha1.GroupSource {
		return []v1alpha1.GroupSource{httpSource(edit)}
	}
	seconds := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Second} }
	for name, test := range map[string]struct {
		sources []v1alpha1.GroupSource
		want    []string
	}{
		"as it should be": {[]v1alpha1.GroupSource{httpSource()}, nil},
		"names":           {[]v1alpha1.GroupSource{httpSource(), httpSource(), httpSource(func(g *v1alpha1.GroupSource) { g.Name = "token" })}, []string{"groupSources[1].name: \"corp\" is already", "groupSources[2].name: \"token\" stands for", "timeouts are 9s"}},
		"two kinds":       {with(func(g *v1alpha1.GroupSource) { g.LDAP = &v1alpha1.LDAPGroups{Directory: "corp"} }), []string{"has 2 of userInfo", `ldap.directory: "corp" is not the name`}},
		"no kind":         {with(func(g *v1alpha1.GroupSource) { g.HTTP = nil }), []string{"has 0 of userInfo"}},
		"URLs": {[]v1alpha1.GroupSource{
			httpSource(func(g *v1alpha1.GroupSource) { g.HTTP.URL = "http://groups.example" }),
			httpSource(func(g *v1alpha1.GroupSource) { g.Name, g.HTTP.URL = "b", "https://me:secret@groups.example" }),
		}, []string{`http.url: "http://groups.example": must be the URL of an https`, "http.url: the URL (not shown"}},
		"expressions": {with(func(g *v1alpha1.GroupSource) { g.User, g.Groups = "claims.", "size(answer)" }), []string{"groups:", "results in int", "user:"}},
		"bounds": {with(func(g *v1alpha1.GroupSource) {
			g.Timeout, g.CacheTTL, g.OutageTTL, g.MaxGroups, g.MaxRequests = seconds(8), seconds(1), seconds(0), -1, 2000
		}), []string{"cacheTTL:", "maxGroups:", "maxRequests:", "outageTTL:", "outageTTL:", "timeout:"}},
		"words": {with(func(g *v1alpha1.GroupSource) { g.Ask, g.OnUnknown, g.HTTP.Method = "Alway", "Deny", "PUT" }), []string{"ask:", `did you mean "Always"`, "http.method:", "onUnknown:"}},
		"prefixes": {
			with(func(g *v1alpha1.GroupSource) { g.GroupsPrefix, g.RequiredPrefix = new("system:"), "corp:" }),
			[]string{"groupsPrefix: \"system:\"", "requiredPrefix: \"corp:\" is required, but"},
		},
		"certificate": {with(func(g *v1alpha1.GroupSource) {
			g.HTTP.ClientKeyFile, g.CertificateAuthority = "key.pem", "ca.pem"
		}), []string{"certificateAuthority:", "belong together"}},
		"graph": {
			[]v1alpha1.GroupSource{{Name: "g", GroupsPrefix: new("g:"), Graph: &v1alpha1.GraphGroups{TenantID: "a/b", NameProperty: "mail", URL: "graph"}}},
			[]string{"graph.clientID:", "graph.clientSecretFile:", "graph.nameProperty:", "graph.tenantID:", "graph.url:"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := authn.Compile(groupSpec(s, test.sources))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if (err != nil) != (len(test.want) > 0) || strings.Contains(text, "secret@") {
				t.Fatalf("%v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
		})
	}
}

func TestRevocationByClaims(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	revocation := func(edit v1alpha1.TokenRevocationSpec) authn.Revocation {
		one := authn.Revocation{Source: "revocations.yaml"}
		one.Name, one.Spec = "one", edit
		return one
	}
	at := metav1.NewTime(noon)
	for name, test := range map[string]struct {
		spec   v1alpha1.TokenRevocationSpec
		claims map[string]any
		reason authn.Reason
		err    string
	}{
		"jti":                {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, TokenID: "token-1"}, nil, authn.ReasonRevoked, ""},
		"another jti":        {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, TokenID: "token-2"}, nil, authn.ReasonOK, ""},
		"another issuer":     {v1alpha1.TokenRevocationSpec{Issuer: "https://other.example", TokenID: "token-1"}, nil, authn.ReasonOK, ""},
		"no jti":             {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, TokenID: "token-1"}, map[string]any{"jti": nil}, authn.ReasonOK, ""},
		"sid":                {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, SessionID: "s-1"}, map[string]any{"sid": "s-1"}, authn.ReasonRevoked, ""},
		"no sid":             {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, SessionID: "s-1"}, nil, authn.ReasonOK, ""},
		"sub":                {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, Subject: "jane", IssuedBefore: at}, nil, authn.ReasonRevoked, ""},
		"sub, issued after":  {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, Subject: "jane", IssuedBefore: at}, map[string]any{"iat": noon.Unix()}, authn.ReasonOK, ""},
		"several":            {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, Subject: "jane", TokenID: "a", IssuedBefore: at}, nil, "", "spec: has several"},
		"no issuer":          {v1alpha1.TokenRevocationSpec{TokenID: "a"}, nil, "", "spec.issuer: is required"},
		"an issuer alone":    {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, User: "a", IssuedBefore: at}, nil, "", "spec.issuer: is required"},
		"jti and a time":     {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, TokenID: "a", IssuedBefore: at}, nil, "", "spec.issuedBefore: is for"},
		"sub without a time": {v1alpha1.TokenRevocationSpec{Issuer: issuerURL, Subject: "a"}, nil, "", "spec.issuedBefore: is missing"},
	} {
		one := issuer()
		one.Keys = s.keys()
		set, err := authn.Compile(authn.Spec{Issuers: []authn.Issuer{one}, Now: atNoon, Revocations: []authn.Revocation{revocation(test.spec)}})
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := set.Decide(t.Context(), authn.Input{Token: s.sign(t, test.claims)}); d.Reason != test.reason {
			t.Errorf("%s: %s %s", name, d.Reason, d.Detail)
		}
	}
}
