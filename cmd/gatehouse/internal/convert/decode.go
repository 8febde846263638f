package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// maxDepth bounds the depth of documents, which are untrusted.
const maxDepth = 100

// decodeJSON decodes JSON into the types that a decoder of Kubernetes gives: integers are int64.
func decodeJSON(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return withIntegers(value, 0)
}

// withIntegers replaces numbers in a value.
func withIntegers(value any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("is too deep")
	}
	var err error
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil || math.IsInf(f, 0) {
			return nil, errors.New("has a number that is too large")
		}
		return f, nil
	case map[string]any:
		for key, of := range v {
			if v[key], err = withIntegers(of, depth+1); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, of := range v {
			if v[i], err = withIntegers(of, depth+1); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// decodeStrictly decodes JSON into a type of which it must have no other fields. Fields of any type have integers as int64.
func decodeStrictly(raw []byte, into any) error {
	value, err := decodeJSON(raw)
	if err != nil {
		return err
	}
	if err := compareStrictly(reflect.TypeOf(into).Elem(), value); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return err
	}
	setIntegers(reflect.ValueOf(into).Elem())
	return nil
}

// compareStrictly returns an error if a value has other fields than a type.
func compareStrictly(of reflect.Type, value any) error {
	var checker strict.Checker
	if found := checker.Compare(of, value, "", strict.Options{}); len(found) > 0 {
		return errors.New(strings.TrimSpace(found[0].Field + " " + found[0].Message))
	}
	return nil
}

// setIntegers replaces numbers in fields of the type any.
func setIntegers(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // others have no such fields
	case reflect.Pointer:
		if !v.IsNil() {
			setIntegers(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() || f.Kind() == reflect.Struct {
				setIntegers(f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			setIntegers(v.Index(i))
		}
	case reflect.Interface:
		if !v.IsNil() && v.CanSet() && v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(integers(v.Interface())))
		}
	}
}

// integers returns a decoded value with integers in place of whole numbers.
func integers(value any) any {
	switch v := value.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case map[string]any:
		for key, of := range v {
			v[key] = integers(of)
		}
	case []any:
		for i, of := range v {
			v[i] = integers(of)
		}
	}
	return value
}
