// Package hint has hints about names in CEL expressions that are not declared.
package hint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

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

// behind returns the text behind a place, as far as it is on the line of the place.
func behind(at diagnostic.Place) string {
	lines := strings.Split(at.Text, "\n")
	if at.Line < 1 || at.Line > len(lines) {
		return ""
	}
	line := []rune(lines[at.Line-1])
	return string(line[min(max(at.Column-1, 0), len(line)):])
}
