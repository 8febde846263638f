package expression

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
)

// Variables are the variables of a policy. They are immutable, and safe for
// concurrent use, once the last one is declared.
type Variables struct {
	list  []variable
	index map[string]int
	types map[string]*types.Type
	uses  Uses
	// bound is that of all variables, each evaluated once.
	bound celcost.Bound
}

// variable is nothing but its name if its expression does not compile, and nothing but its name and
// program once Seal was called.
type variable struct {
	name string
	compiled
}

// NewVariables returns a policy without variables so far.
func NewVariables() *Variables {
	return &Variables{index: map[string]int{}, types: map[string]*types.Type{}}
}

// declare adds a variable. Of two with one name the last one holds.
func (v *Variables) declare(declared variable) {
	if _, again := v.index[declared.name]; again {
		// What names the variable was compiled for the one before.
		v.bound = celcost.Unbounded()
		for i := range v.list {
			if p := v.list[i].program; p != nil {
				_, _ = p.planCounting() // without it, it does not compile later either
			}
		}
	}
	t := types.DynType
	if declared.program != nil {
		t = fieldType(declared.program.output)
		v.uses |= declared.program.uses
		v.bound = v.bound.Add(declared.program.bound)
	}
	v.types[declared.name] = t
	if i, again := v.index[declared.name]; again {
		v.list[i] = declared
		return
	}
	v.index[declared.name] = len(v.list)
	v.list = append(v.list, declared)
}

// Seal drops what is kept for compiling expressions that name the variables.
func (v *Variables) Seal() {
	for i := range v.list {
		v.list[i].compiled = compiled{program: v.list[i].program}
	}
}

// Bound returns an upper bound of what the variables cost together.
func (v *Variables) Bound() celcost.Bound { return v.bound }

// size returns what is known of the size of a variable, and false if it is none.
func (v *Variables) size(name string) (celcost.Value, bool) {
	if v == nil {
		return celcost.Value{}, false
	}
	i, ok := v.index[name]
	if !ok {
		return celcost.Value{}, false
	}
	return v.list[i].size, true
}

// find returns the index of the variable that a field names.
func (v *Variables) find(field string) (int, bool) {
	if strings.Contains(field, "__") {
		var ok bool
		if field, ok = apiservercel.Unescape(field); !ok {
			return 0, false
		}
	}
	i, ok := v.index[field]
	return i, ok
}

// root returns the expression of a variable, or nil.
func (v *Variables) root(name string) ast.Expr {
	if v == nil {
		return nil
	}
	if i, ok := v.index[name]; ok {
		return v.list[i].root
	}
	return nil
}

// field returns the type of a field of the name variables, nil of any other.
func (v *Variables) field(name, field string) *types.Type {
	if v == nil || name != plugincel.VariableVarName {
		return nil
	}
	return v.types[field]
}

// fieldType returns the type that upstream gives a variable whose expression has the
// type: what it cannot declare is dyn.
func fieldType(t *cel.Type) *cel.Type {
	switch t {
	case cel.AnyType, cel.BoolType, cel.BytesType, cel.DoubleType, cel.DurationType, cel.IntType, cel.NullType,
		cel.StringType, cel.TimestampType, cel.UintType:
		return t
	}
	if t.HasTrait(traits.ContainerType) && t.HasTrait(traits.IndexerType) {
		switch of := t.Parameters(); len(of) {
		case 1:
			return cel.ListType(fieldType(of[0]))
		case 2:
			return cel.MapType(fieldType(of[0]), fieldType(of[1]))
		}
	}
	return cel.DynType
}

// values are the variables of one evaluation: the value of the name variables.
// As upstream's k8s.io/apiserver/pkg/cel/lazy.MapValue, it evaluates a variable
// when an expression asks for it.
type values struct {
	input *Input
	known []variableState
	// evaluating are those under way, the outermost first.
	evaluating []int
}

// variableState is the value of a variable, once it is evaluated.
type variableState struct {
	value ref.Val
	err   error
	cost  int64
	// needs are the variables that it named.
	needs []int
}

func (v *values) reset(in *Input) {
	v.input, v.evaluating = in, v.evaluating[:0]
	clear(v.known[:cap(v.known)])
	v.known = v.known[:0]
	if in.Variables == nil {
		return
	}
	for range in.Variables.list {
		v.known = append(v.known, variableState{})
	}
}

var errSelf = errors.New("the variable refers to itself")

// get returns the value of a variable, which may be an error.
func (v *values) get(i int) ref.Val {
	in := v.input
	if n := len(v.evaluating); n > 0 {
		outer := &v.known[v.evaluating[n-1]]
		if !slices.Contains(outer.needs, i) {
			outer.needs = append(outer.needs, i)
		}
	}
	k := &v.known[i]
	if k.value == nil {
		declared := &in.Variables.list[i]
		if slices.Contains(v.evaluating, i) {
			// Upstream never comes back from such a variable.
			return types.NewErr("composited variable %q fails to evaluate: %v", declared.name, errSelf)
		}
		if declared.program == nil {
			return types.NewErr("composited variable %q fails to compile", declared.name)
		}
		v.evaluating = append(v.evaluating, i)
		value, cost, err := in.run(in.context, declared.program)
		v.evaluating = v.evaluating[:len(v.evaluating)-1]
		k = &v.known[i]
		k.cost, k.err, k.value = cost, err, value
		if err != nil {
			k.value = types.NewErr("composited variable %q fails to evaluate: %w", declared.name, err)
		}
	}
	v.charge(i)
	return k.value
}

// charge counts a variable, and those that it asked for, in the current phase.
func (v *values) charge(i int) {
	p := &v.input.phase
	if i >= len(p.charged) || p.charged[i] {
		return
	}
	p.charged[i] = true
	p.pending = add(p.pending, v.known[i].cost)
	for _, asked := range v.known[i].needs {
		v.charge(asked)
	}
}

// Evaluated calls with every variable that was asked for, in the order of their
// declaration.
func (in *Input) Evaluated(yield func(name string, program *Program, value ref.Val, err error, cost int64)) {
	for i := range in.values.known {
		if k := &in.values.known[i]; k.value != nil {
			declared := &in.Variables.list[i]
			yield(declared.name, declared.program, k.value, k.err, k.cost)
		}
	}
}

var _ traits.Mapper = (*values)(nil)

func (v *values) Find(key ref.Val) (ref.Val, bool) {
	text, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	if v.input.Variables == nil {
		return nil, false
	}
	i, ok := v.input.Variables.find(string(text))
	if !ok {
		return nil, false
	}
	return v.get(i), true
}

func (v *values) Get(key ref.Val) ref.Val {
	value, found := v.Find(key)
	if found {
		return value
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

func (v *values) Contains(key ref.Val) ref.Val {
	value, found := v.Find(key)
	if value != nil && types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(found)
}

func (v *values) Size() ref.Val { return types.Int(len(v.known)) }

// Iterator goes through the values, as upstream's does, where a map's goes
// through its keys.
func (v *values) Iterator() traits.Iterator {
	all := make([]ref.Val, len(v.known))
	for i := range all {
		all[i] = v.get(i)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all).Iterator()
}

func (v *values) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("disallowed conversion from %q to %q", variablesType, to.Name())
}

func (v *values) ConvertToType(to ref.Type) ref.Val {
	switch to.TypeName() {
	case variablesType:
		return v
	case types.TypeType.TypeName():
		return types.NewTypeTypeWithParam(types.NewObjectType(variablesType))
	default:
		return types.NewErr("disallowed conversion from %q to %q", variablesType, to.TypeName())
	}
}

func (v *values) Equal(other ref.Val) ref.Val {
	values, ok := other.(*values)
	return types.Bool(ok && values == v)
}

func (*values) Type() ref.Type {
	return cel.ObjectType(variablesType, traits.IndexerType|traits.FieldTesterType|traits.IterableType)
}

func (*values) Value() any { return types.NoSuchOverloadErr() }
