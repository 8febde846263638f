// Package sarif is as much of the Static Analysis Results Interchange Format,
// version 2.1.0, as it takes to tell code hosting services what is wrong in which
// line of a manifest:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/sarif-v2.1.0-os.html.
package sarif

import (
	"encoding/json"
	"io"
	"net/url"
	"path"
)

// The schema and version of every Log.
const (
	schema  = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	version = "2.1.0"
)

// Level says how much a result matters.
type Level string

// The levels.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Note    Level = "note"
)

// Log is a file with the results of one run of one tool.
type Log struct {
	// Tool, Version and URI are the tool's name, version and home page.
	Tool, Version, URI string
	// Results are in the order in which they are written.
	Results []Result
	// Notifications say what the tool could not tell. With any the run has not
	// been successful.
	Notifications []Notification
}

// Notification is why the tool could not tell something about one place.
type Notification struct {
	Message string
	// File and Line are as in Result.
	File string
	Line int
}

// Result is one remark about one place.
type Result struct {
	// Rule is what all results of this kind have in common, and Description says
	// what that is. The description of the first result of a rule is written.
	Rule, Description string
	Level             Level
	Message           string
	// File is the path of the file, with slashes, and Line the line in it, from
	// 1.
	File string
	Line int
	// Object names what stands there, such as "shop/Deployment/checkout".
	Object string
	// Fingerprint is equal in two logs for results that are the same, wherever in
	// a file they stand.
	Fingerprint string
	// Suppressed says why the result does not count. It counts if it is empty.
	Suppressed string
}

// Write writes the log as JSON.
func (l *Log) Write(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(l.document())
}

func (l *Log) document() *document {
	r := run{
		Tool:        tool{driver{Name: l.Tool, Version: l.Version, InformationURI: l.URI, Rules: []rule{}}},
		Invocations: []invocation{{ExecutionSuccessful: len(l.Notifications) == 0}},
		ColumnKind:  "utf16CodeUnits",
		Results:     make([]result, 0, len(l.Results)),
	}
	for _, n := range l.Notifications {
		r.Invocations[0].Notifications = append(r.Invocations[0].Notifications, notification{
			Level: Error, Message: text{n.Message},
			Locations: []location{{PhysicalLocation: physicalLocation{artifactLocation{uri(n.File)}, region{max(n.Line, 1)}}}},
		})
	}
	indexes := make(map[string]int)
	for i := range l.Results {
		given := &l.Results[i]
		index, known := indexes[given.Rule]
		if !known {
			index = len(r.Tool.Driver.Rules)
			indexes[given.Rule] = index
			r.Tool.Driver.Rules = append(r.Tool.Driver.Rules, rule{ID: given.Rule, ShortDescription: text{given.Description}})
		}
		r.Results = append(r.Results, given.element(index))
	}
	return &document{Schema: schema, Version: version, Runs: []run{r}}
}

func (r *Result) element(index int) result {
	e := result{
		RuleID: r.Rule, RuleIndex: index, Level: r.Level, Message: text{r.Message},
		Locations: []location{{
			PhysicalLocation: physicalLocation{artifactLocation{uri(r.File)}, region{max(r.Line, 1)}},
			LogicalLocations: []logicalLocation{{FullyQualifiedName: r.Object, Kind: "object"}},
		}},
		PartialFingerprints: map[string]string{"gatehouse/v1": r.Fingerprint},
	}
	if r.Suppressed != "" {
		e.Suppressions = []suppression{{Kind: "external", Status: "accepted", Justification: r.Suppressed}}
	}
	return e
}

// uri is the path of a file as a reference: relative to wherever the log is
// looked at, unless it is absolute.
func uri(file string) string {
	if path.IsAbs(file) {
		return (&url.URL{Scheme: "file", Path: file}).String()
	}
	return (&url.URL{Path: file}).String()
}

type document struct {
	Schema  string `json:"$schema"`
	Version string `json:"version"`
	Runs    []run  `json:"runs"`
}

type run struct {
	Tool        tool         `json:"tool"`
	Invocations []invocation `json:"invocations"`
	ColumnKind  string       `json:"columnKind"`
	Results     []result     `json:"results"`
}

type tool struct {
	Driver driver `json:"driver"`
}

type driver struct {
	Name           string `json:"name"`
	Version        string `json:"version,omitempty"`
	InformationURI string `json:"informationUri,omitempty"`
	Rules          []rule `json:"rules"`
}

type rule struct {
	ID               string `json:"id"`
	ShortDescription text   `json:"shortDescription"`
}

type text struct {
	Text string `json:"text"`
}

type invocation struct {
	ExecutionSuccessful bool           `json:"executionSuccessful"`
	Notifications       []notification `json:"toolExecutionNotifications,omitempty"`
}

type notification struct {
	Level     Level      `json:"level"`
	Message   text       `json:"message"`
	Locations []location `json:"locations"`
}

type result struct {
	RuleID              string            `json:"ruleId"`
	RuleIndex           int               `json:"ruleIndex"`
	Level               Level             `json:"level"`
	Message             text              `json:"message"`
	Locations           []location        `json:"locations"`
	PartialFingerprints map[string]string `json:"partialFingerprints"`
	Suppressions        []suppression     `json:"suppressions,omitempty"`
}

type location struct {
	PhysicalLocation physicalLocation  `json:"physicalLocation"`
	LogicalLocations []logicalLocation `json:"logicalLocations,omitempty"`
}

type physicalLocation struct {
	ArtifactLocation artifactLocation `json:"artifactLocation"`
	Region           region           `json:"region"`
}

type artifactLocation struct {
	URI string `json:"uri"`
}

type region struct {
	StartLine int `json:"startLine"`
}

type logicalLocation struct {
	FullyQualifiedName string `json:"fullyQualifiedName"`
	Kind               string `json:"kind"`
}

type suppression struct {
	Kind          string `json:"kind"`
	Status        string `json:"status"`
	Justification string `json:"justification"`
}
