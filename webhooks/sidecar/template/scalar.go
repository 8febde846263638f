package template

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// A scalar is a result that a placeholder may have: a string, number or boolean of CEL, or
// null, which leaves the value out.

// scalarOf returns a result of CEL as a scalar. The error says what it is instead.
func scalarOf(v ref.Val) (ref.Val, error) {
	switch v := v.(type) {
	case types.String, types.Int, types.Uint, types.Bool, types.Null:
		return v, nil
	case types.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("is %v, which JSON cannot represent", f)
		}
		return v, nil
	case *types.Optional:
		if !v.HasValue() {
			return types.NullValue, nil
		}
		return scalarOf(v.GetValue())
	case nil:
		return nil, errors.New("has no result")
	default:
		return nil, fmt.Errorf("is of type %s, and a placeholder must result in a string, a number or a boolean", typeName(v.Type().TypeName()))
	}
}

func appendJSON(dst []byte, v ref.Val) []byte {
	if text, ok := v.(types.String); ok {
		return rawjson.AppendString(dst, string(text))
	}
	return appendText(dst, v)
}

// appendText writes a scalar as it stands in a longer text.
func appendText(dst []byte, v ref.Val) []byte {
	switch v := v.(type) {
	case types.String:
		return append(dst, v...)
	case types.Int:
		return strconv.AppendInt(dst, int64(v), 10)
	case types.Uint:
		return strconv.AppendUint(dst, uint64(v), 10)
	case types.Bool:
		return strconv.AppendBool(dst, bool(v))
	case types.Double:
		if text, err := json.Marshal(float64(v)); err == nil {
			return append(dst, text...)
		}
	}
	return append(dst, "null"...)
}

// mostQuoted is how many characters of a value a message shows.
const mostQuoted = 60

func quote(v ref.Val) string {
	return strconv.Quote(strict.Cut(string(appendText(nil, v)), mostQuoted))
}

func isNull(v ref.Val) bool { return v == types.NullValue }

func kindOf(v ref.Val) types.Kind {
	t, _ := v.Type().(*types.Type)
	return t.Kind()
}

func isNumber(kind types.Kind) bool {
	return kind == types.IntKind || kind == types.UintKind || kind == types.DoubleKind
}

func describeKind(kind types.Kind) string {
	switch kind { //nolint:exhaustive // no scalar is of another kind
	case types.NullTypeKind:
		return "null"
	case types.StringKind:
		return "a string"
	case types.IntKind, types.UintKind:
		return "an integer"
	case types.DoubleKind:
		return "a number"
	case types.BoolKind:
		return "a boolean"
	default:
		return "unknown"
	}
}

func typeName(name string) string {
	if short, ok := strings.CutPrefix(name, "google.protobuf."); ok && (short == "Timestamp" || short == "Duration") {
		return strings.ToLower(short)
	}
	return name
}

// staticKind returns the kind of what an expression of this type gives. It is not known for
// dyn, and not ok for what cannot be the result of a placeholder.
func staticKind(t *cel.Type) (kind types.Kind, known, ok bool) {
	switch kind := t.Kind(); {
	case kind == types.StringKind, kind == types.BoolKind, kind == types.NullTypeKind, isNumber(kind):
		return kind, true, true
	case kind == types.DynKind, kind == types.AnyKind, kind == types.TypeParamKind: // the last is optional.none() alone
		return kind, false, true
	case isOptional(t) && len(t.Parameters()) == 1:
		return staticKind(t.Parameters()[0])
	default:
		return kind, true, false
	}
}

func isOptional(t *cel.Type) bool {
	return t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName()
}

// samples returns scalars of a kind, one of which fits most places that take one.
func samples(kind types.Kind) []ref.Val {
	switch kind { //nolint:exhaustive // no scalar is of another kind
	case types.StringKind:
		return []ref.Val{types.String("sample"), types.String("1"), types.String("1s"), types.String("2026-01-01T00:00:00Z"), types.String("c2FtcGxl")}
	case types.IntKind:
		return []ref.Val{types.Int(1)}
	case types.UintKind:
		return []ref.Val{types.Uint(1)}
	case types.DoubleKind:
		return []ref.Val{types.Double(1.5)}
	case types.BoolKind:
		return []ref.Val{types.True}
	case types.NullTypeKind:
		return []ref.Val{types.NullValue}
	default:
		return nil
	}
}

// place is where a value ends up: a Go type that is no pointer, or nil where
// anything is welcome.
type place struct {
	t reflect.Type
	// decides is true if the type decodes its JSON itself.
	decides bool
}

func placeOf(t reflect.Type) place {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() == reflect.Interface {
		return place{}
	}
	return place{t: t, decides: reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())}
}

func (p place) isQuantity() bool { return p.t == reflect.TypeFor[resource.Quantity]() }

// isString reports whether every text fits.
func (p place) isString() bool { return p.t != nil && !p.decides && p.t.Kind() == reflect.String }

// isStructure reports whether the place is a list's or a mapping's.
func (p place) isStructure() bool {
	if p.t == nil || p.decides {
		return false
	}
	switch p.t.Kind() { //nolint:exhaustive // all others are scalars
	case reflect.Struct, reflect.Map, reflect.Array:
		return true
	case reflect.Slice:
		return p.t.Elem().Kind() != reflect.Uint8
	default:
		return false
	}
}

// accepts reports whether a scalar can be decoded into the place. Null fits
// everywhere, because it is left out.
func (p place) accepts(v ref.Val) bool {
	if p.t == nil || isNull(v) {
		return true
	}
	if p.isString() {
		return kindOf(v) == types.StringKind
	}
	if p.isQuantity() {
		_, ok := parseQuantity(string(appendText(nil, v)))
		return ok && kindOf(v) != types.BoolKind
	}
	if p.decides {
		return json.Unmarshal(appendJSON(nil, v), reflect.New(p.t).Interface()) == nil
	}
	switch zero := reflect.Zero(p.t); {
	case zero.CanInt():
		n, ok := integer(v)
		return ok && !zero.OverflowInt(n)
	case zero.CanUint():
		n, ok := integer(v)
		return ok && n >= 0 && !zero.OverflowUint(uint64(n)) // #nosec G115 -- not negative here
	case zero.CanFloat():
		return isNumber(kindOf(v))
	case p.t.Kind() == reflect.Bool:
		return kindOf(v) == types.BoolKind
	case p.isStructure():
		return false
	default:
		text, ok := v.(types.String)
		_, err := base64.StdEncoding.DecodeString(string(text))
		return ok && err == nil
	}
}

// integer returns a scalar as an integer, if it is one: 80.0 is.
func integer(v ref.Val) (int64, bool) {
	switch v := v.(type) {
	case types.Int:
		return int64(v), true
	case types.Uint:
		return int64(v), v <= math.MaxInt64 // #nosec G115 -- used if it fits
	case types.Double:
		// Written with an exponent, it would be no integer for a decoder.
		return int64(v), float64(v) == math.Trunc(float64(v)) && math.Abs(float64(v)) < 1e15
	default:
		return 0, false
	}
}

// fits reports whether some scalar of the kind can be decoded into the place.
func (p place) fits(kind types.Kind) bool { return slices.ContainsFunc(samples(kind), p.accepts) }

func (p place) expected() string {
	switch p.t {
	case nil:
		return "anything"
	case reflect.TypeFor[intstr.IntOrString]():
		return "an integer or a string"
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "a time such as 2026-12-31T23:59:59Z"
	case reflect.TypeFor[metav1.Duration]():
		return "a duration such as 90s or 24h"
	case reflect.TypeFor[resource.Quantity]():
		return strict.Quantity
	}
	switch zero := reflect.Zero(p.t); {
	case p.decides:
		return "a " + strings.ToLower(p.t.Name())
	case zero.CanInt(), zero.CanUint():
		return fmt.Sprintf("a %d-bit integer", p.t.Bits())
	case zero.CanFloat():
		return "a number"
	case p.t.Kind() == reflect.Bool:
		return "true or false"
	case p.t.Kind() == reflect.String:
		return "a string"
	case p.t.Kind() == reflect.Slice && !p.isStructure():
		return "base64 text"
	case p.t.Kind() == reflect.Slice:
		return "a list"
	default:
		return "a mapping"
	}
}
