package template

import (
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

const (
	// maxNameLength is that of the part of an annotation's name behind the slash.
	maxNameLength = 63
	// maxPatternLength bounds what is compiled for a parameter.
	maxPatternLength = 1024
)

// namePattern is the form of the names of parameters and presets.
var namePattern = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

// isReserved reports whether CEL reserves the word.
func isReserved(word string) bool {
	switch word {
	case "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
		"namespace", "null", "package", "return", "true", "var", "void", "while":
		return true
	default:
		return false
	}
}

type report struct {
	found diagnostic.List
	// budget is that of the profile, for its patterns.
	budget *celbound.Budget
}

func (r *report) errorf(field, hint, format string, args ...any) {
	r.found = append(r.found, diagnostic.Diagnostic{
		Severity: diagnostic.Error, Field: field, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (r *report) checkName(path, name string, taken map[string]bool) {
	path = strict.Member(path, "name")
	switch {
	case name == "":
		r.errorf(path, "", "is required")
	case len(name) > maxNameLength:
		r.errorf(path, "", "%q is longer than %d characters", strict.Cut(name, mostQuoted), maxNameLength)
	case !namePattern.MatchString(name):
		r.errorf(path, "", "%q is not a name: expected a lower-case letter followed by letters and digits, as in logLevel", strict.Cut(name, mostQuoted))
	case isReserved(name):
		r.errorf(path, "choose another name", "%q is a reserved word of CEL", name)
	case taken[name]:
		r.errorf(path, "", "%q is declared twice", name)
	}
	taken[name] = true
}

func (r *report) checkPresets(list []v1alpha1.SidecarPreset) []string {
	var names []string
	taken := map[string]bool{}
	for i := range list {
		preset, path := &list[i], strict.Element("spec.presets", i)
		r.checkName(path, preset.Name, taken)
		names = append(names, preset.Name)
		reference := strict.Member(path, "configMap")
		r.checkReference(strict.Member(reference, "namespace"), preset.ConfigMap.Namespace, validation.IsDNS1123Label)
		r.checkReference(strict.Member(reference, "name"), preset.ConfigMap.Name, validation.IsDNS1123Subdomain)
	}
	return names
}

func (r *report) checkReference(path, name string, check func(string) []string) {
	if name == "" {
		r.errorf(path, "", "is required")
		return
	}
	if problems := check(name); len(problems) > 0 {
		r.errorf(path, "", "%q is not a name: %s", strict.Cut(name, mostQuoted), strings.Join(problems, "; "))
	}
}

// checkParameters checks the parameters. What is wrong with one is no reason to leave
// it out: expressions that name it are right.
func (r *report) checkParameters(list []v1alpha1.SidecarParameter) []parameter {
	out := make([]parameter, len(list))
	taken := map[string]bool{}
	for i := range list {
		path := strict.Element("spec.parameters", i)
		r.checkName(path, list[i].Name, taken)
		out[i] = r.checkParameter(path, &list[i])
	}
	return out
}

func (r *report) checkParameter(path string, in *v1alpha1.SidecarParameter) parameter {
	before := len(r.found)
	p := parameter{
		name: in.Name, kind: in.Type, skip: in.OnInvalid == v1alpha1.SkipInvalid,
		maxLength: defaultMaxLength, maxItems: defaultMaxItems, enum: slices.Clone(in.Enum),
	}
	switch in.OnInvalid {
	case "", v1alpha1.RefuseInvalid, v1alpha1.SkipInvalid:
	default:
		r.errorf(strict.Member(path, "onInvalid"), diagnostic.DidYouMean(string(in.OnInvalid), string(v1alpha1.RefuseInvalid), string(v1alpha1.SkipInvalid)),
			"%q is invalid: must be Refuse or Skip", strict.Cut(string(in.OnInvalid), mostQuoted))
	}
	if !r.checkType(path, in.Type) {
		return p
	}
	r.checkBounds(path, in, &p)
	r.checkStringLimits(path, in, &p)
	p.allowed = p.describe(in.Pattern)
	if in.Default == nil || !r.checkWritten(strict.Member(path, "default"), in.Type, in.Default) || len(r.found) > before {
		return p // against broken limits a default cannot be held
	}
	if p.fallback = p.parse(in.Default.Text); p.fallback == nil {
		r.errorf(strict.Member(path, "default"), "", "%q is invalid: must be %s", strict.Cut(in.Default.Text, mostQuoted), p.allowed)
	}
	return p
}

// checkWritten checks that a value was written as a kind that the type accepts. Where
// the text counts, it must be one: YAML has made 1.1 of 1.10, and true of yes.
func (r *report) checkWritten(path string, kind v1alpha1.ParameterType, v *v1alpha1.ParameterValue) bool {
	if v.JSON == "" {
		return true // Whether the text is accepted is found out by reading it.
	}
	value, err := rawjson.Value(v.JSON).Decode()
	if err != nil {
		r.errorf(path, "", "%v", err)
		return false
	}
	into, before := reflect.TypeFor[string](), len(r.found)
	switch kind {
	case v1alpha1.IntegerParameter, v1alpha1.PortParameter:
		into = reflect.TypeFor[int64]()
	case v1alpha1.BooleanParameter:
		into = reflect.TypeFor[bool]()
	case v1alpha1.ListParameter:
		if items, ok := value.([]any); ok {
			for i, item := range items {
				r.checkItem(strict.Element(path, i), item)
			}
			return len(r.found) == before
		}
		into = reflect.TypeFor[[]string]()
	case v1alpha1.StringParameter, v1alpha1.EnumParameter, v1alpha1.QuantityParameter, v1alpha1.DurationParameter:
	}
	r.found = append(r.found, new(strict.Checker).Compare(into, value, path, strict.Options{})...)
	return len(r.found) == before
}

// checkItem checks an element of a list, which an annotation must be able to say.
func (r *report) checkItem(path string, item any) {
	text, ok := item.(string)
	switch {
	case item == nil:
		r.errorf(path, "remove it", "is null, expected a string")
	case !ok:
		r.found = append(r.found, new(strict.Checker).Compare(reflect.TypeFor[string](), item, path, strict.Options{})...)
	case !isItem(text):
		r.errorf(path, "", "%q cannot be in a list: expected a string without commas, and without whitespace around it", strict.Cut(text, mostQuoted))
	}
}

func isItem(text string) bool {
	return text != "" && strings.TrimSpace(text) == text && !strings.Contains(text, ",")
}

func (r *report) checkType(path string, kind v1alpha1.ParameterType) bool {
	known := []string{
		string(v1alpha1.StringParameter), string(v1alpha1.IntegerParameter), string(v1alpha1.BooleanParameter), string(v1alpha1.QuantityParameter),
		string(v1alpha1.DurationParameter), string(v1alpha1.PortParameter), string(v1alpha1.EnumParameter), string(v1alpha1.ListParameter),
	}
	if slices.Contains(known, string(kind)) {
		return true
	}
	path = strict.Member(path, "type")
	if kind == "" {
		r.errorf(path, "", "is required: one of %s", strings.Join(known, ", "))
		return false
	}
	r.errorf(path, diagnostic.DidYouMean(string(kind), known...), "%q is not a type: expected one of %s",
		strict.Cut(string(kind), mostQuoted), strings.Join(known, ", "))
	return false
}

// hasBounds, hasTexts and hasItems tell which limits a type can have.
func hasBounds(kind v1alpha1.ParameterType) bool {
	return kind == v1alpha1.IntegerParameter || kind == v1alpha1.PortParameter ||
		kind == v1alpha1.QuantityParameter || kind == v1alpha1.DurationParameter
}

func hasStringLimits(kind v1alpha1.ParameterType) bool {
	return kind == v1alpha1.StringParameter || kind == v1alpha1.ListParameter
}

func (r *report) checkBounds(path string, in *v1alpha1.SidecarParameter, p *parameter) {
	read := func(name string, v *v1alpha1.ParameterValue) *bound {
		if v == nil {
			return nil
		}
		at := strict.Member(path, name)
		if !hasBounds(in.Type) {
			r.errorf(at, "", "a parameter of type %s has no %s: only integer, port, quantity and duration have one", in.Type, name)
			return nil
		}
		if !r.checkWritten(at, in.Type, v) {
			return nil
		}
		b, ok := readBound(in.Type, v.Text)
		if !ok {
			plain := parameter{kind: in.Type}
			r.errorf(at, "", "%q is not %s", strict.Cut(v.Text, mostQuoted), plain.describe(""))
			return nil
		}
		return &b
	}
	p.minimum, p.maximum = read("minimum", in.Minimum), read("maximum", in.Maximum)
	if p.minimum != nil && p.maximum != nil && p.compare(*p.minimum, *p.maximum) > 0 {
		r.errorf(strict.Member(path, "minimum"), "", "%q is greater than the maximum %q", p.minimum.text, p.maximum.text)
	}
}

func (r *report) checkStringLimits(path string, in *v1alpha1.SidecarParameter, p *parameter) {
	limit := func(name string, v *int32, has bool, who string, into *int) {
		at := strict.Member(path, name)
		switch {
		case v == nil:
		case !has:
			r.errorf(at, "", "a parameter of type %s has no %s: %s", in.Type, name, who)
		case *v < 1 || *v > maxTextLength:
			r.errorf(at, "", "%q is out of range: must be 1 to %d", fmt.Sprint(*v), maxTextLength)
		default:
			*into = int(*v)
		}
	}
	limit("maxLength", in.MaxLength, hasStringLimits(in.Type), "only string and list have one", &p.maxLength)
	limit("maxItems", in.MaxItems, in.Type == v1alpha1.ListParameter, "only list has one", &p.maxItems)
	if in.Pattern != "" {
		p.pattern = r.compilePattern(strict.Member(path, "pattern"), in)
	}
	r.checkEnum(strict.Member(path, "enum"), in, p)
}

func (r *report) compilePattern(path string, in *v1alpha1.SidecarParameter) *regexp.Regexp {
	switch {
	case !hasStringLimits(in.Type):
		r.errorf(path, "", "a parameter of type %s has no pattern: only string and list have one", in.Type)
		return nil
	case len(in.Pattern) > maxPatternLength:
		r.errorf(path, "", "is longer than %d characters", maxPatternLength)
		return nil
	}
	// Alone first: "a)|(b" would be one inside of a group.
	if _, err := syntax.Parse(in.Pattern, syntax.Perl); err != nil {
		r.errorf(path, "the syntax is that of RE2", "%q is not a regular expression: %v", strict.Cut(in.Pattern, mostQuoted), err)
		return nil
	}
	if err := r.budget.AddPattern(in.Pattern); err != nil {
		r.errorf(path, boundHint(err), "%q: %v", strict.Cut(in.Pattern, mostQuoted), err)
		return nil
	}
	whole, err := regexp.Compile(`\A(?:` + in.Pattern + `)\z`)
	if err != nil {
		r.errorf(path, "", "%q cannot be matched against a whole string: %v", strict.Cut(in.Pattern, mostQuoted), err)
		return nil
	}
	return whole
}

// checkEnum checks the values allowed against the other limits.
func (r *report) checkEnum(path string, in *v1alpha1.SidecarParameter, p *parameter) {
	switch {
	case in.Type == v1alpha1.EnumParameter && len(in.Enum) == 0:
		r.errorf(path, "list the allowed values", "is required for a parameter of type enum")
	case in.Type != v1alpha1.EnumParameter && !hasStringLimits(in.Type) && len(in.Enum) > 0:
		r.errorf(path, "", "a parameter of type %s has no enum: only enum, string and list have one", in.Type)
		return
	}
	seen := map[string]bool{}
	for i, text := range in.Enum {
		at := strict.Element(path, i)
		switch {
		case seen[text]:
			r.errorf(at, "", "%q is listed twice", strict.Cut(text, mostQuoted))
		case in.Type == v1alpha1.ListParameter && !isItem(text):
			r.checkItem(at, text)
		case !p.accepts(text):
			r.errorf(at, "", "%q violates the other limits of the parameter", strict.Cut(text, mostQuoted))
		}
		seen[text] = true
	}
}
