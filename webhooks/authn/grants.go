package authn

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Grant is a v1alpha1.Grant and the place that it was read from.
type Grant struct {
	Source string
	v1alpha1.Grant
}

// ActiveGrant is a Grant that gave groups to the user of a Decision.
type ActiveGrant struct {
	// Name is that of the Grant.
	Name   string   `json:"name"`
	Groups []string `json:"groups"`
	// ExpiresAt is when it ends.
	ExpiresAt time.Time `json:"expiresAt"`
}

// CachedLonger says, for people, how much longer than a Grant lasts an API server may use its groups.
const CachedLonger = "API servers that remember the token use them for up to --authentication-token-webhook-cache-ttl longer, 2m by default"

// Left describes the groups and how long they are given for, for people.
func (g *ActiveGrant) Left(now time.Time) string {
	return fmt.Sprintf("%s until %s, for another %s", strings.Join(g.Groups, ", "), g.ExpiresAt.Format(time.RFC3339), g.ExpiresAt.Sub(now).Round(time.Second))
}

const (
	// maxGrantsOfUser bounds the Grants of one user that have not ended, and those that have, because each review of the user
	// reads all of them.
	maxGrantsOfUser = 100
	// maxGrantBytesOfUser bounds the groups and names of these Grants, because each answer and each audit event of
	// the user may have all of them.
	maxGrantBytesOfUser = 16 << 10
	// minGrantDuration and maxGrantDuration bound grants.maxDuration.
	minGrantDuration = time.Minute
	maxGrantDuration = 365 * 24 * time.Hour
	// defaultGrantRetain is that of grants.retain, and the others are its bounds: the replica that deletes a Grant may
	// have a clock that is some minutes ahead.
	defaultGrantRetain             = 7 * 24 * time.Hour
	minGrantRetain, maxGrantRetain = 10 * time.Minute, 365 * 24 * time.Hour
)

// RetainGrants returns how long a Grant is kept after its end. The Configuration may be nil.
func (c *Configuration) RetainGrants() time.Duration {
	if c == nil || c.Grants.Retain == nil {
		return defaultGrantRetain
	}
	return c.Grants.Retain.Duration
}

// grants are the valid Grants by the name of the user, in the order of their names. A review looks up one
// user, however many Grants there are. A user has at most maxGrantsOfUser that have not ended, and as many that have.
type grants map[string][]grant

// grant is a compiled Grant. It gives its groups from one time to another, which is not included.
type grant struct {
	ActiveGrant

	notBefore time.Time
}

// phase returns that of the Grant at a time.
func (g *grant) phase(now time.Time) v1alpha1.GrantPhase {
	return (&v1alpha1.GrantSpec{NotBefore: metav1.NewTime(g.notBefore), ExpiresAt: metav1.NewTime(g.ExpiresAt)}).PhaseAt(now)
}

// describe returns what becomes of the Grant, for an explanation.
func (g *grant) describe(phase v1alpha1.GrantPhase, now time.Time) string {
	switch phase {
	case v1alpha1.GrantActive:
		return quote(g.Name) + " gives " + g.Left(now)
	case v1alpha1.GrantNotYet:
		return quote(g.Name) + " gives nothing before " + stamp(g.notBefore.Unix())
	case v1alpha1.GrantExpired:
		return quote(g.Name) + " ended at " + stamp(g.ExpiresAt.Unix())
	default:
		return quote(g.Name) + " was removed"
	}
}

// addGrants adds the groups of the user's Grants to a Yes that the guard has passed. What no Grant may give, the
// guard has rejected when they were compiled.
func (s *Set) addGrants(v verdict, e *explanation) verdict {
	of := s.grants[v.identity.Username]
	if len(of) == 0 {
		return v
	}
	now := s.now()
	for i := range of {
		one := &of[i]
		phase := one.phase(now)
		if _, withdrawn := s.withdrawnGrants[one.Name]; !withdrawn && phase == v1alpha1.GrantActive {
			v.grants = append(v.grants, one.ActiveGrant)
		} else if withdrawn {
			phase = "removed"
		}
		if e != nil {
			e.add("grant", "%s", one.describe(phase, now))
		}
	}
	if len(v.grants) == 0 {
		return v
	}
	user := *v.identity // which other reviews share
	user.Groups = slices.Clip(user.Groups)
	known := sets.New(user.Groups...)
	names := make(authenticationv1.ExtraValue, len(v.grants))
	for i := range v.grants {
		names[i] = v.grants[i].Name
		for _, group := range v.grants[i].Groups {
			if !known.Has(group) {
				known.Insert(group)
				user.Groups = append(user.Groups, group)
			}
		}
	}
	if user.Extra = maps.Clone(user.Extra); user.Extra == nil {
		user.Extra = map[string]authenticationv1.ExtraValue{}
	}
	user.Extra[v1alpha1.GrantExtraKey] = names
	v.identity = &user
	return v
}

// compileGrants checks the Grants and compiles the valid ones. It keeps copies. It also returns how many it leaves out because they
// have ended.
func compileGrants(spec *Spec) (compiled grants, past int, found diagnostic.List) {
	if len(spec.Grants) == 0 {
		return nil, 0, nil
	}
	c := grantChecker{now: spec.Now(), names: make(map[string]*Grant, len(spec.Grants))}
	if spec.Configuration != nil {
		c.GrantsConfiguration = spec.Configuration.Grants
	}
	// The oldest first, so that every replica rejects the same ones of too many.
	all := make([]*Grant, len(spec.Grants))
	for i := range spec.Grants {
		all[i] = &spec.Grants[i]
	}
	slices.SortStableFunc(all, func(a, b *Grant) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	valid := make(map[string][]*Grant, len(all))
	for _, g := range all {
		before := len(c.found)
		c.check(g)
		if c.found[before:].Err() == nil {
			valid[g.Spec.Subject.User] = append(valid[g.Spec.Subject.User], g)
		}
	}
	compiled = make(grants, len(valid))
	for user, of := range valid {
		for _, g := range c.bound(of) {
			compiled[user] = append(compiled[user], grant{
				ActiveGrant{g.Name, slices.Clone(g.Spec.Groups), g.Spec.ExpiresAt.UTC()}, g.Spec.NotBefore.UTC(),
			})
		}
		slices.SortFunc(compiled[user], func(a, b grant) int { return cmp.Compare(a.Name, b.Name) })
	}
	return compiled, c.past, c.found
}

// grantChecker checks Grants, each by itself and against those before it.
type grantChecker struct {
	v1alpha1.GrantsConfiguration

	now   time.Time
	names map[string]*Grant
	// past is how many bound has left out because they have ended.
	past  int
	found diagnostic.List
}

// report adds a finding about a Grant.
func (c *grantChecker) report(g *Grant, severity diagnostic.Severity, field, message, hint string) {
	c.found = append(c.found, diagnostic.Diagnostic{
		Severity: severity, Source: g.Source, Object: grantObject(g), Field: field, Message: message, Hint: hint,
	})
}

// ended reports whether a Grant has ended.
func (c *grantChecker) ended(g *Grant) bool { return !c.now.Before(g.Spec.ExpiresAt.Time) }

// bound returns the Grants of one user, which are valid and in the order of their age, without those beyond the bounds.
// Grantors take turns, so that nobody can use up what others may give: the oldest Grant of each, then the second of each,
// and so on. Documents, whose grantedBy nobody has verified, go before all turns. Of those that have ended, the youngest are left: they
// are for explanations, and for a clock that is set back.
func (c *grantChecker) bound(of []*Grant) []*Grant {
	turns := make(map[*Grant]int, len(of))
	last := map[string]int{} // by grantor
	ended := 0
	for _, g := range of {
		if c.ended(g) {
			ended++
		} else if g.Source == clusterSource {
			last[g.Spec.GrantedBy]++
			turns[g] = last[g.Spec.GrantedBy]
		}
	}
	slices.SortStableFunc(of, func(a, b *Grant) int { return cmp.Compare(turns[a], turns[b]) })
	kept := make([]*Grant, 0, min(len(of), maxGrantsOfUser))
	count, size := 0, 0
	for _, g := range of {
		if c.ended(g) {
			if ended--; ended < maxGrantsOfUser {
				kept = append(kept, g)
			} else {
				c.past++
			}
			continue
		}
		bytes := len(g.Name)
		for _, group := range g.Spec.Groups {
			bytes += len(group)
		}
		const remedy = "delete some of them: of those who granted the most to this user, the newest Grants are rejected"
		switch user := quote(g.Spec.Subject.User); {
		case count == maxGrantsOfUser:
			c.report(g, diagnostic.Error, "spec.subject.user", fmt.Sprintf("%s has %d other Grants that have not ended, which is the maximum", user, maxGrantsOfUser), remedy)
		case size+bytes > maxGrantBytesOfUser:
			c.report(g, diagnostic.Error, "spec.groups", fmt.Sprintf("the groups and the name have %d bytes, and those of other Grants of %s that have not ended have %d: at most %d are allowed together",
				bytes, user, size, maxGrantBytesOfUser), remedy)
		default:
			count, size, kept = count+1, size+bytes, append(kept, g)
		}
	}
	return kept
}

// check checks one Grant.
func (c *grantChecker) check(g *Grant) {
	fail := func(field, message, hint string) { c.report(g, diagnostic.Error, field, message, hint) }
	s := &g.Spec
	if first, taken := c.names[g.Name]; taken {
		fail("metadata.name", quote(g.Name)+" is already the name of the Grant in "+cmp.Or(first.Source, "another document"), "")
	}
	c.names[g.Name] = g
	if s.Subject.User == "" {
		fail("spec.subject.user", "is missing", "the name of the user as the API server sees it, prefixes included: kubectl auth whoami shows it")
	} else if f := guard.CheckName(s.Subject.User); f != "" {
		fail("spec.subject.user", quote(s.Subject.User)+" "+string(f)+": Gatehouse gives this name to no token", "")
	}
	switch n := len(s.Groups); {
	case n == 0:
		fail("spec.groups", "is empty: nothing would be given", "")
	case n > v1alpha1.MaxGrantGroups:
		fail("spec.groups", fmt.Sprintf("has %d groups, at most %d are allowed", n, v1alpha1.MaxGrantGroups), "write several Grants")
		return
	}
	for i, group := range s.Groups {
		field := fmt.Sprintf("spec.groups[%d]", i)
		if f := guard.CheckGroup(group); f != "" {
			fail(field, quote(group)+" "+string(f), "")
		} else if slices.Contains(s.Groups[:i], group) {
			fail(field, quote(group)+" is listed twice", "")
		}
	}
	if f := guard.CheckString(s.GrantedBy); f != "" {
		fail("spec.grantedBy", quote(s.GrantedBy)+" "+string(f), "")
	} else if c.OwnGrants == v1alpha1.OwnGrantsDeny && s.GrantedBy == s.Subject.User && s.GrantedBy != "" {
		fail("spec.grantedBy", quote(s.GrantedBy)+" is the subject too, and grants.ownGrants of the AuthenticationConfiguration is Deny", "have another user grant it")
	}
	c.checkTimes(g, fail)
}

// checkTimes checks when a Grant begins and ends.
func (c *grantChecker) checkTimes(g *Grant, fail func(field, message, hint string)) {
	s := &g.Spec
	begins := s.NotBefore.Time
	if g.CreationTimestamp.After(begins) {
		begins = g.CreationTimestamp.Time
	}
	switch {
	case s.ExpiresAt.IsZero():
		fail("spec.expiresAt", "is missing: every Grant must end", `for example "2026-12-31T17:00:00Z"`)
		return
	case !s.NotBefore.IsZero() && !s.ExpiresAt.After(s.NotBefore.Time):
		fail("spec.expiresAt", fmt.Sprintf("%q must be after notBefore, %q", stamp(s.ExpiresAt.Unix()), stamp(s.NotBefore.Unix())), "")
		return
	case c.MaxDuration == nil:
	case begins.IsZero():
		fail("spec.notBefore", "is missing: grants.maxDuration of the AuthenticationConfiguration counts from it, because a document does not say when it was made", "")
	case s.ExpiresAt.Sub(begins) > c.MaxDuration.Duration:
		fail("spec.expiresAt", fmt.Sprintf("%q is more than %s after its start, %q: grants.maxDuration of the AuthenticationConfiguration allows no longer",
			stamp(s.ExpiresAt.Unix()), c.MaxDuration.Duration, stamp(begins.Unix())), "set an earlier time, at most "+stamp(begins.Add(c.MaxDuration.Duration).Unix()))
	}
	if c.ended(g) && g.Source != clusterSource { // the phase says it of the others
		c.report(g, diagnostic.Warning, "spec.expiresAt", fmt.Sprintf("%q is in the past: nothing is given", stamp(s.ExpiresAt.Unix())), "delete the document")
	}
}

// grantObject is the name of a Grant in diagnostics.
func grantObject(g *Grant) string { return "Grant/" + g.Name }

// Covers reports whether a Grant gives everything that another one of its name gives: for a user, no group is
// missing, and it neither begins later nor ends earlier.
func (g *Grant) Covers(other *Grant) bool {
	return g.Spec.Subject == other.Spec.Subject && !g.Spec.NotBefore.After(other.Spec.NotBefore.Time) && !g.Spec.ExpiresAt.Before(&other.Spec.ExpiresAt) &&
		!slices.ContainsFunc(other.Spec.Groups, func(group string) bool { return !slices.Contains(g.Spec.Groups, group) })
}

// GrantPhases counts the valid Grants by their phase at a time.
func (s *Set) GrantPhases(now time.Time) map[v1alpha1.GrantPhase]int {
	n := map[v1alpha1.GrantPhase]int{v1alpha1.GrantNotYet: 0, v1alpha1.GrantActive: 0, v1alpha1.GrantExpired: 0}
	for _, of := range s.grants {
		for i := range of {
			n[of[i].phase(now)]++
		}
	}
	n[v1alpha1.GrantExpired] += s.pastGrants
	return n
}
