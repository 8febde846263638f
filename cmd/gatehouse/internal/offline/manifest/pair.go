package manifest

import (
	"bytes"
	"errors"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/structured-merge-diff/v6/value"
	sigsyaml "sigs.k8s.io/yaml"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// pair is a value of a YAML document and what it is to become.
type pair struct {
	// name and key are those of a member of an object. A new member has no key.
	name string
	key  *yaml.Node
	// node is nil for a value that is not in the text.
	node *yaml.Node
	// old is invalid for a new value, and want for one that is to be removed.
	old, want rawjson.Value
	// inherited reports whether the member comes from a merge key (<<). It has no node.
	inherited bool
}

// errLink is the error for a text that two readers read differently.
var errLink = errors.New("the text means different things to different readers of YAML")

func (p *pair) isRemoved() bool { return p.want.Kind() == rawjson.Invalid }

// isEqual reports whether the value stays the same.
func (p *pair) isEqual() bool { return sameValue(p.old, p.want) }

// sameValue reports whether two values are equal, however they and their numbers are written.
func sameValue(a, b rawjson.Value) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if a.Kind() != b.Kind() || a.Kind() == rawjson.Invalid {
		return false
	}
	x, errX := a.Decode()
	y, errY := b.Decode()
	return errX == nil && errY == nil && value.Equals(value.NewValueInterface(x), value.NewValueInterface(y))
}

// inner returns the pairs in an object or array whose node is a mapping or sequence.
func (p *pair) inner() ([]pair, error) {
	if p.node.Kind == yaml.MappingNode {
		return p.members()
	}
	return p.elements()
}

// members returns the members of an object: those of the text in their order, inherited ones, and new ones.
func (p *pair) members() ([]pair, error) {
	left := make(map[string]rawjson.Value, p.old.Len())
	for name, value := range p.old.Members() {
		left[name.Text()] = value
	}
	wanted := make(map[string]rawjson.Value, p.want.Len())
	for name, value := range p.want.Members() {
		wanted[name.Text()] = value
	}
	var all []pair
	merges := false
	for i := 0; i+1 < len(p.node.Content); i += 2 {
		key := p.node.Content[i]
		if isMerge(key) {
			merges = true
			continue
		}
		name, err := keyName(key, left)
		if err != nil {
			return nil, err
		}
		all = append(all, pair{name: name, key: key, node: p.node.Content[i+1], old: left[name], want: wanted[name]})
		delete(left, name)
		delete(wanted, name)
	}
	if len(left) > 0 && !merges {
		return nil, errLink
	}
	for name := range p.old.Members() {
		if old, ok := left[name.Text()]; ok {
			all = append(all, pair{name: name.Text(), old: old, want: wanted[name.Text()], inherited: true})
			delete(wanted, name.Text())
		}
	}
	for name := range p.want.Members() {
		if want, ok := wanted[name.Text()]; ok {
			all = append(all, pair{name: name.Text(), want: want})
		}
	}
	return all, nil
}

func isMerge(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.Tag == "!!merge" }

// keyName returns the name of a key in JSON, which differs for plain numbers and booleans.
func keyName(key *yaml.Node, names map[string]rawjson.Value) (string, error) {
	for key.Kind == yaml.AliasNode {
		key = key.Alias
	}
	if key.Kind != yaml.ScalarNode {
		return "", errLink
	}
	if _, ok := names[key.Value]; ok {
		return key.Value, nil
	}
	if key.Style == 0 {
		text, err := sigsyaml.YAMLToJSON([]byte("{? " + key.Value + " : null}"))
		if value, wrong := rawjson.Parse(text); err == nil && wrong == nil {
			for name := range value.Members() {
				if _, ok := names[name.Text()]; ok {
					return name.Text(), nil
				}
			}
		}
	}
	return "", errLink
}

// elements returns the elements of an array, in the order in which old and new ones are to stand.
func (p *pair) elements() ([]pair, error) {
	old, want := elementsOf(p.old), elementsOf(p.want)
	if len(old) != len(p.node.Content) {
		return nil, errLink
	}
	var all []pair
	next := 0 // old element
	removeUntil := func(end int) {
		for ; next < end; next++ {
			all = append(all, pair{node: p.node.Content[next], old: old[next]})
		}
	}
	for i, at := range places(old, want) {
		if at < 0 {
			all = append(all, pair{want: want[i]})
			continue
		}
		removeUntil(at)
		all = append(all, pair{node: p.node.Content[at], old: old[at], want: want[i]})
		next = at + 1
	}
	removeUntil(len(old))
	return all, nil
}

// places returns for each element of an array the index of the old one that it is taken for, in ascending order, or -1: equal ones,
// objects with the same name, or, in arrays of one length, the one in its place.
func places(old, want []rawjson.Value) []int {
	front, back := 0, 0
	for front < min(len(old), len(want)) && sameValue(old[front], want[front]) {
		front++
	}
	for back < min(len(old), len(want))-front && sameValue(old[len(old)-1-back], want[len(want)-1-back]) {
		back++
	}
	left := map[string][]int{} // of the middle, by what identifies them
	for i := front; i < len(old)-back; i++ {
		left[identity(old[i])] = append(left[identity(old[i])], i)
	}
	all := make([]int, len(want))
	next := 0
	for i, value := range want {
		switch {
		case i >= len(want)-back:
			all[i] = i + len(old) - len(want)
		case i < front || len(old) == len(want):
			all[i] = i
		default:
			same := left[identity(value)]
			for len(same) > 0 && same[0] < next {
				same = same[1:]
			}
			if left[identity(value)] = same; len(same) == 0 {
				all[i] = -1
				continue
			}
			all[i] = same[0]
		}
		next = all[i] + 1
	}
	return all
}

func elementsOf(v rawjson.Value) []rawjson.Value {
	all := make([]rawjson.Value, 0, v.Len())
	for _, element := range v.Elements() {
		all = append(all, element)
	}
	return all
}

// identity returns what identifies an element: the name of an object, or else all of it.
func identity(v rawjson.Value) string {
	if name := v.Get("name"); name.Kind() == rawjson.String {
		return "name " + name.Text()
	}
	return string(v)
}
