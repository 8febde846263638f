package registration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// What the expression may at most hold. Conditions of a webhook may cost
// 1,000,000 each: a question to the authorizer costs 350,000, what is done for
// each of the user's groups as much as there are groups, everything else a few
// units.
const (
	maxPushedPolicies = 32
	maxPushedBytes    = 16 << 10
	maxPushedChecks   = 2
	maxPushedSearches = 64
)

// oldest is the oldest version of Kubernetes that the conditions must compile
// in.
func oldest() *version.Version { return version.MajorMinor(1, 36) }

// pushed is the match condition of a webhook that is true for every request for
// which any of its policies has something to decide: a request that the resource
// rules of the policy are about, and of which all of its match conditions are
// true. It is nil if that cannot be said, or if there is nothing to say; then
// why tells, if any policy has conditions, which stands in the way.
//
// A condition that is false keeps a request from Gatehouse, so that it must never
// be so by mistake. What is asked about the request is not less than what the
// rules say: a condition sees the resource of the original request, in its own
// version and group, so neither is asked for. Selectors, names of objects and
// bindings are left out, which makes it true more often. An expression that could
// fail is none of it (see proof): with
//
//	policy A   policy B   A || B   so the webhook        and Gatehouse would
//	true       error      true     is called             decide itself
//	false      error      error    refuses, or is not    refuse for B alone, or not
//	error      error      error    called at all         for either of them
//
// an error is never a wrong pass where the webhook fails closed, as || absorbs an
// error only beside what is true, and then the webhook is called. But it would
// refuse what Gatehouse may let pass: B may only warn, have an exception, select
// by labels, or be violated before. And where the webhook fails open, an error by
// cost would skip A with B.
func pushed(policies []*inForce) (condition *admissionregistrationv1.MatchCondition, why string) {
	conditional := 0
	for _, p := range policies {
		conditional += len(p.conditions)
	}
	switch {
	case conditional == 0:
		return nil, ""
	case len(policies) > maxPushedPolicies:
		return nil, fmt.Sprintf("there are more than %d policies", maxPushedPolicies)
	}
	env, err := parser()
	if err != nil {
		return nil, err.Error()
	}
	var (
		terms            []string
		checks, searches int
	)
	for _, p := range policies {
		conditions, proof, why := p.proved(env)
		if why != "" {
			return nil, p.name + ": " + why
		}
		checks += proof.checks
		searches += proof.searches
		term := conjunction(append([]string{guard(p.atoms.atoms)}, conditions...))
		if templates := guard(p.templates.atoms); templates != "" {
			term = disjunction([]string{term, templates})
		}
		if term == "" {
			return nil, p.name + ": is about every request"
		}
		terms = append(terms, term)
	}
	expression := disjunction(terms)
	switch {
	case checks > maxPushedChecks:
		return nil, fmt.Sprintf("they ask the authorizer more than %d times", maxPushedChecks)
	case searches > maxPushedSearches:
		return nil, fmt.Sprintf("they look into the user's groups more than %d times", maxPushedSearches)
	case len(expression) > maxPushedBytes:
		return nil, fmt.Sprintf("they have more than %d KiB", maxPushedBytes>>10)
	}
	condition = &admissionregistrationv1.MatchCondition{Name: "policies", Expression: expression}
	if err := compiles(condition); err != nil {
		return nil, err.Error()
	}
	return condition, ""
}

// proved are the match conditions of a policy if none of them can fail.
func (p *inForce) proved(env *cel.Env) (expressions []string, attempt *proof, why string) {
	attempt = p.attempt()
	for i := range p.conditions {
		c := &p.conditions[i]
		parsed, issues := env.Parse(c.Expression)
		if issues.Err() != nil {
			return nil, nil, fmt.Sprintf("match condition %q is not read by Kubernetes %s", c.Name, oldest())
		}
		if attempt.kind(parsed.NativeRep().Expr(), nil) != boolean {
			return nil, nil, fmt.Sprintf("match condition %q may fail, or is about more than user, resource, name, labels and annotations", c.Name)
		}
		// Written anew, so that a comment in it cannot swallow what follows.
		expression, err := cel.AstToString(parsed)
		if err != nil {
			return nil, nil, fmt.Sprintf("match condition %q cannot be written: %v", c.Name, err)
		}
		expressions = append(expressions, "("+expression+")")
	}
	return expressions, attempt, ""
}

// parser reads expressions as the API server does, so that they can be written
// again.
func parser() (*cel.Env, error) {
	return environment.MustBaseEnvSet(oldest()).NewExpressionsEnv().Extend(cel.EnableMacroCallTracking())
}

// attempt is a proof for the conditions of a policy. There is an object where one
// is created or updated, and an old one where one is updated or deleted; of
// subresources nothing is known.
func (p *inForce) attempt() *proof {
	only := func(operations ...admissionregistrationv1.OperationType) bool {
		for a := range p.atoms.atoms {
			if strings.Contains(a.resource, "/") || !slices.Contains(operations, admissionregistrationv1.OperationType(a.operation)) {
				return false
			}
		}
		return true
	}
	return &proof{
		object:    only(admissionregistrationv1.Create, admissionregistrationv1.Update),
		oldObject: only(admissionregistrationv1.Update, admissionregistrationv1.Delete),
	}
}

// compiles reports whether the API server will take a condition.
func compiles(c *admissionregistrationv1.MatchCondition) error {
	compiler := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(oldest()))
	compiled := compiler.CompileCondition([]plugincel.ExpressionAccessor{(*matchconditions.MatchCondition)(c)},
		plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	for _, err := range compiled.CompilationErrors() {
		return err
	}
	return nil
}

// guard is true for the requests that rules are about, and for those of the same
// resource in other groups and versions. It is "" if there are no rules, or if
// they are about everything.
func guard(atoms map[atom]bool) string {
	operations := map[string][]string{}
	for a := range atoms {
		if !slices.Contains(operations[a.resource], a.operation) {
			operations[a.resource] = append(operations[a.resource], a.operation)
		}
	}
	resources := map[string][]string{}
	for resource, list := range operations {
		slices.SortFunc(list, func(a, b string) int { return cmp.Compare(operationOrder(a), operationOrder(b)) })
		key := strings.Join(list, ",")
		if slices.Contains(list, all) {
			key = all
		}
		resources[key] = append(resources[key], resource)
	}
	var terms []string
	for _, key := range slices.SortedFunc(maps.Keys(resources), func(a, b string) int {
		return slices.Compare(operationOrders(a), operationOrders(b))
	}) {
		var parts []string
		if key != all {
			parts = append(parts, isOneOf("request.operation", strings.Split(key, ",")))
		}
		term := conjunction(append(parts, isResource(resources[key])))
		if term == "" {
			return "" // everything
		}
		terms = append(terms, term)
	}
	return disjunction(terms)
}

func operationOrders(operations string) []int {
	var orders []int
	for operation := range strings.SplitSeq(operations, ",") {
		orders = append(orders, operationOrder(operation))
	}
	return orders
}

// isResource is true for requests of any of the resources, as rules write them,
// and "" for all.
func isResource(rules []string) string {
	const (
		resource  = "request.resource.resource"
		sub       = "request.subResource"
		hasSub    = "has(" + sub + ")"
		hasNoSub  = "!" + hasSub
		everySub  = "*/*"
		anySuffix = "/*"
	)
	slices.Sort(rules)
	var names, terms []string
	for _, rule := range rules {
		name, subresource, ok := strings.Cut(rule, "/")
		switch {
		case rule == everySub:
			return ""
		case rule == all:
			terms = append(terms, hasNoSub)
		case !ok:
			names = append(names, rule)
		case strings.HasSuffix(rule, anySuffix):
			terms = append(terms, isOneOf(resource, []string{name}))
		case name == all:
			terms = append(terms, conjunction([]string{hasSub, isOneOf(sub, []string{subresource})}))
		default:
			terms = append(terms, conjunction([]string{isOneOf(resource, []string{name}), hasSub, isOneOf(sub, []string{subresource})}))
		}
	}
	if len(names) > 0 {
		terms = append(terms, conjunction([]string{isOneOf(resource, names), hasNoSub}))
	}
	return disjunction(terms)
}

// isOneOf compares a field with texts.
func isOneOf(field string, words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = strconv.QuoteToASCII(word)
	}
	if len(quoted) == 1 {
		return field + " == " + quoted[0]
	}
	return field + " in [" + strings.Join(quoted, ", ") + "]"
}

// conjunction is true if all of the terms are. An empty term is true.
func conjunction(terms []string) string {
	terms = slices.DeleteFunc(slices.Clone(terms), func(term string) bool { return term == "" })
	return strings.Join(terms, " && ")
}

// disjunction is true if any of the terms, none of which is empty, is. Without
// terms it is empty.
func disjunction(terms []string) string {
	switch len(terms) {
	case 0:
		return ""
	case 1:
		return terms[0]
	default:
		return "((" + strings.Join(terms, ") || (") + "))"
	}
}
