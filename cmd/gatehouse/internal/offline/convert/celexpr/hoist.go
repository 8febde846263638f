package celexpr

import (
	"regexp"
	"slices"
	"strings"
)

// Variable is an expression with a name, which others use as variables.NAME.
type Variable struct {
	Name string
	Expr Expr
}

// shortest is the length from which a part is worth a variable.
const shortest = 40

// mostVariables bounds the variables of an expression.
const mostVariables = 20

// Hoist replaces parts that stand several times in an expression, and lists that are made of several lists, by variables. Names are
// taken already.
func Hoist(e Expr, taken func(name string) bool) (Expr, []Variable) {
	var out []Variable
	for len(out) < mostVariables {
		part, found := e.repeated()
		if !found {
			break
		}
		name := part.nameOf()
		if !isName(name) { // it is a word that CEL reserves
			name += "Value"
		}
		for taken(name) || slices.ContainsFunc(out, func(v Variable) bool { return v.Name == name }) {
			name += "2"
		}
		out = append(out, Variable{name, part})
		e = e.replace(part.String(), Raw("variables."+name))
	}
	// Later variables are parts of earlier ones, or of the expression.
	for i := range out {
		for j := i + 1; j < len(out); j++ {
			out[i].Expr = out[i].Expr.replace(out[j].Expr.String(), Raw("variables."+out[j].Name))
		}
	}
	slices.Reverse(out)
	return e, out
}

// repeated returns the longest part that is worth a variable.
func (e Expr) repeated() (Expr, bool) {
	count := map[string]int{}
	var best Expr
	length := 0
	var walk func(of Expr, loops []string)
	walk = func(of Expr, loops []string) {
		inner := loops
		for i, arg := range of.args {
			if i > 1 && of.kind == call && isLoop(of.text) {
				inner = append(slices.Clone(loops), of.args[1].text)
			}
			walk(arg, inner)
		}
		if of.kind != call && of.kind != member && of.kind != sum && of.kind != list {
			return
		}
		text := of.String()
		isBound := slices.ContainsFunc(wordForm.FindAllString(text, -1), func(word string) bool { return slices.Contains(loops, word) })
		if isBound || strings.Contains(text, "JSONPatch{") { // variables have no patches
			return
		}
		count[text]++
		lists := of.kind == sum && strings.Contains(text, ".orValue([])")
		if n := len(text); n > length && (lists || n >= shortest && count[text] > 1) {
			best, length = of, n
		}
	}
	walk(e, nil)
	return best, length > 0
}

var wordForm = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

// replace returns the expression with another one in place of parts with this text.
func (e Expr) replace(text string, by Expr) Expr {
	if e.String() == text {
		return by
	}
	out := e
	out.args = nil
	for _, arg := range e.args {
		out.args = append(out.args, arg.replace(text, by))
	}
	return out
}

var fieldForm = regexp.MustCompile(`\.\??([A-Za-z][A-Za-z0-9]*)\b`)

// nameOf returns a name for a variable: that of the field whose value it has.
func (e Expr) nameOf() string {
	name := "value"
	for _, m := range fieldForm.FindAllStringSubmatch(e.String(), -1) {
		switch m[1] {
		case "orValue", "map", "filter", "flatten", "all", "exists", "hasValue", "optMap", "metadata", "spec", "split", "value", "or", "matches":
		default:
			name = m[1]
		}
	}
	if e.kind == sum {
		return "all" + strings.ToUpper(name[:1]) + name[1:]
	}
	return name
}
