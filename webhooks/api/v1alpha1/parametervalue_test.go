package v1alpha1_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Whatever is written, the document around it is read, and written again as it
// was.
func TestParameterValue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ written, text, json string }{
		"text":             {`"a\u0041"`, "aA", ""},
		"empty text":       {`""`, "", ""},
		"text of a number": {`"1.10"`, "1.10", ""},
		"integer":          {`5`, "5", `5`},
		"large integer":    {`12345678901234567890`, "12345678901234567890", `12345678901234567890`},
		"number":           {`1.10`, "1.10", `1.10`},
		"boolean":          {`false`, "false", `false`},
		"list":             {`["a","b"]`, "a,b", `["a","b"]`},
		"empty list":       {`[]`, "", `[]`},
		"mixed list":       {`["a",1]`, "", `["a",1]`},
		"list with null":   {`["a",null]`, "", `["a",null]`},
		"nested list":      {`[["a"]]`, "", `[["a"]]`},
		"mapping":          {`{"a":"b"}`, "", `{"a":"b"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got v1alpha1.SidecarParameter
			document := `{"name":"x","type":"string","default":` + tc.written + `}`
			if err := json.Unmarshal([]byte(`{"default":`+tc.written+`,"name":"x","type":"string"}`), &got); err != nil {
				t.Fatal(err)
			}
			if want := (v1alpha1.ParameterValue{Text: tc.text, JSON: tc.json}); got.Default == nil || *got.Default != want || got.Type != v1alpha1.StringParameter {
				t.Errorf("got %+v, want %+v", got.Default, want)
			}
			if name == "text" {
				document = `{"name":"x","type":"string","default":"aA"}`
			}
			if out, err := json.Marshal(got); err != nil || string(out) != document {
				t.Errorf("it is written as %s (%v), want %s", out, err, document)
			}
		})
	}
	got := v1alpha1.SidecarParameter{}
	if err := json.Unmarshal([]byte(`{"default":null}`), &got); err != nil || got.Default != nil {
		t.Errorf("null gives %+v, %v", got.Default, err)
	}
}

// FuzzParameterValue: every value is read, and written with the same meaning.
func FuzzParameterValue(f *testing.F) {
	for _, seed := range []string{`"a"`, `1e3`, `true`, `["a",null]`, `{"a":[1]}`, ` [ ] `, `"\ud800"`, `null`, `-`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want any
		if json.Unmarshal(data, &want) != nil {
			return
		}
		var (
			value v1alpha1.ParameterValue
			got   any
		)
		if err := json.Unmarshal(data, &value); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		out, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is written as %s: %v", data, out, err)
		}
	})
}
