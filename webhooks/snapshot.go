// Package webhooks is the decisions of Gatehouse. Compile makes an immutable Snapshot from the configuration of all
// endpoints, and Endpoints is the table of functions that decide by a Snapshot.
//
// Everything below this package is pure: it has no clock, logger or client, and gets what it looks up in the Spec.
package webhooks

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Spec is the configuration of all endpoints. Authorization has none of its own: the scopes of tokens are part of Authn.
type Spec struct {
	// Digest names the configuration, and may be empty.
	Digest   string
	Sidecar  sidecar.Spec
	Policy   policy.Spec
	Authn    authn.Spec
	Mutation mutation.Spec
}

// Snapshot is a compiled configuration. It never changes and is safe for
// concurrent use: a server swaps whole Snapshots.
type Snapshot struct {
	Sidecar  *sidecar.Set
	Policy   *policy.Set
	Authn    *authn.Set
	Mutation *mutation.Set
	// Digest is that of the Spec.
	Digest string

	lookups Lookups
	// injects is true if policies see pod templates as the profiles of the Snapshot change
	// them.
	injects  bool
	warnings diagnostic.List
}

// Lookups are what admission reads besides the request. Each of them may be nil.
type Lookups struct {
	Objects    policy.Objects
	Authorizer authorizer.UnconditionalAuthorizer
	Namespaces sidecar.Namespaces
	ConfigMaps sidecar.ConfigMaps
	Now        func() time.Time
}

// Lookups returns those that the Snapshot was compiled with.
func (s *Snapshot) Lookups() Lookups { return s.lookups }

// With returns the Snapshot with other lookups. It compiles nothing, so that a caller can have a Snapshot for each
// request.
func (s *Snapshot) With(l Lookups) *Snapshot {
	with := *s
	with.lookups = l
	with.Sidecar = s.Sidecar.With(l.Namespaces, l.ConfigMaps)
	with.Mutation = s.Mutation.With(mutation.Lookups{Objects: l.Objects, Authorizer: l.Authorizer, Schemas: s.Mutation.Lookups().Schemas})
	inject := s.Policy.Lookups().Inject
	if s.injects {
		inject = Injector(with.Sidecar, with.Mutation)
	}
	with.Policy = s.Policy.With(policy.Lookups{Objects: l.Objects, Authorizer: l.Authorizer, Inject: inject, Now: l.Now})
	return &with
}

// Compile compiles the configuration of all endpoints. With an error there is no Snapshot, and the error is a
// diagnostic.List of everything that was found, warnings included. If the Spec allows policies with errors in their
// expressions, these errors are among the Warnings of the Snapshot.
func Compile(spec Spec) (*Snapshot, error) {
	var (
		found diagnostic.List
		err   error
	)
	snapshot := Snapshot{Digest: spec.Digest, lookups: Lookups{
		Objects: spec.Policy.Objects, Authorizer: spec.Policy.Authorizer, Now: spec.Policy.Now,
		Namespaces: spec.Sidecar.Namespaces, ConfigMaps: spec.Sidecar.ConfigMaps,
	}}
	snapshot.Authn, err = authn.Compile(spec.Authn)
	found = appendDiagnostics(found, snapshot.Authn, err)
	snapshot.Sidecar, err = sidecar.Compile(spec.Sidecar)
	found = appendDiagnostics(found, snapshot.Sidecar, err)
	snapshot.Mutation, err = mutation.Compile(spec.Mutation)
	found = appendDiagnostics(found, snapshot.Mutation, err)
	if spec.Policy.Inject == nil && snapshot.Sidecar != nil {
		spec.Policy.Inject, snapshot.injects = Injector(snapshot.Sidecar, snapshot.Mutation), true
	}
	snapshot.Policy, err = policy.Compile(spec.Policy)
	found = appendDiagnostics(found, snapshot.Policy, err)
	found.Sort()
	if err := found.Err(); err != nil && (snapshot.Authn == nil || snapshot.Sidecar == nil || snapshot.Policy == nil || snapshot.Mutation == nil) {
		return nil, err
	}
	snapshot.warnings = found
	return &snapshot, nil
}

// appendDiagnostics appends the error of a part, or its warnings if it compiled.
func appendDiagnostics(found diagnostic.List, part interface{ Warnings() diagnostic.List }, err error) diagnostic.List {
	if err == nil {
		return append(found, part.Warnings()...)
	}
	if list, ok := errors.AsType[diagnostic.List](err); ok {
		return append(found, list...)
	}
	return append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Message: err.Error()})
}

// Warnings returns the diagnostics of a configuration that compiled, sorted.
func (s *Snapshot) Warnings() diagnostic.List { return slices.Clone(s.warnings) }
