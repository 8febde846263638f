package sidecar

import "github.com/gatehouse-dev/gatehouse/webhooks/rawjson"

// finder finds elements of a list by their keys. Where many are looked for among
// many, it looks at each once.
type finder struct {
	list rawjson.Value
	rule *rule
	at   map[string]keyed // nil if there are few
}

// keyed is an element of a list.
type keyed struct {
	index   int
	element rawjson.Value
}

func newFinder(list rawjson.Value, r *rule, wanted rawjson.Value) finder {
	const few = 16
	f := finder{list: list, rule: r}
	if r.united || wanted.Len() <= few || list.Len() <= few {
		return f
	}
	f.at = make(map[string]keyed)
	for i, element := range list.Elements() {
		key := r.key(element)
		if _, twice := f.at[key]; !twice {
			f.at[key] = keyed{i, element}
		}
	}
	return f
}

// find returns the first element with a key, or -1.
func (f *finder) find(key string, value rawjson.Value) (int, rawjson.Value) {
	if f.at != nil {
		if k, there := f.at[key]; there {
			return k.index, k.element
		}
		return -1, nil
	}
	return find(f.list, f.rule, key, value)
}
