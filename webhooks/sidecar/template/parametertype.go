package template

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

const (
	// defaultMaxLength and defaultMaxItems hold where the profile's author says
	// nothing.
	defaultMaxLength = 1024
	defaultMaxItems  = 64
	// maxTextLength is what the API server allows for all annotations of an
	// object together.
	maxTextLength = 256 << 10
	// maxWordLength bounds the texts of all types but string, enum and list. No
	// such value is as long, and the time to read a number grows faster than its
	// length.
	maxWordLength = 64
	maxPort       = 65535
)

// value is what a parameter is set to.
type value struct {
	text string
	// cel is what expressions see.
	cel ref.Val
}

type parameter struct {
	name             string
	kind             v1alpha1.ParameterType
	skip             bool
	minimum, maximum *bound
	pattern          *regexp.Regexp
	maxLength        int
	maxItems         int
	enum             []string
	// fallback is nil for a parameter without a default.
	fallback *value
	// allowed is the accepted form, for people.
	allowed string
}

type bound struct {
	text     string
	integer  int64
	quantity resource.Quantity
}

func celType(kind v1alpha1.ParameterType) *cel.Type {
	switch kind {
	case v1alpha1.IntegerParameter, v1alpha1.PortParameter:
		return cel.IntType
	case v1alpha1.BooleanParameter:
		return cel.BoolType
	case v1alpha1.ListParameter:
		return cel.ListType(cel.StringType)
	case v1alpha1.StringParameter, v1alpha1.QuantityParameter, v1alpha1.DurationParameter, v1alpha1.EnumParameter:
		return cel.StringType
	default:
		return cel.DynType // not a type at all, which is reported
	}
}

// parse reads a text as a value. It returns nil for one that is not as p.allowed says.
func (p *parameter) parse(text string) *value {
	if len(text) > maxTextLength {
		return nil
	}
	switch p.kind {
	case v1alpha1.IntegerParameter, v1alpha1.PortParameter:
		if b, ok := p.number(text); ok {
			return &value{text: text, cel: types.Int(b.integer)}
		}
	case v1alpha1.QuantityParameter, v1alpha1.DurationParameter:
		if _, ok := p.number(text); ok {
			return &value{text: text, cel: types.String(text)}
		}
	case v1alpha1.BooleanParameter:
		if text == "true" || text == "false" {
			return &value{text: text, cel: types.Bool(text == "true")}
		}
	case v1alpha1.ListParameter:
		return p.list(text)
	case v1alpha1.StringParameter, v1alpha1.EnumParameter:
		if p.accepts(text) {
			return &value{text: text, cel: types.String(text)}
		}
	}
	return nil
}

// number reads a number of the parameter's type that is inside its bounds.
func (p *parameter) number(text string) (bound, bool) {
	b, ok := readBound(p.kind, text)
	return b, ok && (p.minimum == nil || p.compare(b, *p.minimum) >= 0) && (p.maximum == nil || p.compare(b, *p.maximum) <= 0)
}

func (p *parameter) compare(a, b bound) int {
	if p.kind == v1alpha1.QuantityParameter {
		return a.quantity.Cmp(b.quantity)
	}
	return cmp.Compare(a.integer, b.integer)
}

// readBound reads a number of a type that has bounds.
func readBound(kind v1alpha1.ParameterType, text string) (bound, bool) {
	if len(text) > maxWordLength {
		return bound{}, false
	}
	b, ok := bound{text: text}, true
	var err error
	switch kind { //nolint:exhaustive // the others have no bounds
	case v1alpha1.IntegerParameter:
		b.integer, err = strconv.ParseInt(text, 10, 64)
	case v1alpha1.PortParameter:
		b.integer, err = strconv.ParseInt(text, 10, 64)
		ok = b.integer >= 1 && b.integer <= maxPort
	case v1alpha1.DurationParameter:
		var d time.Duration
		d, err = time.ParseDuration(text)
		b.integer = int64(d)
	case v1alpha1.QuantityParameter:
		b.quantity, ok = parseQuantity(text)
	default:
		ok = false
	}
	return b, ok && err == nil
}

func parseQuantity(text string) (resource.Quantity, bool) {
	if len(text) > maxWordLength || celvalue.IsHugeQuantity(text) {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

// list reads texts separated by commas, without the space around them, none of
// which may be empty. A text of space alone is the empty list.
func (p *parameter) list(text string) *value {
	var items []string
	if strings.TrimSpace(text) != "" {
		if strings.Count(text, ",") >= p.maxItems {
			return nil
		}
		items = strings.Split(text, ",")
	}
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
		if items[i] == "" || !p.accepts(items[i]) {
			return nil
		}
	}
	return &value{text: text, cel: types.NewStringList(types.DefaultTypeAdapter, items)}
}

func (p *parameter) accepts(text string) bool {
	return isPlain(text) && utf8.RuneCountInString(text) <= p.maxLength &&
		(len(p.enum) == 0 || slices.Contains(p.enum, text)) &&
		(p.pattern == nil || p.pattern.MatchString(text))
}

func isPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

func (p *parameter) describe(pattern string) string {
	switch p.kind {
	case v1alpha1.IntegerParameter:
		return "an integer" + p.between()
	case v1alpha1.PortParameter:
		low, high := "1", strconv.Itoa(maxPort)
		if p.minimum != nil {
			low = p.minimum.text
		}
		if p.maximum != nil {
			high = p.maximum.text
		}
		return "a port from " + low + " to " + high
	case v1alpha1.BooleanParameter:
		return "true or false"
	case v1alpha1.QuantityParameter:
		return strict.Quantity + p.limits()
	case v1alpha1.DurationParameter:
		return "a duration such as 90s or 5m" + p.limits()
	case v1alpha1.EnumParameter:
		return oneOf(p.enum)
	case v1alpha1.StringParameter:
		if len(p.enum) > 0 {
			return oneOf(p.enum)
		}
		return fmt.Sprintf("a string of at most %d characters%s, without control characters", p.maxLength, matching(pattern))
	case v1alpha1.ListParameter:
		form := fmt.Sprintf("a list such as a,b of at most %d strings, each ", p.maxItems)
		if len(p.enum) > 0 {
			return form + oneOf(p.enum)
		}
		return form + fmt.Sprintf("of 1 to %d characters%s", p.maxLength, matching(pattern))
	default:
		return ""
	}
}

func matching(pattern string) string {
	if pattern == "" {
		return ""
	}
	return fmt.Sprintf(" that matches %q", pattern)
}

func (p *parameter) between() string {
	switch {
	case p.minimum != nil && p.maximum != nil:
		return fmt.Sprintf(" from %s to %s", p.minimum.text, p.maximum.text)
	case p.minimum != nil:
		return " of at least " + p.minimum.text
	case p.maximum != nil:
		return " of at most " + p.maximum.text
	default:
		return ""
	}
}

// limits returns the bounds behind a noun with examples.
func (p *parameter) limits() string {
	if text := p.between(); text != "" {
		return "," + strings.TrimPrefix(text, " of")
	}
	return ""
}

func oneOf(values []string) string {
	const most = 20
	quoted := make([]string, 0, min(len(values), most)+1)
	for i, v := range values {
		if i == most {
			quoted = append(quoted, "…")
			break
		}
		quoted = append(quoted, strconv.Quote(v))
	}
	return "one of " + strings.Join(quoted, ", ")
}

// sample returns a plausible value: the default, or one of the accepted form, or nil.
func (p *parameter) sample() *value {
	if p.fallback != nil {
		return p.fallback
	}
	candidates := slices.Clone(p.enum)
	for _, b := range []*bound{p.minimum, p.maximum} {
		if b != nil {
			candidates = append(candidates, b.text)
		}
	}
	for _, text := range append(candidates, "sample", "8080", "1", "true", "1s", "") {
		if v := p.parse(text); v != nil {
			return v
		}
	}
	return nil
}
