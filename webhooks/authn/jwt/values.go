package jwt

import (
	"encoding/json"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// claimsValue returns the variable claims of expressions: upstream's map, whose values are
// decoded when they are first used.
func claimsValue(t *Token) *lazy.MapValue {
	m := lazy.NewMapValue(types.NewObjectType("kubernetes.claims"))
	for i := range t.claims {
		c := &t.claims[i]
		m.Append(c.name.Text(), func(*lazy.MapValue) ref.Val { return celValue(c) })
	}
	return m
}

// userValue returns the variable user of expressions.
func userValue(info *authenticationv1.UserInfo) *lazy.MapValue {
	m := lazy.NewMapValue(types.NewObjectType("kubernetes.UserInfo"))
	field := func(name string, get func() any) {
		m.Append(name, func(*lazy.MapValue) ref.Val { return unescaped(types.DefaultTypeAdapter.NativeToValue(get())) })
	}
	field("username", func() any { return info.Username })
	field("uid", func() any { return info.UID })
	field("groups", func() any { return info.Groups })
	field("extra", func() any { return extraOf(info) })
	return m
}

// celValue returns a claim as encoding/json decodes it, in CEL's types: every number is a
// double.
func celValue(c *claim) ref.Val {
	switch c.value.Kind() {
	case rawjson.String:
		return types.String(c.value.Text())
	case rawjson.Bool:
		return types.Bool(c.value.IsTrue())
	case rawjson.Null:
		return types.NullValue
	case rawjson.Number, rawjson.Array, rawjson.Object, rawjson.Invalid:
	}
	var decoded any
	if err := json.Unmarshal(c.value, &decoded); err != nil {
		return types.NewErr("claim %s cannot be decoded: %s", quote(c.name.Text()), boundedError(err))
	}
	return unescaped(types.DefaultTypeAdapter.NativeToValue(decoded))
}

// unescaped makes the members of a value accessible under the escaped names that CEL uses
// for names that are not identifiers, at every depth: claims.a__dot__b is the claim a.b.
func unescaped(v ref.Val) ref.Val {
	switch v := v.(type) {
	case traits.Mapper:
		return &unescapedMap{v}
	case traits.Lister:
		return &unescapedList{v}
	}
	return v
}

type unescapedMap struct{ traits.Mapper }

// Find is upstream's: an escaped name stands for what it escapes alone.
func (m *unescapedMap) Find(key ref.Val) (ref.Val, bool) {
	if text, ok := key.(types.String); ok {
		if plain, ok := cel.Unescape(string(text)); ok && plain != string(text) {
			key = types.String(plain)
		}
	}
	v, found := m.Mapper.Find(key)
	return unescaped(v), found
}

type unescapedList struct{ traits.Lister }

func (l *unescapedList) Get(index ref.Val) ref.Val { return unescaped(l.Lister.Get(index)) }
