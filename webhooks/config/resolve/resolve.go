// Package resolve decides which version of each custom resource is active beside the documents of a directory, and compiles the
// result. A server does it again after each change, and a command once.
package resolve

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Resolver decides which version of each custom resource is active beside the documents of a directory, so that a broken
// resource does not keep the others from being active.
//
// If the version that was read has errors:
//   - of an object that restricts, the last version without errors is active, if this process had one active;
//   - an object that permits (an exception, an access token) has no effect;
//   - of a policy whose expressions never compiled, its failurePolicy decides for what it matches, as in the API server;
//   - of several objects that conflict, the one that was changed last has the error. All replicas agree on that, whenever they
//     started. A document of the directory has it only if no resource takes part in the conflict.
type Resolver struct {
	// good are the versions that were active last without errors, by the name of the object in diagnostics.
	good map[string]*config.Resource
}

// Input is what one resolution decides about.
type Input struct {
	Documents *config.Config
	Resources []*config.Resource
	// Clustered is true if there are custom resources, even if they are none at present.
	Clustered bool
	// Tolerant is true if errors in documents need not make the whole invalid: broken expressions of policies, and profiles
	// that need a custom resource which is not there.
	Tolerant bool
	// Prepare connects a configuration with what it looks up, before it is compiled. One resolution may call it several times; the last
	// call is for the configuration of the result.
	Prepare func(*config.Config) error
}

// Candidate is one custom resource, and the version of it that is to be active.
type Candidate struct {
	// Read is the version that was read.
	Read *config.Resource
	// Found is what is wrong with it.
	Found diagnostic.List

	// use is the version that is compiled, nil for none.
	use *config.Resource
	// broken is true if it has errors and is compiled all the same.
	broken bool
}

// Use says which version of a custom resource is active.
type Use string

// The values of Use.
const (
	// Current is the one that was read.
	Current Use = "Current"
	// Previous is the last one without errors: the one that was read has some.
	Previous Use = "Previous"
	// Unused is none. For what a policy matches, its failurePolicy decides.
	Unused Use = "Unused"
)

// isCurrent reports whether the version that was read is the one that is compiled.
func (c *Candidate) isCurrent() bool { return sameVersion(c.use, c.Read) }

// Use returns which version of the resource is active.
func (c *Candidate) Use() Use {
	switch {
	case c.use == nil || c.broken:
		return Unused
	case !c.isCurrent():
		return Previous
	default:
		return Current
	}
}

// sameVersion reports whether two readings are of the same version of an object.
func sameVersion(a, b *config.Resource) bool {
	return a != nil && b != nil && a.ResourceID == b.ResourceID
}

// Resolution is a valid configuration, compiled.
type Resolution struct {
	Config   *config.Config
	Snapshot *webhooks.Snapshot
	// Candidates are the custom resources in the order of their names. Clustered is true if there may be any.
	Candidates []*Candidate
	Clustered  bool
	// leftOut are errors of documents that are not active because of them.
	leftOut diagnostic.List
}

// resolution is the work on one Resolution.
type resolution struct {
	Input

	good   map[string]*config.Resource
	all    []*Candidate
	byName map[string]*Candidate
	// without are the profiles of the directory that are left out, and leftOut is why.
	without map[string]bool
	leftOut diagnostic.List
}

// Resolve compiles documents with custom resources. The error is about the documents: no version of the resources makes them
// valid.
func (r *Resolver) Resolve(in Input) (*Resolution, error) {
	a := r.begin(in)
	of, found, err := a.compile()
	if err != nil {
		return nil, err
	}
	if found.Err() != nil {
		a.note(found)
		// Only profiles and tokens can conflict. To find out which, they alone are compiled repeatedly, and not the policies.
		a.compileUntilValid(func(c *config.Config) error { _, err := sidecar.Compile(c.Sidecar); return err })
		a.compileUntilValid(func(c *config.Config) error {
			if err := in.Prepare(c); err != nil {
				return err
			}
			_, err := authn.Compile(c.Authn)
			return err
		})
		if of, found, err = a.compilePolicies(); err != nil {
			return nil, err
		}
	}
	if of == nil {
		return nil, found.Err()
	}
	if ofDocuments := a.ofDocuments(found); !in.Tolerant && ofDocuments.Err() != nil {
		return nil, ofDocuments.Err()
	}
	a.note(found)
	return of, nil
}

// begin makes each resource a Candidate with its newest version without errors of its own.
func (r *Resolver) begin(in Input) *resolution {
	a := &resolution{Input: in, good: r.good, byName: make(map[string]*Candidate, len(in.Resources)), without: map[string]bool{}}
	for _, one := range in.Resources {
		if one.Deleting && Permits(one.Kind) {
			continue // its deletion takes back what it permits, whatever finalizer keeps the object
		}
		c := &Candidate{Read: one, use: one, Found: slices.Clone(one.Found)}
		if one.Found.Err() != nil || one.Value == nil {
			c.use = a.previous(one)
		}
		a.all = append(a.all, c)
		a.byName[one.Object()] = c
	}
	slices.SortFunc(a.all, func(a, b *Candidate) int { return cmp.Compare(a.Read.Object(), b.Read.Object()) })
	return a
}

// note adds diagnostics to the candidates whose version that was read they are about. Conflicts are left to blame.
func (a *resolution) note(found diagnostic.List) {
	for _, f := range found {
		one := a.byName[f.Object]
		if f.Source == config.ClusterSource && f.Others == "" && one != nil && one.isCurrent() && !slices.Contains(one.Found, f) {
			one.Found = append(one.Found, f)
		}
	}
}

// merged returns the documents with the versions of the candidates.
func (a *resolution) merged() (*config.Config, diagnostic.List) {
	if !a.Clustered {
		merged := *a.Documents
		return &merged, nil
	}
	used := make([]*config.Resource, 0, len(a.all))
	for _, one := range a.all {
		if one.use != nil {
			used = append(used, one.use)
		}
	}
	return a.Documents.WithoutProfiles(a.without).With(used)
}

// compile compiles everything. Without a result there are errors among the diagnostics.
func (a *resolution) compile() (*Resolution, diagnostic.List, error) {
	merged, found := a.merged()
	if err := a.Prepare(merged); err != nil {
		return nil, nil, err
	}
	snapshot, err := webhooks.Compile(merged.Spec())
	if err != nil {
		list, ok := errors.AsType[diagnostic.List](err)
		if !ok {
			return nil, nil, err
		}
		return nil, append(found, list...), nil
	}
	return &Resolution{
		Config: merged, Snapshot: snapshot, Candidates: a.all, leftOut: a.leftOut, Clustered: a.Clustered,
	}, append(found, snapshot.Warnings()...), nil
}

// compileUntilValid replaces versions by previous ones until a part compiles, or no Candidate is left to blame.
func (a *resolution) compileUntilValid(compile func(*config.Config) error) {
	for {
		merged, found := a.merged()
		if err := compile(merged); err != nil {
			list, _ := errors.AsType[diagnostic.List](err)
			found = append(found, list...)
		}
		if !a.blame(found) {
			return
		}
	}
}

// compilePolicies compiles everything, and replaces versions of policies, bindings and exceptions by previous ones until that
// is possible.
func (a *resolution) compilePolicies() (of *Resolution, found diagnostic.List, err error) {
	for {
		of, found, err = a.compile()
		if err != nil || !a.blamePolicies(found, of != nil) {
			return of, found, err
		}
	}
}

// blame replaces one version for each error that is not of a policy, and reports whether there was one.
func (a *resolution) blame(found diagnostic.List) (again bool) {
	a.note(found)
	touched := map[*Candidate]bool{}
	for _, f := range found {
		if f.Severity != diagnostic.Error || strings.HasPrefix(f.Object, "AdmissionPolicy/") {
			continue
		}
		victim, known := a.victim(&f, touched)
		switch {
		case known:
			again = true
		case victim != nil:
			touched[victim], again = true, true
			a.replace(victim, &f)
		case a.Tolerant && a.Clustered && strings.HasPrefix(f.Object, "SidecarProfile/") && !a.without[f.Object]:
			// It may need a resource that is gone, or was not read yet.
			a.without[f.Object], again = true, true
			a.leftOut = append(a.leftOut, f)
		}
	}
	return again
}

// victim returns the Candidate that has to change because of an error: of those that take part in it, the one that was changed
// last. Known is true if the version of one of them was replaced already.
func (a *resolution) victim(f *diagnostic.Diagnostic, touched map[*Candidate]bool) (victim *Candidate, known bool) {
	for _, name := range append(strings.Fields(f.Others), f.Object) {
		one := a.byName[name]
		if one == nil || one.use == nil {
			continue
		}
		if touched[one] {
			return nil, true
		}
		if victim == nil || changedLater(one.use, victim.use) {
			victim = one
		}
	}
	return victim, false
}

// changedLater reports whether a was changed after b. All replicas get the same answer.
func changedLater(a, b *config.Resource) bool {
	return cmp.Or(a.ChangedAt.Compare(b.ChangedAt), cmp.Compare(a.Object(), b.Object())) > 0
}

// replace replaces the version of a Candidate by the previous one, or by none.
func (a *resolution) replace(one *Candidate, f *diagnostic.Diagnostic) {
	current := one.isCurrent()
	if current {
		said := *f
		if f.Object != one.Read.Object() {
			said = diagnostic.Diagnostic{
				Severity: diagnostic.Error, Source: config.ClusterSource, Object: one.Read.Object(), Field: "spec", Hint: f.Hint,
				Message: fmt.Sprintf("breaks %s, and was changed last: %s: %s", f.Object, f.Field, f.Message),
			}
		}
		if !slices.Contains(one.Found, said) {
			one.Found = append(one.Found, said)
		}
	}
	previous := a.previous(one.Read)
	if !current || previous == nil || sameVersion(previous, one.Read) {
		previous = nil
	}
	one.use = previous
}

// blamePolicies replaces versions of policies, bindings and exceptions that have errors, and reports whether there was one. A
// policy whose expressions do not compile and that has no previous version stays: its failurePolicy needs what it matches.
func (a *resolution) blamePolicies(found diagnostic.List, compiled bool) (again bool) {
	again = a.blame(found)
	for _, one := range a.all {
		one.broken = false
	}
	for _, f := range found {
		one := a.byName[f.Object]
		if f.Severity != diagnostic.Error || f.Source != config.ClusterSource || one == nil || one.use == nil || one.broken ||
			!strings.HasPrefix(f.Object, "AdmissionPolicy/") {
			continue
		}
		previous := a.previous(one.Read)
		switch {
		case one.isCurrent() && previous != nil && !sameVersion(previous, one.Read):
			a.replace(one, &f)
			again = true
		case compiled || a.compilesWithoutExpressions(one):
			one.broken = true
		default:
			a.replace(one, &f)
			again = true
		}
	}
	return again
}

// compilesWithoutExpressions reports whether a policy compiles but for its expressions.
func (a *resolution) compilesWithoutExpressions(one *Candidate) bool {
	alone, _ := a.Documents.With([]*config.Resource{one.use})
	_, err := policy.Compile(policy.Spec{
		AdmissionPolicies: alone.Policy.AdmissionPolicies[len(alone.Policy.AdmissionPolicies)-1:], Configuration: alone.Policy.Configuration, KeepBroken: true,
	})
	return err == nil
}

// ofDocuments returns the diagnostics about documents of the directory.
func (a *resolution) ofDocuments(found diagnostic.List) diagnostic.List {
	var list diagnostic.List
	for _, f := range found {
		if f.Source != config.ClusterSource || a.byName[f.Object] == nil {
			list = append(list, f)
		}
	}
	return list
}

// Permits reports whether objects of a kind allow what is otherwise refused.
func Permits(kind string) bool { return kind == "PolicyException" || kind == "AccessToken" }

// previous returns the version to use in place of one with errors, nil for none.
func (a *resolution) previous(r *config.Resource) *config.Resource {
	good := a.good[r.Object()]
	switch {
	case good == nil || good.UID != r.UID:
		return nil
	case Permits(r.Kind):
		return nil // They permit: what their author did not mean to permit must not be.
	default:
		return good
	}
}

// Remember keeps the versions that are active without errors.
func (r *Resolver) Remember(of *Resolution) {
	r.good = make(map[string]*config.Resource, len(of.Candidates))
	for _, one := range of.Candidates {
		if one.use != nil && !one.broken {
			r.good[one.Read.Object()] = one.use
		}
	}
}

// Digest identifies which version of each custom resource was read, and which of them are active without errors: replicas with the
// same digest have the same active. Which version of a resource with errors is active depends on when a replica started, and must
// not make the replica appear to be behind.
func (of *Resolution) Digest() string {
	digest := sha256.New()
	for _, one := range of.Candidates {
		_, _ = fmt.Fprintln(digest, one.Read.Object(), one.Read.UID, one.Read.Generation, one.Read.Sum, one.Use() == Current)
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// Diagnostics returns those of the snapshot, with all about the custom resources as they were read.
func (of *Resolution) Diagnostics() diagnostic.List {
	if !of.Clustered {
		return of.Snapshot.Warnings()
	}
	list := slices.DeleteFunc(of.Snapshot.Warnings(), func(f diagnostic.Diagnostic) bool { return f.Source == config.ClusterSource })
	list = append(list, of.leftOut...)
	for _, one := range of.Candidates {
		list = append(list, one.Found...)
	}
	list.Sort()
	return list
}

// SameResources reports whether two readings gave the same versions of the same objects, changed at the same times. The times
// matter, because a replica that starts now decides conflicts by them.
func SameResources(a, b []*config.Resource) bool {
	if len(a) != len(b) {
		return false
	}
	known := make(map[config.ResourceID]*config.Resource, len(a))
	for _, r := range a {
		known[r.ResourceID] = r
	}
	return !slices.ContainsFunc(b, func(r *config.Resource) bool {
		before := known[r.ResourceID]
		return before == nil || !before.Equal(r)
	})
}
