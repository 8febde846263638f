// Package celhint has hints for common mistakes in CEL expressions: names and operators of other languages.
package celhint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

const (
	loops        = "loops are written list.all(x, …), list.exists(x, …), list.filter(x, …) and list.map(x, …)"
	conditionals = "write CONDITION ? VALUE : OTHER"
	fieldTest    = "write has(object.field) for a field, and 'key' in map for a key"
	pattern      = "patterns are written value.matches('…')"
	noNull       = "compare with null, as in value == null, or test a field with has(…)"
)

// functions returns hints for functions of other languages.
func functions() map[string]string {
	return map[string]string{
		"any": meant("exists"), "some": meant("exists"), "every": meant("all"), "forEach": loops, "forall": meant("all"),
		"len": meant("size"), "length": meant("size"), "count": meant("size"),
		"includes": meant("contains"), "include": meant("contains"), "containsKey": fieldTest, "hasKey": fieldTest, "hasField": fieldTest, "exist": fieldTest,
		"isNull": noNull, "isNil": noNull, "isNone": noNull, "notNull": noNull, "defined": fieldTest, "isDefined": fieldTest, "isSet": fieldTest, "has": fieldTest,
		"isEmpty": "write size(value) == 0", "empty": "write size(value) == 0", "not": "negation is written !, as in !(a == b)",
		"regex": meant("matches"), "regexMatch": meant("matches"), "match": meant("matches"), "test": meant("matches"), "search": meant("matches"), "like": meant("matches"),
		"toLowerCase": meant("lowerAscii"), "toLower": meant("lowerAscii"), "lower": meant("lowerAscii"), "lowercase": meant("lowerAscii"),
		"toUpperCase": meant("upperAscii"), "toUpper": meant("upperAscii"), "upper": meant("upperAscii"), "uppercase": meant("upperAscii"),
		"toString": meant("string"), "str": meant("string"), "parseInt": meant("int"), "toInt": meant("int"), "number": meant("int"), "float": meant("double"),
		"strip": meant("trim"), "trimSpace": meant("trim"), "substr": meant("substring"), "slice": meant("substring"),
		"beginsWith": meant("startsWith"), "hasPrefix": meant("startsWith"), "prefix": meant("startsWith"), "hasSuffix": meant("endsWith"), "suffix": meant("endsWith"),
		"concat": "strings and lists are joined with +", "append": "strings and lists are joined with +", "push": "strings and lists are joined with +",
		"default": meant("orValue"), "getOrDefault": meant("orValue"), "coalesce": meant("orValue"), "if": conditionals,
	}
}

// macros returns functions that CEL knows behind a list or map only, with a variable.
func macros() []string {
	return []string{"all", "exists", "exists_one", "filter", "map"}
}

// usual returns functions that are misspelt most.
func usual() []string {
	return []string{
		"startsWith", "endsWith", "contains", "matches", "size", "string", "int", "double", "quantity", "duration", "timestamp", "lowerAscii", "upperAscii",
		"split", "join", "replace", "substring", "trim", "format", "isSorted", "indexOf", "find", "findAll", "orValue", "hasValue", "filter", "map", "all",
		"exists", "exists_one", "has", "isQuantity", "isGreaterThan", "isLessThan", "compareTo", "url", "getHost", "ip", "cidr", "semver",
	}
}

// Function returns a hint for a function that is not declared.
func Function(name string) string {
	if hint := functions()[name]; hint != "" {
		return hint
	}
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

// Value returns a hint for a name that is a value in other languages.
func Value(name string) string {
	switch name {
	case "None", "nil", "undefined", "NULL", "Null":
		return meant("null")
	case "True", "TRUE":
		return meant("true")
	case "False", "FALSE":
		return meant("false")
	default:
		return ""
	}
}

// IsCall reports whether the place of a name that is not declared is that of a call.
func IsCall(at diagnostic.Place) bool {
	_, rest := split(at)
	return strings.HasPrefix(rest, "(")
}

// LoopVariable returns the variable of a macro at the place of its call, such as x in any(x, x > 1), and "" if there is none.
func LoopVariable(at diagnostic.Place) string {
	_, rest := split(at)
	if found := loopVariable.FindStringSubmatch(rest); found != nil {
		return found[1]
	}
	return ""
}

// PartOfKey returns a hint for a name behind a slash or hyphen, as in labels.example.com/team, and "" for another.
func PartOfKey(at diagnostic.Place) string {
	if before, _ := split(at); partOfKey.MatchString(before) {
		return "write a key with such characters in brackets, as in labels['example.com/team']"
	}
	return ""
}

var (
	loopVariable = regexp.MustCompile(`^\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*,`)
	partOfKey    = regexp.MustCompile(`\.[A-Za-z0-9_]+[/-]$`)
	unrecognized = regexp.MustCompile(`token recognition error at: '(.*)'`)
	unexpected   = regexp.MustCompile(`(?s)(?:mismatched|extraneous) input '(.+?)' expecting`)
	reserved     = regexp.MustCompile(`^reserved identifier: (\w+)`)
	lastWord     = regexp.MustCompile(`(\w+|[^\w\s]+)\s*$`)
)

type tokenHint struct{ token, hint string }

// tokenHints returns hints for tokens that CEL does not have. The first one that a token begins with counts.
func tokenHints() []tokenHint {
	const quotes = `write straight quotes: " or '`
	return []tokenHint{
		{"=>", "implication is written !a || b; " + loops},
		{"=~", pattern},
		{"~", pattern},
		{"=", "equality is written =="},
		{"&", "and is written &&"},
		{"|", "or is written ||"},
		{"$", "names have no $"},
		{"#", "comments begin with //"},
		{"“", quotes},
		{"”", quotes},
		{"‘", quotes},
		{"’", quotes},
	}
}

const negation = "negation is written !, as in !(x in list)"

// wordHint returns a hint for a word in the place of an operator.
func wordHint(word string) string {
	switch word {
	case "and":
		return "and is written &&"
	case "or":
		return "or is written ||"
	case "is":
		return noNull
	case "not":
		return negation
	case "like":
		return pattern
	case "then", "else", "if", "unless":
		return conditionals
	default:
		return ""
	}
}

// Reserved returns the name in CEL's message about a reserved word, and "" for another message.
func Reserved(message string) string {
	if found := reserved.FindStringSubmatch(message); found != nil {
		return found[1]
	}
	return ""
}

// ReservedWord returns a hint for a word that CEL reserves.
func ReservedWord(word string) string {
	switch word {
	case "if", "else":
		return conditionals
	case "for", "while", "loop", "break", "continue":
		return loops
	default:
		return ""
	}
}

// Syntax returns a hint for one of CEL's syntax errors, and "" if there is none.
func Syntax(message string, at diagnostic.Place) string {
	before, _ := split(at)
	if found := unrecognized.FindStringSubmatch(message); found != nil {
		for _, t := range tokenHints() {
			if strings.HasPrefix(found[1], t.token) {
				return t.hint
			}
		}
		return ""
	}
	found := unexpected.FindStringSubmatch(message)
	if found == nil {
		return ""
	}
	last := lastWord.FindStringSubmatch(before)
	follows := func(word string) bool { return last != nil && last[1] == word }
	switch input := found[1]; {
	case follows("not"):
		return negation
	case input == ">" && follows("<"):
		return "inequality is written !="
	case input == "*" && follows("["):
		return "for elements of a list write list.all(x, …) or list.exists(x, …)"
	case strings.Contains(at.Text, "?.") && strings.HasSuffix(message, "expecting ':'"):
		return "an optional field is written object.?field"
	case slices.Contains(usual(), input):
		return fmt.Sprintf("functions are called as in value.%s(…)", input)
	default:
		return wordHint(input)
	}
}

// split returns the text before and behind a place, as far as it is on the line of the place.
func split(at diagnostic.Place) (before, behind string) {
	lines := strings.Split(at.Text, "\n")
	if at.Line < 1 || at.Line > len(lines) {
		return "", ""
	}
	line := []rune(lines[at.Line-1])
	column := min(max(at.Column-1, 0), len(line))
	return string(line[:column]), string(line[column:])
}

func meant(name string) string { return fmt.Sprintf("did you mean %q?", name) }
