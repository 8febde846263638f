package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// node is a value of a document: one that stands in its text, or a new one.
type node struct {
	kind rawjson.Kind
	// text is the JSON of a scalar or an alias.
	text    rawjson.Value
	entries []*entry
	// changed reports whether the value differs from the text.
	changed bool
	// unmerged reports whether the merge keys (<<) in the text are to be written out.
	unmerged bool
	// at is nil for a new value.
	at *place
}

// place is where in a text a value stands.
type place struct {
	// start is where the value starts with its tag and anchor, content where it starts after these, and end is after its last
	// byte. An empty value has all three in the same place.
	start, content, end int
	// block reports whether an object or array is in block style, and column is where its keys or dashes are, from 0.
	block  bool
	column int
	// entries are those that the text has.
	entries []*entry
	// yaml is the value's node. In JSON it is nil.
	yaml *yaml.Node
	// merges are the nodes that merge keys (<<) take members from.
	merges []*yaml.Node
	// bare reports whether an object in flow style has no braces, as an element of a list.
	bare bool
}

// entry is a member of an object or an element of an array.
type entry struct {
	// name is the member's name, as JSON has it.
	name string
	// value is the present one, was that of the text if it differs.
	value, was *node
	// fresh reports whether the entry is not in the text. An inherited one comes from a merge key (<<) and becomes fresh when it
	// is changed.
	fresh, inherited bool
	// from is where the entry starts: at the key, the dash, or in flow style the element. colon is after the colon or the dash.
	from, colon int
	key         *yaml.Node
}

// written returns the value in the text.
func (e *entry) written() *node {
	if e.was != nil {
		return e.was
	}
	return e.value
}

// end returns the offset after the entry's last byte.
func (e *entry) end() int { return max(e.written().at.end, e.colon) }

// newNode returns a new value.
func newNode(v rawjson.Value) *node {
	n := &node{kind: v.Kind()}
	switch n.kind {
	case rawjson.Object:
		for name, value := range v.Members() {
			n.entries = append(n.entries, &entry{name: name.Text(), value: newNode(value), fresh: true})
		}
		slices.SortStableFunc(n.entries, func(a, b *entry) int { return cmp.Compare(rank(a.name), rank(b.name)) })
	case rawjson.Array:
		for _, value := range v.Elements() {
			n.entries = append(n.entries, &entry{value: newNode(value), fresh: true})
		}
	default:
		n.text = v
	}
	return n
}

// rank orders the members of a new object: name and image are first.
func rank(name string) int {
	switch name {
	case "name":
		return 0
	case "image":
		return 1
	default:
		return 2
	}
}

// isAlias reports whether the value is an alias.
func (n *node) isAlias() bool {
	return n.at != nil && n.at.yaml != nil && n.at.yaml.Kind == yaml.AliasNode
}

// same reports whether two values are equal.
func (n *node) same(m *node) bool {
	a, err := rawjson.Value(n.appendJSON(nil)).Decode()
	if err != nil {
		return false
	}
	b, err := rawjson.Value(m.appendJSON(nil)).Decode()
	return err == nil && isEqual(a, b)
}

// appendJSON appends the value as JSON on one line.
func (n *node) appendJSON(dst []byte) []byte {
	if n.isAlias() || (n.kind != rawjson.Object && n.kind != rawjson.Array) {
		return append(dst, n.text...)
	}
	brackets := "[]"
	if n.kind == rawjson.Object {
		brackets = "{}"
	}
	dst = append(dst, brackets[0])
	for i, e := range n.entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		if n.kind == rawjson.Object {
			dst = append(rawjson.AppendString(dst, e.name), ':')
		}
		dst = e.value.appendJSON(dst)
	}
	return append(dst, brackets[1])
}

// errReencode is the error for a change that cannot be spliced into the text.
var errReencode = errors.New("the text cannot be changed in place")

// tree is the content of a document while it is changed.
type tree struct{ root *node }

// apply carries out a change.
func (t *tree) apply(c *change) error {
	names := steps(c.path)
	if len(names) == 0 {
		return fmt.Errorf("%q is not the path of a part", c.path)
	}
	n := t.root
	for _, name := range names[:len(names)-1] {
		n.changed = true
		i, err := n.find(name)
		if err != nil {
			return fmt.Errorf("%s %s: %w", c.op, c.path, err)
		}
		n = n.entries[i].open()
	}
	n.changed = true
	if err := n.edit(c, names[len(names)-1]); err != nil {
		return fmt.Errorf("%s %s: %w", c.op, c.path, err)
	}
	return nil
}

func (n *node) edit(c *change, name string) error {
	i, err := n.find(name)
	isNew := c.op == add && (n.kind == rawjson.Array || (n.kind == rawjson.Object && err != nil))
	switch {
	case isNew && n.kind == rawjson.Array:
		if i, err = n.index(name, true); err != nil {
			return err
		}
		n.entries = slices.Insert(n.entries, i, &entry{value: newNode(c.value), fresh: true})
	case isNew:
		n.entries = append(n.entries, &entry{name: name, value: newNode(c.value), fresh: true})
	case err != nil:
		return err
	case c.op == remove:
		if n.entries[i].inherited {
			n.unmerge()
		}
		n.entries = slices.Delete(n.entries, i, i+1)
	default:
		n.entries[i].set(newNode(c.value))
	}
	return nil
}

// find returns the index of the entry of a name.
func (n *node) find(name string) (int, error) {
	switch n.kind {
	case rawjson.Object:
		if i := slices.IndexFunc(n.entries, func(e *entry) bool { return e.name == name }); i >= 0 {
			return i, nil
		}
		return 0, fmt.Errorf("there is no %q", name)
	case rawjson.Array:
		return n.index(name, false)
	default:
		return 0, fmt.Errorf("%q is not in an object or array", name)
	}
}

// index returns an index in an array. To insert, it may be the length, also written "-".
func (n *node) index(name string, insert bool) (int, error) {
	if insert && name == "-" {
		return len(n.entries), nil
	}
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 || i > len(n.entries) || (i == len(n.entries) && !insert) {
		return 0, fmt.Errorf("%q is not an index of an array of %d", name, len(n.entries))
	}
	return i, nil
}

// open returns the entry's value for a change in it. An alias is written out.
func (e *entry) open() *node {
	if e.inherited {
		e.inherited, e.fresh = false, true
		e.value = newNode(e.value.text)
	} else if e.value.isAlias() {
		e.was, e.value = e.value, newNode(e.value.text)
	}
	return e.value
}

// set replaces the entry's value, but keeps equal parts.
func (e *entry) set(v *node) {
	old := e.value
	switch {
	case e.inherited:
		e.inherited, e.fresh, e.value = false, true, v
	case old.at == nil:
		e.value = v
	case old.canBecome(v):
		old.become(v)
	default:
		e.was, e.value = old, v
	}
}

// canBecome reports whether the text of the value can be changed to another one part by part.
func (n *node) canBecome(v *node) bool {
	return n.kind == v.kind && !n.isAlias() && len(n.entries) > 0 && len(v.entries) > 0 &&
		!slices.ContainsFunc(n.entries, func(e *entry) bool { return e.inherited })
}

func (n *node) become(v *node) {
	if n.same(v) {
		return
	}
	n.changed = true
	if n.kind == rawjson.Object {
		var kept []*entry
		for _, e := range n.entries {
			if i, err := v.find(e.name); err == nil {
				if !e.value.same(v.entries[i].value) {
					e.set(v.entries[i].value)
				}
				kept = append(kept, e)
				v.entries = slices.Delete(v.entries, i, i+1)
			}
		}
		kept = append(kept, v.entries...)
		n.entries = kept
		return
	}
	// Equal elements at both ends are kept.
	front, back := 0, 0
	most := min(len(n.entries), len(v.entries))
	for front < most && n.entries[front].value.same(v.entries[front].value) {
		front++
	}
	for back < most-front && n.entries[len(n.entries)-1-back].value.same(v.entries[len(v.entries)-1-back].value) {
		back++
	}
	n.entries = slices.Replace(n.entries, front, len(n.entries)-back, v.entries[front:len(v.entries)-back]...)
}

// unmerge writes out merge keys.
func (n *node) unmerge() {
	n.changed, n.unmerged = true, true
	for _, e := range n.entries {
		if e.inherited {
			e.open()
		}
	}
}

// resolveAliases writes out aliases and merge keys whose anchor is in a value that has changed, or is gone.
func (t *tree) resolveAliases() {
	stale := make(map[*yaml.Node]bool)
	t.root.each(func(n *node) {
		if n.at != nil && n.changed {
			stale[n.at.yaml] = true
			for i, kept := range n.kept() {
				if !kept {
					anchors(n.at.entries[i].written().at.yaml, stale)
				}
			}
		}
	}, func(_ *node, e *entry) {
		if e.was != nil {
			anchors(e.was.at.yaml, stale)
		}
	})
	t.root.each(func(n *node) {
		if n.at != nil && slices.ContainsFunc(n.at.merges, func(from *yaml.Node) bool { return stale[from] }) {
			n.unmerge()
		}
	}, func(n *node, e *entry) {
		if e.was == nil && !e.inherited && e.value.isAlias() && stale[e.value.at.yaml.Alias] {
			e.open()
			n.changed = true
		}
	})
	t.root.each(func(n *node) {
		n.changed = n.changed || slices.ContainsFunc(n.entries, func(e *entry) bool { return e.value.changed })
	}, nil)
}

// anchors collects the nodes with an anchor in a part of a text.
func anchors(y *yaml.Node, into map[*yaml.Node]bool) {
	if y.Anchor != "" {
		into[y] = true
	}
	for _, child := range y.Content {
		anchors(child, into)
	}
}

// aliases returns the number of aliases in a part of a text.
func aliases(y *yaml.Node) int {
	count := 0
	if y.Kind == yaml.AliasNode {
		count++
	}
	for _, child := range y.Content {
		count += aliases(child)
	}
	return count
}

// each calls f with every node and g with every entry, those below first.
func (n *node) each(f func(*node), g func(*node, *entry)) {
	for _, e := range n.entries {
		e.value.each(f, g)
		if g != nil {
			g(n, e)
		}
	}
	if f != nil {
		f(n)
	}
}
