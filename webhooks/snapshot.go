// Package webhooks compiles the configuration of the three endpoints into one
// immutable Snapshot, and has the table of the endpoints.
//
// Everything below this package is pure: Compile gets what decisions depend on.
package webhooks

import (
	"errors"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Spec is the configuration of all three endpoints.
type Spec struct {
	Sidecar sidecar.Spec
	Policy  policy.Spec
	Authn   authn.Spec
}

// Snapshot is a compiled configuration. It never changes and is safe for
// concurrent use: a server swaps whole Snapshots.
type Snapshot struct {
	Sidecar *sidecar.Set
	Policy  *policy.Set
	Authn   *authn.Set

	warnings diagnostic.List
}

// Compile compiles all three parts. If any has an error there is no Snapshot, and the
// error is a diagnostic.List of everything found in all three, warnings included. If
// Spec.Policy keeps policies with errors in expressions, these errors are among the
// warnings of the Snapshot.
func Compile(spec Spec) (*Snapshot, error) {
	var (
		snapshot Snapshot
		found    diagnostic.List
		err      error
	)
	if snapshot.Authn, err = authn.Compile(spec.Authn); err != nil {
		found = appendDiagnostics(found, err)
	} else {
		found = append(found, snapshot.Authn.Warnings()...)
	}
	if snapshot.Sidecar, err = sidecar.Compile(spec.Sidecar); err != nil {
		found = appendDiagnostics(found, err)
	} else {
		found = append(found, snapshot.Sidecar.Warnings()...)
	}
	if spec.Policy.Inject == nil && snapshot.Sidecar != nil {
		spec.Policy.Inject = Injector(snapshot.Sidecar)
	}
	if snapshot.Policy, err = policy.Compile(spec.Policy); err != nil {
		found = appendDiagnostics(found, err)
	} else {
		found = append(found, snapshot.Policy.Warnings()...)
	}
	found.Sort()
	if err := found.Err(); err != nil && (snapshot.Authn == nil || snapshot.Sidecar == nil || snapshot.Policy == nil) {
		return nil, err
	}
	snapshot.warnings = found
	return &snapshot, nil
}

func appendDiagnostics(found diagnostic.List, err error) diagnostic.List {
	if list, ok := errors.AsType[diagnostic.List](err); ok {
		return append(found, list...)
	}
	return append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Message: err.Error()})
}

// Warnings returns the diagnostics of a configuration that compiled, sorted.
func (s *Snapshot) Warnings() diagnostic.List { return slices.Clone(s.warnings) }
