package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// What a document can have. The API server has no limit for one expression but that of the parser of CEL; the limit is far below that, so
// that what is put together of expressions that compile does so too.
const (
	maxExpression      = 10_000 // characters
	maxNesting         = 200    // brackets and conditionals in each other
	maxMatchConditions = 64
	maxDocument        = 1<<20 - 1<<16 // bytes, without what the API server adds
)

// firstError returns the message of the first error, "" for none.
func firstError(found diagnostic.List) string {
	for _, d := range found {
		if d.Severity == diagnostic.Error {
			return strings.TrimPrefix(d.Field+": ", ": ") + d.Message
		}
	}
	return ""
}

// checker compiles expressions for a version of Kubernetes, those of documents that declare the same only once. It is not safe for concurrent use.
type checker struct {
	compiler   *expression.Compiler
	kubernetes string
	templates  *forTemplates
	scopes     map[string]*scope
}

func newChecker(kubernetes string) (*checker, error) {
	parsed, err := version.ParseMajorMinor(kubernetes)
	if err != nil {
		return nil, fmt.Errorf("version of Kubernetes: %w", err)
	}
	// What is written must work in the version before too, which may run beside it: the API server refuses what that does not know.
	compiler, err := expression.NewCompiler(parsed.SubtractMinor(1).String(), nil)
	if err != nil {
		return nil, err
	}
	templates, err := newForTemplates()
	return &checker{compiler: compiler, kubernetes: kubernetes, templates: templates, scopes: map[string]*scope{}}, err
}

// scope is what documents have that declare the same.
type scope struct {
	*expression.Scope

	found diagnostic.List
	// problem is what is wrong with match conditions and variables, and alone is true if the conditions depend on the object alone.
	problem string
	alone   bool
	known   map[string]checked
}

// checked is an expression that was compiled, or what is wrong with it.
type checked struct {
	program *expression.Program
	problem string
}

// scope returns that of documents with these match conditions and variables.
func (c *checker) scope(params bool, conditions []admissionregistrationv1.MatchCondition, variables []admissionregistrationv1.Variable) *scope {
	key := fmt.Sprintf("%v %q %q", params, conditions, variables)
	s := c.scopes[key]
	if s != nil {
		return s
	}
	s = &scope{alone: true, known: map[string]checked{}}
	s.Scope = expression.NewScope(validation.Reporter{List: &s.found}, c.compiler, params, variables, nil)
	s.CheckOnly, s.Budget = true, nil
	for _, condition := range s.CompileConditions(field.NewPath("matchConditions"), conditions) {
		s.alone = s.alone && !condition.Uses().Has(expression.UsesOldObject|expression.UsesUser|expression.UsesAuthorizer)
	}
	s.DeclareVariables(field.NewPath("variables"), variables)
	s.Reads, s.problem = true, firstError(s.found)
	c.scopes[key] = s
	return s
}

// check compiles an expression by a method of the scope.
func (s *scope) check(kind, text string, by func(path *field.Path, text string) *expression.Program) checked {
	out, known := s.known[kind+text]
	if !known && text != "" {
		s.found = s.found[:0]
		out = checked{by(nil, text), ""}
		if out.problem = firstError(s.found); out.problem != "" {
			out.program = nil
		}
		s.known[kind+text] = out
	}
	return out
}

func (s *scope) rule(text string) checked {
	return s.check("", text, func(path *field.Path, text string) *expression.Program { return s.Compile(path, text, cel.BoolType) })
}

// check compiles the expressions of a policy, and notes what is wrong with them. It reports whether the match conditions depend on the object
// alone. Of expressions that are the policy's own, it keeps the programs of the rules.
//
// What documents put together of these expressions, in parentheses and joined by ||, is accepted like its parts.
func (c *checker) check(s *source, t *texts, own bool) (alone bool) {
	if t.problem != "" {
		return false
	}
	what := "it does not compile for them: "
	if own {
		what = "an API server of Kubernetes " + c.kubernetes + " refuses it: "
	}
	wrong := func(problem string) string {
		if problem != "" {
			problem = what + problem
		}
		return problem
	}
	in := c.scope(s.spec.ParamKind != nil, t.conditions, t.variables)
	if t.problem = wrong(in.problem); t.problem != "" {
		return false
	}
	for i := range t.rules {
		r := &t.rules[i]
		if s.rules[i].standard || r.problem != "" {
			continue
		}
		checked := in.rule(r.expression)
		if r.problem = wrong(checked.problem); own {
			s.rules[i].program = checked.program
		}
		if message := in.check("message ", r.message, in.CompileMessage); message.problem != "" {
			r.message, r.messageProblem = "", wrong(message.problem)
		}
	}
	for i := range t.annotations {
		if a := &t.annotations[i]; a.problem == "" {
			a.problem = wrong(in.check("annotation ", a.expression, func(path *field.Path, text string) *expression.Program {
				return in.Compile(path, text, cel.StringType, cel.NullType)
			}).problem)
		}
	}
	return in.alone
}

// accepts returns why the API server refuses a condition that is made here, "" if it does not.
func (c *checker) accepts(text string) string {
	if len(text) > maxExpression {
		return fmt.Sprintf("it has more than %d characters", maxExpression)
	}
	return c.scope(false, nil, []admissionregistrationv1.Variable{{Name: powerVariable, Expression: "true"}}).rule(text).problem
}

// nesting returns how deep brackets and conditionals are in each other, at most.
func nesting(text string) (most int) {
	depth := strings.Count(text, "? ")
	for i := range len(text) {
		switch text[i] {
		case '(', '[', '{':
			depth++
			most = max(most, depth)
		case ')', ']', '}':
			depth--
		}
	}
	return most
}

// emit adds a policy, or returns why the API server would refuse it.
func (c *compilation) emit(s *source, p *part, name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, expires time.Time, rules []string) string {
	var found diagnostic.List
	reporter := validation.Reporter{List: &found}
	validation.CheckName(reporter, name)
	validation.CheckPolicySpec(reporter, name, validation.DefaultPolicySpec(spec), false)
	var texts []string
	for i := range spec.Validations {
		if v := &spec.Validations[i]; nesting(v.Expression) > maxNesting || nesting(v.MessageExpression) > maxNesting {
			return "expressions are nested too deeply"
		} else if texts = append(texts, v.Expression); v.MessageExpression != "" {
			texts = append(texts, v.MessageExpression)
		}
	}
	expression.NewScope(reporter, c.compiler, false, nil, nil).FitWith(field.NewPath("spec"), spec.MatchConditions, spec.Variables, texts)
	if problem := firstError(found); problem != "" {
		return "the compiled policy would be refused: " + problem
	}
	from := s.Kind + "/" + s.Name
	text, err := json.Marshal(spec)
	switch other := c.names[policyKind+"/"+name]; {
	case err != nil:
		return err.Error()
	case other != "":
		return other + " becomes a policy of the same name, " + name
	case len(text) > maxDocument:
		return "the policy is too large for the API server"
	}
	c.names[policyKind+"/"+name] = from
	digest := sha256.Sum256(text)
	annotations := map[string]string{FromAnnotation: from, HashAnnotation: hex.EncodeToString(digest[:])}
	if !expires.IsZero() {
		annotations[ExpiresAnnotation] = expires.UTC().Format(time.RFC3339)
		if c.out.Expires.IsZero() || expires.Before(c.out.Expires) {
			c.out.Expires = expires
		}
	}
	for _, key := range []string{v1alpha1.ContactAnnotation, v1alpha1.LintIgnoreAnnotation} {
		if value, given := s.Annotations[key]; given {
			annotations[key] = value
		}
	}
	if slices.ContainsFunc(spec.Variables, func(v admissionregistrationv1.Variable) bool { return v.Name == powerVariable }) {
		// An estimate does not see that containers are compared with those of their names alone.
		annotations[v1alpha1.LintIgnoreAnnotation] = strings.TrimPrefix(annotations[v1alpha1.LintIgnoreAnnotation]+",expensive", ",")
	}
	c.out.Documents = append(c.out.Documents, Document{From: from, Template: strings.Join(p.path, "."), Rules: rules, Policy: &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: policyKind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{ManagedByLabel: ManagedBy}},
		Spec:       *spec,
	}})
	return ""
}

// bind adds a binding, or returns why the API server would refuse it. If another one has the name, it gets a longer one.
func (c *compilation) bind(s *source, p *part, source, name string, spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) string {
	var found diagnostic.List
	reporter, from := validation.Reporter{List: &found}, s.Kind+"/"+s.Name
	if c.names[bindingKind+"/"+name] != "" {
		digest := sha256.Sum256([]byte(from + "/" + source))
		name = hex.EncodeToString(digest[:4]) + "." + name
	}
	validation.CheckName(reporter, name)
	validation.CheckBindingSpec(reporter, policyKind, spec)
	if problem := firstError(found); problem != "" {
		return "it would be refused: " + problem
	}
	c.names[bindingKind+"/"+name] = from
	c.out.Documents = append(c.out.Documents, Document{From: from, Source: source, Template: strings.Join(p.path, "."), Binding: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: bindingKind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{FromAnnotation: from}, Labels: map[string]string{ManagedByLabel: ManagedBy}},
		Spec:       *spec,
	}})
	return ""
}

// mayMatch reports whether a rule may be about a resource of the core group, or a subresource of it.
func mayMatch(rules []admissionregistrationv1.NamedRuleWithOperations, resource string) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(r.APIGroups, func(group string) bool { return group == "" || group == "*" }) && slices.ContainsFunc(r.Resources, func(name string) bool {
			whole, _, _ := strings.Cut(name, "/")
			return whole == resource || whole == "*"
		})
	})
}

// matchesOnly reports whether all rules are about a resource of the core group.
func matchesOnly(match *admissionregistrationv1.MatchResources, resource string) bool {
	return !slices.ContainsFunc(match.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(r.APIGroups, func(group string) bool { return group != "" }) ||
			slices.ContainsFunc(r.Resources, func(name string) bool { whole, _, _ := strings.Cut(name, "/"); return whole != resource })
	})
}

// isEmptySelector reports whether a selector selects everything.
func isEmptySelector(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}
