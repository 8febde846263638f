// Package cabundle reads back what an API server has been told to trust, the
// caBundle of webhook configurations, and writes it.
//
// Watcher keeps named configurations in memory and is a certs.Trust. Publisher
// writes the bundle of certs.Authorities into those that have another one, by
// server-side apply of names and caBundle and nothing else, so that rules,
// selectors and everything else stay with whoever manages them.
//
// Every replica may run both: a writer that is behind loses, because what it
// writes carries the resourceVersion of the configuration that it read before it
// read the authorities.
package cabundle

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
)

// Registration names a webhook configuration.
type Registration struct {
	// Kind is "MutatingWebhookConfiguration" or "ValidatingWebhookConfiguration". It
	// is "" for those of the two that exist, at least one.
	Kind string
	// Name is the name of the object.
	Name string
}

// String is the registration as ParseRegistration reads it.
func (r Registration) String() string {
	for _, k := range kinds() {
		if k.name == r.Kind {
			return k.short + "/" + r.Name
		}
	}
	return r.Name
}

// ParseRegistration reads "NAME" for the configurations of that name, whichever
// exist, and "mutating/NAME" or "validating/NAME" for the one of that kind.
func ParseRegistration(text string) (Registration, error) {
	prefix, name, hasKind := strings.Cut(text, "/")
	if !hasKind {
		prefix, name = "", text
	}
	var r Registration
	if hasKind {
		var allowed []string
		for _, k := range kinds() {
			allowed = append(allowed, k.short)
			if k.short == prefix {
				r.Kind = k.name
			}
		}
		if r.Kind == "" {
			return Registration{}, fmt.Errorf("registration %s: the kind %s is not known, allowed are %s (hint: mutating/NAME, or NAME alone for whichever exist)", quote(text), quote(prefix), strings.Join(allowed, " and "))
		}
	}
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return Registration{}, fmt.Errorf("registration %s: the name %s is not that of a webhook configuration: %s (hint: gatehouse)", quote(text), quote(name), wrong[0])
	}
	r.Name = name
	return r, nil
}

// quote is text that somebody typed, as messages show it.
func quote(text string) string {
	const longest = 80
	if len(text) > longest {
		return fmt.Sprintf("%q…", text[:longest])
	}
	return fmt.Sprintf("%q", text)
}

// target is an object that may or may not exist.
type target struct {
	kind kind
	name string
}

func (t target) String() string { return t.kind.name + " " + t.name }

// group is targets of which at least one must exist. It holds their indexes.
type group []int

// targetsOf are what registrations name, each once, and what must exist of them.
func targetsOf(registrations []Registration) ([]target, []group) {
	var (
		targets []target
		groups  []group
	)
	for _, r := range registrations {
		var g group
		for _, k := range kinds() {
			if r.Kind != "" && r.Kind != k.name {
				continue
			}
			t := target{kind: k, name: r.Name}
			i := slices.Index(targets, t)
			if i < 0 {
				i = len(targets)
				targets = append(targets, t)
			}
			g = append(g, i)
		}
		if !slices.ContainsFunc(groups, func(o group) bool { return slices.Equal(o, g) }) {
			groups = append(groups, g)
		}
	}
	return targets, groups
}
