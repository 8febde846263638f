package rbac

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// role is a ClusterRole of one rule.
func role(name string, rule rbacv1.PolicyRule) Document[rbacv1.ClusterRole] {
	return Document[rbacv1.ClusterRole]{Object: rbacv1.ClusterRole{ObjectMeta: meta("", name), Rules: []rbacv1.PolicyRule{rule}}}
}

func toUser(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name}}
}

func everywhere(name, kind, role string, subjects []rbacv1.Subject) Document[rbacv1.ClusterRoleBinding] {
	return Document[rbacv1.ClusterRoleBinding]{Source: name + ".yaml", Object: rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", name), RoleRef: rbacv1.RoleRef{Kind: kind, Name: role}, Subjects: subjects,
	}}
}

func inside(namespace, name, kind, role string, subjects []rbacv1.Subject) Document[rbacv1.RoleBinding] {
	return Document[rbacv1.RoleBinding]{Source: name + ".yaml", Object: rbacv1.RoleBinding{
		ObjectMeta: meta(namespace, name), RoleRef: rbacv1.RoleRef{Kind: kind, Name: role}, Subjects: subjects,
	}}
}

// asks is a question about pods.
func asks(who string, change ...func(*authorizer.AttributesRecord)) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: who}, Verb: "create", APIVersion: "v1", Resource: "pods", Namespace: "shop", ResourceRequest: true,
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

func TestRules(t *testing.T) {
	t.Parallel()
	type rule = rbacv1.PolicyRule
	list := func(words ...string) []string { return words }
	resource := func(group, resource, sub, name string) func(*authorizer.AttributesRecord) {
		return func(a *authorizer.AttributesRecord) {
			a.APIGroup, a.Resource, a.Subresource, a.Name = group, resource, sub, name
		}
	}
	path := func(path string) func(*authorizer.AttributesRecord) {
		return func(a *authorizer.AttributesRecord) {
			*a = authorizer.AttributesRecord{User: a.User, Verb: "create", Path: path}
		}
	}
	for name, c := range map[string]struct {
		rule rule
		asks func(*authorizer.AttributesRecord)
		want bool
	}{
		"all three":                         {rule{Verbs: list("get", "create"), APIGroups: list("", "apps"), Resources: list("x", "pods")}, resource("", "pods", "", ""), true},
		"another verb":                      {rule{Verbs: list("get"), APIGroups: list(""), Resources: list("pods")}, resource("", "pods", "", ""), false},
		"every verb":                        {rule{Verbs: list("*"), APIGroups: list(""), Resources: list("pods")}, resource("", "pods", "", ""), true},
		"another group":                     {rule{Verbs: list("create"), APIGroups: list("apps"), Resources: list("pods")}, resource("", "pods", "", ""), false},
		"no group":                          {rule{Verbs: list("create"), Resources: list("pods")}, resource("", "pods", "", ""), false},
		"every group":                       {rule{Verbs: list("create"), APIGroups: list("*"), Resources: list("pods")}, resource("x.example", "pods", "", ""), true},
		"another resource":                  {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pod", "services")}, resource("", "pods", "", ""), false},
		"every resource":                    {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("*")}, resource("", "pods", "", ""), true},
		"every resource, subresource":       {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("*")}, resource("", "pods", "log", ""), true},
		"subresource":                       {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods/log")}, resource("", "pods", "log", ""), true},
		"subresource of another":            {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods/log")}, resource("", "jobs", "log", ""), false},
		"another subresource":               {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods/log")}, resource("", "pods", "exec", ""), false},
		"resource is not its subresource":   {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods")}, resource("", "pods", "log", ""), false},
		"subresource is not its resource":   {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods/log")}, resource("", "pods", "", ""), false},
		"subresource of all":                {rule{Verbs: list("create"), APIGroups: list("*"), Resources: list("*/scale")}, resource("apps", "deployments", "scale", ""), true},
		"subresource of all, another":       {rule{Verbs: list("create"), APIGroups: list("*"), Resources: list("*/scale")}, resource("apps", "deployments", "status", ""), false},
		"subresource of all, the resource":  {rule{Verbs: list("create"), APIGroups: list("*"), Resources: list("*/scale")}, resource("apps", "deployments", "", ""), false},
		"subresource of all, its ending":    {rule{Verbs: list("create"), APIGroups: list("*"), Resources: list("*/autoscale")}, resource("apps", "deployments", "scale", ""), false},
		"all subresources is no such thing": {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods/*")}, resource("", "pods", "log", ""), false},
		"a slash in the resource":           {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods/log")}, resource("", "pods/log", "", ""), true},
		"a slash in the resource, of all":   {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("*/log")}, resource("", "pods/log", "", ""), false},
		"name":                              {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods"), ResourceNames: list("a", "b")}, resource("", "pods", "", "b"), true},
		"another name":                      {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods"), ResourceNames: list("a")}, resource("", "pods", "", "b"), false},
		"no name":                           {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods"), ResourceNames: list("a")}, resource("", "pods", "", ""), false},
		"the empty name":                    {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods"), ResourceNames: list("")}, resource("", "pods", "", ""), true},
		"a star is no name":                 {rule{Verbs: list("create"), APIGroups: list(""), Resources: list("pods"), ResourceNames: list("*")}, resource("", "pods", "", "a"), false},
		"path":                              {rule{Verbs: list("create"), NonResourceURLs: list("/x", "/healthz")}, path("/healthz"), true},
		"another path":                      {rule{Verbs: list("create"), NonResourceURLs: list("/healthz")}, path("/healthz/etcd"), false},
		"paths below":                       {rule{Verbs: list("create"), NonResourceURLs: list("/healthz/*")}, path("/healthz/etcd"), true},
		"paths below, itself":               {rule{Verbs: list("create"), NonResourceURLs: list("/healthz/*")}, path("/healthz"), false},
		"paths that begin so":               {rule{Verbs: list("create"), NonResourceURLs: list("/heal*")}, path("/healthz"), true},
		"several stars":                     {rule{Verbs: list("create"), NonResourceURLs: list("/heal**")}, path("/healthz"), true},
		"a star in the middle":              {rule{Verbs: list("create"), NonResourceURLs: list("/*/etcd")}, path("/healthz/etcd"), false},
		"every path":                        {rule{Verbs: list("create"), NonResourceURLs: list("*")}, path("/healthz"), true},
		"a path is no resource":             {rule{Verbs: list("*"), APIGroups: list("*"), Resources: list("*")}, path("/healthz"), false},
		"a resource is no path":             {rule{Verbs: list("*"), NonResourceURLs: list("*")}, resource("", "pods", "", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := allows(&c.rule, asks("alice", c.asks)); got != c.want {
				t.Errorf("allows = %v, want %v", got, c.want)
			}
		})
	}
}

func TestBindings(t *testing.T) {
	t.Parallel()
	a, found := New(&Documents{
		ClusterRoles: []Document[rbacv1.ClusterRole]{
			role("creator", rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods"}}),
			{Object: rbacv1.ClusterRole{ObjectMeta: meta("", "aggregate"), AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}}},
		},
		Roles: []Document[rbacv1.Role]{{Object: rbacv1.Role{
			ObjectMeta: meta("shop", "creator-here"),
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
		}}},
		ClusterRoleBindings: []Document[rbacv1.ClusterRoleBinding]{
			everywhere("admins", "ClusterRole", "creator", []rbacv1.Subject{
				{Kind: rbacv1.GroupKind, Name: "admins"},
				{Kind: rbacv1.UserKind, Name: "root"},
				{Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: "ci"},
				{Kind: rbacv1.ServiceAccountKind, Name: "homeless"},
				{Kind: "Robot", Name: "marvin"},
			}),
			everywhere("a-role", "Role", "creator-here", toUser("wanderer")),
			everywhere("gone", "ClusterRole", "no-such", toUser("ghost")),
			everywhere("summed", "ClusterRole", "aggregate", toUser("sum")),
		},
		RoleBindings: []Document[rbacv1.RoleBinding]{
			inside("shop", "cluster-role", "ClusterRole", "creator", toUser("bob")),
			inside("shop", "role", "Role", "creator-here", []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "carol"}, {Kind: rbacv1.ServiceAccountKind, Name: "local"}}),
			inside("other", "role", "Role", "creator-here", toUser("dave")),
			inside("", "nowhere", "ClusterRole", "creator", toUser("nobody")),
		},
	})
	var got []string
	for _, f := range found {
		if f.Severity != diagnostic.Warning {
			t.Errorf("%s is an %s", f, f.Severity)
		}
		got = append(got, f.String())
	}
	const hint = ", so the binding grants nothing (hint: add the role to the directory, even if it is built into every cluster)"
	if want := []string{
		`a-role.yaml: ClusterRoleBinding/a-role: roleRef: there is no "Role" "creator-here"` + hint,
		`gone.yaml: ClusterRoleBinding/gone: roleRef: there is no "ClusterRole" "no-such"` + hint,
		`role.yaml: RoleBinding/other/role: roleRef: there is no "Role" "creator-here"` + hint,
	}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	groups := func(names ...string) func(*authorizer.AttributesRecord) {
		return func(a *authorizer.AttributesRecord) {
			a.User = &user.DefaultInfo{Name: a.User.GetName(), Groups: names}
		}
	}
	in := func(namespace string) func(*authorizer.AttributesRecord) {
		return func(a *authorizer.AttributesRecord) { a.Namespace = namespace }
	}
	for name, c := range map[string]struct {
		asks authorizer.AttributesRecord
		want string // the reason, "-" for no opinion
	}{
		"a user":                               {asks("root"), `RBAC: allowed by ClusterRoleBinding "admins" of ClusterRole "creator" to User "root"`},
		"a user, outside of namespaces":        {asks("root", in("")), `RBAC: allowed by ClusterRoleBinding "admins" of ClusterRole "creator" to User "root"`},
		"a group":                              {asks("alice", groups("x", "admins")), `RBAC: allowed by ClusterRoleBinding "admins" of ClusterRole "creator" to Group "admins"`},
		"a user with the name of a group":      {asks("admins"), "-"},
		"a group with the name of a user":      {asks("alice", groups("root")), "-"},
		"a service account":                    {asks("system:serviceaccount:ci:robot"), `RBAC: allowed by ClusterRoleBinding "admins" of ClusterRole "creator" to ServiceAccount "robot/ci"`},
		"a service account of the same name":   {asks("system:serviceaccount:shop:robot"), "-"},
		"a service account of no namespace":    {asks("system:serviceaccount::homeless"), "-"},
		"a subject of an unknown kind":         {asks("marvin"), "-"},
		"a ClusterRole in a namespace":         {asks("bob"), `RBAC: allowed by RoleBinding "cluster-role/shop" of ClusterRole "creator" to User "bob"`},
		"a ClusterRole in another namespace":   {asks("bob", in("other")), "-"},
		"a ClusterRole outside of namespaces":  {asks("bob", in("")), "-"},
		"a Role":                               {asks("carol"), `RBAC: allowed by RoleBinding "role/shop" of Role "creator-here" to User "carol"`},
		"a Role of another namespace":          {asks("dave", in("other")), "-"},
		"a service account of the namespace":   {asks("system:serviceaccount:shop:local"), `RBAC: allowed by RoleBinding "role/shop" of Role "creator-here" to ServiceAccount "local/shop"`},
		"a Role everywhere":                    {asks("wanderer"), "-"},
		"a ClusterRole that is not there":      {asks("ghost"), "-"},
		"an aggregated ClusterRole as written": {asks("sum"), "-"},
		"a binding in no namespace":            {asks("nobody", in("")), "-"},
		"nobody in particular":                 {asks(""), "-"},
		"the privileged group":                 {asks("alice", groups("system:masters")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decision, reason, err := a.Authorize(t.Context(), c.asks)
			if err != nil {
				t.Fatal(err)
			}
			if decision == authorizer.DecisionNoOpinion {
				reason = "-"
			}
			if reason != c.want || decision == authorizer.DecisionDeny {
				t.Errorf("%v, %q, want %q", decision, reason, c.want)
			}
		})
	}
	if decision, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{}); decision == authorizer.DecisionAllow || err == nil {
		t.Errorf("without a user: %v, %v", decision, err)
	}
}

// Of what there is no document nothing is known.
func TestNone(t *testing.T) {
	t.Parallel()
	if a, found := New(&Documents{}); a != nil || found != nil {
		t.Errorf("got %v, %v", a, found)
	}
}
