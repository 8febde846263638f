package template

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// ErrCannotDecide is the error of an evaluation without a result for a reason that is not
// in the pod: a timeout, a cost limit, or something that is not known yet.
var ErrCannotDecide = errors.New("cannot decide")

// EvaluationError is about an expression that has no result, or none of use, for
// this pod, and will not have one the next time either.
type EvaluationError struct {
	// Path is where the expression stands in the profile.
	Path string
	// Expression is its first characters.
	Expression string
	// Message says what is wrong with it, in a bounded length.
	Message string
	// Hint says what the profile's author may write instead, or is empty.
	Hint string
}

// Error names the place and the expression.
func (e *EvaluationError) Error() string {
	text := fmt.Sprintf("%s: %q %s", inProfile(e.Path), e.Expression, e.Message)
	if e.Hint != "" {
		text += " (hint: " + e.Hint + ")"
	}
	return text
}

// inProfile tells a path in the profile from one in the pod, or in the workload
// that it is from.
func inProfile(path string) string { return "the profile's " + path }

// Namespace is what expressions see of a namespace.
type Namespace struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
}

// Input is what expressions are evaluated on: one pod, for as long as it takes to
// decide about it. It remembers what has been read and what has been spent, and
// serves one goroutine at a time. Params may be set anew for each profile.
type Input struct {
	// Context ends evaluation. Nil is never done.
	Context context.Context //nolint:containedctx // an input lives as long as one request
	// Pod is the pod, an object.
	Pod rawjson.Value
	// Namespace is nil if it is not known: then only its name is there.
	Namespace *Namespace
	// NamespaceName is the name of a namespace that is not known.
	NamespaceName string
	// Params are those of the scope whose expressions are evaluated.
	Params Params
	// Presets returns the values of a preset, or why they are not known yet. Nil
	// knows none.
	Presets func(preset string) (map[string]string, error)

	variables variables
	spent     uint64
}

// variables is an Input as CEL sees it.
type variables struct {
	in                                   *Input
	params, presets, namespace, metadata object
	// pod is read when it is first named, and again if the Input has another.
	pod   ref.Val
	podOf rawjson.Value
}

// bind makes the variables those of the input, which may be a copy of another.
func (v *variables) bind(in *Input) {
	if v.in == in {
		return
	}
	*v = variables{
		in: in, params: object{paramsType, in}, presets: object{presetsType, in},
		namespace: object{namespaceType, in}, metadata: object{metadataType, in},
	}
}

// Parent implements cel.Activation.
func (*variables) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case "pod":
		if v.pod == nil || !same(v.podOf, v.in.Pod) {
			v.pod, v.podOf = celvalue.Value(v.in.Pod), v.in.Pod
		}
		return v.pod, true
	case "params":
		return &v.params, true
	case NamespaceVariable:
		return &v.namespace, true
	case "presets":
		return &v.presets, true
	default:
		return nil, false
	}
}

// same reports whether two values are the same piece of memory.
func same(a, b rawjson.Value) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func unknown(format string, args ...any) ref.Val {
	return types.WrapErr(fmt.Errorf("%w: "+format, append([]any{ErrCannotDecide}, args...)...))
}

func (in *Input) parameter(name string) ref.Val {
	if in.Params.scope != nil {
		if i, ok := in.Params.scope.index[name]; ok && in.Params.values[i].value != nil {
			return in.Params.values[i].cel
		}
	}
	return unknown("parameter %q has no value", name)
}

func (in *Input) namespaceMetadata(name string) ref.Val {
	switch {
	case name == "name" && in.Namespace == nil:
		return types.String(in.NamespaceName)
	case name == "name":
		return types.String(in.Namespace.Name)
	case in.Namespace == nil:
		return unknown("namespace %q is not known", in.NamespaceName)
	case name == "labels":
		return stringMap(in.Namespace.Labels)
	case name == "annotations":
		return stringMap(in.Namespace.Annotations)
	default:
		return nil
	}
}

func (in *Input) preset(name string) ref.Val {
	if in.Presets == nil {
		return unknown("preset %q is not known", name)
	}
	values, err := in.Presets(name)
	if err != nil {
		return unknown("preset %q: %w", name, err)
	}
	return stringMap(values)
}

func stringMap(m map[string]string) ref.Val {
	return types.NewStringStringMap(types.DefaultTypeAdapter, m)
}

// eval evaluates an expression that is at path. The result is a scalar.
func (e *expression) eval(path string, in *Input) (ref.Val, error) {
	if e.program == nil {
		if s := in.Params.scope; s != nil && e.parameter < len(in.Params.values) {
			if v := in.Params.values[e.parameter].value; v != nil {
				return v.cel, nil
			}
		}
		return nil, fmt.Errorf("%s: %w: the parameter has no value", inProfile(path), ErrCannotDecide)
	}
	result, err := e.run(in)
	if err != nil {
		if errors.Is(err, ErrCannotDecide) {
			return nil, fmt.Errorf("%s: %q: %w", inProfile(path), excerpt(e.text), err)
		}
		failed := e.failed(path, "fails: "+err.Error())
		if strings.HasPrefix(err.Error(), "no such key: ") {
			failed.Hint = absentHint
		}
		return nil, failed
	}
	v, err := scalarOf(result)
	if err != nil {
		return nil, e.failed(path, err.Error())
	}
	if text, ok := v.(types.String); ok && len(text) > maxTextLength {
		return nil, e.failed(path, fmt.Sprintf("is a string of more than %d bytes", maxTextLength))
	}
	// A pod offline may have anything in the place of a text.
	kind := kindOf(v)
	if want, known, _ := staticKind(e.output); known && !isNull(v) && kind != want && (!isNumber(kind) || !isNumber(want)) {
		return nil, e.failed(path, fmt.Sprintf("results in %s, which is %s, expected %s", quote(v), describeKind(kind), describeKind(want)))
	}
	return v, nil
}

func (e *expression) failed(path, message string) *EvaluationError {
	const most = 200
	return &EvaluationError{Path: path, Expression: excerpt(e.text), Message: strict.Cut(originalName(message), most)}
}

// run runs the program. Every error that is not ErrCannotDecide is the pod's.
func (e *expression) run(in *Input) (ref.Val, error) {
	if in.Context != nil && in.Context.Err() != nil {
		return nil, fmt.Errorf("%w: %w", ErrCannotDecide, context.Cause(in.Context))
	}
	if in.spent > celconfig.RuntimeCELCostBudget {
		return nil, fmt.Errorf("%w: the expressions for this pod cost more than %d", ErrCannotDecide, celconfig.RuntimeCELCostBudget)
	}
	if e.quantities && in.hasHugeQuantity() {
		return nil, fmt.Errorf("%w: the pod or its namespace has a quantity with an exponent of more than two digits", ErrCannotDecide)
	}
	in.variables.bind(in)
	var (
		result  ref.Val
		details *cel.EvalDetails
		err     error
	)
	if e.loops && in.Context != nil && in.Context.Done() != nil {
		result, details, err = e.program.ContextEval(in.Context, &in.variables)
	} else {
		result, details, err = e.program.Eval(&in.variables)
	}
	cancelled := interpreter.EvalCancelledError{}
	switch {
	case err == nil:
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
		in.spent += celconfig.PerCallLimit
		return nil, fmt.Errorf("%w: it costs more than %d", ErrCannotDecide, celconfig.PerCallLimit)
	case errors.As(err, &cancelled), in.Context != nil && in.Context.Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrCannotDecide, err)
	}
	if cost := details.ActualCost(); cost != nil {
		in.spent += *cost
	}
	return result, err
}

// object is a value of one of the object types that are not in a pod: what its
// fields hold is found out when they are asked for.
type object struct {
	name string
	in   *Input
}

// field returns the value of a field: nil for one that there is not, and an error for
// one whose value is not known.
func (o *object) field(name string) ref.Val {
	switch o.name {
	case paramsType:
		return o.in.parameter(name)
	case presetsType:
		return o.in.preset(name)
	case namespaceType:
		if name == "metadata" {
			return &o.in.variables.metadata
		}
		return nil
	case metadataType:
		return o.in.namespaceMetadata(name)
	default:
		return nil
	}
}

var _ interface {
	traits.Indexer
	traits.FieldTester
} = (*object)(nil)

// Get implements traits.Indexer.
func (o *object) Get(index ref.Val) ref.Val {
	name, ok := index.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(index)
	}
	if v := o.field(string(name)); v != nil {
		return v
	}
	return types.NewErr("no such field: %s", string(name))
}

// IsSet implements traits.FieldTester.
func (o *object) IsSet(field ref.Val) ref.Val {
	name, ok := field.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(field)
	}
	v := o.field(string(name))
	if types.IsError(v) {
		return v
	}
	return types.Bool(v != nil)
}

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("cannot convert %s to %s", o.name, t)
}

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return types.NewObjectType(o.name)
	}
	return types.NewErr("cannot convert %s to %s", o.name, t.TypeName())
}

// Equal implements ref.Val. There is one of each.
func (o *object) Equal(other ref.Val) ref.Val {
	same, ok := other.(*object)
	return types.Bool(ok && same.name == o.name)
}

// Type implements ref.Val.
func (o *object) Type() ref.Type {
	return types.NewObjectType(o.name, traits.IndexerType|traits.FieldTesterType)
}

// Value implements ref.Val.
func (o *object) Value() any { return o }

// hugeQuantity is a JSON string that is a quantity with an exponent of three
// digits or more. Comparing one takes minutes, which neither the cost limit nor
// the context ends, and the API server lets a pod have one.
var hugeQuantity = regexp.MustCompile(`"[+-]?[0-9.]+[eE][+-]?[0-9]{3,}"`)

// callsQuantity reports whether an expression makes quantities of texts.
func callsQuantity(expr celast.Expr) bool {
	calls := false
	celast.PostOrderVisit(expr, celast.NewExprVisitor(func(e celast.Expr) {
		calls = calls || e.Kind() == celast.CallKind && e.AsCall().FunctionName() == "quantity"
	}))
	return calls
}

// hasHugeQuantity reports whether something that an expression can make a quantity
// of is one that cannot be compared.
func (in *Input) hasHugeQuantity() bool {
	if hugeQuantity.Match(in.Pod) {
		return true
	}
	if in.Namespace != nil {
		for _, texts := range [...]map[string]string{in.Namespace.Labels, in.Namespace.Annotations} {
			for _, text := range texts {
				if hugeQuantity.MatchString(`"` + text + `"`) {
					return true
				}
			}
		}
	}
	return false
}
