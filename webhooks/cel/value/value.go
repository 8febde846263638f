// Package value provides CEL values of JSON text that is not decoded: a member of an
// object is read when an expression selects it. An expression that reads three fields of
// a pod costs one pass over the pod's text, and no tree of it.
//
// The values behave like those that CEL makes of the decoded text: same results, same
// error messages, same types, same cost. Three differences remain. The members of an
// object are in the order of the text, where a Go map has none. The native form of a
// value, by Value or ConvertToNative, is made anew each time. And where a message of
// cel-go names a Go type, as it does for an object used as a key, it names the one here.
package value

import (
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Value returns the CEL value of a JSON value: a map for an object, a list for an
// array, an int for a number that is written as an integer and fits into 64
// bits, a double for any other number, and a string, a bool or null. An absent
// value is null, as when it is decoded.
//
// It walks the text once, and finds what rawjson.Value.Decode finds: if any
// object inside has a member twice, or any number is out of range, the result is
// an error, a *types.Err, and the value cannot be had in part. An evaluation that
// is given it fails where it asks for the variable. Such errors wrap the
// *rawjson.DuplicateKeyError, or say which number is out of range. They are found
// here, and not when an expression comes across them, because cel-go's own lists
// and maps take an element that is an error for one that is not equal: what an
// expression says would depend on how it is written.
//
// The result, and every map and list that is read from it, is not safe for
// concurrent use. It keeps what was read once: each text is decoded once,
// however often an expression asks. It shares the memory of v, which must not
// change while it is in use; strings are copies.
func Value(v rawjson.Value) ref.Val { return Typed(v, nil) }

// Typed returns the value that the API server gives expressions of an object that
// it has decoded into a Go type; of is nil for an object that it has not, as of a
// custom resource. The text is one that the API server has written.
//
// Operators of such a value differ from those of Value. Only a string can be
// looked up in an object, and only an int in a list: anything else is an error, as
// is comparing an object or list with what is none. Two structs are equal if what
// they mean is: 1Gi is 1073741824. Neither objects nor lists are ever the zero value
// of optional.ofNonZeroValue. A floating-point field is a double, however it is
// written.
func Typed(v rawjson.Value, of *Type) ref.Val {
	if kind := v.Kind(); kind != rawjson.Object && kind != rawjson.Array {
		return scalar(v)
	}
	m, _ := memories.Get().(*memory)
	if err := m.own.Read(v); err != nil {
		return failure(err)
	}
	return (&document{Index: &m.own, memory: m}).composite(0, of)
}

// Indexed returns Typed of an object or array that has been found already: that of the node with that number.
// It is valid as long as the Index has this text.
func Indexed(x *rawjson.Index, node int32, of *Type) ref.Val {
	m, _ := memories.Get().(*memory)
	return (&document{Index: x, memory: m}).composite(node, of)
}

// Release gives back the memory that a value took to find its parts. Nobody may read from the value
// any more, nor from maps and lists that were read from it: that panics. Strings and numbers stay.
func Release(value ref.Val) {
	if v, ok := value.(interface{ release() }); ok {
		v.release()
	}
}

// failure returns an error that evaluations may share: they write the place of an
// error in the expression into one that has no place yet.
func failure(err error) ref.Val {
	const nowhere = -1
	return types.NewErrWithNodeID(nowhere, "%w", err)
}

// scalar returns the value of what is neither object nor array.
func scalar(v rawjson.Value) ref.Val {
	switch v.Kind() {
	case rawjson.String:
		return types.String(v.Text())
	case rawjson.Bool:
		return types.Bool(v.IsTrue())
	case rawjson.Number:
		return number(v)
	default:
		return types.NullValue
	}
}

func number(v rawjson.Value) ref.Val {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return types.Int(n)
	}
	decoded, err := v.Decode()
	if err != nil {
		return failure(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(decoded)
}
