package review

import (
	"bytes"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// fieldReader reads the fields of a request and keeps the first error.
type fieldReader struct {
	prefix string
	// unique is true if it is known that no object has a member twice.
	unique bool
	err    error
	// copied has the first strings that were read, so that most requests need one piece of memory for all of them.
	copied strings.Builder
}

// fail keeps the error that a field is not what it must be. The field is name, or
// parent.name. Names are joined only here, because a valid review needs none.
func (d *fieldReader) fail(parent, name, want string) {
	if d.err != nil {
		return
	}
	if parent != "" && name != "" {
		parent += "."
	}
	d.err = fmt.Errorf("%s%s%s: must be %s", d.prefix, parent, name, want)
}

// string reads a string. Null is an absent string, as everywhere in the API.
func (d *fieldReader) string(parent, name string, v rawjson.Value) string {
	switch v.Kind() {
	case rawjson.String:
		return d.text(v)
	case rawjson.Null:
		return ""
	default:
		d.fail(parent, name, "a string")
		return ""
	}
}

func (d *fieldReader) boolean(name string, v rawjson.Value) *bool {
	switch v.Kind() {
	case rawjson.Bool:
		b := v.IsTrue()
		return &b
	case rawjson.Null:
		return nil
	default:
		d.fail("", name, "a boolean")
		return nil
	}
}

func (d *fieldReader) object(name string, v rawjson.Value, into *runtime.RawExtension) {
	switch v.Kind() {
	case rawjson.Object:
		into.Raw = v
	case rawjson.Null:
	default:
		d.fail("", name, "an object")
	}
}

func (d *fieldReader) members(parent, name string, v rawjson.Value) rawjson.Value {
	switch v.Kind() {
	case rawjson.Object:
		if d.unique {
			return v
		}
		if key, dup := v.DuplicateKey(); dup {
			d.fail(parent, name, fmt.Sprintf("written with each member once, but %q occurs twice", truncate.Runes(key, 64)))
		}
		return v
	case rawjson.Null:
		return nil
	default:
		d.fail(parent, name, "an object")
		return nil
	}
}

// unknown checks the name of an unknown member: an escape could hide a known name.
func (d *fieldReader) unknown(parent string, key rawjson.Value) {
	if bytes.IndexByte(key, '\\') >= 0 {
		d.fail("", parent, "written without escapes in its members' names")
	}
}

func (d *fieldReader) kind(name string, v rawjson.Value, into *metav1.GroupVersionKind) {
	into.Group, into.Version, into.Kind = d.qualified(name, "kind", v)
}

func (d *fieldReader) resource(name string, v rawjson.Value, into *metav1.GroupVersionResource) {
	into.Group, into.Version, into.Resource = d.qualified(name, "resource", v)
}

// qualified reads a group, a version, and the name in them, which is the member last.
func (d *fieldReader) qualified(name, last string, v rawjson.Value) (group, version, value string) {
	for key, member := range d.members("", name, v).Members() {
		switch string(key[1 : len(key)-1]) {
		case "group":
			group = d.string(name, "group", member)
		case "version":
			version = d.string(name, "version", member)
		case last:
			value = d.string(name, last, member)
		default:
			d.unknown(name, key)
		}
	}
	return group, version, value
}

func (d *fieldReader) user(name string, v rawjson.Value, into *authenticationv1.UserInfo) {
	for key, value := range d.members("", name, v).Members() {
		switch string(key) {
		case `"username"`:
			into.Username = d.string(name, "username", value)
		case `"uid"`:
			into.UID = d.string(name, "uid", value)
		case `"groups"`:
			into.Groups = d.strings(name, "groups", value)
		case `"extra"`:
			for key, value := range d.members(name, "extra", value).Members() {
				if into.Extra == nil {
					into.Extra = make(map[string]authenticationv1.ExtraValue)
				}
				into.Extra[d.text(key)] = d.strings(name, "extra", value)
			}
		default:
			d.unknown(name, key)
		}
	}
}

func (d *fieldReader) strings(parent, name string, v rawjson.Value) []string {
	switch v.Kind() {
	case rawjson.Array:
		out := make([]string, 0, v.Len()) // not nil: an empty list is not null
		for _, element := range v.Elements() {
			out = append(out, d.string(parent, name, element))
		}
		return out
	case rawjson.Null:
		return nil
	default:
		d.fail(parent, name, "an array of strings")
		return nil
	}
}

// text returns the string of a value.
func (d *fieldReader) text(v rawjson.Value) string {
	const usual = 512 // bytes
	if d.copied.Cap() == 0 {
		d.copied.Grow(usual)
	}
	start := d.copied.Len()
	// It never grows: strings would keep what it was before.
	if start+len(v) > d.copied.Cap() || bytes.IndexByte(v, '\\') >= 0 {
		return v.Text()
	}
	d.copied.Write(v[1 : len(v)-1])
	return d.copied.String()[start:]
}
