package merge

import "github.com/gatehouse-dev/gatehouse/webhooks/rawjson"

// elementFinder finds elements of a list by their keys. Where many are looked for among
// many, it looks at each once.
type elementFinder struct {
	list rawjson.Value
	rule *Rule
	at   map[string]indexedElement // nil if there are few
}

// indexedElement is an element of a list.
type indexedElement struct {
	index   int
	element rawjson.Value
}

func newElementFinder(list rawjson.Value, r *Rule, wanted rawjson.Value) elementFinder {
	const few = 16
	f := elementFinder{list: list, rule: r}
	if r.IsSet || wanted.Len() <= few || list.Len() <= few {
		return f
	}
	f.at = make(map[string]indexedElement)
	for i, element := range list.Elements() {
		key := r.Key(element)
		if _, twice := f.at[key]; !twice {
			f.at[key] = indexedElement{i, element}
		}
	}
	return f
}

// find returns the first element with a key, or -1.
func (f *elementFinder) find(key string, value rawjson.Value) (int, rawjson.Value) {
	if f.at != nil {
		if k, there := f.at[key]; there {
			return k.index, k.element
		}
		return -1, nil
	}
	return findElement(f.list, f.rule, key, value)
}
