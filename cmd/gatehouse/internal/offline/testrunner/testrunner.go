// Package testrunner runs tests of policies and profiles: it reads Test documents, decides every case as the server would,
// and compares the result with the expectation. A case that expects nothing is an error, because it could never fail.
package testrunner

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Case is one case of a Test document. It is immutable.
type Case struct {
	// Source is the file, with the number of the document if it has several.
	Source string
	// Test is the name of the document, or Source if it has none, and Name that of the case.
	Test, Name string
	// Field is the path of the case in the document, as "cases[2]".
	Field string
	// Spec is the request to the API server, before defaults and injection.
	Spec request.Spec
	// Inject reports whether defaults are filled in and sidecars injected.
	Inject bool
	// Now is the time by which exceptions expire, and nil for the real one.
	Now *time.Time
	// About are the policies that the document is about, and nil for all.
	About *About
	// Context is that of the document, and nil if it has none.
	Context *Context
	// Expect is the expected outcome. The verdict is filled in.
	Expect v1alpha1.TestExpectation
	// broken reports whether the request is invalid, which was reported.
	broken bool
}

// Title returns the name by which a case is selected and reported.
func (c *Case) Title() string { return c.Test + "/" + c.Name }
