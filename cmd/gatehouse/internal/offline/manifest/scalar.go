package manifest

import (
	"regexp"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// plain are texts that need no quotes, as far as their characters tell.
var plain = regexp.MustCompile(`^(-{1,2}[A-Za-z]|[A-Za-z0-9_./])[A-Za-z0-9_./@+=$%~:-]*( [A-Za-z0-9_./@+=$%~:-]+)*$`)

// scalar is a value that is neither object nor array, on one line. In flow style
// fewer characters go without quotes.
func scalar(v rawjson.Value, flow bool) string {
	if v.Kind() != rawjson.String {
		return string(v)
	}
	return quoted(v.Text(), flow)
}

// quoted is a text with the quotes that it needs: every reader of YAML, old and
// new, must read it as this text.
func quoted(s string, flow bool) string {
	switch {
	case isPlain(s, flow):
		return s
	case printable(s) && !strings.Contains(s, "\n") && strings.ContainsAny(s, `"\`):
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
	// Single letters are booleans to readers of YAML 1.1 other than these two.
	return len(s) > 1 || strings.IndexByte("ynYN", s[0]) < 0
}

// printable reports whether a text can stand in YAML without escapes, on lines.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r != '\n' && !isPrintable(r) }) < 0
}

// isPrintable reports whether YAML takes a character as it is, and takes it for no
// line break (https://yaml.org/spec/1.1/#id868524).
func isPrintable(r rune) bool {
	switch r {
	case '\u2028', '\u2029', '\ufeff':
		return false
	default:
		return 0x20 <= r && r <= 0x7e || 0xa0 <= r && r <= 0xd7ff || 0xe000 <= r && r <= 0xfffd || r >= 0x10000
	}
}

// doubleQuoted is a JSON string with escapes for what YAML does not take.
func doubleQuoted(s string) string {
	const digits = "0123456789abcdef"
	text := rawjson.AppendString(nil, s)
	if printable(string(text)) {
		return string(text)
	}
	var b strings.Builder
	for _, r := range string(text) {
		if isPrintable(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			b.WriteByte(digits[r>>shift&0xf])
		}
	}
	return b.String()
}

// literal are the indicator and the lines of a text that is best written as a
// block: one of several lines, which all of them can be read in. False stands
// for every other text.
func literal(s string) (indicator string, lines []string, ok bool) {
	body := strings.TrimSuffix(s, "\n")
	if !strings.Contains(body, "\n") || !printable(s) || strings.HasPrefix(body, "\n") || strings.HasPrefix(body, " ") || strings.HasSuffix(body, "\n") {
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
