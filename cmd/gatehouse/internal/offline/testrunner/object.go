package testrunner

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// judgeObject returns in what the object after mutating policies and injection is not as expected.
func judgeObject(expect *v1alpha1.TestExpectation, got *Outcome) (found []Difference) {
	if expect.Object != nil {
		var lines []Line
		compareParts(&lines, "", decoded(expect.Object.Raw), decoded(got.object))
		if len(lines) > 0 {
			found = append(found, Difference{Field: "object", Problem: Different, Lines: lines})
		}
	}
	if expect.Patch == nil {
		return found
	}
	operations, err := jsonpatch.CreatePatch(got.sent, got.object)
	if err != nil {
		text := err.Error()
		return append(found, Difference{Field: "patch", Problem: Missing, Lines: []Line{{Name: "error", Got: &text}}})
	}
	want, came := make([]string, len(expect.Patch)), make([]string, len(operations))
	for i, o := range expect.Patch {
		want[i] = operationText(o.Op, o.Path, valueOf(o.Value))
	}
	for i, o := range operations {
		came[i] = operationText(o.Operation, o.Path, o.Value)
	}
	slices.Sort(want)
	slices.Sort(came)
	return appendList(found, "patch", want, came)
}

// operationText returns an operation of a patch on one line, the path first.
func operationText(op, path string, value any) string {
	if op == "remove" {
		return path + " " + op
	}
	return path + " " + op + " " + textOf(value)
}

// valueOf returns the value of a field, nil for one that is not given.
func valueOf(field *runtime.RawExtension) any {
	if field == nil {
		return nil
	}
	return decoded(field.Raw)
}

// decoded returns the value of a JSON text, nil for one that is empty or invalid, which loading reports.
func decoded(text []byte) (value any) {
	if utiljson.Unmarshal(text, &value) != nil {
		return nil
	}
	return value
}

func textOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// compareParts appends the parts of an expected value that another value does not have, by their paths. Of a map only the fields
// that are expected are compared, and null expects that there is none. An element of a list with a name is expected somewhere in the
// list, and any other list as it is.
func compareParts(lines *[]Line, path string, want, got any) {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			compareParts(lines, strict.Member(path, name), want[name], fields[name])
		}
		return
	case []any:
		elements, ok := got.([]any)
		if !ok {
			break
		}
		if len(want) > 0 && !slices.ContainsFunc(want, func(e any) bool { return elementName(e) == "" }) {
			for _, e := range want {
				i := slices.IndexFunc(elements, func(other any) bool { return elementName(other) == elementName(e) })
				at := fmt.Sprintf("%s[%s]", path, elementName(e))
				if i < 0 {
					compareParts(lines, at, e, nil)
					continue
				}
				compareParts(lines, at, e, elements[i])
			}
			return
		}
		if len(want) != len(elements) {
			break
		}
		for i := range want {
			compareParts(lines, strict.Element(path, i), want[i], elements[i])
		}
		return
	}
	if reflect.DeepEqual(want, got) {
		return
	}
	line := Line{Name: path}
	for value, to := range map[*any]**string{&want: &line.Expected, &got: &line.Got} {
		if *value != nil {
			text := textOf(*value)
			*to = &text
		}
	}
	*lines = append(*lines, line)
}

// elementName returns the name of an element of a list, "" for one without.
func elementName(element any) string {
	fields, _ := element.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}
