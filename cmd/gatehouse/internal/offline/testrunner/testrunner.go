// Package testrunner is what "gatehouse test" does: it reads the Test documents that
// people keep beside their policies and profiles, has every case decided as the
// server would decide it, and compares what came with what was expected.
//
// It is as strict as the rest of the configuration, because a test that cannot
// fail is worse than none: a case that expects nothing, or something that no
// answer can be, is an error and not a test that passes.
package testrunner

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Case is one case of a Test document, ready to be decided. It is not changed
// any more.
type Case struct {
	// Source is the file, and the number of the document in it where it has
	// several.
	Source string
	// Test is the name of the document, or Source if it has none, and Name that of
	// the case in it.
	Test, Name string
	// Field is the path of the case in the document, as "cases[2]".
	Field string
	// Spec is what is asked of the API server, before defaults and injection.
	Spec request.Spec
	// Inject reports whether defaults and sidecars come first.
	Inject bool
	// Now is the time by which exceptions expire, and nil for the real one.
	Now *time.Time
	// About are the policies that the document is about, and nil for all.
	About *About
	// Context is that of the document, and nil for that of the configuration
	// alone.
	Context *Context
	// Expect is what must become of it. The verdict is filled in.
	Expect v1alpha1.TestExpectation
	// broken says that something is wrong with what is asked, and was reported.
	broken bool
}

// Title is the name by which a case is selected and reported: that of its
// document and its own.
func (c *Case) Title() string { return c.Test + "/" + c.Name }
