package active

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/status"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// resolver finds out which version of each custom resource can be used beside the
// documents of a directory, so that one with errors does not keep all others from
// being used.
//
// Of an object with errors the last version without is used, if there was one in
// this process, and it is an object that restricts rather than permits: an exception
// or an access token with errors does nothing. Of a policy whose expressions never
// compiled, its failurePolicy decides for what it matches, as in the API server. Of
// several objects that cannot be used together, the one that was changed last has the
// error: that is the same in every replica, whenever it started. A document of the
// directory never has, as long as a resource can be blamed.
type resolver struct {
	// prepare makes a configuration one that can be compiled. It may be called several
	// times for one settling.
	prepare func(*config.Config) error
	// good are the versions that were last in use without errors, by the name of the
	// object in findings.
	good map[string]*config.Resource
}

// candidate is what becomes of one custom resource.
type candidate struct {
	read *config.Resource
	// use is the version that is compiled, nil for none.
	use *config.Resource
	// found is what is wrong with the version that was read.
	found diagnostic.List
	// broken tells that it has errors and is compiled all the same.
	broken bool
}

// current tells whether the version that was read is the one that is compiled.
func (s *candidate) current() bool { return sameVersion(s.use, s.read) }

// sameVersion tells whether two readings are of the same version of an object. Every
// reading of all objects makes new ones.
func sameVersion(a, b *config.Resource) bool {
	return a != nil && b != nil && a.ResourceID == b.ResourceID
}

// Resolution is a configuration that can be used.
type Resolution struct {
	config    *config.Config
	snapshot  *webhooks.Snapshot
	standings []*candidate
	// leftOut are errors of documents that are left out for them.
	leftOut diagnostic.List
}

// resolution is one settling in progress.
type resolution struct {
	*resolver
	base   *config.Config
	all    []*candidate
	byName map[string]*candidate
	// tolerant tells that documents with errors need not keep the rest from being used.
	tolerant bool
	// without are the profiles of the directory that are left out, and why.
	without map[string]bool
	leftOut diagnostic.List
}

// settle compiles the documents of a directory with the custom resources. The error
// is about the documents: no version of the resources makes them usable. Documents
// with expressions that do not compile, and profiles that need a resource which is not
// there, are an error too, if tolerant is false.
func (s *resolver) settle(base *config.Config, resources []*config.Resource, tolerant bool) (*Resolution, error) {
	a := &resolution{resolver: s, base: base, byName: make(map[string]*candidate, len(resources)), tolerant: tolerant, without: map[string]bool{}}
	for _, r := range resources {
		if r.Deleting && permits(r.Kind) {
			continue // Whoever deletes it takes back what it permits, whatever waits for it to be gone.
		}
		one := &candidate{read: r, use: r, found: slices.Clone(r.Found)}
		if r.Found.Err() != nil || r.Value == nil {
			one.use = s.before(r)
		}
		a.all = append(a.all, one)
		a.byName[r.Object()] = one
	}
	slices.SortFunc(a.all, func(a, b *candidate) int { return cmp.Compare(a.read.Object(), b.read.Object()) })
	of, found, err := a.whole()
	if err != nil {
		return nil, err
	}
	if found.Err() != nil {
		a.note(found)
		// Profiles and tokens are what cannot be used together; to find out which of them,
		// they alone are compiled again and again, and not the policies.
		a.resolve(func(c *config.Config) error { _, err := sidecar.Compile(c.Sidecar); return err })
		a.resolve(func(c *config.Config) error {
			if err := s.prepare(c); err != nil {
				return err
			}
			_, err := authn.Compile(c.Authn)
			return err
		})
		if of, found, err = a.policies(); err != nil {
			return nil, err
		}
	}
	if of == nil {
		return nil, found.Err()
	}
	if ofDocuments := a.ofDocuments(found); !tolerant && ofDocuments.Err() != nil {
		return nil, ofDocuments.Err()
	}
	a.note(found)
	return of, nil
}

// note gives each resource what is said of the version that was read. What others
// take part in too is for who has to mend it.
func (a *resolution) note(found diagnostic.List) {
	for _, f := range found {
		one := a.byName[f.Object]
		if f.Source == config.ClusterSource && f.Others == "" && one != nil && one.current() && !slices.Contains(one.found, f) {
			one.found = append(one.found, f)
		}
	}
}

// merged is the configuration of the versions that stand.
func (a *resolution) merged() (*config.Config, diagnostic.List) {
	used := make([]*config.Resource, 0, len(a.all))
	for _, one := range a.all {
		if one.use != nil {
			used = append(used, one.use)
		}
	}
	return a.base.WithoutProfiles(a.without).With(used)
}

// whole compiles everything. Without a result there are errors among the findings.
func (a *resolution) whole() (*Resolution, diagnostic.List, error) {
	merged, found := a.merged()
	if err := a.prepare(merged); err != nil {
		return nil, nil, err
	}
	snapshot, err := webhooks.Compile(webhooks.Spec{Sidecar: merged.Sidecar, Policy: merged.Policy, Authn: merged.Authn})
	if err != nil {
		list, ok := errors.AsType[diagnostic.List](err)
		if !ok {
			return nil, nil, err
		}
		return nil, append(found, list...), nil
	}
	return &Resolution{merged, snapshot, a.all, a.leftOut}, append(found, snapshot.Warnings()...), nil
}

// resolve takes back versions until a part compiles, or nothing more can be taken
// back.
func (a *resolution) resolve(compile func(*config.Config) error) {
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

// policies compiles everything, and takes back versions of policies and what belongs
// to them until that is possible.
func (a *resolution) policies() (of *Resolution, found diagnostic.List, err error) {
	for {
		of, found, err = a.whole()
		if err != nil || !a.blamePolicies(found, of != nil) {
			return of, found, err
		}
	}
}

// blame takes back one version for each error that is not of a policy, and tells
// whether there was any.
func (a *resolution) blame(found diagnostic.List) (again bool) {
	a.note(found)
	touched := map[*candidate]bool{}
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
			a.takeBack(victim, &f)
		case a.tolerant && strings.HasPrefix(f.Object, "SidecarProfile/") && !a.without[f.Object]:
			// It may need a resource that is gone, or was not read yet.
			a.without[f.Object], again = true, true
			a.leftOut = append(a.leftOut, f)
		}
	}
	return again
}

// victim is the resource that is to mend an error: of those that take part in it, the
// one that was changed last. Known tells that one of them was taken back already.
func (a *resolution) victim(f *diagnostic.Diagnostic, touched map[*candidate]bool) (victim *candidate, known bool) {
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

// changedLater has the same answer in every replica.
func changedLater(a, b *config.Resource) bool {
	return cmp.Or(a.ChangedAt.Compare(b.ChangedAt), cmp.Compare(a.Object(), b.Object())) > 0
}

// takeBack takes a version back, to the one before it or to none.
func (a *resolution) takeBack(one *candidate, f *diagnostic.Diagnostic) {
	current := one.current()
	if current {
		said := *f
		if f.Object != one.read.Object() {
			said = diagnostic.Diagnostic{
				Severity: diagnostic.Error, Source: config.ClusterSource, Object: one.read.Object(), Field: "spec", Hint: f.Hint,
				Message: fmt.Sprintf("makes %s wrong, and was changed last: %s: %s", f.Object, f.Field, f.Message),
			}
		}
		if !slices.Contains(one.found, said) {
			one.found = append(one.found, said)
		}
	}
	before := a.before(one.read)
	if !current || before == nil || sameVersion(before, one.read) {
		before = nil
	}
	one.use = before
}

// blamePolicies takes back versions with errors of policies, bindings and exceptions,
// and tells whether there was any. A policy whose expressions do not compile stays
// unless there is a version before: that it matches is what its failurePolicy needs.
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
		before := a.before(one.read)
		switch {
		case one.current() && before != nil && !sameVersion(before, one.read):
			a.takeBack(one, &f)
			again = true
		case compiled || a.compilesKept(one):
			one.broken = true
		default:
			a.takeBack(one, &f)
			again = true
		}
	}
	return again
}

// compilesKept tells whether a policy compiles but for its expressions.
func (a *resolution) compilesKept(one *candidate) bool {
	alone, _ := a.base.With([]*config.Resource{one.use})
	_, err := policy.Compile(policy.Spec{
		AdmissionPolicies: alone.Policy.AdmissionPolicies[len(alone.Policy.AdmissionPolicies)-1:], Configuration: alone.Policy.Configuration, KeepBroken: true,
	})
	return err == nil
}

// ofDocuments are findings about documents of the directory.
func (a *resolution) ofDocuments(found diagnostic.List) diagnostic.List {
	var list diagnostic.List
	for _, f := range found {
		if f.Source != config.ClusterSource || a.byName[f.Object] == nil {
			list = append(list, f)
		}
	}
	return list
}

// permits tells kinds whose objects let somebody in or something pass.
func permits(kind string) bool { return kind == "PolicyException" || kind == "AccessToken" }

// before is the version of a resource to use in the place of one with errors, nil
// for none.
func (s *resolver) before(r *config.Resource) *config.Resource {
	good := s.good[r.Object()]
	switch {
	case good == nil || good.UID != r.UID:
		return nil
	case permits(r.Kind):
		return nil // They permit: what their author did not mean to permit must not be.
	default:
		return good
	}
}

// keep notes what is in use without errors.
func (s *resolver) keep(of *Resolution) {
	s.good = make(map[string]*config.Resource, len(of.standings))
	for _, one := range of.standings {
		if one.use != nil && !one.broken {
			s.good[one.read.Object()] = one.use
		}
	}
}

// report is what the people of the cluster are told. NotSent may be nil.
func (of *Resolution) report(notSent func(object any) []string) status.Report {
	report := status.Report{Outcomes: make([]status.Outcome, 0, len(of.standings))}
	digest := sha256.New()
	for _, one := range of.standings {
		o := status.Outcome{
			Object:   status.Object{Kind: one.read.Kind, Namespace: one.read.Namespace, Name: one.read.Name, UID: one.read.UID, Generation: one.read.Generation},
			Use:      status.Current,
			Findings: one.found,
		}
		switch {
		case one.use == nil || one.broken:
			o.Use = status.Unused
		case !one.current():
			o.Use = status.Previous
		}
		if notSent != nil && one.read.Found.Err() == nil {
			o.NotSent = notSent(one.read.Value)
		}
		// What is in use of one with errors depends on when a replica started, and must not
		// make it look behind in everything else.
		_, _ = fmt.Fprintln(digest, one.read.Object(), one.read.UID, one.read.Generation, one.read.Sum, o.Use == status.Current)
		report.Outcomes = append(report.Outcomes, o)
	}
	report.Digest = hex.EncodeToString(digest.Sum(nil))
	return report
}

// findings are those of the snapshot, with all about the resources as they were
// read.
func (of *Resolution) findings(snapshot diagnostic.List) diagnostic.List {
	list := slices.DeleteFunc(snapshot, func(f diagnostic.Diagnostic) bool { return f.Source == config.ClusterSource })
	list = append(list, of.leftOut...)
	for _, one := range of.standings {
		list = append(list, one.found...)
	}
	list.Sort()
	return list
}

// counts are how many resources there are, by kind and by which version is in use.
func (of *Resolution) counts() map[string]map[string]int {
	const current, previous, unused = "current", "previous", "unused"
	counts := map[string]map[string]int{}
	for _, kind := range config.ResourceKinds() {
		counts[kind.Kind] = map[string]int{current: 0, previous: 0, unused: 0}
	}
	for _, one := range of.standings {
		switch {
		case one.use == nil || one.broken:
			counts[one.read.Kind][unused]++
		case !one.current():
			counts[one.read.Kind][previous]++
		default:
			counts[one.read.Kind][current]++
		}
	}
	return counts
}

// sameResources tells whether two readings gave the same versions of the same
// objects, changed at the same times. The times alone may decide which of two is used,
// and a replica that starts knows only those of now.
func sameResources(a, b []*config.Resource) bool {
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
