package podcheck

import (
	"maps"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
)

// AdditionRules are containerRules without the lists of which checks of their
// own find what is in them twice.
//
//nolint:gochecknoglobals // a table that nobody changes
var AdditionRules = func() *merge.Rule {
	fields := maps.Clone(merge.ContainerRules.Fields)
	for _, name := range [...]string{"env", "volumeMounts", "volumeDevices"} {
		delete(fields, name)
	}
	return &merge.Rule{Fields: fields}
}()

// Repeated reports elements that a list has twice: whoever takes out one of the
// two does not know which, and the API server takes only the last of most.
func (c *Checker) Repeated(path string, v rawjson.Value, r *merge.Rule) {
	switch {
	case r == nil:
	case v.Kind() == rawjson.Object && !r.IsAtomic:
		for nameText, value := range v.Members() {
			name := nameText.Text()
			c.Repeated(path+"."+name, value, r.Field(name))
		}
	case v.Kind() == rawjson.Array && r.IsMergedList():
		first := make(map[string]string, v.Len())
		for i, element := range v.Elements() {
			at, key := Indexed(path, i), r.Identity(element)
			other, twice := first[key]
			switch {
			case !twice:
				first[key] = at
				c.Repeated(at, element, r)
			case r.IsSet:
				c.error(at, "remove one of the two", "is the same as %s", other)
			default:
				c.error(at, "remove one of the two", "has the same %s as %s", r.KeyNames(), other)
			}
		}
	}
}
