package sidecar

import (
	"maps"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// additionRules are containerRules without the lists of which checks of their
// own find what is in them twice.
//
//nolint:gochecknoglobals // a table that nobody changes
var additionRules = func() *rule {
	fields := maps.Clone(containerRules.fields)
	for _, name := range [...]string{"env", "volumeMounts", "volumeDevices"} {
		delete(fields, name)
	}
	return &rule{fields: fields}
}()

// repeated reports elements that a list has twice: whoever takes out one of the
// two does not know which, and the API server takes only the last of most.
func (c *checker) repeated(path string, v rawjson.Value, r *rule) {
	switch {
	case r == nil:
	case v.Kind() == rawjson.Object && !r.whole:
		for nameText, value := range v.Members() {
			name := nameText.Text()
			c.repeated(path+"."+name, value, r.field(name))
		}
	case v.Kind() == rawjson.Array && r.list():
		first := make(map[string]string, v.Len())
		for i, element := range v.Elements() {
			at, key := indexed(path, i), r.identity(element)
			other, twice := first[key]
			switch {
			case !twice:
				first[key] = at
				c.repeated(at, element, r)
			case r.united:
				c.error(at, "remove one of the two", "is the same as %s", other)
			default:
				c.error(at, "remove one of the two", "has the same %s as %s", r.keyNames(), other)
			}
		}
	}
}
