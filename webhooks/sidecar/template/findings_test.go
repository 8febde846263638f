package template_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Everything that is wrong with a profile is said, once, with its place, in a
// fixed order. UPDATE_GOLDEN=1 writes what is said now.
func TestFindings(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("testdata", "broken.json"))
	if err != nil {
		t.Fatal(err)
	}
	var profile struct {
		Parameters []v1alpha1.SidecarParameter
		Presets    []v1alpha1.SidecarPreset
		Conditions []string
		Template   json.RawMessage
	}
	if err := json.Unmarshal(raw, &profile); err != nil {
		t.Fatal(err)
	}
	s, found := environment(t).Scope(new(celbound.Budget), "broken", profile.Parameters, profile.Presets)
	if s == nil {
		t.Fatal("there is no scope, so that nothing is said about expressions")
	}
	for i, expression := range profile.Conditions {
		_, more := s.Condition(fmt.Sprintf("spec.match.matchConditions[%d].expression", i), expression)
		found = append(found, more...)
	}
	tree, more := s.Tree("spec.template.spec", profile.Template, reflect.TypeFor[podSpec]())
	if tree != nil {
		t.Error("there is a tree")
	}
	found = append(found, more...)
	for _, f := range found {
		if f.Severity != diagnostic.Error || f.Field == "" || f.Source != "" || f.Object != "" {
			t.Errorf("%#v", f)
		}
	}
	got := []byte(lines(found) + "\n")
	golden := filepath.Join("testdata", "broken.findings")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTreeFindings(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for name, tc := range map[string]struct {
		raw, want string
		into      reflect.Type
	}{
		"not JSON":       {`{`, `t: invalid JSON at byte 1: unexpected end`, reflect.TypeFor[any]()},
		"not UTF-8":      {"\"\xff\"", `t: invalid JSON at byte 1: invalid UTF-8`, reflect.TypeFor[any]()},
		"given twice":    {`{"a":{"b":1,"b":2}}`, `t: "b" occurs twice in one mapping (hint: remove one of the two)`, reflect.TypeFor[any]()},
		"no placeholder": {`["${a"]`, `t[0]: "${a" has ${ without a closing } (hint: write $${ for a literal ${)`, reflect.TypeFor[any]()},
		"too many":       {`[` + strings.Repeat(`"${params.on}${params.on}",`, 500) + `"${params.on}"]`, `t: has 1001 placeholders: at most 1000 are allowed`, reflect.TypeFor[any]()},
		"too long":       {`"${'` + strings.Repeat("x", 10<<10) + `'}"`, `t: the expression is longer than 10240 bytes`, reflect.TypeFor[any]()},
		"too deep":       {`"${` + strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300) + `}"`, `t: 1:1 in "` + strings.Repeat("(", 80) + `…": expression recursion limit exceeded: 250`, reflect.TypeFor[any]()},
		"too large": {
			`"${optional.of(1)` + strings.Repeat(".optMap(x, x)", 40) + `.value()}"`,
			`t: "optional.of(1).optMap(x, x).optMap(x, x).optMap(x, x).optMap(x, x).optMap(x, x).…": this expression is too large to check: with optMap and other macros expanded, it can have at most 1584 parts` +
				` (hint: split it, nest lists and maps less, call optMap less often, or repeat less in patterns)`, reflect.TypeFor[any](),
		},
		"too costly": {
			`"${[` + strings.Repeat("1,", 100) + `1].map(a, [` + strings.Repeat("1,", 100) + `1].map(b, [` + strings.Repeat("1,", 100) + `1].map(c, a))).size()}"`,
			`t: "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1…" costs at least 13733901: at most 1000000 is allowed`, reflect.TypeFor[any](),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, found := s.Tree("t", []byte(tc.raw), tc.into)
			if got := lines(found); tree != nil || got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// A profile's author writes the variables of shells into commands, and is told
// how to.
func TestShellVariables(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for name, tc := range map[string]struct{ text, want string }{
		"a name":                     {`echo ${HOME}`, `t: 1:1 in "HOME": "HOME" is not declared (hint: for a shell variable write $${HOME})`},
		"a name of two words":        {`${_HOME_1}`, `t: 1:1 in "_HOME_1": "_HOME_1" is not declared (hint: for a shell variable write $${_HOME_1})`},
		"a name in small letters":    {`${dir}/x`, `t: 1:1 in "dir": "dir" is not declared (hint: for a shell variable write $${dir})`},
		"a default":                  {`${CMD:-run}`, `t: 1:4 in "CMD:-run": the expression is incomplete (hint: for a shell variable write $${CMD:-run})`},
		"a default in small letters": {`${cmd:-run}`, `t: 1:4 in "cmd:-run": the expression is incomplete (hint: for a shell variable write $${cmd:-run})`},
		"the length":                 {`${#x}`, `t: 1:1 in "#x": Syntax error: token recognition error at: '#' (hint: for a shell variable write $${#x})`},
		"a prefix":                   {`${x##*/}`, `t: 1:2 in "x##*/": Syntax error: token recognition error at: '#' (hint: for a shell variable write $${x##*/})`},
		"a suffix":                   {`${x%.*}`, `t: 1:4 in "x%.*": Syntax error: no viable alternative at input '.*' (hint: for a shell variable write $${x%.*})`},
		"a suffix of any length":     {`${x%%.*}`, `t: 1:3 in "x%%.*": Syntax error: extraneous input '%' (hint: for a shell variable write $${x%%.*})`},
		"an array":                   {`${x[@]}`, `t: 1:3 in "x[@]": Syntax error: token recognition error at: '@' (hint: for a shell variable write $${x[@]})`},
		"all arguments":              {`sh ${@}`, `t: 1:1 in "@": Syntax error: token recognition error at: '@' (hint: for a shell variable write $${@})`},
		"no placeholder":             {`${x//a`, `t: "${x//a" has ${ without a closing } (hint: write $${ for a literal ${)`},

		"a parameter":         {`${level}`, `t: 1:1 in "level": "level" is not declared (hint: did you mean "params.level"?)`},
		"a variable of ours":  {`${pods}`, `t: 1:1 in "pods": "pods" is not declared (hint: did you mean "pod"? the names here are pod, namespace, params, presets)`},
		"a broken expression": {`${pod.metadata.name = 'a'}`, `t: 1:19 in "pod.metadata.name = 'a'": Syntax error: token recognition error at: '= ' (hint: write == to compare)`},
		"a function":          {`${getenv('HOME')}`, `t: 1:7 in "getenv('HOME')": "getenv" is not declared (hint: functions are such as size, contains, startsWith, matches, all and exists)`},
		"double braces":       {`${{ params.level }}`, `t: 1:16 in "{ params.level }": Syntax error: mismatched input '}' expecting ':' (hint: write ${…} with one brace: it holds a CEL expression)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, found := s.Tree("t", rawjson.AppendString(nil, tc.text), reflect.TypeFor[string]())
			if got := lines(found); tree != nil || got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}
