// Package bound refuses CEL expressions whose type check would take unbounded time or memory. Callers parse the
// expressions of users with this package before CEL checks them.
//
// The length of an expression does not bound that work. A type can be exponentially larger than its text: {v: v} is twice
// as large as v, and [{v: v}].all(w, …) gives it a name. The checker copies and prints types for every part of the
// expression. The macros optMap and optFlatMap repeat what they are called on. Regular expressions that are written in an
// expression are compiled with it, and their repetitions are written out.
//
// The estimates are upper bounds, far above what practical expressions need. A Budget bounds all expressions and patterns
// of one document together.
package bound

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// ErrTooLarge refuses an expression.
var ErrTooLarge = errors.New("this expression is too large to check")

// Hint is how to avoid ErrTooLarge.
const Hint = "split it, nest lists and maps less, call optMap less often, or repeat less in patterns"

// What an expression may have grows with the length of its text, so that many short
// ones cost no more than a long one. An expression that names no type twice has a
// part for every two bytes or so.
const (
	leastParts, partsPerByte = 500, 2
	leastWork, workPerByte   = 12_000, 20
	leastPairs, bytesPerPair = 50_000, 32 // of the square of the bytes

	leastPatterns, patternsPerByte = 4_000, 8
)

func maxParts(bytes int) int { return leastParts + partsPerByte*bytes }
func maxWork(bytes int) int  { return leastWork + workPerByte*bytes }
func maxPairs(bytes int) int { return leastPairs + bytes*bytes/bytesPerPair }

// fewRepeats repeats of the target of optMap are four times the text at most.
const fewRepeats = 2

// largest is the size above which sizes are not distinguished.
const largest = 1 << 20

// Bounds are those of an environment. They are immutable and safe for concurrent
// use.
type Bounds struct {
	functions map[string]function
	names     map[string]kind
	// plain parses without macros.
	plain *parser.Parser
}

// function is the size of the result of a function: at most fixed types beside those of its
// arguments, of which the largest occurs often times.
type function struct {
	fixed, often int
	// sure is true if the result is of one type that is neither dyn nor one of
	// those, and generic if the types of arguments depend on each other.
	sure, generic bool
	// maps are the arguments, the target first, that make an unknown type a map.
	maps uint64
}

// kind is what is known of a type.
type kind struct {
	// size is how many types it is made of, itself included, at most.
	size int
	// optional is true for an optional type, and dyn for dyn, and for an optional
	// type of it: for sure.
	optional, dyn bool
	// free is true if there may be a type in it that is not known yet, a type
	// parameter, and bare if it is nothing else, and is of this part alone.
	free, bare bool
	// sure is true for a type that is neither dyn nor a type parameter.
	sure bool
}

// New returns the bounds for the functions and variables of the environment.
func New(env *cel.Env) (*Bounds, error) {
	b := &Bounds{functions: map[string]function{}, names: map[string]kind{}}
	for name, declared := range env.Functions() {
		var f function
		var result *types.Type
		for _, overload := range declared.OverloadDecls() {
			fixed, often := count(overload.ResultType())
			f.fixed, f.often = max(f.fixed, fixed), max(f.often, often)
			f.sure = (result == nil || f.sure && result.IsExactType(overload.ResultType())) && isDefinite(overload.ResultType())
			result = overload.ResultType()
			f.generic = f.generic || len(overload.TypeParams()) > 0
			for i, t := range overload.ArgTypes() {
				if _, parameters := count(t); t.Kind() == types.MapKind && parameters > 0 {
					f.maps |= 1 << i
				}
			}
		}
		b.functions[name] = f
	}
	for _, v := range env.Variables() {
		b.names[v.Name()] = kindOf(v.Type())
	}
	var err error
	b.plain, err = parser.NewParser(parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true))
	return b, err
}

// count counts the types that a type is made of, and its type parameters.
func count(t *types.Type) (fixed, parameters int) {
	if t.Kind() == types.TypeParamKind {
		return 0, 1
	}
	fixed = 1
	for _, p := range t.Parameters() {
		f, n := count(p)
		fixed, parameters = fixed+f, parameters+n
	}
	return fixed, parameters
}

// Size returns how many types a type is made of.
func Size(t *types.Type) int {
	fixed, parameters := count(t)
	return min(largest, fixed+parameters)
}

// kindOf returns the kind of a declared type.
func kindOf(t *types.Type) kind {
	return kind{size: Size(t), dyn: t.Kind() == types.DynKind, sure: isDefinite(t)}
}

func isDefinite(t *types.Type) bool {
	switch t.Kind() { //nolint:exhaustive // all others are
	case types.DynKind, types.AnyKind, types.TypeParamKind, types.ErrorKind:
		return false
	default:
		return true
	}
}

// Fields are the types of the fields of variables that have others than Kubernetes'
// own objects have, and nil of all others.
type Fields func(variable, field string) *types.Type

// Parse parses an expression that env is to check. The error is ErrTooLarge. The
// fields may be nil.
func (b *Bounds) Parse(env *cel.Env, text string, fields Fields) (*cel.Ast, *cel.Issues, error) {
	return b.ParseWithin(nil, env, text, fields)
}

// maxText is how many bytes an expression may have: parsing it takes some kilobytes of
// memory for each, all at one time.
const maxText = 16 << 10

// ParseWithin parses an expression, which was added to the budget of its document. The
// error is ErrTooLarge or ErrDocument, or that of the budget's Stop.
func (b *Bounds) ParseWithin(budget *Budget, env *cel.Env, text string, fields Fields) (*cel.Ast, *cel.Issues, error) {
	if err := budget.stopped(); err != nil {
		return nil, nil, err
	}
	if len(text) > maxText {
		return nil, nil, fmt.Errorf("%w: it can have at most %d bytes", ErrTooLarge, maxText)
	}
	if repeats := strings.Count(text, "optMap") + strings.Count(text, "optFlatMap"); repeats > fewRepeats {
		source := common.NewTextSource(text)
		parsed, errs := b.plain.Parse(source)
		if len(errs.GetErrors()) > 0 {
			return nil, cel.NewIssuesWithSourceInfo(errs, parsed.SourceInfo()), nil
		}
		if expanded(parsed.Expr()) > maxParts(len(text)) {
			return nil, nil, tooManyParts(len(text))
		}
	}
	parsed, issues := env.Parse(text)
	if parsed == nil {
		return nil, issues, nil
	}
	if err := b.check(budget, parsed, fields); err != nil {
		return nil, nil, err
	}
	return parsed, nil, nil
}

// Check returns an error if a parsed expression must not be checked by CEL: ErrTooLarge.
func (b *Bounds) Check(parsed *cel.Ast, fields Fields) error { return b.check(nil, parsed, fields) }

func (b *Bounds) check(budget *Budget, parsed *cel.Ast, fields Fields) error {
	r := estimate{Bounds: b, fields: fields}
	r.visit(parsed.NativeRep().Expr())
	text := len(parsed.Source().Content())
	switch {
	case r.parts > maxParts(text):
		return tooManyParts(text)
	case r.calls*r.generic > maxPairs(text):
		return fmt.Errorf("%w: it can have at most %d pairs of calls", ErrTooLarge, maxPairs(text))
	case r.total() > maxWork(text):
		return fmt.Errorf("%w: its types are too large: their squared sizes can add up to at most %d", ErrTooLarge, maxWork(text))
	case r.patterns > maxPatterns(text):
		return fmt.Errorf("%w: its regular expressions can have at most %d parts, with repetitions expanded", ErrTooLarge, maxPatterns(text))
	default:
		return budget.take(&r)
	}
}

func maxPatterns(bytes int) int { return leastPatterns + patternsPerByte*bytes }

func tooManyParts(text int) error {
	return fmt.Errorf("%w: with optMap and other macros expanded, it can have at most %d parts", ErrTooLarge, maxParts(text))
}

// expanded returns how many parts an expression that was parsed without macros has with
// them, but for those that are the same for every call.
func expanded(e ast.Expr) int {
	n := 1
	add := func(e ast.Expr) { n = min(largest, n+expanded(e)) }
	switch e.Kind() {
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			of := expanded(call.Target())
			if repeatsTarget(call.FunctionName()) {
				of *= 2
			}
			n = min(largest, n+of)
		}
		for _, arg := range call.Args() {
			add(arg)
		}
	case ast.SelectKind:
		add(e.AsSelect().Operand())
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			add(element)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			add(entry.AsMapEntry().Key())
			add(entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			add(field.AsStructField().Value())
		}
	case ast.IdentKind, ast.LiteralKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
	}
	return n
}

// repeatsTarget reports whether the macro repeats what it is called on, as of all
// macros that there are these two do.
func repeatsTarget(macro string) bool { return macro == "optMap" || macro == "optFlatMap" }
