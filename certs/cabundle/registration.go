// Package cabundle reads and writes the caBundle of webhook configurations, which is what
// an API server trusts.
//
// Watcher keeps named configurations in memory and is a certs.Trust. Publisher
// writes the bundle of certs.Authorities into those that have another one, by
// server-side apply of names and caBundle alone, so that rules, selectors and all other
// fields stay with their managers.
//
// Every replica may run both: a patch has the resourceVersion of the configuration that
// was read before the authorities, so that a stale writer gets a conflict.
package cabundle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/gatehouse-dev/gatehouse/certs/webhookconfig"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Registration names a webhook configuration.
type Registration struct {
	// Kind is "MutatingWebhookConfiguration" or "ValidatingWebhookConfiguration". It
	// is "" for those of the two that exist, at least one.
	Kind string
	// Name is the name of the object.
	Name string
}

// String returns the registration as ParseRegistration reads it.
func (r Registration) String() string {
	for _, k := range webhookconfig.Kinds() {
		if string(k) == r.Kind {
			return prefix(k) + "/" + r.Name
		}
	}
	return r.Name
}

// ParseRegistration reads "NAME" for the configurations of that name, whichever
// exist, and "mutating/NAME" or "validating/NAME" for the one of that kind.
func ParseRegistration(text string) (Registration, error) {
	name := text
	var r Registration
	if before, rest, hasKind := strings.Cut(text, "/"); hasKind {
		name = rest
		var allowed []string
		for _, k := range webhookconfig.Kinds() {
			allowed = append(allowed, prefix(k))
			if prefix(k) == before {
				r.Kind = string(k)
			}
		}
		if r.Kind == "" {
			return Registration{}, fmt.Errorf("registration %s: the kind %s is not known, allowed are %s (hint: mutating/NAME, or NAME alone for whichever exist)", quote(text), quote(before), strings.Join(allowed, " and "))
		}
	}
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return Registration{}, fmt.Errorf("registration %s: the name %s is not that of a webhook configuration: %s (hint: gatehouse)", quote(text), quote(name), wrong[0])
	}
	r.Name = name
	return r, nil
}

// quote returns a value of another client for a message.
func quote(text string) string { return strconv.Quote(truncate.Bytes(text, 80)) }

// target is an object that may or may not exist.
type target struct {
	kind kind
	name string
}

func (t target) String() string { return string(t.kind) + " " + t.name }

// group is targets of which at least one must exist. It holds their indexes.
type group []int

// targetsOf returns what registrations name, each once, and what must exist of it.
func targetsOf(registrations []Registration) (targets []target, groups []group) {
	for _, r := range registrations {
		var g group
		for _, k := range webhookconfig.Kinds() {
			if r.Kind != "" && r.Kind != string(k) {
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
