package ldap_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/slapd"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// inGroup is the DN of a group.
func inGroup(name string) string { return "cn=" + name + "," + groupsDN }

// nested is a user in a group in a group and so on, round in a circle.
var nested = tree +
	group("dev", janeDN) +
	group("eng", inGroup("dev"), "uid=john,"+peopleDN) +
	group("staff", inGroup("eng"), inGroup("loop")) +
	group("loop", inGroup("staff")) +
	group("self", janeDN, inGroup("self")) +
	group(`ops\, night (*) \+ \"day\" \\ \C3\A4`, janeDN) +
	group("of-ops", `cn=ops\, night (*) \+ \"day\" \\ \C3\A4,`+groupsDN) +
	group("others", "uid=john,"+peopleDN) + `
dn: cn=unix,` + groupsDN + `
objectClass: posixGroup
cn: unix
gidNumber: 1
memberUid: jane

dn: cn=twins,` + peopleDN + `
objectClass: groupOfNames
cn: twins
cn: second
member: uid=john,` + peopleDN + `
`

func TestGroups(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: nested, NoAnonymous: true})
	const special = `ops, night (*) + "day" \ ä`
	names := "(&(objectClass=groupOfNames)(member={}))"
	for name, test := range map[string]struct {
		who    string
		search *v1alpha1.GroupSearch
		want   []string
	}{
		"no search":     {"jane", nil, nil},
		"direct":        {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names}, []string{"dev", special, "self"}},
		"none":          {"dave", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, Nesting: v1alpha1.NestingRecursive}, []string{}},
		"nested":        {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, Nesting: v1alpha1.NestingRecursive}, []string{"dev", "eng", "loop", "of-ops", special, "self", "staff"}},
		"nested, other": {"john", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, Nesting: v1alpha1.NestingRecursive}, []string{"eng", "loop", "others", "staff"}},
		"by name":       {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: "(memberUid={})", MemberValue: "uid"}, []string{"unix"}},
		"other name":    {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: "(memberUid={})", MemberValue: "uid", NameAttribute: "GIDNumber"}, []string{"1"}},
		"one name":      {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, NameAttribute: "structuralObjectClass"}, []string{"groupOfNames"}},
		"just enough":   {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, MaxGroups: 3}, []string{"dev", special, "self"}},
		// OpenLDAP does not know the rule, and finds nothing by it.
		"in chain": {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: "(member:1.2.840.113556.1.4.1941:={})", Nesting: v1alpha1.NestingActiveDirectory}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(s)
			c.GroupSearch = test.search
			d := open(t, c)
			slices.Sort(test.want)
			got, err := d.Groups(t.Context(), mustFind(t, d, test.who))
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("groups are %q, %v, want %q", got, err, test.want)
			}
		})
	}

	for name, test := range map[string]struct {
		who    string
		search *v1alpha1.GroupSearch
		want   string
	}{
		"too many":         {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, MaxGroups: 2}, "in more than 2 groups"},
		"far too many":     {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, MaxGroups: 1}, "in more than 1 groups"},
		"too many, nested": {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, MaxGroups: 6, Nesting: v1alpha1.NestingRecursive}, "in more than 6 groups"},
		"two names":        {"john", &v1alpha1.GroupSearch{BaseDN: "dc=example,dc=org", Filter: names}, `2 values of attribute "cn"`},
		"no name":          {"jane", &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: names, NameAttribute: "description"}, `0 values of attribute "description"`},
		"no base":          {"jane", &v1alpha1.GroupSearch{BaseDN: "ou=teams,dc=example,dc=org", Filter: names}, "see baseDN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(s)
			c.GroupSearch = test.search
			d := open(t, c)
			got, err := d.Groups(t.Context(), mustFind(t, d, test.who))
			if !isUnknown(err) || got != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("groups are %q, %v, want an error with %s", got, err, test.want)
			}
		})
	}
}

// TestMembersAreEscaped puts a member's name into a filter as a value, whatever it
// is.
func TestMembersAreEscaped(t *testing.T) {
	t.Parallel()
	s := slapd.New(t, slapd.Options{LDIF: unix})
	c := config(s)
	c.GroupSearch = &v1alpha1.GroupSearch{BaseDN: groupsDN, Filter: "(memberUid={})", MemberValue: "uid", Nesting: v1alpha1.NestingRecursive}
	d := open(t, c)
	for _, member := range []string{"*", "j*", "x)(memberUid=*", "x))(|(cn=*", `\2a`, "{}"} {
		groups, err := d.Groups(t.Context(), &authn.Account{Member: member})
		if err != nil || len(groups) > 0 {
			t.Errorf("groups of %q are %q, %v", member, groups, err)
		}
	}
}

// unix is a directory with a group that names its members by their uid.
const unix = tree + `
dn: cn=unix,` + groupsDN + `
objectClass: posixGroup
cn: unix
gidNumber: 1
memberUid: jane
`

// TestManyGroups has more groups than fit on a page, on several levels, with a
// server that returns no more than ten entries to who asks for all at once.
func TestManyGroups(t *testing.T) {
	t.Parallel()
	var ldif strings.Builder
	ldif.WriteString(tree)
	want := append(list("a%04d", 620), list("b%04d", 120)...)
	for i, name := range want {
		member := janeDN
		if i >= 620 {
			member = inGroup(want[i-620])
		}
		ldif.WriteString(group(name, member))
	}
	s := slapd.New(t, slapd.Options{LDIF: ldif.String(), SizeLimit: 10})
	c := config(s)
	c.GroupSearch.Nesting, c.GroupSearch.MaxGroups = v1alpha1.NestingRecursive, 1000
	d := open(t, c)
	jane := mustFind(t, d, "jane")
	got, err := d.Groups(t.Context(), jane)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d groups, %v, want %d", len(got), err, len(want))
	}

	c = config(s)
	c.GroupSearch.MaxGroups = 619
	got, err = open(t, c).Groups(t.Context(), jane)
	if !isUnknown(err) || got != nil || !strings.Contains(err.Error(), "more than 619") {
		t.Errorf("%d groups, %v, want too many", len(got), err)
	}
}

// TestDeepGroups ends when groups are nested deeper than anybody does.
func TestDeepGroups(t *testing.T) {
	t.Parallel()
	var ldif strings.Builder
	ldif.WriteString(tree)
	names := list("g%02d", 40)
	for i, name := range names {
		member := janeDN
		if i > 0 {
			member = inGroup(names[i-1])
		}
		ldif.WriteString(group(name, member))
	}
	s := slapd.New(t, slapd.Options{LDIF: ldif.String()})
	c := config(s)
	c.GroupSearch.Nesting = v1alpha1.NestingRecursive
	d := open(t, c)
	got, err := d.Groups(t.Context(), mustFind(t, d, "jane"))
	if !isUnknown(err) || got != nil || !strings.Contains(err.Error(), "deeper") {
		t.Errorf("groups are %q, %v", got, err)
	}
}
