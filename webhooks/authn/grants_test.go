package authn_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// newGrant makes a Grant to jane for one more hour.
func newGrant(name string, edit ...func(*authn.Grant)) authn.Grant {
	g := authn.Grant{Source: "cluster"}
	g.Name, g.CreationTimestamp = name, metav1.NewTime(noon.Add(-time.Minute))
	g.Spec = v1alpha1.GrantSpec{
		Subject: v1alpha1.GrantSubject{User: "jane"}, Groups: []string{"oncall"}, ExpiresAt: metav1.NewTime(noon.Add(time.Hour)), GrantedBy: "boss",
	}
	for _, e := range edit {
		e(&g)
	}
	return g
}

func TestGrants(t *testing.T) {
	t.Parallel()
	token, document := issue("ci", 1)
	between := func(from, to time.Duration) func(*authn.Grant) {
		return func(g *authn.Grant) {
			g.Spec.NotBefore, g.Spec.ExpiresAt = metav1.NewTime(noon.Add(from)), metav1.NewTime(noon.Add(to))
		}
	}
	groups := func(names ...string) func(*authn.Grant) { return func(g *authn.Grant) { g.Spec.Groups = names } }
	for name, c := range map[string]struct {
		grants        []authn.Grant
		groups, names []string
	}{
		"none":                                 {nil, []string{"dev", "eng"}, nil},
		"of another user":                      {[]authn.Grant{newGrant("a", func(g *authn.Grant) { g.Spec.Subject.User = "Jane" })}, []string{"dev", "eng"}, nil},
		"one":                                  {[]authn.Grant{newGrant("a")}, []string{"dev", "eng", "oncall"}, []string{"a"}},
		"several, by name":                     {[]authn.Grant{newGrant("b", groups("x")), newGrant("a", groups("y", "z"))}, []string{"dev", "eng", "y", "z", "x"}, []string{"a", "b"}},
		"a group that the token has":           {[]authn.Grant{newGrant("a", groups("eng", "x"))}, []string{"dev", "eng", "x"}, []string{"a"}},
		"two of one group":                     {[]authn.Grant{newGrant("a"), newGrant("b")}, []string{"dev", "eng", "oncall"}, []string{"a", "b"}},
		"begins now":                           {[]authn.Grant{newGrant("a", between(0, time.Second))}, []string{"dev", "eng", "oncall"}, []string{"a"}},
		"begins in a moment":                   {[]authn.Grant{newGrant("a", between(time.Nanosecond, time.Second))}, []string{"dev", "eng"}, nil},
		"ends in a moment":                     {[]authn.Grant{newGrant("a", between(-time.Hour, time.Nanosecond))}, []string{"dev", "eng", "oncall"}, []string{"a"}},
		"ends now":                             {[]authn.Grant{newGrant("a", between(-time.Hour, 0))}, []string{"dev", "eng"}, nil},
		"ended, and another that has not":      {[]authn.Grant{newGrant("a", between(-time.Hour, 0)), newGrant("b", groups("x"))}, []string{"dev", "eng", "x"}, []string{"b"}},
		"created after noon by the API server": {[]authn.Grant{newGrant("a", func(g *authn.Grant) { g.CreationTimestamp = metav1.NewTime(noon.Add(time.Minute)) })}, []string{"dev", "eng", "oncall"}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := authn.Compile(authn.Spec{Tokens: []authn.Token{document}, Grants: c.grants, Now: atNoon})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // nothing of the first review is left for the second
				d := set.Decide(t.Context(), authn.Input{Token: token})
				user := d.Status.User
				if d.Outcome != authn.Yes || !slices.Equal(user.Groups, c.groups) || !slices.Equal(user.Extra[v1alpha1.GrantExtraKey], c.names) || len(user.Extra["example.org/team"]) != 2 {
					t.Errorf("got %+v", user)
				}
				if len(d.Grants) != len(c.names) {
					t.Errorf("the Decision has %+v", d.Grants)
				}
			}
		})
	}
}

// TestGrantsAfterTheGuard: what the guard rejects has no Grants, and no token brings the key of Grants itself.
func TestGrantsAfterTheGuard(t *testing.T) {
	t.Parallel()
	_, forged := issue("forged", 2, func(s *v1alpha1.AccessTokenSpec) {
		s.User.Extra = map[string]authenticationv1.ExtraValue{v1alpha1.GrantExtraKey: {"a"}}
	})
	if _, err := authn.Compile(authn.Spec{Tokens: []authn.Token{forged}, Now: atNoon}); err == nil || !strings.Contains(err.Error(), `"gatehouse.dev/grant" is reserved: extra keys of gatehouse.dev are set by Gatehouse itself`) {
		t.Errorf("a token with the key: %v", err)
	}
	token, document := issue("ci", 1)
	revoked := authn.Revocation{TokenRevocation: v1alpha1.TokenRevocation{Spec: v1alpha1.TokenRevocationSpec{User: "jane", IssuedBefore: metav1.NewTime(noon)}}}
	set, err := authn.Compile(authn.Spec{Tokens: []authn.Token{document}, Revocations: []authn.Revocation{revoked}, Grants: []authn.Grant{newGrant("a")}, Now: atNoon})
	if err != nil {
		t.Fatal(err)
	}
	if d := set.Decide(t.Context(), authn.Input{Token: token}); d.Outcome != authn.No || d.Status.Authenticated || len(d.Grants)+len(d.Status.User.Groups) > 0 {
		t.Errorf("a revoked token: %+v", d)
	}
}

// TestGrantsInTime lets the time pass for two replicas whose clocks are a minute apart. Each answers by its own clock, to the second; neither
// gives anything past the end by its clock.
func TestGrantsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Truncate(time.Second) //nolint:forbidigo // the bubble's
		token, document := issue("ci", 1, expires(began.Add(24*time.Hour)))
		grant := newGrant("a", func(g *authn.Grant) {
			g.Spec.NotBefore, g.Spec.ExpiresAt = metav1.NewTime(began.Add(10*time.Minute)), metav1.NewTime(began.Add(20*time.Minute))
		})
		clocks := map[string]func() time.Time{"on time": time.Now, "ahead": func() time.Time { return time.Now().Add(time.Minute) }} //nolint:forbidigo // the bubble's
		sets := map[string]*authn.Set{}
		for name, clock := range clocks {
			set, err := authn.Compile(authn.Spec{Tokens: []authn.Token{document}, Grants: []authn.Grant{grant}, Now: clock})
			if err != nil {
				t.Fatal(err)
			}
			sets[name] = set
		}
		for _, c := range []struct {
			at            time.Duration
			onTime, ahead bool
		}{
			{0, false, false},
			{9*time.Minute - 1, false, false},
			{9 * time.Minute, false, true},
			{10*time.Minute - 1, false, true},
			{10 * time.Minute, true, true},
			{19*time.Minute - 1, true, true},
			{19 * time.Minute, true, false},
			{20*time.Minute - 1, true, false},
			{20 * time.Minute, false, false},
		} {
			time.Sleep(time.Until(began.Add(c.at))) //nolint:forbidigo // as above
			for name, want := range map[string]bool{"on time": c.onTime, "ahead": c.ahead} {
				d := sets[name].Decide(t.Context(), authn.Input{Token: token})
				if got := slices.Contains(d.Status.User.Groups, "oncall"); got != want {
					t.Errorf("after %s, the replica that is %s gives it: %v, want %v", c.at, name, got, want)
				}
				phases := sets[name].GrantPhases(clocks[name]())
				if (phases[v1alpha1.GrantActive] == 1) != want || phases[v1alpha1.GrantNotYet]+phases[v1alpha1.GrantActive]+phases[v1alpha1.GrantExpired] != 1 {
					t.Errorf("after %s, the phases of the replica that is %s are %v", c.at, name, phases)
				}
			}
		}
	})
}

func TestGrantFindings(t *testing.T) {
	t.Parallel()
	spec := func(edit func(*v1alpha1.GrantSpec)) authn.Grant {
		return newGrant("a", func(g *authn.Grant) { edit(&g.Spec) })
	}
	hour := &metav1.Duration{Duration: time.Hour}
	bounded := v1alpha1.GrantsConfiguration{MaxDuration: hour, OwnGrants: v1alpha1.OwnGrantsDeny}
	var many []authn.Grant
	for i := range 101 {
		many = append(many, newGrant(fmt.Sprintf("g%03d", 100-i), func(g *authn.Grant) { g.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(i) * time.Second)) }))
	}
	for name, c := range map[string]struct {
		config v1alpha1.GrantsConfiguration
		grants []authn.Grant
		want   []string
	}{
		"nothing": {v1alpha1.GrantsConfiguration{}, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) { *s = v1alpha1.GrantSpec{} })}, []string{
			`cluster: Grant/a: spec.expiresAt: is missing: every Grant must end (hint: for example "2026-12-31T17:00:00Z")`,
			`cluster: Grant/a: spec.groups: is empty: nothing would be given`,
			`cluster: Grant/a: spec.subject.user: is missing (hint: the name of the user as the API server sees it, prefixes included: kubectl auth whoami shows it)`,
		}},
		"groups of the system": {v1alpha1.GrantsConfiguration{}, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) {
			s.Groups = []string{"x", "system:masters", " System:Masters", "gatehouse.dev:break-glass", "x", "", "a\nb"}
		})}, []string{
			`spec.groups[1]: "system:masters" is reserved: names that begin with "system:" belong to Kubernetes itself`,
			`spec.groups[2]: " System:Masters" is reserved`,
			`spec.groups[3]: "gatehouse.dev:break-glass" is reserved`,
			`spec.groups[4]: "x" is listed twice`,
			`spec.groups[5]: "" must not be empty`,
			`spec.groups[6]: "a\nb" must not contain control`,
		}},
		"too many groups":   {v1alpha1.GrantsConfiguration{}, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) { s.Groups = make([]string, 11) })}, []string{`spec.groups: has 11 groups, at most 10 are allowed (hint: write several Grants)`}},
		"a service account": {v1alpha1.GrantsConfiguration{}, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) { s.Subject.User = "system:serviceaccount:a:b" })}, []string{`spec.subject.user: "system:serviceaccount:a:b" is reserved: names that begin with "system:" belong to Kubernetes itself: Gatehouse gives this name to no token`}},
		"ends before it begins": {v1alpha1.GrantsConfiguration{}, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) { s.NotBefore = s.ExpiresAt })}, []string{
			`spec.expiresAt: "2026-11-20T13:00:00Z" must be after notBefore, "2026-11-20T13:00:00Z"`,
		}},
		"too long since it was created": {bounded, []authn.Grant{spec(func(*v1alpha1.GrantSpec) {})}, []string{
			`spec.expiresAt: "2026-11-20T13:00:00Z" is more than 1h0m0s after its start, "2026-11-20T11:59:00Z": grants.maxDuration of the AuthenticationConfiguration allows no longer (hint: set an earlier time, at most 2026-11-20T12:59:00Z)`,
		}},
		"too long since notBefore": {bounded, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) {
			s.NotBefore, s.ExpiresAt = metav1.NewTime(noon.Add(time.Hour)), metav1.NewTime(noon.Add(2*time.Hour+time.Second))
		})}, []string{`spec.expiresAt: "2026-11-20T14:00:01Z" is more than 1h0m0s after its start, "2026-11-20T13:00:00Z"`}},
		"notBefore is long ago": {bounded, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) {
			s.NotBefore, s.ExpiresAt = metav1.NewTime(noon.Add(-9*time.Hour)), metav1.NewTime(noon.Add(59*time.Minute))
		})}, nil},
		"a document without a start": {bounded, []authn.Grant{newGrant("a", func(g *authn.Grant) { g.Source, g.CreationTimestamp = "a.yaml", metav1.Time{} })}, []string{`a.yaml: Grant/a: spec.notBefore: is missing: grants.maxDuration`}},
		"to oneself": {v1alpha1.GrantsConfiguration{OwnGrants: v1alpha1.OwnGrantsDeny}, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) { s.GrantedBy = "jane" })}, []string{
			`spec.grantedBy: "jane" is the subject too, and grants.ownGrants of the AuthenticationConfiguration is Deny (hint: have another user grant it)`,
		}},
		"to oneself, allowed": {v1alpha1.GrantsConfiguration{}, []authn.Grant{spec(func(s *v1alpha1.GrantSpec) { s.GrantedBy = "jane" })}, nil},
		"two of one name": {v1alpha1.GrantsConfiguration{}, []authn.Grant{newGrant("a"), newGrant("a", func(g *authn.Grant) { g.Source = "a.yaml" })}, []string{
			`a.yaml: Grant/a: metadata.name: "a" is already the name of the Grant in cluster`,
		}},
		"too many for a user: the newest is rejected": {v1alpha1.GrantsConfiguration{}, many, []string{`cluster: Grant/g000: spec.subject.user: "jane" has 100 other Grants that have not ended, which is the maximum`}},
		"a configuration out of bounds": {v1alpha1.GrantsConfiguration{MaxDuration: &metav1.Duration{Duration: time.Second}, Retain: &metav1.Duration{}, OwnGrants: "Never"}, nil, []string{
			`c.yaml: AuthenticationConfiguration: grants.maxDuration: "1s" must be from 1m0s to 8760h0m0s`,
			`c.yaml: AuthenticationConfiguration: grants.ownGrants: "Never" must be Allow or Deny`,
			`c.yaml: AuthenticationConfiguration: grants.retain: "0s" must be from 10m0s to 8760h0m0s`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configuration := &authn.Configuration{Source: "c.yaml"}
			configuration.Grants = c.config
			_, err := authn.Compile(authn.Spec{Grants: c.grants, Configuration: configuration, Now: atNoon})
			var found diagnostic.List
			if err != nil && !errors.As(err, &found) {
				t.Fatal(err)
			}
			if len(found) != len(c.want) {
				t.Fatalf("got %d findings, want %d:\n%v", len(found), len(c.want), found)
			}
			for i, want := range c.want {
				if !strings.Contains(found[i].String(), want) {
					t.Errorf("finding %d:\n got %s\nwant %s", i, found[i], want)
				}
			}
		})
	}
}

// TestGrantsOfManyGrantors: what one grantor gives to a user does not use up what others may give, in whatever order the Grants are read.
func TestGrantsOfManyGrantors(t *testing.T) {
	t.Parallel()
	second := 0
	// by makes n Grants, named after their grantor, each a second after the last one.
	by := func(grantor string, n int, edit ...func(*authn.Grant)) (made []authn.Grant) {
		for i := range n {
			g := newGrant(fmt.Sprintf("%s-%03d", grantor, i+1), edit...)
			g.Spec.GrantedBy, g.CreationTimestamp = grantor, metav1.NewTime(noon.Add(time.Duration(second)*time.Second-time.Hour))
			made, second = append(made, g), second+1
		}
		return made
	}
	groups := func(n, bytes int) func(*authn.Grant) {
		return func(g *authn.Grant) {
			g.Spec.Groups = nil
			for i := range n {
				g.Spec.Groups = append(g.Spec.Groups, fmt.Sprintf("%0*d", bytes, i))
			}
		}
	}
	document := func(g *authn.Grant) { g.Source = "a.yaml" }
	ended := func(g *authn.Grant) { g.Spec.ExpiresAt = metav1.NewTime(noon) }
	later := func(g *authn.Grant) { g.Spec.NotBefore = metav1.NewTime(noon.Add(time.Minute)) }
	for name, c := range map[string]struct {
		grants []authn.Grant
		left   map[string]int // of each grantor, the oldest
	}{
		"a flood, then one of another":          {slices.Concat(by("eve", 100), by("lee", 1)), map[string]int{"eve": 99, "lee": 1}},
		"a flood that begins later":             {slices.Concat(by("eve", 100, later), by("lee", 1)), map[string]int{"eve": 99, "lee": 1}},
		"two floods, then one of another":       {slices.Concat(by("eve", 120), by("mal", 60), by("lee", 1)), map[string]int{"eve": 50, "mal": 49, "lee": 1}},
		"a flood after some of another":         {slices.Concat(by("lee", 50), by("eve", 100)), map[string]int{"lee": 50, "eve": 50}},
		"a flood, then a document":              {slices.Concat(by("eve", 100), by("boss", 2, document)), map[string]int{"eve": 98, "boss": 2}},
		"documents are one grantor, and first":  {slices.Concat(by("lee", 1), by("boss", 60, document), by("root", 60, document)), map[string]int{"boss": 60, "root": 40}},
		"what has ended does not count":         {slices.Concat(by("eve", 100, ended), by("mal", 100)), map[string]int{"eve": 100, "mal": 100}},
		"what is invalid does not count":        {slices.Concat(by("eve", 100, groups(0, 0)), by("mal", 100)), map[string]int{"mal": 100}},
		"another user's do not count":           {slices.Concat(by("eve", 100, func(g *authn.Grant) { g.Spec.Subject.User = "bob" }), by("mal", 100)), map[string]int{"eve": 100, "mal": 100}},
		"as many bytes as allowed":              {by("four", 2, groups(8, 1023)), map[string]int{"four": 2}},
		"one byte more":                         {by("fives", 2, groups(8, 1023)), map[string]int{"fives": 1}},
		"many bytes, then one of another":       {slices.Concat(by("eve", 3, groups(10, 1024)), by("lee", 1)), map[string]int{"eve": 1, "lee": 1}},
		"many bytes, and few of the same later": {slices.Concat(by("eve", 2, groups(10, 800)), by("lee", 1, groups(10, 10))), map[string]int{"eve": 2, "lee": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				left := map[string]int{}
				for i := range c.grants {
					left[c.grants[i].Spec.GrantedBy]++
				}
				_, err := authn.Compile(authn.Spec{Grants: c.grants, Now: atNoon})
				var found diagnostic.List
				if err != nil && !errors.As(err, &found) {
					t.Fatal(err)
				}
				rejected := map[string]int{} // the oldest of each grantor
				for _, f := range found {
					if f.Severity != diagnostic.Error {
						continue
					}
					grantor, suffix, _ := strings.Cut(strings.TrimPrefix(f.Object, "Grant/"), "-")
					number, malformed := strconv.Atoi(suffix)
					if malformed != nil {
						t.Fatal(malformed)
					}
					left[grantor]--
					if rejected[grantor] == 0 || number < rejected[grantor] {
						rejected[grantor] = number
					}
				}
				for grantor, n := range left {
					if want := c.left[grantor]; n != want || rejected[grantor] != 0 && rejected[grantor] != want+1 {
						t.Errorf("of %s, %d count, want the oldest %d; the oldest rejected one is %d:\n%v", grantor, n, want, rejected[grantor], found)
					}
				}
				slices.Reverse(c.grants)
			}
		})
	}
}

func TestGrantWarnings(t *testing.T) {
	t.Parallel()
	ended := newGrant("a", func(g *authn.Grant) { g.Source, g.Spec.ExpiresAt = "a.yaml", metav1.NewTime(noon) })
	inCluster := newGrant("b", func(g *authn.Grant) { g.Spec.ExpiresAt = metav1.NewTime(noon) })
	corp := authn.NamedDirectory{Config: &v1alpha1.Directory{Name: "corp", UsernamePrefix: "corp:"}}
	set, err := authn.Compile(authn.Spec{
		Grants: []authn.Grant{ended, inCluster}, Directories: []authn.NamedDirectory{corp}, Now: atNoon,
		Configuration: &authn.Configuration{AuthenticationConfiguration: v1alpha1.AuthenticationConfiguration{Login: &v1alpha1.LoginConfiguration{Keys: []v1alpha1.LoginKey{{Name: "k"}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := set.Warnings().Error()
	for _, want := range []string{`a.yaml: Grant/a: spec.expiresAt: "2026-11-20T12:00:00Z" is in the past: nothing is given`, `a.yaml: Grant/a: spec.subject.user: "jane" is not the name of a user, so nothing is given`, `cluster: Grant/b: spec.subject.user: "jane" is not`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "in the past"); n != 1 {
		t.Errorf("%d Grants are in the past, want only that of the document", n)
	}
}

// TestWithdrawGrants: a Grant that was removed ends, and the others stay, while reviews go on.
func TestWithdrawGrants(t *testing.T) {
	t.Parallel()
	token, document := issue("ci", 1)
	set, err := authn.Compile(authn.Spec{Tokens: []authn.Token{document}, Grants: []authn.Grant{newGrant("a"), newGrant("b", func(g *authn.Grant) { g.Spec.Groups = []string{"x"} })}, Now: atNoon})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 100 {
				set.Decide(t.Context(), authn.Input{Token: token})
			}
		})
	}
	after := set.Withdraw(nil, []string{"a"}, nil)
	group.Wait()
	d := after.Decide(t.Context(), authn.Input{Token: token, Explain: true})
	if got := d.Status.User.Groups; !slices.Equal(got, []string{"dev", "eng", "x"}) {
		t.Errorf("got %q", got)
	}
	if steps := fmt.Sprint(d.Steps); !strings.Contains(steps, `{grant "a" was removed} {grant "b" gives x until 2026-11-20T13:00:00Z, for another 1h0m0s}`) {
		t.Errorf("the steps are %s", steps)
	}
	if got := set.Decide(t.Context(), authn.Input{Token: token}).Status.User.Groups; !slices.Contains(got, "oncall") {
		t.Errorf("the Set itself has changed: %q", got)
	}
}

func TestGrantCovers(t *testing.T) {
	t.Parallel()
	a := newGrant("a")
	for name, c := range map[string]struct {
		edit func(*v1alpha1.GrantSpec)
		want bool
	}{
		"the same":      {func(*v1alpha1.GrantSpec) {}, true},
		"prolonged":     {func(s *v1alpha1.GrantSpec) { s.ExpiresAt = metav1.NewTime(s.ExpiresAt.Add(1)) }, true},
		"one more":      {func(s *v1alpha1.GrantSpec) { s.Groups = []string{"x", "oncall"} }, true},
		"shorter":       {func(s *v1alpha1.GrantSpec) { s.ExpiresAt = metav1.NewTime(s.ExpiresAt.Add(-1)) }, false},
		"later":         {func(s *v1alpha1.GrantSpec) { s.NotBefore = metav1.NewTime(noon) }, false},
		"another group": {func(s *v1alpha1.GrantSpec) { s.Groups = []string{"x"} }, false},
		"another user":  {func(s *v1alpha1.GrantSpec) { s.Subject.User = "bob" }, false},
	} {
		b := newGrant("a", func(g *authn.Grant) { c.edit(&g.Spec) })
		if got := b.Covers(&a); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// BenchmarkGrants compares a token review without Grants with one beside 10,000 Grants of other users, and with one of a user who has one of
// them besides. It reports the ratios to the first: that of 10,000 must be below 1.05.
func BenchmarkGrants(b *testing.B) {
	token, document := issue("ci", 1)
	others := make([]authn.Grant, 10_000)
	for i := range others {
		others[i] = newGrant(fmt.Sprintf("g%05d", i), func(g *authn.Grant) { g.Spec.Subject.User = fmt.Sprintf("user-%d", i) })
	}
	var sets []*authn.Set
	for _, grants := range [][]authn.Grant{nil, others, append(slices.Clip(others), newGrant("own"))} {
		set, err := authn.Compile(authn.Spec{Tokens: []authn.Token{document}, Grants: grants, Now: atNoon})
		if err != nil {
			b.Fatal(err)
		}
		sets = append(sets, set)
	}
	// The fastest of many rounds: what else the machine does is not counted.
	const reviews = 200
	fastest := make([]time.Duration, len(sets))
	for b.Loop() {
		for i, set := range sets {
			began := time.Now() //nolint:forbidigo // a benchmark
			for range reviews {
				d := set.Decide(b.Context(), authn.Input{Token: token})
				_ = d.Response()
			}
			if took := time.Since(began); fastest[i] == 0 || took < fastest[i] { //nolint:forbidigo // as above
				fastest[i] = took
			}
		}
	}
	b.ReportMetric(float64(fastest[1])/float64(fastest[0]), "10000/none")
	b.ReportMetric(float64(fastest[2])/float64(fastest[0]), "own/none")
	b.ReportMetric(float64(fastest[0].Nanoseconds())/reviews, "ns/review")
}

// TestPastGrants: of the Grants that have ended, a review of their user reads a bounded number, and all are counted.
func TestPastGrants(t *testing.T) {
	t.Parallel()
	const many, most = 1000, 100
	spec := authn.Spec{Now: atNoon}
	for i := range many {
		spec.Grants = append(spec.Grants, newGrant(fmt.Sprintf("g%04d", i), func(g *authn.Grant) {
			g.Source, g.CreationTimestamp = "cluster", metav1.NewTime(noon.Add(time.Duration(i-2*many)*time.Second))
			g.Spec.ExpiresAt = metav1.NewTime(noon)
		}))
	}
	token, document := issue("ci", 1)
	spec.Tokens, spec.Grants = []authn.Token{document}, append(spec.Grants, newGrant("now"))
	set, err := authn.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	d := set.Decide(t.Context(), authn.Input{Token: token, Explain: true})
	for _, step := range d.Steps {
		if step.Name == "grant" {
			read = append(read, step.Found)
		}
	}
	if len(read) != most+1 || !strings.HasPrefix(read[0], `"g0900" ended at`) || len(d.Grants) != 1 {
		t.Errorf("%d Grants are read, the first of them as %q, and %d give groups", len(read), read[0], len(d.Grants))
	}
	if n := set.GrantPhases(noon)[v1alpha1.GrantExpired]; n != many {
		t.Errorf("%d have ended, want %d", n, many)
	}
}
