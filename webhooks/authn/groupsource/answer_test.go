package groupsource_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expression, answer string
		want               []string
		err                string
	}{
		"a list":              {"answer.groups", `{"sub":"jane","groups":["b","a"]}`, []string{"b", "a"}, ""},
		"one":                 {"answer.groups", `{"groups":"a"}`, []string{"a"}, ""},
		"none":                {"answer.groups", `{"groups":[]}`, nil, ""},
		"null":                {"answer.groups", `{"groups":null}`, nil, ""},
		"objects":             {"answer.map(g, g.name)", `[{"name":"a"},{"name":"b"}]`, []string{"a", "b"}, ""},
		"some":                {`answer.groups.filter(g, g.startsWith("k8s-"))`, `{"groups":["k8s-a","b"]}`, []string{"k8s-a"}, ""},
		"split":               {`answer.groups.split(",")`, `{"groups":"a,b"}`, []string{"a", "b"}, ""},
		"claims without":      {groupsource.Complete(&v1alpha1.GroupSource{UserInfo: &v1alpha1.UserInfoGroups{}}).Groups, `{"sub":"jane"}`, nil, ""},
		"no such member":      {"answer.groups", `{"group":[]}`, nil, "no such key: groups"},
		"numbers":             {"answer.groups", `{"groups":[1]}`, nil, "does not result in strings"},
		"an object":           {"answer.groups", `{"groups":{"secret":1}}`, nil, "results in map"},
		"a member twice":      {"answer.groups", `{"groups":["a"],"groups":["b"]}`, nil, "a member twice"},
		"no JSON":             {"answer.groups", `<html>secret`, nil, "not JSON"},
		"two values":          {"answer.groups", `{"groups":[]}{}`, nil, "not JSON"},
		"nothing":             {"answer.groups", ``, nil, "not JSON"},
		"too many":            {"answer.groups", `{"groups":["a","b","c","d"]}`, nil, "more than 3 groups"},
		"an expensive answer": {"answer.map(a, answer.map(b, answer.map(c, c)).size().toString())", "[" + strings.Repeat("1,", 1000) + "1]", nil, "compilation"},
		"an expensive answer, in time": {
			`answer.exists(a, answer.exists(b, answer.exists(c, a + b + c == 4))) ? "a" : "b"`,
			"[" + strings.Repeat("1,", 1000) + "1]", nil, "cost limit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mapping, err := groupsource.CompileMapping(test.expression)
			var names []string
			if err == nil {
				names, _, err = mapping.Names(t.Context(), []byte(test.answer), 3)
			}
			if test.err == "" {
				if err != nil || !slices.Equal(names, test.want) {
					t.Errorf("%q, %v", names, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v", err)
			}
		})
	}
}

func FuzzAnswers(f *testing.F) {
	for _, answer := range []string{
		`{"sub":"jane","groups":["a"]}`, `{"value":[{"id":"a","displayName":"b"}],"@odata.nextLink":"https://x"}`, `{"access_token":"t","expires_in":1}`, `[{"name":"a"}]`, `{"groups":{"a":[1e400]}}`,
	} {
		f.Add([]byte(answer))
	}
	var mappings []*groupsource.Mapping
	for _, text := range []string{"has(answer.groups) ? answer.groups : []", "answer.groups", "answer.map(g, g.name)", "answer.groups.split(',')"} {
		mapping, err := groupsource.CompileMapping(text)
		if err != nil {
			f.Fatal(err)
		}
		mappings = append(mappings, mapping)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, mapping := range mappings {
			names, _, err := mapping.Names(t.Context(), answer, 5)
			if len(names) > 5 {
				t.Errorf("%d names, %v", len(names), err)
			}
		}
	})
}
