package authn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// The keys of extra that mark groups in audit events of the API server. The values are names
// of group sources.
const (
	// StaleGroupsKey names the sources whose groups are older than their cacheTTL, because
	// they do not answer.
	StaleGroupsKey = "groups.gatehouse.dev/stale"
	// MissingGroupsKey names the sources that did not answer, and whose groups are missing.
	MissingGroupsKey = "groups.gatehouse.dev/missing"
)

// GroupQuery is the user whose groups are looked up: the subject of a verified token.
type GroupQuery struct {
	// Issuer is the string of the configuration, and Subject the claim sub.
	Issuer, Subject string
	// User is what the source knows the user by.
	User string
	// Token is the token itself, for a UserInfo endpoint alone.
	Token string
}

// GroupAnswer is what a source knows of a user.
type GroupAnswer struct {
	// Groups are the names, with the source's prefix, sorted, each once; an empty name has no
	// prefix. None are those of a user who certainly has no groups there. The list is shared
	// and must not be written to.
	Groups []string
	// At is when the source gave the answer.
	At time.Time
	// Stale reports whether the source was asked again since, and did not answer.
	Stale bool
}

// GroupLookup is a source of groups outside the token. It is safe for concurrent use, and
// bounds its own work. It is only asked about users of verified tokens.
type GroupLookup interface {
	// Cached returns an answer that is in memory and is not stale.
	Cached(q *GroupQuery) (GroupAnswer, bool)
	// Lookup returns the answer, and waits for it until the context ends. An error means
	// that the groups are unknown; its text is for the operator and the holder of the token,
	// and names no secret.
	Lookup(ctx context.Context, q *GroupQuery) (GroupAnswer, error)
}

// GroupOrigin is where groups of a Decision come from.
type GroupOrigin struct {
	// Source is the name of a group source, or "token".
	Source string   `json:"source"`
	Groups []string `json:"groups,omitempty"`
	// At is when a source gave the groups, nil for the token's own.
	At *time.Time `json:"at,omitempty"`
	// Stale reports whether the source does not answer any more.
	Stale bool `json:"stale,omitempty"`
	// Missing is why the groups of the source are not known, "" if they are.
	Missing string `json:"missing,omitempty"`
}

// Describe returns the source and the age of its answer, for people.
func (o *GroupOrigin) Describe(now time.Time) string {
	switch {
	case o.Source == groupsource.TokenOrigin:
		return "the token"
	case o.At == nil:
		return o.Source
	}
	text := o.Source + ", " + now.Sub(*o.At).Round(time.Second).String() + " old"
	if o.Stale {
		text += ", because the source does not answer"
	}
	return text
}

// groupSource is a compiled group source of an issuer.
type groupSource struct {
	config *v1alpha1.GroupSource
	// user is nil for the claim sub.
	user *jwt.ClaimExpression
	// lookup is nil offline.
	lookup GroupLookup
}

// compileGroupSources checks and compiles the group sources of an issuer.
func compileGroupSources(spec *Spec, one *Issuer) ([]groupSource, diagnostic.List) {
	if spec.Configuration == nil {
		return nil, nil
	}
	i := slices.IndexFunc(spec.Configuration.JWT.Issuers, func(c v1alpha1.JWTIssuer) bool { return c.URL == one.Config.Issuer.URL })
	if i < 0 {
		return nil, nil
	}
	directories := map[string]bool{}
	for _, d := range spec.Directories {
		directories[d.Config.Name] = d.Config.GroupSearch != nil
	}
	configured := spec.Configuration.JWT.Issuers[i].GroupSources
	found := groupsource.CheckAll(configured, directories)
	for n := range found {
		found[n].Source, found[n].Object = spec.Configuration.Source, authenticationConfiguration
		found[n].Field = fmt.Sprintf("jwt.issuers[%d].%s", i, found[n].Field)
	}
	if found.Err() != nil {
		return nil, found
	}
	compiled := make([]groupSource, len(configured))
	for n := range configured {
		compiled[n].config = groupsource.Complete(&configured[n])
		if n < len(one.Groups) {
			compiled[n].lookup = one.Groups[n]
		}
		if text := compiled[n].config.User; text != "" && text != groupsource.DefaultUser {
			compiled[n].user, _ = jwt.CompileClaimExpression(text) // checked above
		}
	}
	return compiled, found
}

// groupsError ends a review whose groups are unknown, or are not allowed.
type groupsError struct{ verdict verdict }

func (e *groupsError) Error() string { return e.verdict.detail }

// errNoLookup is the error of a source that is not asked here.
var errNoLookup = errors.New("group sources are not asked here")

// groupLookups are the look-ups of one review.
type groupLookups struct {
	issuer *issuer
	token  string
	// pause runs a wait, nil runs it directly.
	pause   func(func())
	origins []GroupOrigin
	// detail is what the operator should know of a yes.
	detail []string
}

// add is a jwt.Enrich: it adds the groups of the sources to the user. No group is left out
// silently: a source that does not answer fails the review, or is named in extra.
func (l *groupLookups) add(ctx context.Context, t *jwt.Token, proof *jwt.Proof, trail jwt.Trail) error {
	l.origins = append(l.origins, GroupOrigin{Source: groupsource.TokenOrigin, Groups: proof.User.Groups})
	groups := slices.Clip(proof.User.Groups) // the token's own are one of the origins
	for i := range l.issuer.groups {
		source := &l.issuer.groups[i]
		step := "groups of " + source.config.Name
		if source.config.Ask == v1alpha1.AskOnOverage && !proof.Overage {
			if trail != nil {
				trail(step, "not asked: the token does not say that groups were left out")
			}
			continue
		}
		answer, err := l.ask(ctx, source, t, proof)
		if refusal, ok := errors.AsType[*jwt.Refusal](err); ok {
			return refusal
		}
		if err != nil {
			if trail != nil {
				trail(step, "unknown: "+err.Error())
			}
			if source.config.OnUnknown != v1alpha1.OnUnknownUseToken {
				return &groupsError{verdict{
					outcome: Unknown, reason: ReasonGroups, message: "the groups of the user are not available",
					detail: "groups of " + quote(source.config.Name) + ": " + err.Error(),
				}}
			}
			l.origins = append(l.origins, GroupOrigin{Source: source.config.Name, Missing: err.Error()})
			l.mark(&proof.User, MissingGroupsKey, source.config.Name, "unknown: "+err.Error())
			continue
		}
		at := answer.At
		if trail != nil {
			trail(step, fmt.Sprintf("%d, of %s", len(answer.Groups), at.UTC().Format(time.RFC3339)))
		}
		if err := source.check(answer.Groups); err != nil {
			return err
		}
		l.origins = append(l.origins, GroupOrigin{Source: source.config.Name, Groups: answer.Groups, At: &at, Stale: answer.Stale})
		if answer.Stale {
			l.mark(&proof.User, StaleGroupsKey, source.config.Name, "of "+at.UTC().Format(time.RFC3339)+", the source does not answer")
		}
		known := sets.New(groups...)
		groups = slices.Grow(groups, len(answer.Groups))
		for _, group := range answer.Groups { // each once
			if !known.Has(group) {
				groups = append(groups, group)
			}
		}
	}
	proof.User.Groups = groups
	return nil
}

// ask looks up the groups of one source.
func (l *groupLookups) ask(ctx context.Context, source *groupSource, t *jwt.Token, proof *jwt.Proof) (GroupAnswer, error) {
	if proof.Subject == "" {
		return GroupAnswer{}, &jwt.Refusal{Reason: jwt.Claims, Detail: "there is no claim sub, by which groups are looked up"}
	}
	q := &GroupQuery{Issuer: l.issuer.url, Subject: proof.Subject, User: proof.Subject}
	if source.user != nil {
		var err error
		if q.User, err = source.user.Text(ctx, t, "user of the group source "+quote(source.config.Name)); err != nil {
			return GroupAnswer{}, err
		}
	}
	switch {
	case q.User == "":
		return GroupAnswer{}, &jwt.Refusal{Reason: jwt.Claims, Detail: "the user of the group source " + quote(source.config.Name) + " is empty"}
	case source.lookup == nil:
		return GroupAnswer{}, errNoLookup
	case source.config.UserInfo != nil:
		q.Token = l.token
	}
	answer, ok := source.lookup.Cached(q)
	if ok {
		return answer, nil
	}
	var err error
	if lookup := func() { answer, err = source.lookup.Lookup(ctx, q) }; l.pause != nil {
		l.pause(lookup)
	} else {
		lookup()
	}
	return answer, err //nolint:wrapcheck // the caller names the source
}

// check applies the guard to the groups of a source. No exception of the guard is for groups
// from outside the token, and each has the prefix that the source may give.
func (s *groupSource) check(groups []string) error {
	for i, group := range groups {
		f := guard.CheckGroup(group)
		switch {
		case f != "":
		case !strings.HasPrefix(group, s.config.RequiredPrefix):
			f = guard.Fault("must begin with " + quote(s.config.RequiredPrefix) + ", the requiredPrefix of the source")
		default:
			continue
		}
		return &groupsError{verdict{
			outcome: No, reason: ReasonGuard,
			detail: fmt.Sprintf("groups of %s: groups[%d]: %s %s", quote(s.config.Name), i, quote(group), f),
		}}
	}
	return nil
}

// mark names a source under a key of extra, and notes why for the operator.
func (l *groupLookups) mark(u *authenticationv1.UserInfo, key, source, why string) {
	if u.Extra == nil {
		u.Extra = map[string]authenticationv1.ExtraValue{}
	}
	u.Extra[key] = append(u.Extra[key], source)
	l.detail = append(l.detail, "groups of "+quote(source)+": "+why)
}
