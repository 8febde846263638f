// Package rbac answers authorization requests from Role and binding documents, so that a policy that asks the authorizer
// can be decided without an API server.
//
// The answers are those of kube-apiserver with the authorizer RBAC, for which the group system:masters may do everything.
// Other authorizers, such as that of nodes, are missing. An aggregated ClusterRole has the rules that are written in it;
// the controller that would collect the rules of others does not run here.
package rbac

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// Document is an object and where it was read.
type Document[T any] struct {
	// Source is the file, and the number of the document in it where it has
	// several: "rbac/base.yaml#2". It is used in diagnostics only.
	Source string
	Object T
}

// Documents are all objects that say who may do what. No two of a kind have the
// same name and namespace.
type Documents struct {
	Roles               []Document[rbacv1.Role]
	ClusterRoles        []Document[rbacv1.ClusterRole]
	RoleBindings        []Document[rbacv1.RoleBinding]
	ClusterRoleBindings []Document[rbacv1.ClusterRoleBinding]
}

// subject is who something is granted to: a group, or a user. A service account
// is the user that it is to the API server.
type subject struct {
	group bool
	name  string
}

// grant is what a binding gives to a subject.
type grant struct {
	reason string
	rules  []rbacv1.PolicyRule
}

// grants are all grants by namespace and subject, in the order of the names of
// the bindings. The namespace of what is granted in all of them, and outside of
// any, is "".
type grants map[string]map[subject][]grant

// New is the authorizer of the documents, which is immutable and safe for
// concurrent use. Without any document it is nil: then nothing is known of who
// may do what, while with one everything that is not granted is denied.
//
// The diagnostics are warnings about bindings that grant nothing, because there is
// no role of the name that they refer to.
func New(d *Documents) (authorizer.Authorizer, diagnostic.List) {
	if len(d.Roles)+len(d.ClusterRoles)+len(d.RoleBindings)+len(d.ClusterRoleBindings) == 0 {
		return nil, nil
	}
	b := builder{
		roles:        make(map[namespacedName][]rbacv1.PolicyRule, len(d.Roles)),
		clusterRoles: make(map[string][]rbacv1.PolicyRule, len(d.ClusterRoles)),
		grants:       grants{},
	}
	for i := range d.Roles {
		role := &d.Roles[i].Object
		b.roles[namespacedName{role.Namespace, role.Name}] = role.Rules
	}
	for i := range d.ClusterRoles {
		role := &d.ClusterRoles[i].Object
		b.clusterRoles[role.Name] = role.Rules
	}
	clusterWide := slices.SortedFunc(slices.Values(d.ClusterRoleBindings), func(a, b Document[rbacv1.ClusterRoleBinding]) int {
		return cmp.Compare(a.Object.Name, b.Object.Name)
	})
	for i := range clusterWide {
		o := &clusterWide[i].Object
		b.bind(&binding{kind: "ClusterRoleBinding", name: o.Name, source: clusterWide[i].Source, roleRef: o.RoleRef, subjects: o.Subjects})
	}
	inNamespace := slices.SortedFunc(slices.Values(d.RoleBindings), func(a, b Document[rbacv1.RoleBinding]) int {
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	for i := range inNamespace {
		o := &inNamespace[i].Object
		if o.Namespace == "" {
			continue // in no namespace it grants nothing
		}
		b.bind(&binding{kind: "RoleBinding", namespace: o.Namespace, name: o.Name, source: inNamespace[i].Source, roleRef: o.RoleRef, subjects: o.Subjects})
	}
	return authorizer.AuthorizerFunc(b.grants.authorize), b.found
}

type namespacedName struct{ namespace, name string }

// builder makes grants.
type builder struct {
	roles        map[namespacedName][]rbacv1.PolicyRule
	clusterRoles map[string][]rbacv1.PolicyRule
	grants       grants
	found        diagnostic.List
}

// binding is a RoleBinding, or a ClusterRoleBinding, whose namespace is "".
type binding struct {
	kind, namespace, name string
	source                string
	roleRef               rbacv1.RoleRef
	subjects              []rbacv1.Subject
}

// title is the binding as diagnostics name it.
func (b *binding) title() string {
	if b.namespace == "" {
		return b.kind + "/" + b.name
	}
	return b.kind + "/" + b.namespace + "/" + b.name
}

// bind adds what a binding grants.
func (b *builder) bind(from *binding) {
	rules, ok := b.rulesOf(from)
	if !ok {
		b.found = append(b.found, diagnostic.Diagnostic{
			Severity: diagnostic.Warning, Source: from.source, Object: from.title(), Field: "roleRef",
			Message: fmt.Sprintf("there is no %q %q, so the binding grants nothing", strict.Cut(from.roleRef.Kind, 60), strict.Cut(from.roleRef.Name, 60)),
			Hint:    "add the role to the directory, even if it is built into every cluster",
		})
		return
	}
	byName := b.grants[from.namespace]
	if byName == nil {
		byName = map[subject][]grant{}
		b.grants[from.namespace] = byName
	}
	for i := range from.subjects {
		if who, ok := subjectOf(&from.subjects[i], from.namespace); ok {
			byName[who] = append(byName[who], grant{reason: from.describe(&from.subjects[i]), rules: rules})
		}
	}
}

// rulesOf are the rules of the role that a binding refers to. A
// ClusterRoleBinding finds no Role: none is in no namespace.
func (b *builder) rulesOf(from *binding) (rules []rbacv1.PolicyRule, ok bool) {
	switch from.roleRef.Kind {
	case "ClusterRole":
		rules, ok = b.clusterRoles[from.roleRef.Name]
	case "Role":
		if from.namespace != "" {
			rules, ok = b.roles[namespacedName{from.namespace, from.roleRef.Name}]
		}
	}
	return rules, ok
}

// describe says what grants, in the words of kube-apiserver.
func (b *binding) describe(to *rbacv1.Subject) string {
	name, who := b.name, to.Name
	if b.namespace != "" {
		name += "/" + b.namespace
	}
	if to.Kind == rbacv1.ServiceAccountKind {
		who += "/" + cmp.Or(to.Namespace, b.namespace)
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", b.kind, name, b.roleRef.Kind, b.roleRef.Name, to.Kind, who)
}

// subjectOf is the subject of a binding. A service account without a namespace
// is in that of the binding; false stands for one that is in none, and for
// subjects of unknown kinds.
func subjectOf(s *rbacv1.Subject, namespace string) (subject, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{name: s.Name}, true
	case rbacv1.GroupKind:
		return subject{group: true, name: s.Name}, true
	case rbacv1.ServiceAccountKind:
		namespace = cmp.Or(s.Namespace, namespace)
		return subject{name: serviceaccount.MakeUsername(namespace, s.Name)}, namespace != ""
	default:
		return subject{}, false
	}
}

// authorize allows what is granted. Of everything else it has no opinion, which
// without another authorizer is a denial.
func (g grants) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	who := a.GetUser()
	if who == nil {
		return authorizer.DecisionNoOpinion, "", errors.New("there is no user to authorize")
	}
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	namespaces := []string{""}
	if a.GetNamespace() != "" {
		namespaces = append(namespaces, a.GetNamespace())
	}
	for _, namespace := range namespaces {
		byName := g[namespace]
		if reason, ok := find(byName[subject{name: who.GetName()}], a); ok {
			return authorizer.DecisionAllow, reason, nil
		}
		for _, group := range who.GetGroups() {
			if reason, ok := find(byName[subject{group: true, name: group}], a); ok {
				return authorizer.DecisionAllow, reason, nil
			}
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// find is the reason of the first grant that allows what is asked.
func find(list []grant, a authorizer.Attributes) (reason string, ok bool) {
	for i := range list {
		for j := range list[i].rules {
			if allows(&list[i].rules[j], a) {
				return list[i].reason, true
			}
		}
	}
	return "", false
}
