// Package resolve decides which version of each custom resource is active beside the documents of a directory, and
// compiles the result. A server resolves again after each change (Resolver), and a command once (ForCommand).
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
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Resolver decides which version of each custom resource is active beside the documents of a directory, so that a broken
// resource does not keep the others from being active. A resource that has errors is left out alone:
//   - of an object that restricts, the last version without errors is active, if this process had one active;
//   - an object that permits (an exception, a baseline, an access token, a Grant) has no effect;
//   - of a policy whose expressions never compiled, its failurePolicy decides for what it matches, as in the API server;
//   - of several objects that conflict, the resource that was changed last has the error. All replicas agree on that, whenever
//     they started. A document of the directory has it only if no resource takes part in the conflict.
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
	// Tolerant is true if expressions of documents that do not compile need not make the whole invalid.
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
func (c *Candidate) isCurrent() bool { return c.use != nil && c.use.ResourceID == c.Read.ResourceID }

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

// Resolution is a valid configuration, compiled.
type Resolution struct {
	Config   *config.Config
	Snapshot *webhooks.Snapshot
	// Candidates are the custom resources in the order of their names. Clustered is true if there may be any.
	Candidates []*Candidate
	Clustered  bool
}

// resolution is the work on one Resolution.
type resolution struct {
	Input

	good   map[string]*config.Resource
	all    []*Candidate
	byName map[string]*Candidate
}

// Resolve compiles documents with custom resources. The error is about the documents: no version of the resources makes them
// valid. It compiles once if there are no errors, and again after resources that have some were left out.
func (r *Resolver) Resolve(in Input) (*Resolution, error) {
	a := r.begin(in)
	for {
		merged, found := a.merged()
		if a.leaveOut(found, false) {
			continue // a document takes precedence
		}
		if err := in.Prepare(merged); err != nil {
			return nil, err
		}
		snapshot, err := webhooks.Compile(merged.Spec())
		if err == nil {
			found = snapshot.Warnings()
		} else if list, ok := errors.AsType[diagnostic.List](err); ok {
			found = list
		} else {
			return nil, err
		}
		if a.leaveOut(found, snapshot != nil) {
			continue
		}
		if ofDocuments := a.ofDocuments(found); snapshot == nil || !in.Tolerant && ofDocuments.Err() != nil {
			return nil, cmp.Or(ofDocuments.Err(), found.Err())
		}
		return &Resolution{Config: merged, Snapshot: snapshot, Candidates: a.all, Clustered: in.Clustered}, nil
	}
}

// begin makes each resource a Candidate with its newest version without errors of its own.
func (r *Resolver) begin(in Input) *resolution {
	a := &resolution{Input: in, good: r.good, byName: make(map[string]*Candidate, len(in.Resources))}
	for _, one := range in.Resources {
		if one.Deleting && Permits(one.Kind) {
			continue // its deletion takes back what it permits, whatever finalizer keeps the object
		}
		c := &Candidate{Read: one, use: one, Found: slices.Clone(one.Found)}
		if one.Found.Err() != nil || one.Value == nil {
			c.use = a.previous(c)
		}
		a.all = append(a.all, c)
		a.byName[one.Object()] = c
	}
	slices.SortFunc(a.all, func(a, b *Candidate) int { return cmp.Compare(a.Read.Object(), b.Read.Object()) })
	return a
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
	return a.Documents.With(used)
}

// leaveOut adds diagnostics to the candidates that they are about, and replaces the version of each that has an error by the
// previous one, or by none. It reports whether it has replaced one, so that the rest has to be compiled again. Compiled is true
// if the rest compiles nevertheless.
func (a *resolution) leaveOut(found diagnostic.List, compiled bool) (again bool) {
	for _, one := range a.all {
		one.broken = false
	}
	for _, f := range found {
		if one := a.byName[f.Object]; f.Source == config.ClusterSource && f.Others == "" && one != nil && one.isCurrent() {
			one.note(f)
		}
	}
	left := map[*Candidate]bool{}
	for i := range found {
		f := &found[i]
		if f.Severity != diagnostic.Error {
			continue
		}
		one := a.lastChanged(f, left)
		if one == nil {
			continue
		}
		previous := a.previous(one)
		if previous == nil && (compiled || a.compilesWithoutExpressions(one)) {
			one.broken = true // a policy: its failurePolicy needs what it matches. An exception exempts nothing.
			continue
		}
		if one.isCurrent() && f.Others != "" {
			one.note(conflict(one, f))
		}
		one.use = previous
		left[one], again = true, true
	}
	return again
}

// note adds a diagnostic, once.
func (c *Candidate) note(f diagnostic.Diagnostic) {
	if !slices.Contains(c.Found, f) {
		c.Found = append(c.Found, f)
	}
}

// lastChanged returns, of the candidates that take part in an error, the one that was changed last. All replicas get the same
// answer. It returns nil if only documents take part, or one that was left out since.
func (a *resolution) lastChanged(f *diagnostic.Diagnostic, left map[*Candidate]bool) (last *Candidate) {
	for _, name := range append(strings.Fields(f.Others), f.Object) {
		one := a.byName[name]
		if left[one] {
			return nil
		}
		if one == nil || one.use == nil {
			continue
		}
		if last == nil || cmp.Or(one.use.ChangedAt.Compare(last.use.ChangedAt), cmp.Compare(one.Read.Object(), last.Read.Object())) > 0 {
			last = one
		}
	}
	return last
}

// conflict returns the diagnostic of a candidate about an error in which others take part.
func conflict(one *Candidate, f *diagnostic.Diagnostic) diagnostic.Diagnostic {
	if f.Object == one.Read.Object() {
		return *f
	}
	return diagnostic.Diagnostic{
		Severity: diagnostic.Error, Source: config.ClusterSource, Object: one.Read.Object(), Field: "spec", Hint: f.Hint,
		Message: fmt.Sprintf("breaks %s, and was changed last: %s: %s", f.Object, f.Field, f.Message),
	}
}

// compilesWithoutExpressions reports whether a candidate is a policy that compiles but for its expressions.
func (a *resolution) compilesWithoutExpressions(one *Candidate) bool {
	if _, is := one.use.Value.(*v1alpha1.AdmissionPolicy); !is {
		return false
	}
	alone, _ := a.Documents.With([]*config.Resource{one.use})
	_, err := policy.Compile(policy.Spec{
		AdmissionPolicies: alone.Policy.AdmissionPolicies[len(alone.Policy.AdmissionPolicies)-1:], Configuration: alone.Policy.Configuration, KeepBroken: true,
	})
	return err == nil
}

// ofDocuments returns the diagnostics about documents of the directory.
func (a *resolution) ofDocuments(found diagnostic.List) diagnostic.List {
	return slices.DeleteFunc(slices.Clone(found), func(f diagnostic.Diagnostic) bool {
		return f.Source == config.ClusterSource && a.byName[f.Object] != nil
	})
}

// Permits reports whether objects of a kind allow what is otherwise refused.
func Permits(kind string) bool {
	return kind == "PolicyException" || kind == "PolicyBaseline" || kind == "AccessToken" || kind == "Grant"
}

// previous returns the version to use in place of the one that a candidate has, nil for none: what its author did not mean to permit
// must not be permitted.
func (a *resolution) previous(c *Candidate) *config.Resource {
	good := a.good[c.Read.Object()]
	if good == nil || good.UID != c.Read.UID || good.ResourceID == c.Read.ResourceID || !c.isCurrent() || Permits(c.Read.Kind) {
		return nil
	}
	return good
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
