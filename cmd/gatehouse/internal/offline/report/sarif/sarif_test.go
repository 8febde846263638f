package sarif

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
)

// TestWrite asserts what SARIF demands (chapters 3.13 to 3.28) and what code
// hosting services read.
func TestWrite(t *testing.T) {
	t.Parallel()
	log := Log{Tool: "gatehouse", Version: "v1", URI: "https://example.org", Results: []report.Result{
		{Rule: "b", Description: "about b", Level: report.Error, Message: "one <thing>", File: "deploy/a b.yaml", Line: 7, Object: "Pod/a"},
		{Rule: "a", Description: "about a", Level: report.Note, Message: "two", File: "/srv/x.yaml", Object: "Pod/b", Suppressed: "allowed"},
		{Rule: "b", Description: "not shown", Level: report.Warning, Message: "three", File: "a:b.yaml", Line: 1, Object: "Pod/c"},
	}}
	var out strings.Builder
	if err := log.Write(&out); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(`{
	  "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
	  "version": "2.1.0",
	  "runs": [{
	    "tool": {"driver": {"name": "gatehouse", "version": "v1", "informationUri": "https://example.org", "rules": [
	      {"id": "b", "shortDescription": {"text": "about b"}},
	      {"id": "a", "shortDescription": {"text": "about a"}}
	    ]}},
	    "invocations": [{"executionSuccessful": false}],
	    "columnKind": "unicodeCodePoints",
	    "results": [
	      {"ruleId": "b", "ruleIndex": 0, "level": "error", "message": {"text": "one <thing>"},
	       "locations": [{"physicalLocation": {"artifactLocation": {"uri": "deploy/a%20b.yaml"}, "region": {"startLine": 7}},
	                      "logicalLocations": [{"fullyQualifiedName": "Pod/a", "kind": "object"}]}]},
	      {"ruleId": "a", "ruleIndex": 1, "level": "note", "message": {"text": "two"},
	       "suppressions": [{"kind": "external", "status": "accepted", "justification": "allowed"}],
	       "locations": [{"physicalLocation": {"artifactLocation": {"uri": "file:///srv/x.yaml"}, "region": {"startLine": 1}},
	                      "logicalLocations": [{"fullyQualifiedName": "Pod/b", "kind": "object"}]}]},
	      {"ruleId": "b", "ruleIndex": 0, "level": "warning", "message": {"text": "three"},
	       "locations": [{"physicalLocation": {"artifactLocation": {"uri": "./a:b.yaml"}, "region": {"startLine": 1}},
	                      "logicalLocations": [{"fullyQualifiedName": "Pod/c", "kind": "object"}]}]}
	    ]
	  }]
	}`), &want); err != nil {
		t.Fatal(err)
	}
	shown, expected := indented(t, got), indented(t, want)
	if shown != expected {
		t.Errorf("got\n%s\nwant\n%s", shown, expected)
	}
}

// TestWriteNothing: a log without results says that there are none, and not that
// it does not know.
func TestWriteNothing(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := (&Log{Tool: "gatehouse", Successful: true}).Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"results": []`, `"rules": []`, `"executionSuccessful": true`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in\n%s", want, out.String())
		}
	}
}

func indented(t *testing.T, value any) string {
	t.Helper()
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
