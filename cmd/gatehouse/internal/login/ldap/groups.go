package ldap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/ldapconfig"
)

const (
	// pageSize is below what Active Directory returns at most, 1000.
	pageSize = 500
	// membersPerSearch is how many groups' own groups are asked for at a time.
	membersPerSearch = 50
	// maxLevels is deeper than people nest groups.
	maxLevels = 32
)

// groups are the groups of one account, as they are found.
type groups struct {
	search *v1alpha1.GroupSearch
	most   int
	// found are the groups' names by normalised DN.
	found map[string]string
}

func newGroups(search *v1alpha1.GroupSearch) *groups {
	return &groups{search: search, most: cmp.Or(search.MaxGroups, ldapconfig.DefaultMaxGroups), found: map[string]string{}}
}

// names returns the groups' names, sorted, each once.
func (g *groups) names() []string {
	return slices.Compact(slices.Sorted(maps.Values(g.found)))
}

// collect finds the groups of a member, and with nesting theirs, level by level. A
// group that is known already is not asked about again, so cycles end.
func (g *groups) collect(ctx context.Context, c *connection, member string) error {
	members := []string{member}
	for level := 0; len(members) > 0; level++ {
		if level == maxLevels {
			return fmt.Errorf("%s: groups are nested deeper than %d", c.server.address.URL, maxLevels)
		}
		var parents []string
		for chunk := range slices.Chunk(members, membersPerSearch) {
			next, err := g.level(ctx, c, chunk)
			if err != nil {
				return err
			}
			parents = append(parents, next...)
		}
		if g.search.Nesting != v1alpha1.NestingRecursive {
			return nil
		}
		members = parents
	}
	return nil
}

// level finds the groups that name one of the members, and returns those values
// by which other groups name these.
func (g *groups) level(ctx context.Context, c *connection, members []string) ([]string, error) {
	entries, err := g.entries(ctx, c, members)
	if err != nil {
		return nil, err
	}
	var next []string
	for _, entry := range entries {
		key, err := ldapconfig.NormalDN(entry.DN)
		if err != nil {
			return nil, fmt.Errorf("%s: the DN of a group, %s, cannot be parsed: %w", c.server.address.URL, ldapconfig.Quote(entry.DN), err)
		}
		if _, known := g.found[key]; known {
			continue
		}
		name, err := single(entry, cmp.Or(g.search.NameAttribute, ldapconfig.DefaultNameAttribute))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.server.address.URL, err)
		}
		if len(g.found) == g.most {
			return nil, fmt.Errorf("%s: %w", c.server.address.URL, g.tooMany())
		}
		g.found[key] = name
		if g.search.MemberValue == "" {
			next = append(next, entry.DN)
		} else {
			next = append(next, valuesOf(entry, g.search.MemberValue)...)
		}
	}
	return next, nil
}

// entries searches the groups that name one of the members, page by page where
// the server has pages.
func (g *groups) entries(ctx context.Context, c *connection, members []string) ([]*ldap.Entry, error) {
	const doing = "search groups"
	var filter strings.Builder
	for _, member := range members {
		filter.WriteString(ldapconfig.FillFilter(g.search.Filter, member))
	}
	attributes := []string{cmp.Or(g.search.NameAttribute, ldapconfig.DefaultNameAttribute)}
	if g.search.MemberValue != "" {
		attributes = append(attributes, g.search.MemberValue)
	}
	paging := ldap.NewControlPaging(pageSize)
	request := &ldap.SearchRequest{
		BaseDN: g.search.BaseDN, Filter: filter.String(), Attributes: unique(attributes), Controls: []ldap.Control{paging},
		// One more than there may be is one too many, and the server need not go on.
		SizeLimit: g.most + 1,
	}
	if len(members) > 1 {
		request.Filter = "(|" + request.Filter + ")"
	}
	var entries []*ldap.Entry
	for {
		result, err := c.search(ctx, request)
		if result != nil {
			entries = append(entries, result.Entries...)
		}
		if len(entries) > g.most {
			return nil, fmt.Errorf("%s: %s: %w", c.server.address.URL, doing, g.tooMany())
		}
		if err != nil {
			return nil, c.server.failure(ctx, doing, err)
		}
		next, ok := ldap.FindControl(result.Controls, ldap.ControlTypePaging).(*ldap.ControlPaging)
		if !ok || len(next.Cookie) == 0 {
			return entries, nil
		}
		if len(result.Entries) == 0 {
			// Some servers send empty pages. A page's worth of them is enough.
			return nil, &failure{server: c.server.address.URL, doing: doing, err: errEmptyPage}
		}
		paging.SetCookie(next.Cookie)
	}
}

var errEmptyPage = errors.New("the server returns pages without entries")

func (g *groups) tooMany() error {
	return fmt.Errorf("the account is in more than %d groups; hint: see maxGroups, or narrow the filter", g.most)
}
