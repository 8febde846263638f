// Package webhooks is what Gatehouse decides with: one immutable Snapshot of
// the three endpoints' configuration, and the table of the endpoints.
//
// Everything below this package is pure: what it is to know of the world is
// given to Compile.
package webhooks

import (
	"errors"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// The paths of the endpoints on the server for reviews.
const (
	MutatePath       = "/mutate"
	ValidatePath     = "/validate"
	AuthenticatePath = "/authenticate"
)

// Endpoint is a row of the table of endpoints.
type Endpoint struct {
	// Name is the endpoint's name on the command line, in metrics and in logs.
	Name string
	// Path is its path on the server for reviews.
	Path string
	// Review is the kind of review that it answers.
	Review string
}

// Endpoints is the table of endpoints, in the order in which a request meets
// them. The caller may change the copy that it gets.
func Endpoints() []Endpoint {
	return []Endpoint{
		{Name: "authenticate", Path: AuthenticatePath, Review: "TokenReview"},
		{Name: "mutate", Path: MutatePath, Review: "AdmissionReview"},
		{Name: "validate", Path: ValidatePath, Review: "AdmissionReview"},
	}
}

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

// Compile compiles all three parts. If any has an error there is no Snapshot,
// and the error is a finding.List of everything found in all three, warnings
// included. Errors in expressions of policies that Spec.Policy keeps all the same
// are among the warnings of the Snapshot.
func Compile(spec Spec) (*Snapshot, error) {
	var (
		snapshot Snapshot
		found    diagnostic.List
		err      error
	)
	if snapshot.Authn, err = authn.Compile(spec.Authn); err != nil {
		found = appendFindings(found, err)
	} else {
		found = append(found, snapshot.Authn.Warnings()...)
	}
	if snapshot.Sidecar, err = sidecar.Compile(spec.Sidecar); err != nil {
		found = appendFindings(found, err)
	} else {
		found = append(found, snapshot.Sidecar.Warnings()...)
	}
	if spec.Policy.Inject == nil && snapshot.Sidecar != nil {
		spec.Policy.Inject = Injector(snapshot.Sidecar)
	}
	if snapshot.Policy, err = policy.Compile(spec.Policy); err != nil {
		found = appendFindings(found, err)
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

func appendFindings(found diagnostic.List, err error) diagnostic.List {
	if list, ok := errors.AsType[diagnostic.List](err); ok {
		return append(found, list...)
	}
	return append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Message: err.Error()})
}

// Warnings are the findings that did not keep the Snapshot from being compiled,
// in the order in which they are shown.
func (s *Snapshot) Warnings() diagnostic.List { return slices.Clone(s.warnings) }
