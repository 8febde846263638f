package manifest

import (
	"encoding/json"
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// The operations of a change.
const (
	add     = "add"
	replace = "replace"
	remove  = "remove"
)

// change is an operation of a JSON patch.
type change struct {
	op, path string
	value    rawjson.Value // of add and replace
}

func newChange(o *jsonpatch.Operation) (change, error) {
	c := change{op: o.Operation, path: o.Path}
	switch {
	case c.op != add && c.op != replace && c.op != remove:
		return c, fmt.Errorf("patch operation %q is not supported", c.op)
	case !strings.HasPrefix(c.path, "/"):
		return c, fmt.Errorf("%q is not a path of a patch", c.path)
	case c.op == remove:
		return c, nil
	}
	text, err := json.Marshal(o.Value)
	if err == nil {
		c.value, err = rawjson.Parse(text)
	}
	if err != nil {
		return c, fmt.Errorf("patch operation %s %s: %w", c.op, c.path, err)
	}
	return c, nil
}

// marshal returns the text of a patch.
func marshal(changes []change) json.RawMessage {
	dst := []byte{'['}
	for i, c := range changes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(append(dst, `{"op":`...), c.op)
		dst = rawjson.AppendString(append(dst, `,"path":`...), c.path)
		if c.op != remove {
			dst = append(append(dst, `,"value":`...), c.value...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// applyChanges returns a text with changes, by the API server's library.
func applyChanges(text rawjson.Value, changes []change) (rawjson.Value, error) {
	patch, err := evanphx.DecodePatch(marshal(changes))
	if err != nil {
		return nil, fmt.Errorf("the patch cannot be read: %w", err)
	}
	after, err := patch.Apply(text)
	if err != nil {
		return nil, fmt.Errorf("the patch does not fit: %w", err)
	}
	return rawjson.Parse(after)
}

// ValueAt returns the JSON of the value at a JSON pointer of an object, and "absent" if there is none.
func ValueAt(object []byte, pointer string) string {
	const most = 200 // bytes
	value := rawjson.Value(object)
	for _, step := range steps(pointer) {
		value, _ = member(value, step)
	}
	if value.Kind() == rawjson.Invalid {
		return "absent"
	}
	return truncate.Bytes(string(value), most)
}

// steps splits a JSON pointer.
func steps(pointer string) []string {
	if pointer == "" {
		return nil
	}
	names := strings.Split(pointer[1:], "/")
	for i := range names {
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(names[i])
	}
	return names
}

// escape returns a name as a step of a JSON pointer.
func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }
