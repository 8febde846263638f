package podsecurity

import (
	"fmt"
	"strings"
	"unicode"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// pathTo returns the path to the value that starts at a place in the text, with a
// colon, for the front of an error: "spec.containers[1].name: ". For the whole
// text it is empty. A name that is not made of letters is quoted, and cut if it
// is long.
func pathTo(text rawjson.Value, at int) string {
	var path strings.Builder
	c := text.Cursor()
	for c.At() != at {
		// The place is in the object or array that comes next.
		object := c.Kind() == rawjson.Object
		c.Enter()
		for i := 0; c.Next(); i++ {
			var name rawjson.Value
			if object {
				name = c.Name()
			}
			inside := c
			if c.Skip(); at >= c.At() {
				continue
			}
			if object {
				path.WriteString(memberStep(name.Text()))
			} else {
				fmt.Fprintf(&path, "[%d]", i)
			}
			c = inside
			break
		}
	}
	if path.Len() == 0 {
		return ""
	}
	return strings.TrimPrefix(path.String(), ".") + ": "
}

func memberStep(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsLetter(r) }) {
		return fmt.Sprintf("[%.80q]", name)
	}
	return "." + name
}
