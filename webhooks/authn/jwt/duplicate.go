package jwt

import (
	"bytes"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// few is the number of names up to which comparing pairs is faster than a map.
const few = 24

// findDuplicate returns a name that occurs twice.
func findDuplicate(claims []claim) (rawjson.Value, bool) {
	if len(claims) <= few {
		for i := range claims {
			for j := range i {
				if bytes.Equal(claims[i].name, claims[j].name) {
					return claims[i].name, true
				}
			}
		}
		return nil, false
	}
	seen := make(map[string]bool, len(claims))
	for _, c := range claims {
		if seen[string(c.name)] {
			return c.name, true
		}
		seen[string(c.name)] = true
	}
	return nil, false
}

// findNestedDuplicate returns a name that occurs twice in one object at any depth of the
// value. It reads the value once.
func findNestedDuplicate(v rawjson.Value) (rawjson.Value, bool) {
	if v.Kind() != rawjson.Object && v.Kind() != rawjson.Array {
		return nil, false
	}
	var (
		c = v.Cursor()
		// names of the objects that were entered and not left, innermost last.
		names []claim
		// open has for each level whether it is an object, and where its names begin.
		open []level
	)
	for {
		if kind := c.Kind(); kind == rawjson.Object || kind == rawjson.Array {
			c.Enter()
			open = append(open, level{object: kind == rawjson.Object, names: len(names)})
		} else {
			c.Skip()
		}
		for !c.Next() {
			inner := open[len(open)-1]
			if name, found := findDuplicate(names[inner.names:]); found {
				return name, true
			}
			names, open = names[:inner.names], open[:len(open)-1]
			if len(open) == 0 {
				return nil, false
			}
		}
		if open[len(open)-1].object {
			names = append(names, claim{name: c.PlainName()})
		}
	}
}

type level struct {
	object bool
	names  int
}
