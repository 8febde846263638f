package celexpr

import (
	"slices"
	"strings"
)

// Lines that are longer are broken.
const width = 100

// String returns the expression on one line.
func (e Expr) String() string { return e.print("", false) }

// Format returns the expression for a document: on one line if it is short, and otherwise broken at && and ||, at ? and in loops.
func (e Expr) Format() string { return e.lines("") }

// lines returns the expression, whose first line has a beginning already, and the others this indentation.
func (e Expr) lines(indent string) string {
	if text := e.String(); len(indent)+len(text) <= width {
		return text
	}
	return e.print(indent, true)
}

// print returns the expression on one line, or broken where it can be.
func (e Expr) print(indent string, broken bool) string {
	// operand returns an operand of what binds so tightly, in parentheses if it binds less.
	operand := func(arg Expr, of kind, indent string) string {
		open, end := "", ""
		if min(arg.kind, atom) < of {
			open, end, indent = "(", ")", indent+" "
		}
		if broken {
			return open + arg.lines(indent) + end
		}
		return open + arg.String() + end
	}
	deeper := indent + "  "
	separator, branch := " ", " "
	if broken {
		separator, branch = "\n"+indent, "\n"+deeper
	}
	switch e.kind {
	case none, atom:
		return e.text
	case ternary:
		return operand(e.args[0], or, indent) + branch + "? " + operand(e.args[1], or, deeper+"  ") + branch + ": " +
			operand(e.args[2], ternary, deeper+"  ")
	case or, and, sum, relation:
		if e.kind == relation {
			separator = " "
		}
		var b strings.Builder
		for i, arg := range e.args {
			of := e.kind + 1
			if e.text == "+" {
				of = sum
			}
			if i > 0 {
				b.WriteString(" " + e.text + separator)
			}
			b.WriteString(operand(arg, of, indent))
		}
		return b.String()
	case unary:
		return e.text + operand(e.args[0], unary, indent+" ")
	case call:
		before := operand(e.args[0], atom, indent) + "." + e.text + "("
		text := before + join(e.args[1:]) + ")"
		last := (indent + text)[strings.LastIndexByte(indent+text, '\n')+1:]
		if broken && len(last) > width && len(e.args) == 3 && isLoop(e.text) {
			return before + e.args[1].text + ",\n" + deeper + e.args[2].lines(deeper) + "\n" + indent + ")"
		}
		return text
	case global:
		return e.text + "(" + join(e.args) + ")"
	case member:
		return operand(e.args[0], atom, indent) + e.text
	case has:
		return "has(" + operand(e.args[0], atom, indent) + e.text + ")"
	case list:
		if !broken {
			return "[" + join(e.args) + "]"
		}
		parts := make([]string, len(e.args))
		for i, arg := range e.args {
			parts[i] = deeper + arg.lines(deeper)
		}
		return "[\n" + strings.Join(parts, ",\n") + "\n" + indent + "]"
	default:
		return ""
	}
}

func join(all []Expr) string {
	parts := make([]string, len(all))
	for i, e := range all {
		parts[i] = e.String()
	}
	return strings.Join(parts, ", ")
}

// isLoop reports whether a macro has a variable and a body.
func isLoop(name string) bool {
	return slices.Contains([]string{"all", "exists", "exists_one", "filter", "map", "optMap", "optFlatMap"}, name)
}
