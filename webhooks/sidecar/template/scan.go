package template

import "strings"

// part is a piece of a text: characters that stand for themselves, or the
// expression of a placeholder.
type part struct {
	text        string
	placeholder bool
}

// unterminatedError is about a placeholder that does not end.
type unterminatedError struct {
	rest string
}

func (*unterminatedError) Error() string { return "has ${ without a closing }" }

// hasPlaceholder reports whether the text is more than characters that stand for
// themselves. A text that split refuses is.
func hasPlaceholder(text string) bool {
	parts, err := split(text)
	if err != nil {
		return true
	}
	for _, p := range parts {
		if p.placeholder {
			return true
		}
	}
	return false
}

// split takes a text apart at its placeholders. $${ stands for ${, and any other
// $ for itself: $$${a} is a $ and the text ${a}. Neighbouring characters are one
// part, and the empty text is none.
func split(text string) ([]part, error) {
	var (
		parts   []part
		literal strings.Builder
	)
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, part{text: literal.String()})
			literal.Reset()
		}
	}
	for {
		at := strings.IndexByte(text, '$')
		if at < 0 {
			literal.WriteString(text)
			flush()
			return parts, nil
		}
		literal.WriteString(text[:at])
		text = text[at:]
		switch {
		case strings.HasPrefix(text, "$${"):
			literal.WriteString("${")
			text = text[len("$${"):]
		case strings.HasPrefix(text, "${"):
			flush()
			text = text[len("${"):]
			end := closing(text)
			if end < 0 {
				return nil, &unterminatedError{text}
			}
			parts = append(parts, part{text: text[:end], placeholder: true})
			text = text[end+1:]
		default:
			literal.WriteByte('$')
			text = text[1:]
		}
	}
}

// Part is a piece of a text of a template: characters that stand for themselves, or the expression of a placeholder, as ForCEL gives it.
type Part struct {
	Text         string
	IsExpression bool
}

// Parts takes a text apart at its placeholders. The error is about one that does not end.
func Parts(text string) ([]Part, error) {
	parts, err := split(text)
	if err != nil {
		return nil, err
	}
	out := make([]Part, len(parts))
	for i, p := range parts {
		out[i] = Part{p.text, p.placeholder}
		if p.placeholder {
			out[i].Text = ForCEL(p.text)
		}
	}
	return out, nil
}

// ForCEL returns an expression as CEL reads it: the variable namespace, a word that CEL reserves, is NamespaceVariable.
func ForCEL(expression string) string {
	out, _ := rename(expression)
	return out
}

// closing returns the index of the brace that ends the expression with which the text
// begins, or -1. Braces in CEL's strings and comments do not count, and those of
// its maps come in pairs.
func closing(text string) int {
	depth := 0
	for i := 0; i < len(text); {
		end, kind := token(text, i)
		if kind == symbolToken {
			switch text[i] {
			case '{':
				depth++
			case '}':
				if depth == 0 {
					return i
				}
				depth--
			}
		}
		i = end
	}
	return -1
}

type tokenKind byte

const (
	spaceToken tokenKind = iota // with comments
	nameToken
	stringToken
	symbolToken // any other single byte, those of numbers among them
)

// token returns where the token of CEL that begins at i ends, and its kind. It follows
// the lexer of CEL as far as it takes to tell what is inside of a string: a
// string that does not end goes on to the end of the text.
func token(text string, i int) (end int, kind tokenKind) {
	switch b := text[i]; {
	case isSpace(b):
		for i < len(text) && isSpace(text[i]) {
			i++
		}
		return i, spaceToken
	case strings.HasPrefix(text[i:], "//"):
		if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
			return i + n + 1, spaceToken
		}
		return len(text), spaceToken
	case isNameStart(b):
		end = i + 1
		for end < len(text) && (isNameStart(text[end]) || isDigit(text[end])) {
			end++
		}
		if end < len(text) && (text[end] == '"' || text[end] == '\'') {
			switch text[i:end] {
			case "r", "R", "br", "bR", "Br", "BR":
				return stringEnd(text, end, true), stringToken
			case "b", "B":
				return stringEnd(text, end, false), stringToken
			}
		}
		return end, nameToken
	case b == '"' || b == '\'':
		return stringEnd(text, i, false), stringToken
	case b == '`':
		// An escaped name, which cannot hold a brace but can hold //.
		if n := strings.IndexByte(text[i+1:], '`'); n >= 0 {
			return i + n + 2, nameToken
		}
	}
	return i + 1, symbolToken
}

// stringEnd returns where the string ends whose first quote is at i.
func stringEnd(text string, i int, raw bool) int {
	quote := text[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(text[i:], triple) {
		quote = triple
	}
	i += len(quote)
	for i < len(text) {
		switch {
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote)
		case text[i] == '\\' && !raw:
			i += 2
		default:
			i++
		}
	}
	return len(text)
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' || b == '\f' }
func isDigit(b byte) bool { return '0' <= b && b <= '9' }
func isNameStart(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b == '_'
}

// NamespaceVariable is what the variable namespace is called in CEL, where that
// name is reserved and cannot be a variable's. It is as long, so that columns in
// messages are right.
const NamespaceVariable = "namespac_"

// rename makes the variable namespace the one that CEL knows. A field of that
// name stays as it is. False means that the expression uses the other name.
func rename(expression string) (string, bool) {
	var out strings.Builder
	afterDot := false
	for i := 0; i < len(expression); {
		end, kind := token(expression, i)
		text := expression[i:end]
		i = end
		switch {
		case kind == nameToken && !afterDot && text == "namespace":
			text = NamespaceVariable
		case kind == nameToken && !afterDot && text == NamespaceVariable:
			return expression, false
		}
		switch {
		case kind == spaceToken:
		case kind == symbolToken && text == "?":
			// a.?namespace is a field still.
		default:
			afterDot = kind == symbolToken && text == "."
		}
		out.WriteString(text)
	}
	return out.String(), true
}
