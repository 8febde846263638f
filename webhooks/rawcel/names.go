package rawcel

import (
	"bytes"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// few is up to how many names comparing with each beats a map of them.
const few = 16

// duplicate returns a name that occurs twice among those at the spans. escaped
// reports whether one of them has an escape: if none has, the same name is the same
// text.
func duplicate(text rawjson.Value, names []span, escaped bool) (name string, found bool) {
	if len(names) <= few && !escaped {
		for i, a := range names {
			for _, b := range names[:i] {
				if bytes.Equal(text[a.start:a.end], text[b.start:b.end]) {
					return text[a.start:a.end].Text(), true
				}
			}
		}
		return "", false
	}
	seen := make(map[string]struct{}, len(names))
	for i, at := range names {
		name := text[at.start:at.end].Text()
		seen[name] = struct{}{}
		if len(seen) == i {
			return name, true
		}
	}
	return "", false
}
