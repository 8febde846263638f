package json

import (
	"bytes"
	"fmt"
	"strconv"
)

// DuplicateKeyError is the error of an object that has a member twice. Readers of such a text
// disagree on which one counts.
type DuplicateKeyError struct {
	// Key is the member's name.
	Key string
}

// Error names the member.
func (e *DuplicateKeyError) Error() string {
	return fmt.Sprintf("member %q occurs twice in one object", e.Key)
}

// Decode builds the tree of the value, with the types that apimachinery's
// decoder gives unstructured objects: map[string]any, []any, string, bool, nil,
// int64 for a number that is written as an integer and fits, and float64 for any
// other. An absent value decodes to nil. All strings share one copy of the text.
//
// The error is a *DuplicateKeyError, or says that a number is out of range.
func (v Value) Decode() (any, error) {
	if len(v) == 0 {
		return nil, nil
	}
	d := decoder{data: v, text: string(v)}
	out, _, err := d.value(0)
	return out, err
}

type decoder struct {
	data []byte
	text string // the same bytes, to cut strings from
	// open holds the elements of the arrays that are being read, so that each
	// array is allocated once and in its size.
	open []any
}

func (d *decoder) value(i int) (any, int, error) {
	switch d.data[i] {
	case '{':
		return d.object(i)
	case '[':
		return d.array(i)
	case '"':
		s, end := d.str(i)
		return s, end, nil
	case 't':
		return true, i + 4, nil
	case 'f':
		return false, i + 5, nil
	case 'n':
		return nil, i + 4, nil
	default:
		return d.number(i)
	}
}

func (d *decoder) object(i int) (any, int, error) {
	out := make(map[string]any)
	i = skipSpace(d.data, i+1)
	for n := 1; d.data[i] != '}'; n++ {
		key, end := d.str(i)
		i = skipSpace(d.data, skipSpace(d.data, end)+1)
		value, end, err := d.value(i)
		if err != nil {
			return nil, 0, err
		}
		out[key] = value
		if len(out) != n {
			return nil, 0, &DuplicateKeyError{Key: key}
		}
		i = skipSpace(d.data, end)
		if d.data[i] == ',' {
			i = skipSpace(d.data, i+1)
		}
	}
	return out, i + 1, nil
}

func (d *decoder) array(i int) (any, int, error) {
	base := len(d.open)
	i = skipSpace(d.data, i+1)
	for d.data[i] != ']' {
		value, end, err := d.value(i)
		if err != nil {
			return nil, 0, err
		}
		d.open = append(d.open, value)
		i = skipSpace(d.data, end)
		if d.data[i] == ',' {
			i = skipSpace(d.data, i+1)
		}
	}
	out := make([]any, len(d.open)-base)
	copy(out, d.open[base:])
	clear(d.open[base:])
	d.open = d.open[:base]
	return out, i + 1, nil
}

func (d *decoder) str(i int) (string, int) {
	end := skipText(d.data, i)
	if bytes.IndexByte(d.data[i:end], '\\') < 0 {
		return d.text[i+1 : end-1], end
	}
	return Value(d.data[i:end]).Text(), end
}

func (d *decoder) number(i int) (any, int, error) {
	end := skipValue(d.data, i)
	text := d.text[i:end]
	// As apimachinery: an integer that does not fit becomes a float64.
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, end, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("number %.40q is out of range", text)
	}
	return f, end, nil
}
