package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
)

// What is too much is declined before it is translated, with the name of the limit.
func TestLimits(t *testing.T) {
	t.Parallel()
	repeat := func(form, separator string, n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = strings.ReplaceAll(form, "N", fmt.Sprint(i))
		}
		return strings.Join(all, separator)
	}
	condition := `{key: "{{ request.object.metadata.name }}", operator: Equals, value: aN}`
	for name, test := range map[string]struct{ rule, limit string }{
		"alternatives":           {`validate: {pattern: {spec: {containers: [{image: "` + repeat("aN*", " | ", 20_000) + `"}]}}}`, "10000"},
		"conjunctions":           {`validate: {pattern: {spec: {containers: [{image: "` + repeat("!aN*", " & ", 2_000) + `"}]}}}`, "1000"},
		"keys":                   {"validate: {pattern: {metadata: {labels: {" + repeat(`kN: "?*"`, ", ", 30_000) + "}}}}", "10000"},
		"some keys":              {"validate: {pattern: {metadata: {labels: {" + repeat(`kN: "?*"`, ", ", 1_000) + "}}}}", "1000"},
		"patterns":               {"validate: {anyPattern: [" + repeat("{spec: {nodeName: aN}}", ", ", 1_000) + "]}", "1000"},
		"conditions":             {"validate: {deny: {conditions: {any: [" + repeat(condition, ", ", 1_000) + "]}}}", "1000"},
		"preconditions":          {"preconditions: {all: [" + repeat(condition, ", ", 20_000) + "]}\nvalidate: {pattern: {spec: {hostPID: true}}}", "10000"},
		"filters":                {"match: {any: [" + repeat("{resources: {kinds: [Pod], names: [aN]}}", ", ", 500) + "]}\nvalidate: {pattern: {spec: {hostPID: true}}}", "1000"},
		"alternatives of a path": {"validate: {deny: {conditions: {any: [{key: \"{{ " + repeat("a", " || ", 2_000) + " }}\", operator: Equals, value: x}]}}}", "1000"},
		"variables":              {`validate: {message: "` + strings.Repeat("{{ a ", 2_000) + strings.Repeat("}}", 2_000) + `", pattern: {spec: {hostPID: true}}}`, "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := convert.Convert(read(t, clusterPolicy(test.rule)), convert.Options{})
			if len(out.Documents) > 0 || len(out.Results) != 1 || len(out.Results[0].Problems) != 1 ||
				!strings.HasSuffix(out.Results[0].Problems[0].Construct, "of more than "+test.limit+" values and alternatives") {
				t.Errorf("%d documents, %.1000s", len(out.Documents), fmt.Sprintf("%+v", out.Results))
			}
		})
	}
}

// FuzzConvert converts documents that nobody has written. Each has a result, and what is converted compiles and is not much larger.
func FuzzConvert(f *testing.F) {
	for _, row := range rows() {
		f.Add(clusterPolicy(row.rule))
	}
	workloads, err := manifest.NewWorkloads()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		objects := manifest.Read("a.yaml", []byte(text), workloads).Objects
		out := convert.Convert(objects, convert.Options{})
		size := 0
		for _, d := range out.Documents {
			size += len(d.Text)
		}
		const most = 256 << 10 // for each rule: the largest expression, its variables and its mutations
		if size > most*(len(out.Results)+1) {
			t.Errorf("%d bytes became %d", len(text), size)
		}
		for _, r := range out.Results {
			if r.Status == convert.Not && len(r.Problems) == 0 {
				t.Errorf("%s: not converted without a reason", r.Policy)
			}
		}
	})
}
