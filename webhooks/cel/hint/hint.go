// Package hint has hints about names in CEL expressions that are not declared.
package hint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// macros returns functions that CEL knows behind a list or map only, with a variable.
func macros() []string {
	return []string{"all", "exists", "exists_one", "filter", "map"}
}

// usual returns functions that are misspelt most.
func usual() []string {
	return []string{
		"startsWith", "endsWith", "contains", "matches", "size", "string", "int", "double", "quantity", "duration", "timestamp", "lowerAscii", "upperAscii",
		"split", "join", "replace", "substring", "trim", "format", "isSorted", "indexOf", "find", "findAll", "orValue", "hasValue", "filter", "map", "all",
		"exists", "exists_one", "isQuantity", "isGreaterThan", "isLessThan", "compareTo", "url", "getHost", "ip", "cidr", "semver",
	}
}

// Function returns a hint for a function that is not declared.
func Function(name string) string {
	switch {
	case slices.Contains(macros(), name):
		return fmt.Sprintf("write it behind a list or map with a variable, as in list.%s(x, …)", name)
	case slices.Contains(usual(), name):
		return "it needs a later celCompatibilityVersion"
	}
	if hint := diagnostic.DidYouMean(name, usual()...); hint != "" {
		return hint
	}
	return "functions are such as size, contains, startsWith, matches, all and exists"
}

// IsCall reports whether the place of a name that is not declared is that of a call.
func IsCall(at diagnostic.Place) bool {
	return strings.HasPrefix(behind(at), "(")
}

// LoopVariable returns the variable of a macro at the place of its call, such as x in any(x, x > 1), and "" if there is none.
func LoopVariable(at diagnostic.Place) string {
	if found := loopVariable.FindStringSubmatch(behind(at)); found != nil {
		return found[1]
	}
	return ""
}

var (
	loopVariable = regexp.MustCompile(`^\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*,`)
	reserved     = regexp.MustCompile(`^reserved identifier: (\w+)`)
)

// Reserved returns the name in CEL's message about a reserved word, and "" for another message.
func Reserved(message string) string {
	if found := reserved.FindStringSubmatch(message); found != nil {
		return found[1]
	}
	return ""
}

// mistake is what another language has, and CEL has not.
type mistake struct {
	// pattern has a NUL at the place at which CEL fails.
	pattern *regexp.Regexp
	hint    string
}

//nolint:gochecknoglobals // a table that nobody changes
var mistakes = sync.OnceValue(func() (all []mistake) {
	for _, of := range [][2]string{
		{`\(\s*\w+\s*@=>`, "write a comma behind the variable, as in list.filter(x, …)"},
		{`@=>`, "for an implication write !a || b"},
		{`@(=~|~|like\b|matches\b)`, "write text.matches('pattern')"},
		{`@=`, "write == to compare"},
		{`@(&|and\b)`, "write && for and"},
		{`@(\||or\b)`, "write || for or"},
		{`<@>`, "write != for not equal"},
		{`\bnot @|@not\b`, "write ! for not, as in !(x in list)"},
		{`@is\b`, "write == null or != null"},
		{`@[“”‘’]`, `write straight quotes: ' or "`},
		{`\[@\*`, "for all elements write list.all(x, …), for any list.exists(x, …)"},
		{`\w\?\.[a-zA-Z].*@`, "for a field that may be absent write .?field"},
	} {
		all = append(all, mistake{regexp.MustCompile(strings.ReplaceAll(of[0], "@", "\x00")), of[1]})
	}
	return all
})

// Syntax returns a hint for a syntax error at a place: what CEL has for what another language has there, and "" for anything else.
func Syntax(at diagnostic.Place) string {
	rest, lines := behind(at), strings.Split(at.Text, "\n")
	text := strings.TrimSuffix(lines[min(max(at.Line, 1), len(lines))-1], rest) + "\x00" + rest
	for _, m := range mistakes() {
		if m.pattern.MatchString(text) {
			return m.hint
		}
	}
	return ""
}

// behind returns the text behind a place, as far as it is on the line of the place.
func behind(at diagnostic.Place) string {
	lines := strings.Split(at.Text, "\n")
	if at.Line < 1 || at.Line > len(lines) {
		return ""
	}
	line := []rune(lines[at.Line-1])
	return string(line[min(max(at.Column-1, 0), len(line)):])
}
