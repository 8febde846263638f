package policylint

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// soon is how long before its end an exception is reported: two weeks, in which
// people who are there can do what it waits for.
const soon = 14 * 24 * time.Hour

// exception lints one exception.
func (l *linter) exception(d document, spec *v1alpha1.PolicyExceptionSpec) {
	path := field.NewPath("spec")
	if at := spec.ExpiresAt; at != nil {
		left := at.Sub(l.in.Now)
		switch when := at.UTC().Format(time.RFC3339); {
		case left <= 0:
			d.warn(Expired, path.Child("expiresAt"), "remove the exception", "the exception expired at %s and does nothing", when)
		case left <= soon:
			d.warn(Expires, path.Child("expiresAt"), "do what it waits for, or give it more time", "the exception expires at %s, in %s", when, days(left))
		}
	}
	contradiction(d, spec.Match.ObjectSelector, path.Child("match", "objectSelector"))
	if at := path.Child("match", "namespaceSelector"); !contradiction(d, spec.Match.NamespaceSelector, at) {
		l.namespaceSelector(d, spec.Match.NamespaceSelector, at)
	}
}

// days is a time in whole days, and hours in the last one.
func days(left time.Duration) string {
	if left < 24*time.Hour {
		return plural(int(left/time.Hour), "hour", "hours")
	}
	return plural(int(left/(24*time.Hour)), "day", "days")
}
