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

// The limits of the expression. A condition of a webhook may cost 1,000,000: a check of the
// authorizer costs 350,000, a search in the user's groups as much as there are groups,
// everything else a few units.
const (
	maxPolicies        = 32
	maxExpressionBytes = 16 << 10
	maxChecks          = 2
	maxSearches        = 64
)

// oldestKubernetes is the oldest version of Kubernetes that the conditions must compile
// in.
func oldestKubernetes() *version.Version { return version.MajorMinor(1, 36) }

// combineConditions returns the match condition of a webhook that is true for every request
// that any of its policies decides: one that matches the resource rules and all match
// conditions of the policy. It is nil if no policy has conditions, or if one of these may
// fail or cost too much; then why is the reason.
//
// A condition that is false keeps a request from Gatehouse, so that it must never
// be so by mistake. What is asked about the request is not less than what the
// rules match: a condition sees the resource of the original request, in its own
// version and group, so neither is compared. Selectors, names of objects and
// bindings are left out, which makes it true more often. An expression that could
// fail is not part of it (see proof): with
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
func combineConditions(policies []*activePolicy) (condition *admissionregistrationv1.MatchCondition, why string) {
	conditional := 0
	for _, p := range policies {
		conditional += len(p.conditions)
	}
	switch {
	case conditional == 0:
		return nil, ""
	case len(policies) > maxPolicies:
		return nil, fmt.Sprintf("there are more than %d policies", maxPolicies)
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
		conditions, proof, why := p.safeConditions(env)
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
			return nil, p.name + ": matches every request"
		}
		terms = append(terms, term)
	}
	expression := disjunction(terms)
	switch {
	case checks > maxChecks:
		return nil, fmt.Sprintf("they ask the authorizer more than %d times", maxChecks)
	case searches > maxSearches:
		return nil, fmt.Sprintf("they look into the user's groups more than %d times", maxSearches)
	case len(expression) > maxExpressionBytes:
		return nil, fmt.Sprintf("they have more than %d KiB", maxExpressionBytes>>10)
	}
	condition = &admissionregistrationv1.MatchCondition{Name: "policies", Expression: expression}
	if err := compiles(condition); err != nil {
		return nil, err.Error()
	}
	return condition, ""
}

// safeConditions returns the match conditions of a policy if none of them can fail.
func (p *activePolicy) safeConditions(env *cel.Env) (expressions []string, attempt *proof, why string) {
	attempt = p.newProof()
	for i := range p.conditions {
		c := &p.conditions[i]
		parsed, issues := env.Parse(c.Expression)
		if issues.Err() != nil {
			return nil, nil, fmt.Sprintf("match condition %q is not read by Kubernetes %s", c.Name, oldestKubernetes())
		}
		if attempt.kind(parsed.NativeRep().Expr(), nil) != boolean {
			return nil, nil, fmt.Sprintf("match condition %q may fail, or uses more than user, resource, name, labels and annotations", c.Name)
		}
		// Formatted again without comments, which could hide what follows.
		expression, err := cel.AstToString(parsed)
		if err != nil {
			return nil, nil, fmt.Sprintf("match condition %q cannot be written: %v", c.Name, err)
		}
		expressions = append(expressions, "("+expression+")")
	}
	return expressions, attempt, ""
}

// parser returns an environment that parses expressions as the API server does, and keeps
// what formatting them takes.
func parser() (*cel.Env, error) {
	return environment.MustBaseEnvSet(oldestKubernetes()).NewExpressionsEnv().Extend(cel.EnableMacroCallTracking())
}

// newProof returns a proof for the conditions of a policy. There is an object if it is
// created or updated, and an old one if it is updated or deleted; nothing is known of
// subresources.
func (p *activePolicy) newProof() *proof {
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

// compiles returns the error of a condition that the API server rejects.
func compiles(c *admissionregistrationv1.MatchCondition) error {
	compiler := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(oldestKubernetes()))
	compiled := compiler.CompileCondition([]plugincel.ExpressionAccessor{(*matchconditions.MatchCondition)(c)},
		plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	for _, err := range compiled.CompilationErrors() {
		return err
	}
	return nil
}

// guard returns an expression that is true for the requests that rules match, and for those
// of the same resource in other groups and versions. It is "" if there are no rules, or if
// they match everything.
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

// isResource returns an expression that is true for the resources, in the form of rules, and
// "" for all.
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

// isOneOf returns an expression that compares a field with strings.
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

// conjunction returns the expression that is true if all terms are. An empty term is true.
func conjunction(terms []string) string {
	terms = slices.DeleteFunc(slices.Clone(terms), func(term string) bool { return term == "" })
	return strings.Join(terms, " && ")
}

// disjunction returns the expression that is true if any of the terms is, none of which is
// empty. It is empty without terms.
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
