// Package apierr classifies errors of requests to an API server by what a person or
// a program can do about them.
package apierr

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Class is a class of errors. It is short enough for the label of a metric.
type Class string

// The classes of errors. None is that of no error.
const (
	None Class = ""
	// Unauthorized means that the credentials are not accepted.
	Unauthorized Class = "unauthorized"
	// Forbidden means that a right is missing or that an admission plugin objects.
	Forbidden Class = "forbidden"
	// Unserved means that the API server does not have the kind, or its status.
	Unserved Class = "unserved"
	// NotFound means that there is no such object.
	NotFound Class = "not-found"
	// AlreadyExists means that there is an object of that name.
	AlreadyExists Class = "already-exists"
	// Conflict means that the object has changed, or that a field belongs to another
	// manager.
	Conflict Class = "conflict"
	// Expired means that a list or a watch must start again.
	Expired Class = "expired"
	// Invalid means that the API server rejects the content of the request.
	Invalid Class = "invalid"
	// Unavailable means that the API server answers, and cannot do it now.
	Unavailable Class = "unavailable"
	// Unreachable means that there is no answer, or none of an API server.
	Unreachable Class = "unreachable"
)

// Classify returns the class of an error.
func Classify(err error) Class {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return None
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case apierrors.IsForbidden(err):
		return Forbidden
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return Unserved // The path is unknown: about a missing object the API server sends a Status.
	case apierrors.IsNotFound(err):
		return NotFound
	case apierrors.IsAlreadyExists(err):
		return AlreadyExists
	case apierrors.IsConflict(err):
		return Conflict
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return Expired
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return Invalid
	case apierrors.IsTooManyRequests(err), apierrors.IsTimeout(err):
		return Unavailable
	case !errors.As(err, &status):
		return Unreachable
	case status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError:
		return Invalid
	default:
		return Unavailable
	}
}

// IsDenied reports whether the API server does not accept the credentials or their
// rights.
func (c Class) IsDenied() bool { return c == Unauthorized || c == Forbidden }

// IsTemporary reports whether the same request may succeed in a moment.
func (c Class) IsTemporary() bool { return c == Unavailable || c == Unreachable }

// Coarse returns what somebody has to do about an error, for a log that has one line
// for each cause: grant a right (Forbidden), install a definition (Unserved), correct
// the content (Invalid) or wait (Unreachable).
func (c Class) Coarse() Class {
	switch {
	case c.IsDenied():
		return Forbidden
	case c == None, c == Unserved, c == Invalid:
		return c
	default:
		return Unreachable
	}
}

// Unreached returns an error for people in place of that of a request that no API server
// answered, and nil for other errors.
func Unreached(err error) error {
	failed, ok := errors.AsType[*url.Error](err)
	if !ok || errors.Is(err, context.Canceled) {
		return nil
	}
	host := failed.URL
	if u, err := url.Parse(failed.URL); err == nil {
		host = u.Scheme + "://" + u.Host
	}
	return fmt.Errorf("the API server %s cannot be reached: %w (hint: check the kubeconfig and its context, and that the API server runs)", host, failed.Err)
}

// LacksRight reports whether an error is about a missing right to the verb: refusals
// of admission plugins are Forbidden too.
func LacksRight(err error, verb string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "+verb+" resource ")
}

// forbidden matches what API servers answer to a user who lacks a right.
var forbidden = regexp.MustCompile(`cannot ([a-z]+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// MissingRight says for people which right of theirs an error is about, and which ClusterRole has it: "the right to list pods in
// namespace shop is missing (hint: …)". It is "" for other errors. It reads the text, because the error of a port-forward has no more.
func MissingRight(err error) string {
	found := forbidden.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	verb, resource, group, namespace := found[1], found[2], found[3], found[4]
	kind, _, _ := strings.Cut(resource, "/")
	hint := ""
	switch {
	case namespace != "" && slices.Contains([]string{"leases", "pods", "services"}, kind):
		hint = " (hint: bind the ClusterRole " + RoleConsole + " in this namespace)"
	case group == "gatehouse.dev" || group == admissionregistrationv1.GroupName:
		hint = " (hint: bind the ClusterRole " + RoleAuditor + ")"
	}
	if group != "" {
		resource += "." + group
	}
	if namespace != "" {
		resource += " in namespace " + namespace
	}
	return "the right to " + verb + " " + resource + " is missing" + hint
}

// Explain returns an error for people: which right is missing, or what cannot be done and why.
func Explain(what string, err error) error {
	if text := MissingRight(err); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// The ClusterRoles for people that every install has, see templates/roles.yaml of the chart.
const (
	// RoleAdmin is for access tokens and revocations.
	RoleAdmin = "gatehouse-admin"
	// RoleAuditor is for reading what decides.
	RoleAuditor = "gatehouse-auditor"
	// RoleConsole is for the servers' pods, to be bound in their namespace.
	RoleConsole = "gatehouse-console"
)

// BindHint returns which ClusterRole to bind to a user who lacks a right, in the namespace if
// that is not "".
func BindHint(clusterRole, namespace, verbs, resources string) string {
	if namespace != "" {
		clusterRole += " in namespace " + namespace
	}
	return fmt.Sprintf("bind the ClusterRole %s, or a role that allows %s of %s", clusterRole, verbs, resources)
}

// GrantHint returns what to do about a missing right of the server, whose role has that name
// unless it was installed by another.
func GrantHint(role, verbs, resources string) string {
	return fmt.Sprintf("%s must allow %s of %s", role, verbs, resources)
}
