// Package guard is the identity guard: it rejects identities that no source may give. It
// checks the identities of all backends, always: Kubernetes gives these identities a
// meaning of its own, and the API server accepts any of them from a webhook. The one
// exception is a reserved group that the configuration allows for a source.
//
// Everything under "system:" is rejected rather than a list of names, because
// the list grows. Known today, from k8s.io/apiserver and k8s.io/kubernetes 0.37:
//
//	system:masters                       passes every authorizer; apiserver pkg/authentication/user SystemPrivilegedGroup,
//	                                     pkg/server/options/authorization.go AlwaysAllowGroups
//	system:anonymous                     user.Anonymous; a request of it is treated as not logged in
//	system:unauthenticated               user.AllUnauthenticated
//	system:authenticated                 user.AllAuthenticated; the API server adds it, and does not where a backend has
//	system:apiserver                     user.APIServerUser; the API server's own loopback client
//	system:kube-proxy, system:kube-controller-manager, system:kube-scheduler
//	                                     user.KubeProxy and so on; bound in bootstrappolicy/policy.go
//	system:nodes, system:node:<name>     user.NodesGroup; pkg/auth/nodeidentifier: a kubelet, to the node authorizer
//	system:monitoring                    user.MonitoringGroup; bound to metrics and health
//	system:serviceaccount:<ns>:<name>, system:serviceaccounts, system:serviceaccounts:<ns>
//	                                     apiserver pkg/authentication/serviceaccount
//	system:bootstrap:<id>, system:bootstrappers, system:bootstrappers:<name>
//	                                     k8s.io/cluster-bootstrap/token/api
//	system:unsecured                     apiserver pkg/server/deprecated_insecure_serving.go
//
// Extra keys under kubernetes.io and k8s.io feed decisions of the API server:
// authentication.kubernetes.io/node-name, pod-name, credential-id and others of
// pkg/authentication/serviceaccount. apiserver reserves both domains and asks for
// lower case in pkg/apis/apiserver/validation. (An upper-case key does not
// survive impersonation, whose keys travel as HTTP headers.)
//
// Extra keys of gatehouse.dev are Gatehouse's own: by gatehouse.dev/scope it narrows a token. No source may give
// them; Gatehouse adds them to an identity that the guard has accepted.
//
// Authorizers compare names exactly, so a variant such as " System:Masters"
// has no power; it is rejected because people who read a log take it for what it looks
// like.
//
// One group is Gatehouse's own, the break-glass group: requests of its members are not
// sent to Gatehouse where that fails closed. A cluster administrator gives it by
// impersonation in an emergency; no source may, and there is no exception.
package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Violation is one reason why an identity is rejected.
type Violation struct {
	// Field is the path within a UserInfo: "groups[1]".
	Field   string
	Message string
}

// Guard is the identity guard with the rules of a configuration. The zero Guard has no
// rules.
type Guard map[string]*rules

// rules are about the identities of one source.
type rules struct {
	userPrefix, groupsPrefix string
	// mapped is the prefix that the source's own configuration sets before groups. A group that is nothing else was empty.
	mapped string
	// allowed are reserved groups that the source may give.
	allowed []string
}

// New returns the guard with the rules of a configuration.
func New(c *v1alpha1.GuardConfiguration) Guard {
	g := Guard{}
	of := g.of
	for _, p := range c.Prefixes {
		r := of(p.Source)
		r.userPrefix, r.groupsPrefix = p.Username, p.Groups
	}
	for _, a := range c.AllowedGroups {
		for _, source := range a.Sources {
			r := of(source)
			r.allowed = append(r.allowed, a.Name)
		}
	}
	return g
}

// of returns the rules of a source, which it adds.
func (g Guard) of(source string) *rules {
	if g[source] == nil {
		g[source] = &rules{}
	}
	return g[source]
}

// RejectEmptyGroups has the guard reject groups of a source that are only the prefix, which its configuration sets before each of
// them. It must not be called when the guard is in use.
func (g Guard) RejectEmptyGroups(source, prefix string) { g.of(source).mapped = prefix }

// Violations returns all the reasons for which the guard rejects an identity of a source,
// in the order of their fields. It allocates nothing if there are none. The reserved keys
// of extra that are allowed are those that the authenticator itself sets.
func (g Guard) Violations(source string, u *authenticationv1.UserInfo, allowedKeys ...string) []Violation {
	rules := g[source]
	var found []Violation
	add := func(f Fault, value, format string, args ...any) {
		found = append(found, Violation{fmt.Sprintf(format, args...), Quote(value) + " " + string(f)})
	}
	if f := CheckName(u.Username); f != "" {
		add(f, u.Username, "username")
	} else if rules != nil && !strings.HasPrefix(u.Username, rules.userPrefix) {
		add(prefixFault(rules.userPrefix), u.Username, "username")
	}
	if f := CheckString(u.UID); f != "" {
		add(f, u.UID, "uid")
	}
	for i, group := range u.Groups {
		if IsBreakGlass(group) {
			add(breakGlass, group, "groups[%d]", i)
			continue
		}
		if rules != nil && slices.Contains(rules.allowed, group) {
			continue
		}
		if f := CheckName(group); f != "" {
			add(f, group, "groups[%d]", i)
		} else if rules != nil && !strings.HasPrefix(group, rules.groupsPrefix) {
			add(prefixFault(rules.groupsPrefix), group, "groups[%d]", i)
		} else if rules != nil && group == rules.mapped {
			add(onlyPrefix, group, "groups[%d]", i)
		}
	}
	if hasFault(u.Extra) { // only then sort the keys
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			if f := CheckKey(key); f != "" && !slices.Contains(allowedKeys, key) {
				add(f, key, "extra[%s]", Quote(key))
			}
			for i, value := range u.Extra[key] {
				if f := CheckString(value); f != "" {
					add(f, value, "extra[%s][%d]", Quote(key), i)
				}
			}
		}
	}
	return found
}

// onlyPrefix is the fault of an empty group behind a prefix.
const onlyPrefix Fault = "is only the prefix: the name of the group is empty"

// hasFault reports whether any key or value of an identity's extra has a fault.
func hasFault(extra map[string]authenticationv1.ExtraValue) bool {
	for key, values := range extra {
		if CheckKey(key) != "" || slices.ContainsFunc(values, func(v string) bool { return CheckString(v) != "" }) {
			return true
		}
	}
	return false
}

// prefixFault is the fault of a name without the prefix that its source must have.
func prefixFault(prefix string) Fault {
	return Fault("must begin with " + Quote(prefix) + ", as the configuration requires for this source")
}

// Summary returns violations on one line, for the operator.
func Summary(found []Violation) string {
	const limit = 5
	parts := make([]string, 0, limit+1)
	for i, v := range found {
		if i == limit {
			parts = append(parts, fmt.Sprintf("and %d more", len(found)-limit))
			break
		}
		parts = append(parts, v.Field+": "+v.Message)
	}
	return strings.Join(parts, "; ")
}

// IsNeverAllowed reports whether no configuration can allow a group: the API server gives
// it itself, or treats a user in it as not logged in.
func IsNeverAllowed(group string) bool {
	return group == user.AllAuthenticated || group == user.AllUnauthenticated
}
