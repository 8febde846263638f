package celexpr

import "strings"

// String returns the expression on one line.
func (e Expr) String() string {
	var b strings.Builder
	e.write(&b)
	return b.String()
}

// binds returns how tightly an expression binds, for parentheses.
func (e Expr) binds() kind { return min(e.kind, atom) }

// operand returns e as an operand of what binds so tightly, in parentheses if it binds less.
func (e Expr) operand(of kind) string {
	text := e.String()
	if e.binds() < of {
		return "(" + text + ")"
	}
	return text
}

func (e Expr) write(b *strings.Builder) {
	switch e.kind {
	case none:
	case atom:
		b.WriteString(e.text)
	case ternary:
		b.WriteString(e.args[0].operand(or) + " ? " + e.args[1].operand(or) + " : " + e.args[2].operand(ternary))
	case or, and:
		for i, arg := range e.args {
			if i > 0 {
				b.WriteString(" " + e.text + " ")
			}
			b.WriteString(arg.operand(e.kind + 1))
		}
	case relation:
		b.WriteString(e.args[0].operand(sum) + " " + e.text + " " + e.args[1].operand(sum))
	case sum, product:
		for i, arg := range e.args {
			of := e.kind
			if i > 0 {
				b.WriteString(" " + e.text + " ")
				if e.text != "+" {
					of++
				}
			}
			b.WriteString(arg.operand(of))
		}
	case unary:
		b.WriteString(e.text + e.args[0].operand(unary))
	case call:
		b.WriteString(e.args[0].operand(atom) + "." + e.text + "(" + join(e.args[1:]) + ")")
	case global:
		b.WriteString(e.text + "(" + join(e.args) + ")")
	case member:
		b.WriteString(e.args[0].operand(atom) + e.text)
	case list:
		b.WriteString("[" + join(e.args) + "]")
	}
}

func join(all []Expr) string {
	parts := make([]string, len(all))
	for i, e := range all {
		parts[i] = e.String()
	}
	return strings.Join(parts, ", ")
}

// Lines that are longer are broken.
const width = 100

// Format returns the expression for a document: on one line if it is short, and otherwise broken at && and ||, at ? and in loops.
func (e Expr) Format() string { return e.lines("") }

// lines returns the expression, whose first line has a beginning already, and the others this indentation.
func (e Expr) lines(indent string) string {
	text := e.String()
	if len(indent)+len(text) <= width {
		return text
	}
	deeper := indent + "  "
	switch e.kind { //nolint:exhaustive // others are not broken
	case or, and:
		parts := make([]string, len(e.args))
		for i, arg := range e.args {
			parts[i] = arg.within(e.kind+1, indent)
		}
		return strings.Join(parts, " "+e.text+"\n"+indent)
	case sum:
		parts := make([]string, len(e.args))
		for i, arg := range e.args {
			parts[i] = arg.within(sum, indent)
		}
		return strings.Join(parts, " "+e.text+"\n"+indent)
	case ternary:
		return e.args[0].within(or, indent) + "\n" + deeper + "? " + e.args[1].within(or, deeper+"  ") + "\n" + deeper + ": " +
			e.args[2].within(ternary, deeper+"  ")
	case unary:
		return e.text + e.args[0].within(unary, indent+" ")
	case relation:
		if e.args[1].kind == list {
			return e.args[0].within(sum, indent) + " " + e.text + " " + e.args[1].lines(indent)
		}
	case list:
		parts := make([]string, len(e.args))
		for i, arg := range e.args {
			parts[i] = deeper + arg.lines(deeper)
		}
		return "[\n" + strings.Join(parts, ",\n") + "\n" + indent + "]"
	case call:
		receiver := e.args[0].within(atom, indent)
		if n := len(e.args); n == 3 && e.args[1].kind == atom && isLoop(e.text) {
			return receiver + "." + e.text + "(" + e.args[1].text + ",\n" + deeper + e.args[2].lines(deeper) + "\n" + indent + ")"
		}
		if e.text == "flatten" {
			return receiver + ".flatten()"
		}
		if len(e.args) > 1 {
			return receiver + "." + e.text + "(" + join(e.args[1:]) + ")"
		}
	}
	return text
}

// within is lines for an operand.
func (e Expr) within(of kind, indent string) string {
	if e.binds() < of {
		return "(" + e.lines(indent+" ") + ")"
	}
	return e.lines(indent)
}

// isLoop reports whether a macro has a variable and a body.
func isLoop(name string) bool {
	switch name {
	case "all", "exists", "exists_one", "filter", "map", "optMap", "optFlatMap":
		return true
	default:
		return false
	}
}
