package celexpr

import (
	"slices"
	"strconv"
	"strings"
)

// Names are the names of variables that an expression sees. The zero Names are those that Kubernetes declares. It is immutable.
type Names struct{ used []string }

// With returns the names and one more.
func (n Names) With(name string) Names { return Names{used: append(slices.Clone(n.used), name)} }

// Element returns the name of a variable for the elements of a list, which is named in the plural, and the names with it.
func (n Names) Element(of string) (string, Names) {
	name := singular(of)
	if !isName(name) || slices.Contains([]string{"object", "request", "params", "variables", "authorizer", "element", "type", "string", "int"}, name) {
		name = "element"
	}
	free := name
	for i := 2; slices.Contains(n.used, free); i++ {
		free = name + strconv.Itoa(i)
	}
	return free, n.With(free)
}

// singular returns the name of one of several.
func singular(plural string) string {
	name := plural
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		name = name[at+1:]
	}
	switch {
	case strings.HasSuffix(name, "ontainers"):
		return "container"
	case strings.HasSuffix(name, "ies"):
		return strings.TrimSuffix(name, "ies") + "y"
	case strings.HasSuffix(name, "ss"), !strings.HasSuffix(name, "s"):
		return "element"
	default:
		return strings.TrimSuffix(name, "s")
	}
}
