package lint_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestDiagnostics lints the policies in testdata/diagnostics.txtar.
func TestDiagnostics(t *testing.T) {
	t.Parallel()
	const path = "testdata/diagnostics.txtar"
	archive, err := txtar.ParseFile(path)
	must(t, err)
	for i := 0; i+1 < len(archive.Files); i += 2 {
		spec, want := archive.Files[i], &archive.Files[i+1]
		got := bare(lintText(t, policyWith(string(spec.Data))))
		if os.Getenv("UPDATE_GOLDEN") != "" {
			want.Data = []byte(got)
		}
		if name, isSpec := strings.CutSuffix(spec.Name, ".yaml"); !isSpec || want.Name != name+".txt" || got != string(want.Data) {
			t.Errorf("%s: got\n%s\nwant\n%s", spec.Name, got, want.Data)
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		must(t, os.WriteFile(path, txtar.Format(archive), 0o600))
	}
}

// bare returns diagnostics without policy and field, one a line.
func bare(found string) string {
	var b strings.Builder
	for line := range strings.Lines(found) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		_, message, _ := strings.Cut(rest, ": ")
		b.WriteString(message + "\n")
	}
	return b.String()
}

// TestBeingDeleted has which conditions and validations spare what is being
// deleted.
func TestBeingDeleted(t *testing.T) {
	t.Parallel()
	condition := func(expression string) string {
		return fmt.Sprintf("matchConditions: [{name: c, expression: %q}]\n", expression) + validations("object.metadata.name != ''")
	}
	variables := func(expression, rule string) string {
		return fmt.Sprintf("variables: [{name: leaving, expression: %q}, {name: again, expression: variables.leaving}]\n", expression) + validations(rule)
	}
	const deleted = "has(object.metadata.deletionTimestamp)"
	for name, c := range map[string]struct {
		spec string
		want bool
	}{
		"a condition":                    {condition("!" + deleted), true},
		"of the old object":              {condition("!has(oldObject.metadata.deletionTimestamp)"), true},
		"of both":                        {condition("!(has(oldObject.metadata.deletionTimestamp) && " + deleted + ")"), true},
		"optional":                       {condition("!object.metadata.?deletionTimestamp.hasValue()"), true},
		"optional of all":                {condition("!object.?metadata.?deletionTimestamp.hasValue()"), true},
		"optional, none":                 {condition("object.metadata.?deletionTimestamp == optional.none()"), true},
		"in":                             {condition("!('deletionTimestamp' in object.metadata)"), true},
		"and":                            {condition("object.metadata.name != 'x' && !" + deleted), true},
		"or":                             {condition("object.metadata.name == 'x' || !" + deleted), true},
		"or, on creation":                {condition("oldObject == null || !" + deleted), true},
		"or, by operation":               {condition("request.operation == 'CREATE' || !" + deleted), true},
		"or, by person":                  {condition("request.userInfo.username == 'x' || !" + deleted), true},
		"chosen":                         {condition(deleted + " ? object.metadata.name == 'x' : true"), true},
		"a validation":                   {validations(deleted + " || object.spec.hostname != ''"), true},
		"a validation, chosen":           {validations(deleted + " ? true : object.spec.hostname != ''"), true},
		"a validation, by a variable":    {variables(deleted, "variables.leaving || object.spec.?hostname.orValue('') != ''"), true},
		"a validation, by two variables": {variables(deleted, "variables.again || object.spec.?hostname.orValue('') != ''"), true},
		"a variable for what is there":   {variables("object.metadata.?deletionTimestamp", "variables.leaving.hasValue() || object.spec.?hostname.orValue('') != ''"), true},
		"only what is being deleted":     {condition(deleted), false},
		"nothing while it is deleted":    {validations("!" + deleted + " || object.spec == oldObject.spec"), false},
		"refused while it is deleted":    {validations("!" + deleted), false},
		"if the rest changes":            {condition("oldObject == null || !has(oldObject.metadata.deletionTimestamp) || object.spec != oldObject.spec"), false},
		"if the rest changes, negated":   {condition("!(oldObject != null && has(oldObject.metadata.deletionTimestamp) && object.spec == oldObject.spec)"), false},
		"if one of two things changes":   {condition("!(" + deleted + " && object.spec == oldObject.spec && object.metadata.?labels == oldObject.metadata.?labels)"), false},
		"if it keeps finalizers":         {condition("!" + deleted + " || has(object.metadata.finalizers)"), false},
		"by a variable that compares":    {variables("object.spec != oldObject.spec", "!("+deleted+" && variables.leaving)"), false},
		"a variable that no rule is of":  {variables(deleted, "object.spec.?hostname.orValue('') != ''"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := lintText(t, with("{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods]}", c.spec))
			if got := strings.Count(found, "[being-deleted]"); got > 1 || (got == 1) != c.want {
				t.Errorf("found\n%s", found)
			}
		})
	}
}

// TestUnknownVariables checks what reads a variable whose expression does not
// compile as if the variable could be anything, and nothing else so.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	const variables = `variables:
- {name: unparsed, expression: "object.spec ="}
- {name: unchecked, expression: "objct.spec"}
- {name: chained, expression: "variables.unchecked.x + 1"}
`
	for expression, want := range map[string]string{
		"variables.unparsed.a.b > 3 && variables.unchecked.c == variables.chained": "",
		"variables.unparsed.a > 3 && object.spec.hstNetwork":                       `1:40 in "variables.unparsed.a > 3 && object.spec.hstNetwork": for v1 Pod: there is no field "hstNetwork" in core/v1.PodSpec (hint: did you mean "hostNetwork"?) [type]`,
	} {
		if got := bare(lintText(t, with("", variables+validations(expression)))); strings.TrimSuffix(got, "\n") != want {
			t.Errorf("%s: got\n%s\nwant\n%s", expression, got, want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
