// Package expression compiles and evaluates the CEL expressions of policies.
//
// The environment is the API server's own, k8s.io/apiserver/pkg/cel/environment,
// with the variables of k8s.io/apiserver/pkg/admission/plugin/cel, so that what
// compiles there compiles here, means the same and costs the same. What differs
// is the work around it: one environment serves all policies, where upstream
// builds eight for each; a request is converted once, where upstream converts it
// for each list of expressions; and a variable is evaluated once.
package expression

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
)

// Declarations say what an expression may name besides object, oldObject,
// request and namespaceObject.
type Declarations struct {
	// Params and Authorizer are those of the same names.
	Params, Authorizer bool
	// Patches is true for the expressions of mutations, which may name the types Object and JSONPatch.
	Patches bool
	// Variables are those that may be named as variables.x; nil if there can be
	// none.
	Variables *Variables
	// CheckOnly is true if the programs are not evaluated: what they are compiled to, and their bounds, are left out.
	CheckOnly bool
	// Reads requests Program.Reads, and Conditions are the match conditions of the
	// expression.
	Reads      bool
	Conditions []*Program
	// Budget is that of the document, to which the expression was added. It may be nil.
	Budget *celbound.Budget
}

// Compiler compiles expressions. It is safe for concurrent use, and so is what
// it makes.
type Compiler struct {
	base *environment.EnvSet
	// option is nil for none.
	option celbound.Option

	// mutex guards what follows, and that the variables of one policy at a time
	// are declared.
	mutex    sync.Mutex
	planners map[declared]*planner
	current  *Variables
}

// declared distinguishes environments, and so planners.
type declared struct{ params, authorizer, variables, patches bool }

func keyOf(d Declarations) declared {
	return declared{d.Params, d.Authorizer, d.Variables != nil, d.Patches}
}

// NewCompiler returns a compiler for a Kubernetes version, such as "1.36", whose
// functions and rules hold. An error means that there is no such version. The option is for
// all expressions, and may be nil.
func NewCompiler(compatibility string, option celbound.Option) (*Compiler, error) {
	parsed, err := version.ParseMajorMinor(compatibility)
	if err != nil {
		return nil, fmt.Errorf("%q is not a Kubernetes version such as \"1.36\"", compatibility)
	}
	return &Compiler{option: option, base: environment.MustBaseEnvSet(parsed), planners: map[declared]*planner{}}, nil
}

// variablesType is upstream's name for the type of variables.
const variablesType = "kubernetes.variables"

// planner returns that of the environment for the declarations. The mutex is held.
func (c *Compiler) planner(d Declarations) (*planner, error) {
	key := keyOf(d)
	if p := c.planners[key]; p != nil {
		return p, nil
	}
	env, err := c.environment(key)
	if err != nil {
		return nil, fmt.Errorf("declare the variables of policies: %w", err)
	}
	p, err := newPlanner(env, c.option)
	if err != nil {
		return nil, fmt.Errorf("plan expressions: %w", err)
	}
	c.planners[key] = p
	return p, nil
}

// environment returns what expressions with the declarations may name.
func (c *Compiler) environment(d declared) (*cel.Env, error) {
	request, namespace := plugincel.BuildRequestType(), plugincel.BuildNamespaceType()
	options := []cel.EnvOption{
		cel.Variable(plugincel.ObjectVarName, cel.DynType),
		cel.Variable(plugincel.OldObjectVarName, cel.DynType),
		cel.Variable(plugincel.NamespaceVarName, namespace.CelType()),
		cel.Variable(plugincel.RequestVarName, request.CelType()),
	}
	if d.params {
		options = append(options, cel.Variable(plugincel.ParamsVarName, cel.DynType))
	}
	if d.authorizer {
		options = append(options,
			cel.Variable(plugincel.AuthorizerVarName, library.AuthorizerType),
			cel.Variable(plugincel.RequestResourceAuthorizerVarName, library.ResourceCheckType),
		)
	}
	set, err := c.base.Extend(environment.VersionedOptions{
		// As upstream: these have always been there.
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        options,
		DeclTypes:         []*apiservercel.DeclType{namespace, request},
	}, environment.StrictCostOpt)
	if err != nil {
		return nil, err
	}
	if d.patches {
		if set, err = set.Extend(environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 0), // as upstream
			EnvOptions: []cel.EnvOption{
				common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
				environment.UnversionedLib(library.JSONPatch),
			},
		}); err != nil {
			return nil, err
		}
	}
	env := set.NewExpressionsEnv()
	if !d.variables {
		return env, nil
	}
	return env.Extend(
		cel.CustomTypeProvider(&provider{Provider: env.CELTypeProvider(), compiler: c}),
		cel.Variable(plugincel.VariableVarName, cel.ObjectType(variablesType)),
	)
}

// provider provides the types of the fields of variables, which differ by policy.
type provider struct {
	types.Provider
	compiler *Compiler
}

func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if name == variablesType {
		return types.NewTypeTypeWithParam(types.NewObjectType(variablesType)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldType returns the type of a variable of the policy whose expressions
// are being compiled: the compiler's mutex is held then.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if name != variablesType {
		return p.Provider.FindStructFieldType(name, field)
	}
	t, ok := p.compiler.current.types[field]
	if !ok {
		return nil, false
	}
	return &types.FieldType{Type: t}, true
}

// Compile compiles an expression whose result must have one of the types. The
// error is upstream's: its Cause is an *apiservercel.CompilationError if the
// expression itself does not compile, and celbound.ErrTooLarge if it is too large to be compiled.
func (c *Compiler) Compile(text string, d Declarations, results ...*cel.Type) (*Program, *apiservercel.Error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	out, err := c.compile(text, d, results)
	if err == nil && d.Reads {
		var conditions []ast.Expr
		for _, condition := range d.Conditions {
			conditions = append(conditions, condition.root)
		}
		out.program.reads = readsOf(out.root, conditions, d.Variables)
		if out.program.own = out.program.reads; len(conditions) > 0 {
			out.program.own = readsOf(out.root, nil, d.Variables)
		}
	}
	return out.program, err
}

// CompileCondition is Compile for a condition of others: their
// Declarations.Conditions. It must be sealed.
func (c *Compiler) CompileCondition(text string, d Declarations) (*Program, *apiservercel.Error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	out, err := c.compile(text, d, []*cel.Type{cel.BoolType})
	if err == nil {
		out.program.root = out.root
	}
	return out.program, err
}

// Declare compiles the expression of a variable and declares it, for the
// expressions that are compiled from now on. It is declared even if its
// expression does not compile.
func (c *Compiler) Declare(name, text string, d Declarations) *apiservercel.Error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	out, err := c.compile(text, d, []*cel.Type{cel.AnyType, cel.DynType})
	d.Variables.declare(variable{name: name, compiled: out})
	return err
}

// compiled is a program, with what is known of it for compiling others.
type compiled struct {
	program *Program
	root    ast.Expr
	// size is that of its value.
	size celcost.Value
}

// compile is Compile with the mutex held.
func (c *Compiler) compile(text string, d Declarations, results []*cel.Type) (compiled, *apiservercel.Error) {
	c.current = d.Variables
	planner, err := c.planner(d)
	if err != nil {
		return compiled{}, &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: err.Error()}
	}
	parsed, issues, err := planner.bounds.ParseWithin(d.Budget, planner.env, text, d.Variables.field)
	if err != nil {
		return compiled{}, &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: err.Error(), Cause: err}
	}
	var checked *cel.Ast
	if issues == nil {
		checked, issues = planner.env.Check(parsed)
	}
	if issues != nil {
		return compiled{}, &apiservercel.Error{
			Type: apiservercel.ErrorTypeInvalid, Detail: "compilation failed: " + issues.String(), Cause: apiservercel.NewCompilationError(issues),
		}
	}
	output := checked.OutputType()
	if !isOneOf(output, results) {
		detail := fmt.Sprintf("must evaluate to one of %v but got %v", results, output)
		if len(results) == 1 {
			detail = fmt.Sprintf("must evaluate to %v but got %v", results[0], output)
		}
		return compiled{}, &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: detail}
	}
	root := checked.NativeRep().Expr()
	out := &Program{text: text, output: output, variables: d.Variables, compiler: c, declared: keyOf(d)}
	out.uses, out.asked, out.loops = analyze(root)
	out.patterns = celbound.Patterns(root)
	if d.CheckOnly {
		return compiled{program: out, root: root}, nil
	}
	out.isNever = output.IsExactType(cel.BoolType) && planner.language().IsFalse(checked.NativeRep())
	var size celcost.Value
	out.bound, size = celcost.Of(checked.NativeRep(), d.Variables.size)
	if !out.bound.IsFinite() {
		out.bound = celcost.Unbounded()
		var counting *interpreter.ObservableInterpretable
		counting, err = planner.planCounting(checked.NativeRep())
		out.counting.Store(counting)
	} else {
		out.plan, err = planner.plan(checked.NativeRep())
	}
	if err != nil {
		return compiled{}, &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: "program instantiation failed: " + err.Error()}
	}
	return compiled{out, root, size}, nil
}

// countingPlan returns the plan that counts the cost of the expression. It is made when it is first needed, and kept:
// large objects need it, and must not make work for each request.
func (p *Program) countingPlan() (*interpreter.ObservableInterpretable, error) {
	if plan := p.counting.Load(); plan != nil {
		return plan, nil
	}
	p.compiler.mutex.Lock()
	defer p.compiler.mutex.Unlock()
	return p.planCounting()
}

// planCounting is countingPlan with the compiler's mutex held.
func (p *Program) planCounting() (*interpreter.ObservableInterpretable, error) {
	if plan := p.counting.Load(); plan != nil {
		return plan, nil
	}
	p.compiler.current = p.variables
	planner := p.compiler.planners[p.declared]
	checked, issues := planner.env.Compile(p.text)
	if issues != nil {
		return nil, issues.Err() // it compiled before
	}
	plan, err := planner.planCounting(checked.NativeRep())
	if err != nil {
		return nil, err
	}
	p.counting.Store(plan)
	return plan, nil
}

// isOneOf follows upstream's compiler: a type that is given as any stands for
// every type.
func isOneOf(output *cel.Type, allowed []*cel.Type) bool {
	for _, t := range allowed {
		if output.IsExactType(t) || cel.AnyType.IsExactType(t) {
			return true
		}
	}
	return false
}
