package typecheck

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
)

// Checker parses and checks expressions in the environment of the API server's
// policies. It is not safe for concurrent use.
type Checker struct {
	schemas *Schemas
	// Env has the functions, and the variables that every policy has, with any
	// type for the object.
	Env *cel.Env
	// declared has the functions and is copied for each Scope.
	declared *checker.Env
	bounds   *celbound.Bounds
}

// NewChecker returns a Checker with the functions of a Kubernetes version, "1.36":
// those that stored expressions may use, as in the API server.
func NewChecker(schemas *Schemas, compatibility string) (*Checker, error) {
	parsed, err := version.ParseMajorMinor(compatibility)
	if err != nil {
		return nil, err
	}
	set, err := Environment(parsed)
	if err != nil {
		return nil, err
	}
	c := &Checker{schemas: schemas, Env: set.StoredExpressionsEnv()}
	c.declared, err = checker.NewEnv(c.Env.Container, c.Env.CELTypeProvider(), checker.CrossTypeNumericComparisons(true))
	if err != nil {
		return nil, err
	}
	for _, f := range c.Env.Functions() {
		if f.IsDeclarationDisabled() {
			continue
		}
		if err := c.declared.AddFunctions(f); err != nil {
			return nil, fmt.Errorf("function %q: %w", f.Name(), err)
		}
	}
	if c.bounds, err = celbound.New(c.Env); err != nil {
		return nil, err
	}
	return c, c.declared.AddIdents(withoutObjects(c.Env.Variables())...)
}

// Parse parses an expression. The error is what is wrong with it, or
// celbound.ErrTooLarge.
func (c *Checker) Parse(text string) (*cel.Ast, error) {
	parsed, issues, err := c.bounds.Parse(c.Env, text, nil)
	if err != nil {
		return nil, err
	}
	return parsed, issues.Err()
}

// Environment returns what expressions of policies are compiled in, with everything
// that a policy can have: params and authorizer. Variables are of any type.
func Environment(compatibility *version.Version) (*environment.EnvSet, error) {
	request, namespace := plugincel.BuildRequestType(), plugincel.BuildNamespaceType()
	return environment.MustBaseEnvSet(compatibility).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable(plugincel.ObjectVarName, cel.DynType),
			cel.Variable(plugincel.OldObjectVarName, cel.DynType),
			cel.Variable(plugincel.ParamsVarName, cel.DynType),
			cel.Variable(plugincel.VariableVarName, cel.DynType),
			cel.Variable(plugincel.NamespaceVarName, namespace.CelType()),
			cel.Variable(plugincel.RequestVarName, request.CelType()),
			cel.Variable(plugincel.AuthorizerVarName, library.AuthorizerType),
			cel.Variable(plugincel.RequestResourceAuthorizerVarName, library.ResourceCheckType),
		},
		DeclTypes: []*apiservercel.DeclType{request, namespace},
	})
}

// withoutObjects returns the variables but for those whose types a Scope says.
func withoutObjects(all []*decls.VariableDecl) []*decls.VariableDecl {
	typed := []string{plugincel.ObjectVarName, plugincel.OldObjectVarName, plugincel.ParamsVarName, plugincel.VariableVarName}
	return slices.DeleteFunc(slices.Clone(all), func(v *decls.VariableDecl) bool { return slices.Contains(typed, v.Name()) })
}

// Scope is what the expressions of one policy see when its objects are of one
// kind.
type Scope struct {
	checker   *Checker
	env       *checker.Env
	variables map[string]*types.Type
	// sums are the structures of the elements of mixed lists, by their names.
	sums map[string]*Type
	// declared are the functions for mixed values.
	declared map[string]bool
}

// Scope has objects and params of the types; nil stands for any.
func (c *Checker) Scope(object, params *Type) *Scope {
	s := &Scope{checker: c, variables: map[string]*types.Type{}, sums: map[string]*Type{}, declared: map[string]bool{}}
	var err error
	s.env, err = checker.NewEnv(c.Env.Container,
		s.provider(),
		checker.CrossTypeNumericComparisons(true), checker.ValidatedDeclarations(c.declared))
	if err == nil {
		err = s.env.AddIdents(
			decls.NewVariable(plugincel.ObjectVarName, celType(object)),
			decls.NewVariable(plugincel.OldObjectVarName, celType(object)),
			decls.NewVariable(plugincel.ParamsVarName, celType(params)),
			decls.NewVariable(plugincel.VariableVarName, types.NewObjectType(variablesType)),
		)
	}
	if err != nil {
		// NewChecker has declared everything else, and these four in no Scope twice.
		panic(err)
	}
	return s
}

func celType(t *Type) *types.Type {
	if t == nil {
		return types.DynType
	}
	return t.cel()
}

// Declare adds a variable of the type of an expression that was checked before.
func (s *Scope) Declare(name string, of Checked) {
	t := of.AST.GetType(of.AST.Expr().ID())
	if len(of.Issues) > 0 || t == nil || t.Kind() == types.ErrorKind {
		t = types.DynType
	}
	s.variables[name] = t
}

// DeclareAny adds a variable of any type, one whose expression cannot be checked.
func (s *Scope) DeclareAny(name string) { s.variables[name] = types.DynType }

// Checked is an expression that was checked.
type Checked struct {
	// AST has the types of all parts of the expression, also if there are issues:
	// then some are the error type.
	AST    *ast.AST
	Issues []*common.Error
	scope  *Scope
}

// Check checks a parsed expression, which it leaves as it is. One with types that
// are too large has an issue that says so, and parts of any type.
func (s *Scope) Check(parsed *cel.Ast) Checked {
	fields := func(variable, field string) *types.Type {
		if variable != plugincel.VariableVarName {
			return nil
		}
		return s.variables[field]
	}
	if err := s.checker.bounds.Check(parsed, fields); err != nil {
		root := parsed.NativeRep().Expr().ID()
		untyped := ast.NewCheckedAST(ast.Copy(parsed.NativeRep()), map[int64]*types.Type{}, map[int64]*ast.ReferenceInfo{})
		return Checked{AST: untyped, Issues: []*common.Error{{Location: common.NoLocation, Message: err.Error(), ExprID: root}}, scope: s}
	}
	typed, issues := s.checkMixed(parsed)
	return Checked{AST: typed, Issues: issues, scope: s}
}

// Structure returns the structure that a part of the expression is, or may be if it
// is an optional value, and nil if it is not one of an object.
func (c Checked) Structure(e ast.Expr) *Type {
	t := c.AST.GetType(e.ID())
	if t != nil && t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName() {
		t = t.Parameters()[0]
	}
	if t == nil || t.Kind() != types.StructKind {
		return nil
	}
	return c.scope.provider().structure(t.TypeName())
}
