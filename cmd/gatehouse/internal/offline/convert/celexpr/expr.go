// Package celexpr builds CEL expressions that people read: constants are folded, parentheses stand where they are needed, and a long
// expression is broken at its logical operators.
package celexpr

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Expr is a CEL expression. The zero Expr is none. It is immutable.
type Expr struct {
	kind kind
	// text is that of an atom, an operator or the name of a function.
	text string
	args []Expr
}

// kind is the form of an expression, in the order of how tightly it binds.
type kind uint8

const (
	none kind = iota
	ternary
	or
	and
	relation
	sum
	unary
	atom   // text
	call   // args[0].text(args[1:]...)
	global // text(args...)
	member // args[0] + text
	has    // has(args[0] + text)
	list
)

// True and False are the constants.
//
//nolint:gochecknoglobals // constants
var (
	True  = Raw("true")
	False = Raw("false")
)

// Raw returns an atom: a name, a literal, or text that needs no parentheses.
func Raw(text string) Expr { return Expr{kind: atom, text: text} }

// Str returns a string literal.
func Str(value string) Expr { return Raw(Quote(value)) }

// Quote returns a string as a CEL literal. Raw strings keep the backslashes of regular expressions readable.
func Quote(value string) string {
	printable := !strings.ContainsFunc(value, func(r rune) bool { return !strconv.IsPrint(r) || r == '\uFFFD' })
	if strings.Contains(value, `\`) && printable {
		for _, quote := range []string{`"`, `'`} {
			if !strings.Contains(value, quote) && !strings.HasSuffix(value, `\`) {
				return "r" + quote + value + quote
			}
		}
	}
	if strings.Contains(value, `"`) && !strings.ContainsAny(value, `'\`) && printable {
		return "'" + value + "'"
	}
	return strconv.Quote(value)
}

// Int returns an integer literal.
func Int(value int64) Expr { return Raw(strconv.FormatInt(value, 10)) }

// Bool returns a constant.
func Bool(value bool) Expr { return Raw(strconv.FormatBool(value)) }

// List returns a list.
func List(items ...Expr) Expr { return Expr{kind: list, args: items} }

// Literal returns a JSON value as a literal.
func Literal(value any) Expr { return Build(value, Str) }

// Build is like Literal, with what a function returns in place of the texts and names in the value.
func Build(value any, text func(string) Expr) Expr {
	switch v := value.(type) {
	case nil:
		return Raw("null")
	case bool:
		return Bool(v)
	case string:
		return text(v)
	case int64:
		return Int(v)
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.ContainsRune(text, '.') {
			text += ".0"
		}
		return Raw(text)
	case []any:
		items := make([]Expr, len(v))
		for i, item := range v {
			items[i] = Build(item, text)
		}
		return List(ofOneType(items)...)
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		values := make([]Expr, len(v))
		for i, key := range keys {
			values[i] = Build(v[key], text)
		}
		var parts []string
		for i, value := range ofOneType(values) {
			parts = append(parts, text(keys[i]).String()+": "+value.String())
		}
		return Raw("{" + strings.Join(parts, ", ") + "}")
	default:
		return Expr{}
	}
}

// ofOneType returns the values of a list or map, in which their types must not differ.
func ofOneType(items []Expr) []Expr {
	if len(byType(items)) > 1 {
		for i, item := range items {
			items[i] = Func("dyn", item)
		}
	}
	return items
}

// IsZero reports whether there is no expression.
func (e Expr) IsZero() bool { return e.kind == none }

// IsTrue and IsFalse report whether the expression is that constant.
func (e Expr) IsTrue() bool { return e.kind == atom && e.text == "true" }

// IsFalse is like IsTrue.
func (e Expr) IsFalse() bool { return e.kind == atom && e.text == "false" }

// Equal reports whether two expressions have the same text.
func (e Expr) Equal(other Expr) bool { return e.String() == other.String() }

// Mentions reports whether the text of the expression has a part.
func (e Expr) Mentions(part string) bool { return strings.Contains(e.String(), part) }

// And returns a conjunction.
func And(all ...Expr) Expr { return logical(and, "&&", True, False, all) }

// Or returns a disjunction.
func Or(all ...Expr) Expr { return logical(or, "||", False, True, all) }

// logical joins operands without repetitions. Neutral is what an operand may be without an effect, and deciding is what the result is
// as soon as an operand is that.
func logical(of kind, operator string, neutral, deciding Expr, all []Expr) Expr {
	var kept []Expr
	texts := map[string]bool{neutral.text: true}
	for _, e := range all {
		operands := []Expr{e}
		if e.kind == of {
			operands = e.args
		}
		for _, e := range operands {
			switch text := e.String(); {
			case text == deciding.text:
				return deciding
			case !e.IsZero() && !texts[text]:
				texts[text], kept = true, append(kept, e)
			}
		}
	}
	switch len(kept) {
	case 0:
		return neutral
	case 1:
		return kept[0]
	default:
		return Expr{kind: of, text: operator, args: kept}
	}
}

// Not returns a negation.
func Not(e Expr) Expr {
	switch {
	case e.IsTrue():
		return False
	case e.IsFalse():
		return True
	case e.kind == unary && e.text == "!":
		return e.args[0]
	case e.kind == relation && e.text == "==":
		return Rel(e.args[0], "!=", e.args[1])
	case e.kind == relation && e.text == "!=":
		return Eq(e.args[0], e.args[1])
	default:
		return Expr{kind: unary, text: "!", args: []Expr{e}}
	}
}

// Rel returns a comparison: ==, !=, <, <=, > or >=, or in.
func Rel(left Expr, operator string, right Expr) Expr {
	return Expr{kind: relation, text: operator, args: []Expr{left, right}}
}

// Eq returns a comparison with ==.
func Eq(left, right Expr) Expr { return Rel(left, "==", right) }

// In reports whether a value is one of some constants. Of one it is a comparison, and of several types one of each.
func In(value Expr, items ...Expr) Expr {
	var all []Expr
	for _, same := range byType(items) {
		if len(same) == 1 {
			all = append(all, Eq(value, same[0]))
		} else {
			all = append(all, Rel(value, "in", List(same...)))
		}
	}
	return Or(all...)
}

// byType returns constants apart by their types, as the first ones come.
func byType(items []Expr) (out [][]Expr) {
	of := map[string]int{}
	for _, item := range items {
		name := item.typeName()
		if _, ok := of[name]; !ok {
			of[name], out = len(out), append(out, nil)
		}
		out[of[name]] = append(out[of[name]], item)
	}
	return out
}

// typeName returns the name of the type of a constant.
func (e Expr) typeName() string {
	begins := func(with string) bool { return e.text != "" && strings.IndexByte(with, e.text[0]) >= 0 }
	switch {
	case e.kind == atom && begins(`"'r`):
		return "text"
	case e.kind == atom && begins("-0123456789"):
		return "number" + strconv.FormatBool(strings.Contains(e.text, "."))
	default: // each is of another type, but for the truth values
		return strings.NewReplacer("true", "truth", "false", "truth").Replace(e.String())
	}
}

// Add returns a sum, or texts or lists joined. Lists of elements that follow each other are one.
func Add(all ...Expr) Expr {
	var joined []Expr
	for _, e := range all {
		if n := len(joined); n > 0 && e.kind == list && joined[n-1].kind == list {
			joined[n-1] = List(slices.Concat(joined[n-1].args, e.args)...)
		} else {
			joined = append(joined, e)
		}
	}
	if len(joined) == 1 {
		return joined[0]
	}
	return Expr{kind: sum, text: "+", args: joined}
}

// Only returns the element of a list of one.
func (e Expr) Only() (Expr, bool) {
	if e.kind != list || len(e.args) != 1 {
		return Expr{}, false
	}
	return e.args[0], true
}

// Condition returns an expression whose type is bool before it is evaluated, as the API server wants of rules.
func Condition(e Expr) Expr {
	boolean := []string{"all", "exists", "exists_one", "startsWith", "endsWith", "contains", "matches", "hasValue", "isLessThan", "isGreaterThan"}
	switch {
	case e.kind == member, e.kind == call && !slices.Contains(boolean, e.text), e.kind == atom && !e.IsTrue() && !e.IsFalse(), e.kind == ternary:
		return Eq(e, True)
	default:
		return e
	}
}

// If returns condition ? yes : no.
func If(condition, yes, no Expr) Expr {
	switch {
	case condition.IsTrue() || yes.Equal(no):
		return yes
	case condition.IsFalse():
		return no
	case yes.IsTrue() && no.IsFalse():
		return condition
	case yes.IsFalse() && no.IsTrue():
		return Not(condition)
	}
	return Expr{kind: ternary, args: []Expr{condition, yes, no}}
}

// Call returns receiver.name(args...).
func Call(receiver Expr, name string, args ...Expr) Expr {
	return Expr{kind: call, text: name, args: append([]Expr{receiver}, args...)}
}

// Func returns name(args...).
func Func(name string, args ...Expr) Expr { return Expr{kind: global, text: name, args: args} }

// Macro returns receiver.name(variable, body).
func Macro(receiver Expr, name, variable string, body Expr) Expr {
	switch {
	case name == "all" && body.IsTrue():
		return True
	case name == "exists" && body.IsTrue() && receiver.text == "lists.range":
		return Rel(receiver.args[0], ">", Int(0))
	case name == "filter" && body.IsTrue(), name == "map" && body.Equal(Raw(variable)):
		return receiver
	}
	return Call(receiver, name, Raw(variable), body)
}

// Field returns the value of a member that is there.
func Field(of Expr, name string) Expr { return memberOf(of, "", name) }

// OptField returns a member as an optional value.
func OptField(of Expr, name string) Expr { return memberOf(of, "?", name) }

func memberOf(of Expr, optional, name string) Expr {
	text := "[" + optional + Quote(name) + "]"
	if isName(name) {
		text = "." + optional + name
	}
	return Expr{kind: member, text: text, args: []Expr{of}}
}

// At returns an element of a list that is there, or the member of a name that an expression has.
func At(of, index Expr) Expr {
	return Expr{kind: member, text: "[" + index.String() + "]", args: []Expr{of}}
}

// OptAt is At as an optional value.
func OptAt(of, index Expr) Expr {
	return Expr{kind: member, text: "[?" + index.String() + "]", args: []Expr{of}}
}

// Has reports whether an object has a member.
func Has(of Expr, name string) Expr {
	if isName(name) {
		return Expr{kind: has, text: "." + name, args: []Expr{of}}
	}
	return Rel(Str(name), "in", of)
}

var nameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// isName reports whether a member can be written behind a dot, and a variable can have a name.
func isName(name string) bool {
	return nameForm.MatchString(name) && !slices.Contains([]string{
		"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop", "namespace", "null",
		"package", "return", "true", "var", "void", "while",
	}, name)
}
