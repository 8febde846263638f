package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/pattern"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
)

// patcher translates a strategic merge patch into operations.
type patcher struct {
	*ruleConverter
	scope jmespath.Scope
	field string
	// loop is the list of the loop around the patch, none without one.
	loop celexpr.Expr
	// index is that of the element, and depth the number of loops around the patch.
	index string
	depth int
}

// anyAnchor are all kinds of anchors.
const anyAnchor = "(+<=X^"

// escaped returns a text as a step of a JSON pointer.
func escaped(text celexpr.Expr) celexpr.Expr {
	return celexpr.Call(celexpr.Call(text, "replace", celexpr.Str("~"), celexpr.Str("~0")), "replace", celexpr.Str("/"), celexpr.Str("~1"))
}

// unsupported lets the translation fail.
func (b *patcher) unsupported(path []string, instead, format string, args ...any) {
	b.fail(atField(b.field, unsupported("", instead, format, args...), path...))
}

// object returns the operations that merge a patch into an object, and the conditions of anchors without which it is not merged.
func (b *patcher) object(at place, patch map[string]any, path []string) (operations, []celexpr.Expr) {
	if len(path) > maxPatchDepth {
		b.unsupported(path, "split the rule", "a patch that is too deep")
		return nil, nil
	}
	var out operations
	var conditions []celexpr.Expr
	for _, written := range sortedKeys(patch) {
		kind, key := pattern.SplitAnchor(written)
		here := append(slices.Clone(path), written)
		value := patch[written]
		if strings.HasPrefix(key, "$") {
			b.unsupported(here, "write the mutation in CEL", "the directive %s", key)
			return nil, nil
		}
		if jmespath.HasVariables(key) {
			name, err := jmespath.Template(key, b.scope)
			b.fail(atField(b.field, err, here...))
			out = append(out, b.set(place{path: at.path.computed(escaped(name.Text()))}, value, here)...)
			continue
		}
		inner, has := at.member(key)
		switch kind {
		case "(", "<":
			check := b.pattern(value, b.field, jmespath.Value{Expr: inner.expr, Type: inner.kind, Name: key}, b.scope, here...)
			conditions = append(conditions, has, check.Holds())
		case "+":
			out = append(out, operations(nil).when(has, b.set(inner, stripAnchors(value), here))...)
		case "":
			o, nested := b.member(inner, has, value, here)
			out, conditions = append(out, o...), append(conditions, nested...)
		default:
			b.unsupported(here, "write the mutation in CEL", "the anchor %s( ) in a patch", kind)
			return nil, nil
		}
	}
	return out, conditions
}

// maxPatchDepth bounds the depth of a patch.
const maxPatchDepth = 40

// set returns the operations that set a member to a value without anchors.
func (b *patcher) set(at place, value any, path []string) operations {
	e, present := b.literal(value, path)
	return single("add", at.path, e).when(present, nil)
}

// member returns the operations that merge a value into a member, which is there if has holds.
func (b *patcher) member(at place, has celexpr.Expr, value any, path []string) (operations, []celexpr.Expr) {
	switch v := value.(type) {
	case nil:
		return single("remove", at.path, celexpr.Expr{}).when(has, nil), nil
	case map[string]any:
		o, conditions := b.object(at, v, path)
		if len(conditions) > 0 {
			return o, append([]celexpr.Expr{has}, conditions...)
		}
		if has.IsTrue() {
			return o, nil
		}
		if b.index != "" && at.path.isStatic() { // what the loop adds to an object must not replace what it has added before
			empty := single("add", at.path, celexpr.Raw("{}"))
			return append(operations(nil).when(has, empty), o...), nil
		}
		return o.when(has, b.set(at, stripAnchors(v), path)), nil
	case []any:
		if pattern.Some(v, func(_ string, part any) bool { _, ok := part.(map[string]any); return ok }) {
			return b.list(at, has, v, path)
		}
	}
	return b.set(at, value, path), nil
}

// stripAnchors returns a patch without conditions, and with fields that are added if they are absent.
func stripAnchors(patch any) any {
	switch p := patch.(type) {
	case map[string]any:
		out := map[string]any{}
		for written, value := range p {
			kind, key := pattern.SplitAnchor(written)
			if kind == "" || kind == "+" {
				out[key] = stripAnchors(value)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, item := range p {
			out = append(out, stripAnchors(item))
		}
		return out
	default:
		return patch
	}
}

// list returns the operations that merge elements into a list, by their names or by conditions.
func (b *patcher) list(at place, has celexpr.Expr, items []any, path []string) (operations, []celexpr.Expr) {
	key := mergeKey(at)
	optional := celexpr.If(has, at.expr, celexpr.List())
	index := b.index
	if !b.isLoop(at) {
		index = indexName(b.depth)
		b.depth++
		defer func() { b.depth-- }()
	}
	element := place{path: at.path.computed(celexpr.Func("string", celexpr.Raw(index))), expr: celexpr.At(at.expr, celexpr.Raw(index)), kind: at.kind.Elem()}
	var out operations
	var conditions []celexpr.Expr
	var added []any
	for i, item := range items {
		here := append(slices.Clone(path), strconv.Itoa(i))
		fields, ok := item.(map[string]any)
		if !ok {
			b.unsupported(here, "write the mutation in CEL", "a list of values of several types")
			return nil, nil
		}
		if pattern.HasAnchor(fields, anyAnchor) {
			o, of := b.object(element, b.withoutElement(fields, key), here)
			if pattern.HasAnchor(fields, "<") {
				if len(o) > 0 {
					b.unsupported(here, "write the mutation in CEL", "a global anchor beside what it changes, in an element of a list")
				}
				conditions = append(conditions, has, celexpr.Macro(celexpr.Func("lists.range", celexpr.Func("size", at.expr)), "exists", index, celexpr.And(of...)))
				continue
			}
			if b.isLoop(at) {
				out = append(out, o.when(celexpr.And(of...), nil)...)
			} else {
				out = append(out, each(optional, index, celexpr.And(of...), o, false)...)
			}
			continue
		}
		if key == "" {
			return b.set(at, items, path), nil
		}
		added = append(added, item)
		out = append(out, b.namedElement(at, index, element, fields, key, here)...)
	}
	if len(added) == 0 || b.isLoop(at) {
		return out, conditions
	}
	return out.when(has, b.set(at, added, path)), conditions
}

// isLoop reports whether a list is that of the loop around the patch, so that the patch is about its element.
func (b *patcher) isLoop(at place) bool {
	if b.loop.IsZero() {
		return false
	}
	text := b.loop.String()
	plain := at.expr.String()
	return text == plain || strings.Contains(text, "?"+plain[strings.LastIndexByte(plain, '.')+1:]+".orValue([])") && !strings.Contains(text, " + ") || text == plain+"[0:]"
}

// withoutElement returns an element of a patch without the condition that it is the element of the loop.
func (b *patcher) withoutElement(fields map[string]any, key string) map[string]any {
	if b.loop.IsZero() {
		return fields
	}
	out := maps.Clone(fields)
	maps.DeleteFunc(out, func(written string, value any) bool {
		_, name := pattern.SplitAnchor(written)
		text, ok := value.(string)
		return (name == "name" || name == key) && ok && elementName.MatchString(text)
	})
	return out
}

var elementName = regexp.MustCompile(`^\{\{\s*element0?\.name\s*\}\}$`)

// namedElement returns the operations that merge an element with a name into a list, which is there.
func (b *patcher) namedElement(at place, index string, element place, fields map[string]any, key string, path []string) operations {
	name, ok := fields[key]
	if !ok {
		b.unsupported(path, "name the element", "an element without %q", key)
		return nil
	}
	rest := maps.Clone(fields)
	delete(rest, key)
	merged, conditions := b.object(element, rest, path)
	if text, ok := name.(string); ok && elementName.MatchString(text) && b.isLoop(at) {
		return merged.when(celexpr.And(conditions...), nil)
	}
	value, _ := b.literal(name, path)
	is := func(e celexpr.Expr) celexpr.Expr {
		same := celexpr.Eq(celexpr.Field(e, key), value)
		if element.kind.IsAlways(key) {
			return same
		}
		return celexpr.And(celexpr.Has(e, key), same)
	}
	exists := celexpr.Macro(at.expr, "exists", "e", is(celexpr.Raw("e")))
	whole, _ := b.literal(fields, path)
	return each(at.expr, index, is(element.expr), merged, false).when(exists, single("add", at.path.member("0"), whole))
}

// mergeKey returns the member by which the elements of a list are merged, "" for a list that is replaced.
func mergeKey(at place) string {
	keys := []string{"name", "mountPath", "containerPort", "ip", "topologyKey", "port", "devicePath", "uid"}
	if key := at.kind.MergesBy(); slices.Contains(keys, key) && at.kind.Elem().Kind() == celexpr.Struct {
		return key
	}
	return ""
}

// literal returns a value of a patch as an expression, and the condition that its variables have values.
func (b *patcher) literal(value any, path []string) (e, present celexpr.Expr) {
	present = celexpr.True
	e = celexpr.Build(value, func(text string) celexpr.Expr {
		of, err := jmespath.Template(text, b.scope)
		b.fail(atField(b.field, err, path...))
		if !of.Total.IsZero() {
			of.Expr = of.Total
		} else if !of.Fails {
			present = celexpr.And(present, of.Present)
		}
		return of.Expr
	})
	return e, present
}

// jsonOperations translates the operations of a JSON patch, whose text is YAML with variables.
func (c *ruleConverter) jsonOperations(text, field string, root place, s jmespath.Scope) operations {
	holes := map[string]string{}
	cut := variableForm.ReplaceAllStringFunc(text, func(variable string) string {
		name := fmt.Sprintf("hole-%d-", len(holes))
		holes[name] = variable
		return name
	})
	raw, err := []byte(nil), manifest.NewExpansion(len(cut)).Take([]byte(cut))
	if err == nil {
		raw, err = yaml.YAMLToJSON([]byte(cut))
	}
	for name, variable := range holes {
		quoted := strconv.Quote(variable)
		raw = []byte(strings.ReplaceAll(string(raw), name, quoted[1:len(quoted)-1]))
	}
	var list []any
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &list)
	}
	if err != nil {
		c.fail(unsupported(field, "correct it", "a JSON patch that cannot be read"))
	}
	b := &patcher{ruleConverter: c, scope: s, field: field}
	var out operations
	for _, item := range list {
		fields, _ := item.(map[string]any)
		op, _ := fields["op"].(string)
		path, _ := fields["path"].(string)
		steps := stepForm.FindAllStringSubmatch(path, -1)
		if fromEnd.MatchString(path) {
			b.unsupported(nil, "name the element", "the path %s, which counts from the end of a list", path)
		}
		if len(steps) == 0 {
			b.unsupported(nil, "write a JSON pointer", "an operation without a path")
			break
		}
		out = append(out, b.operation(op, steps, fields["value"], root)...)
	}
	return out
}

var (
	// stepForm matches a step of a pointer. Variables in it may have slashes in them.
	stepForm  = regexp.MustCompile(`/((?:\{\{.*?\}\}+|[^/])*)`)
	fromEnd   = regexp.MustCompile(`/-\d+(/|$)`)
	indexForm = regexp.MustCompile(`^(-|\d{1,9})$`)
)

// operation translates an operation of a JSON patch. What is missing on the way to its path is added.
func (b *patcher) operation(op string, steps [][]string, value any, at place) operations {
	var out operations
	exists := celexpr.True
	for i, step := range steps {
		inner, has := b.step(at, step[1])
		if i < len(steps)-1 && op == "add" && !has.IsTrue() && (step[1] == "0" || !indexForm.MatchString(step[1])) {
			empty := celexpr.Raw("{}")
			if inner.kind.Kind() == celexpr.Sequence || indexForm.MatchString(steps[i+1][1]) {
				empty = celexpr.List()
			}
			out = append(out, operations(nil).when(celexpr.And(exists, has), single("add", inner.path, empty))...)
		}
		exists, at = celexpr.And(exists, has), inner
	}
	switch op {
	case "add", "replace":
		e, present := b.literal(value, nil)
		if op == "replace" && !exists.IsTrue() && !at.element {
			op = "add" // of a member that is there, both are the same
		}
		return append(out, single(op, at.path, e).when(present, nil)...)
	case "remove":
		return single("remove", at.path, celexpr.Expr{}).when(exists, nil)
	default:
		b.unsupported(nil, "write the mutation in CEL", "the operation %q", op)
		return nil
	}
}

// step returns what a step of a JSON pointer leads to: a member or element, which is there if has holds.
func (b *patcher) step(at place, step string) (to place, has celexpr.Expr) {
	to = place{path: at.path.member(step), expr: celexpr.At(at.expr, celexpr.Raw(step)), kind: at.kind.Elem(), element: true}
	switch {
	case step == "-":
		return to, celexpr.True
	case indexForm.MatchString(step):
		return to, celexpr.Rel(celexpr.Func("size", at.expr), ">", celexpr.Raw(step))
	case !jmespath.HasVariables(step):
		return at.member(strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
	}
	of, err := jmespath.Template(strings.ReplaceAll(step, "~1", "/"), b.scope)
	b.fail(atField(b.field, err))
	name := escaped(of.Text())
	if of.Type.Kind() == celexpr.Number {
		name = celexpr.Func("string", of.Expr)
	}
	return place{at.path.computed(name), celexpr.At(at.expr, of.Expr), to.kind, of.Type.Kind() == celexpr.Number}, celexpr.True
}
