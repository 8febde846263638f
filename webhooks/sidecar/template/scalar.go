package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// scalarKind is a kind of result that a placeholder may have.
type scalarKind byte

const (
	nothing scalarKind = iota // null, or an optional without a value
	textual
	integer
	natural
	number
	boolean
)

// scalar is the result of a placeholder.
type scalar struct {
	kind    scalarKind
	text    string
	integer int64
	natural uint64
	number  float64
	boolean bool
}

// isLike reports whether two kinds are the same, all numbers being one.
func (k scalarKind) isLike(other scalarKind) bool {
	isNumber := func(k scalarKind) bool { return k == integer || k == natural || k == number }
	return k == other || isNumber(k) && isNumber(other)
}

func textScalar(text string) scalar { return scalar{kind: textual, text: text} }

// scalarOf takes a result of CEL. The error says what it is instead.
func scalarOf(v ref.Val) (scalar, error) {
	switch v := v.(type) {
	case types.String:
		return textScalar(string(v)), nil
	case types.Int:
		return scalar{kind: integer, integer: int64(v)}, nil
	case types.Uint:
		return scalar{kind: natural, natural: uint64(v)}, nil
	case types.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return scalar{}, fmt.Errorf("is %v, which JSON cannot express", f)
		}
		return scalar{kind: number, number: float64(v)}, nil
	case types.Bool:
		return scalar{kind: boolean, boolean: bool(v)}, nil
	case types.Null:
		return scalar{}, nil
	case *types.Optional:
		if !v.HasValue() {
			return scalar{}, nil
		}
		return scalarOf(v.GetValue())
	case nil:
		return scalar{}, errors.New("has no result")
	default:
		return scalar{}, fmt.Errorf("is of type %s, and a placeholder gives a text, a number or a boolean", typeName(v.Type().TypeName()))
	}
}

// typeName returns the name of a CEL type for people.
func typeName(name string) string {
	switch name {
	case "google.protobuf.Timestamp":
		return "timestamp"
	case "google.protobuf.Duration":
		return "duration"
	default:
		return name
	}
}

// appendJSON writes the scalar as a JSON value.
func (s scalar) appendJSON(dst []byte) []byte {
	if s.kind == textual {
		return rawjson.AppendString(dst, s.text)
	}
	return s.appendText(dst)
}

// appendText writes the scalar as it stands in a longer text.
func (s scalar) appendText(dst []byte) []byte {
	switch s.kind {
	case textual:
		return append(dst, s.text...)
	case integer:
		return strconv.AppendInt(dst, s.integer, 10)
	case natural:
		return strconv.AppendUint(dst, s.natural, 10)
	case number:
		text, err := json.Marshal(s.number)
		if err != nil {
			return append(dst, "null"...) // scalarOf lets no such number pass
		}
		return append(dst, text...)
	case boolean:
		return strconv.AppendBool(dst, s.boolean)
	case nothing:
		return append(dst, "null"...)
	default:
		return dst
	}
}

// quoted returns the scalar for a message.
func (s scalar) quoted() string {
	return strconv.Quote(strict.Cut(string(s.appendText(nil)), mostQuoted))
}

// mostQuoted is how many characters of a value a message shows.
const mostQuoted = 60

// staticKind tells what an expression of this type gives. Not known is dyn, and
// not ok what cannot be the result of a placeholder.
func staticKind(t *cel.Type) (kind scalarKind, known, ok bool) {
	switch {
	case t == nil:
		return nothing, false, true
	case t.Kind() == types.StringKind:
		return textual, true, true
	case t.Kind() == types.IntKind:
		return integer, true, true
	case t.Kind() == types.UintKind:
		return natural, true, true
	case t.Kind() == types.DoubleKind:
		return number, true, true
	case t.Kind() == types.BoolKind:
		return boolean, true, true
	case t.Kind() == types.NullTypeKind:
		return nothing, true, true
	case t.Kind() == types.DynKind || t.Kind() == types.AnyKind:
		return nothing, false, true
	case isOptional(t) && len(t.Parameters()) == 1:
		return staticKind(t.Parameters()[0])
	case t.Kind() == types.TypeParamKind:
		return nothing, false, true // optional.none() alone
	default:
		return nothing, true, false
	}
}

func isOptional(t *cel.Type) bool {
	return t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName()
}

// samples returns values of a kind, one of which fits most places that take one.
func samples(kind scalarKind) []scalar {
	switch kind {
	case textual:
		return []scalar{
			textScalar("sample"), textScalar("1"), textScalar("1s"), textScalar("2026-01-01T00:00:00Z"), textScalar("c2FtcGxl"),
		}
	case integer:
		return []scalar{{kind: integer, integer: 1}}
	case natural:
		return []scalar{{kind: natural, natural: 1}}
	case number:
		return []scalar{{kind: number, number: 1.5}}
	case boolean:
		return []scalar{{kind: boolean, boolean: true}}
	case nothing:
		return []scalar{{}}
	default:
		return nil
	}
}
