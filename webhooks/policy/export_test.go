package policy

import "github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"

// ReadsOfCheck returns what a check reads of a pod, and of the names of its annotations, nil if that is not known.
func ReadsOfCheck(check string) (*expression.Reads, string) {
	of := readsOfChecks()[check]
	return of.Reads, of.annotations
}
