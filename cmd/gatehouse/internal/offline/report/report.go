// Package report has what check and lint report for programs. Its packages write it in the formats that these read.
package report

// Level is the severity of a result.
type Level string

// The levels.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Note    Level = "note"
)

// Result is a result for one place.
type Result struct {
	// Rule is the rule of the result, and Description describes it.
	Rule, Description string
	Level             Level
	Message           string
	// File is the path of the file, with slashes. Line and Column count from 1, and are 0 where they are not known. Column counts
	// characters.
	File         string
	Line, Column int
	// Rendered reports whether File is a template: Line and Column count in what it renders to.
	Rendered bool
	// Object is the name of the object, such as "shop/Deployment/checkout".
	Object string
	// Suppressed is why the result does not count, or empty.
	Suppressed string
}
