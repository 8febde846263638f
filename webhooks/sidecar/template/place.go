package template

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

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

// takes reports whether the value can be decoded into the place. Nothing fits
// everywhere, because it is left out.
func (p place) takes(s scalar) bool {
	if p.t == nil || s.kind == nothing {
		return true
	}
	if p.isQuantity() {
		_, err := parseQuantity(string(s.appendText(nil)))
		return err == nil && s.kind != boolean
	}
	if p.decides {
		return json.Unmarshal(s.appendJSON(nil), reflect.New(p.t).Interface()) == nil
	}
	switch p.t.Kind() { //nolint:exhaustive // all others take no scalar
	case reflect.String:
		return s.kind == textual
	case reflect.Bool:
		return s.kind == boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, ok := s.whole()
		return ok && !reflect.Zero(p.t).OverflowInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, ok := s.whole()
		return ok && n >= 0 && !reflect.Zero(p.t).OverflowUint(uint64(n)) // #nosec G115 -- not negative here
	case reflect.Float32, reflect.Float64:
		return s.kind == integer || s.kind == natural || s.kind == number
	case reflect.Slice:
		if p.t.Elem().Kind() != reflect.Uint8 || s.kind != textual {
			return false
		}
		_, err := base64.StdEncoding.DecodeString(s.text)
		return err == nil
	default:
		return false
	}
}

// whole returns the value as an integer, if it is one: 80.0 is.
func (s scalar) whole() (int64, bool) {
	switch s.kind { //nolint:exhaustive // the others are not numbers
	case integer:
		return s.integer, true
	case natural:
		return int64(s.natural), s.natural <= math.MaxInt64 // #nosec G115 -- used if it fits
	case number:
		// Written with an exponent, it would be no integer for a decoder.
		return int64(s.number), s.number == math.Trunc(s.number) && math.Abs(s.number) < 1e15
	default:
		return 0, false
	}
}

// fits reports whether some value of the kind can be decoded into the place.
func (p place) fits(kind scalarKind) bool {
	return slices.ContainsFunc(samples(kind), p.takes)
}

// wants says what the place takes.
func (p place) wants() string {
	switch {
	case p.t == nil:
		return "anything"
	case p.t == reflect.TypeFor[intstr.IntOrString]():
		return "an integer or a string"
	case p.t == reflect.TypeFor[metav1.Time](), p.t == reflect.TypeFor[metav1.MicroTime]():
		return "a time such as 2026-12-31T23:59:59Z"
	case p.t == reflect.TypeFor[metav1.Duration]():
		return "a duration such as 90s or 24h"
	case p.isQuantity():
		return strict.Quantity
	case p.decides:
		return "a " + strings.ToLower(p.t.Name())
	}
	switch p.t.Kind() { //nolint:exhaustive // all others take no scalar
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("an integer of %d bits", p.t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		if p.t.Elem().Kind() == reflect.Uint8 {
			return "base64 text"
		}
		return "a list"
	default:
		return "a mapping"
	}
}
