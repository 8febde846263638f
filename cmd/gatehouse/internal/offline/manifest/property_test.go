package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"gomodules.xyz/jsonpatch/v2"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// writer writes random pods in random styles of YAML.
type writer struct {
	*rand.Rand
	out strings.Builder
	// marked counts the comments, each of which is one of a kind.
	marked int
}

func (w *writer) chance(percent int) bool { return w.IntN(100) < percent }

// comment is sometimes a comment, on a line of its own or at the end of one.
func (w *writer) comment(percent int, before, behind string) {
	if w.chance(percent) {
		w.marked++
		fmt.Fprintf(&w.out, "%s# comment %d%s", before, w.marked, behind)
	}
}

func (w *writer) text() string {
	texts := []string{
		"a", "registry.example/app:1", "on", "yes", "null", "~", "0755", "1e3", "1_000", "12:30:45", "", " ", "a b", "a: b", "a #b", "# a",
		"- a", "-", "{a", "it's", `"quoted"`, "two\nlines", "two\nlines\n", "\nlines\n\n", "tab\there", "trailing ", "é\u2028\u0085", "\u0001",
		"{{ .Values }}", "*a", "&a", "!a", "%a", "@a", "`a", "|", ">", "?", "=", "<<", "---", "1.5", ".5", "0x1f", "+1", "2001-01-01", "y", "😀",
	}
	return texts[w.IntN(len(texts))]
}

// value is a random JSON value.
func (w *writer) value(depth int) any {
	switch n := w.IntN(10); {
	case n < 2 && depth > 0:
		list := []any{}
		for range w.IntN(4) {
			list = append(list, w.value(depth-1))
		}
		return list
	case n < 5 && depth > 0:
		object := map[string]any{}
		for range w.IntN(4) {
			object[w.key()] = w.value(depth - 1)
		}
		return object
	case n == 5:
		return w.IntN(2) == 0
	case n == 6:
		return float64(w.IntN(1000)) / 4
	case n == 7:
		return nil
	default:
		return w.text()
	}
}

// json is the JSON text of a value.
func (w *writer) json(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// names are the names of an object's members in a random order.
func (w *writer) names(object map[string]any) []string {
	names := slices.Sorted(maps.Keys(object))
	w.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

func (w *writer) key() string {
	keys := []string{"name", "image", "env", "a/b", "a~b", "app.kubernetes.io/name", "on", "1", "x y", "é", "<", ""}
	return keys[w.IntN(len(keys))]
}

func (w *writer) pod() map[string]any {
	container := func(name string) map[string]any {
		c, _ := w.value(3).(map[string]any)
		if c == nil {
			c = map[string]any{}
		}
		c["name"] = name
		return c
	}
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "app", "labels": w.value(2)},
		"spec": map[string]any{"containers": []any{container("a"), container("b")}, "volumes": w.value(3), "more": w.value(2)},
	}
	return pod
}

// scalar writes a value that is neither object nor list.
func (w *writer) scalar(v any, flow bool) {
	text, ok := v.(string)
	if !ok {
		if v == nil && w.chance(30) {
			w.out.WriteString("~")
			return
		}
		w.out.WriteString(w.json(v))
		return
	}
	plain, err := yaml.Marshal(text)
	switch {
	case err == nil && w.chance(40) && !flow && !strings.Contains(text, "\n") && !needsEscape(text):
		w.out.Write(bytes.TrimSuffix(plain, []byte("\n")))
	case w.chance(40) && strconv.CanBackquote(text) && !strings.ContainsAny(text, "\t\u2028"):
		w.out.WriteString("'" + strings.ReplaceAll(text, "'", "''") + "'")
	default:
		w.out.WriteString(strconv.QuoteToASCII(text))
	}
}

func (w *writer) flow(v any) {
	switch v := v.(type) {
	case map[string]any:
		w.out.WriteByte('{')
		first := true
		for _, name := range w.names(v) {
			value := v[name]
			if !first {
				w.out.WriteString([]string{",", ", ", " , "}[w.IntN(3)])
			}
			first = false
			w.out.WriteString(strconv.QuoteToASCII(name) + ": ")
			w.flow(value)
		}
		w.out.WriteByte('}')
	case []any:
		w.out.WriteString([]string{"[", "[ "}[w.IntN(2)])
		for i, value := range v {
			if i > 0 {
				w.out.WriteString([]string{",", ", "}[w.IntN(2)])
			}
			w.flow(value)
		}
		w.out.WriteByte(']')
	default:
		w.scalar(v, true)
	}
}

// block writes a value behind a key or a dash that stands at a column.
func (w *writer) block(v any, column int, dash bool) {
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	switch {
	case (isObject && len(object) == 0) || (isList && len(list) == 0) || ((isObject || isList) && w.chance(15)):
		w.out.WriteByte(' ')
		w.flow(v)
		w.end()
	case isObject:
		inner := column + []int{1, 2, 4}[w.IntN(3)]
		compact := dash && w.chance(70)
		if compact {
			inner = max(inner, column+2)
			w.out.WriteString(strings.Repeat(" ", inner-column-1))
		} else {
			w.end()
		}
		for _, name := range w.names(object) {
			value := object[name]
			if !compact {
				w.comment(10, strings.Repeat(" ", w.IntN(8)), "\n")
				w.out.WriteString(strings.Repeat(" ", inner))
			}
			compact = false
			key, _ := yaml.Marshal(newString(name))
			w.out.WriteString(strings.TrimSuffix(string(key), "\n") + ":")
			w.block(value, inner, false)
		}
	case isList:
		w.end()
		inner := column + []int{0, 2, 4}[w.IntN(3)]
		if dash {
			inner = column + 2
		}
		for _, value := range list {
			w.comment(10, strings.Repeat(" ", w.IntN(8)), "\n")
			w.out.WriteString(strings.Repeat(" ", inner) + "-")
			w.block(value, inner, true)
		}
	case v == nil && w.chance(30):
		w.end()
	default:
		if text, ok := v.(string); ok && w.chance(50) {
			if body, ended := strings.CutSuffix(text, "\n"); strings.Contains(body, "\n") && !strings.HasPrefix(body, "\n") && !strings.HasSuffix(body, "\n") {
				w.out.WriteString(map[bool]string{true: " |\n", false: " |-\n"}[ended])
				for line := range strings.SplitSeq(body, "\n") {
					w.out.WriteString(strings.Repeat(" ", column+2) + line + "\n")
				}
				return
			}
		}
		w.out.WriteByte(' ')
		w.scalar(v, false)
		w.end()
	}
}

// end ends a line, with or without a comment and a blank line.
func (w *writer) end() {
	w.comment(15, "  ", "")
	w.out.WriteByte('\n')
	if w.chance(5) {
		w.out.WriteByte('\n')
	}
}

// document writes a pod.
func (w *writer) document(pod map[string]any) []byte {
	w.out.Reset()
	for _, name := range w.names(pod) {
		value := pod[name]
		w.comment(10, "", "\n")
		w.out.WriteString(name + ":")
		w.block(value, 0, false)
	}
	text := w.out.String()
	if w.chance(10) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if w.chance(10) {
		text = strings.TrimRight(text, "\r\n")
	}
	return []byte(text)
}

// operations are random operations that fit a value.
func (w *writer) operations(value rawjson.Value, n int) []jsonpatch.Operation {
	var ops []jsonpatch.Operation
	for range n {
		pointer, at := "", value
		for depth := 0; depth == 0 || w.chance(75); depth++ {
			var names []string
			var values []rawjson.Value
			for name, v := range at.Members() {
				names, values = append(names, escape(name.Text())), append(values, v)
			}
			for i, v := range at.Elements() {
				names, values = append(names, strconv.Itoa(i)), append(values, v)
			}
			if len(names) == 0 {
				break
			}
			i := w.IntN(len(names))
			pointer, at = pointer+"/"+names[i], values[i]
		}
		fresh := w.json(w.value(3))
		op := operation([]string{"replace", "remove", "add"}[w.IntN(3)], pointer, fresh)
		if at.Kind() == rawjson.Object && w.chance(70) {
			op = operation("add", pointer+"/"+escape(w.key()), fresh)
		}
		if at.Kind() == rawjson.Array && w.chance(70) {
			op = operation("add", pointer+"/"+[]string{"-", "0", strconv.Itoa(at.Len())}[w.IntN(3)], fresh)
		}
		if !strings.HasPrefix(op.Path, "/spec/") {
			continue
		}
		c, err := newChange(&op)
		if err != nil {
			continue
		}
		after, err := applyChanges(value, []change{c})
		if err != nil {
			continue
		}
		value = after
		ops = append(ops, op)
	}
	return ops
}

// TestRandomEdits changes random pods in random styles at random: what comes out
// says what the API server's library makes of the pod, and every comment of the
// text that stands outside of what was taken away is still there, in order.
func TestRandomEdits(t *testing.T) {
	t.Parallel()
	anew := 0
	const runs = 3000
	for seed := range uint64(runs) {
		w := &writer{Rand: rand.New(rand.NewPCG(seed, 3))}
		data := w.document(w.pod())
		f, err := tryParse("app.yaml", data, workloads(t))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, data)
		}
		if len(f.Objects) != 1 || f.Objects[0].NoPod != "" {
			t.Fatalf("seed %d: there is no pod in\n%s", seed, data)
		}
		o := f.Objects[0]
		ops := w.operations(o.Pod("default"), 1+w.IntN(6))
		if err := o.Apply(ops); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, data)
		}
		got, err := f.Text()
		if err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, err, o.Patch(), data)
		}
		tree, err := sigsyaml.YAMLToJSON(got)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, got)
		}
		want, err := applyChanges(o.value, o.patch)
		if err != nil {
			t.Fatal(err)
		}
		if !sameTree(t, tree, want) {
			t.Fatalf("seed %d: %s\nof\n%s\ngave\n%s", seed, o.Patch(), data, got)
		}
		if len(ops) > 0 && !inPlace(t, f.documents[0]) {
			anew++
			continue
		}
		if before, after := comments(data), comments(got); !inOrder(after, before) || onlyNew(o, ops) && len(after) < len(before) {
			t.Fatalf("seed %d: %s\nof\n%s\ngave\n%s", seed, o.Patch(), data, got)
		}
		if onlyNew(o, ops) && !inOrder(kept(data), lines(got)) {
			t.Fatalf("seed %d: %s\nof\n%s\nlost lines:\n%s", seed, o.Patch(), data, got)
		}
	}
	t.Logf("%d of %d documents were written anew", anew, runs)
	if anew > runs/20 {
		t.Errorf("%d of %d documents were written anew, should be at most %d", anew, runs, runs/20)
	}
}

// inPlace reports whether the changes of a document can be spliced into its text.
func inPlace(t *testing.T, d *document) bool {
	t.Helper()
	want, err := applyChanges(d.value, d.changes)
	if err != nil {
		t.Fatal(err)
	}
	text, err := splice(d.text, d.value, want, newline(d.text))
	if err != nil {
		return false
	}
	_, ok := d.ended(text, newline(d.text), want)
	return ok
}

func sameTree(t *testing.T, a, b []byte) bool {
	t.Helper()
	var trees [2]any
	for i, text := range [][]byte{a, b} {
		if err := json.Unmarshal(text, &trees[i]); err != nil {
			t.Fatal(err)
		}
	}
	return reflect.DeepEqual(trees[0], trees[1])
}

var comment = regexp.MustCompile(`# comment \d+`)

func comments(text []byte) []string { return comment.FindAllString(string(text), -1) }

// onlyNew reports whether operations only add what is new to the pod.
func onlyNew(o *Object, ops []jsonpatch.Operation) bool {
	value := o.value
	for i := range ops {
		c, err := newChange(&ops[i])
		if err != nil || c.op != add {
			return false
		}
		parent := lookup(value, c.path[:strings.LastIndexByte(c.path, '/')])
		if parent.Kind() == rawjson.Object && lookup(value, c.path).Kind() != rawjson.Invalid {
			return false
		}
		if value, err = applyChanges(value, []change{c}); err != nil {
			return false
		}
	}
	return true
}

func lines(text []byte) []string {
	return strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
}

// kept are the lines of a text that must still be there when something was added
// to it: all without brackets, in which something may stand now.
func kept(text []byte) []string {
	return slices.DeleteFunc(lines(text), func(line string) bool { return line == "" || strings.ContainsAny(line, "[]{}") })
}

// inOrder reports whether all parts occur in the whole, in this order.
func inOrder(parts, whole []string) bool {
	for _, text := range whole {
		if len(parts) > 0 && parts[0] == text {
			parts = parts[1:]
		}
	}
	return len(parts) == 0
}
