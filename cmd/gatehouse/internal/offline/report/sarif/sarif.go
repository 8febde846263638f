// Package sarif writes results for code hosting services in the Static Analysis Results Interchange Format, version 2.1.0:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/sarif-v2.1.0-os.html.
package sarif

import (
	"io"
	"net/url"
	"path"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/internal/jsonout"
)

// The schema and version of every Log.
const (
	schema  = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	version = "2.1.0"
)

// Log is a file with the results of one run of one tool.
type Log struct {
	// Tool, Version and URI are the tool's name, version and home page.
	Tool, Version, URI string
	// Results are in the order in which they are written.
	Results []report.Result
	// Successful reports whether the tool could decide everything.
	Successful bool
}

// Write writes the log as JSON.
func (l *Log) Write(out io.Writer) error {
	return jsonout.Encode(out, "  ", l.document())
}

func (l *Log) document() *document {
	r := run{
		Tool:        tool{driver{Name: l.Tool, Version: l.Version, InformationURI: l.URI, Rules: []rule{}}},
		Invocations: []invocation{{ExecutionSuccessful: l.Successful}},
		ColumnKind:  "unicodeCodePoints",
		Results:     make([]result, 0, len(l.Results)),
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
		r.Results = append(r.Results, element(given, index))
	}
	return &document{Schema: schema, Version: version, Runs: []run{r}}
}

func element(r *report.Result, index int) result {
	e := result{
		RuleID: r.Rule, RuleIndex: index, Level: r.Level, Message: text{r.Message},
		Locations: []location{{
			PhysicalLocation: physicalLocation{artifactLocation{uri(r.File)}, region{max(r.Line, 1), r.Column}},
			LogicalLocations: []logicalLocation{{FullyQualifiedName: r.Object, Kind: "object"}},
		}},
	}
	if r.Suppressed != "" {
		e.Suppressions = []suppression{{Kind: "external", Status: "accepted", Justification: r.Suppressed}}
	}
	return e
}

// uri returns the path of a file as a URI reference.
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
	ExecutionSuccessful bool `json:"executionSuccessful"`
}

type result struct {
	RuleID       string        `json:"ruleId"`
	RuleIndex    int           `json:"ruleIndex"`
	Level        report.Level  `json:"level"`
	Message      text          `json:"message"`
	Locations    []location    `json:"locations"`
	Suppressions []suppression `json:"suppressions,omitempty"`
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
	StartLine   int `json:"startLine"`
	StartColumn int `json:"startColumn,omitempty"`
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
