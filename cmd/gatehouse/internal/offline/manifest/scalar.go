package manifest

import (
	"fmt"
	"regexp"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// plain matches texts that need no quotes, by their characters.
var plain = regexp.MustCompile(`^(-{1,2}[A-Za-z]|[A-Za-z0-9_./])[A-Za-z0-9_./@+=$%~:-]*( [A-Za-z0-9_./@+=$%~:-]+)*$`)

// scalar returns a value that is neither object nor array, on one line. In flow style more texts need quotes.
func scalar(v rawjson.Value, flow bool) string {
	if v.Kind() != rawjson.String {
		return string(v)
	}
	return quoted(v.Text(), flow)
}

// quoted returns a text with the quotes that it needs for readers of YAML 1.1 and 1.2.
func quoted(s string, flow bool) string {
	switch {
	case isPlain(s, flow):
		return s
	case needsNoEscape(s) && !strings.Contains(s, "\n") && strings.ContainsAny(s, `"\`):
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	default:
		return doubleQuoted(s)
	}
}

func isPlain(s string, flow bool) bool {
	if !plain.MatchString(s) || strings.Contains(s, ": ") || strings.HasSuffix(s, ":") || (flow && strings.Contains(s, ":")) {
		return false
	}
	for _, unmarshal := range []func([]byte, any) error{yamlv2.Unmarshal, yaml.Unmarshal} {
		var read any
		if err := unmarshal([]byte(s), &read); err != nil || read != s {
			return false
		}
	}
	// Single letters are booleans to other readers of YAML 1.1.
	return len(s) > 1 || strings.IndexByte("ynYN", s[0]) < 0
}

// needsNoEscape reports whether a text of several lines can be in YAML without escapes.
func needsNoEscape(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r != '\n' && !isPrintable(r) }) < 0
}

// isPrintable reports whether YAML takes a character as it is, and not as a line break (https://yaml.org/spec/1.1/#id868524).
func isPrintable(r rune) bool {
	switch r {
	case '\u2028', '\u2029', '\ufeff':
		return false
	default:
		return 0x20 <= r && r <= 0x7e || 0xa0 <= r && r <= 0xd7ff || 0xe000 <= r && r <= 0xfffd || r >= 0x10000
	}
}

// doubleQuoted returns a JSON string with escapes for characters that YAML does not take.
func doubleQuoted(s string) string {
	text := rawjson.AppendString(nil, s)
	if needsNoEscape(string(text)) {
		return string(text)
	}
	var b strings.Builder
	for _, r := range string(text) {
		if isPrintable(r) {
			b.WriteRune(r)
		} else {
			_, _ = fmt.Fprintf(&b, `\u%04x`, r) // to memory
		}
	}
	return b.String()
}

// literal returns the indicator and the lines of a text as a block scalar, and false for a text that is better written otherwise.
func literal(s string) (indicator string, lines []string, ok bool) {
	body := strings.TrimSuffix(s, "\n")
	if !strings.Contains(body, "\n") || !needsNoEscape(s) || strings.HasPrefix(body, "\n") || strings.HasPrefix(body, " ") || strings.HasSuffix(body, "\n") {
		return "", nil, false
	}
	indicator = "|"
	if body == s {
		indicator = "|-"
	}
	lines = strings.Split(body, "\n")
	for _, line := range lines {
		if line != "" && strings.TrimSpace(line) == "" {
			return "", nil, false // editors take away what cannot be seen
		}
	}
	return indicator, lines, true
}
