// Package lint finds what is likely to be wrong with policies that
// compile: what can never match or never fail, what fails on objects that its
// author has not thought of, what another version of Kubernetes understands
// otherwise, what costs more than it may.
//
// Every diagnostic is a warning and has a code. A document can have diagnostics of its
// own left out by their codes, in the annotation v1alpha1.LintIgnoreAnnotation.
//
// It is for people who write policies and is run by lint alone: the server does
// not pay for it.
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Input is what is linted.
type Input struct {
	Policy policy.Spec
	// Namespaces are those that are known.
	Namespaces []*corev1.Namespace
	// Now is the time by which exceptions expire.
	Now time.Time
}

// Lint is everything that there is to say about the policies, in a fixed order.
// What policy.Compile reports is not said again: a policy whose expressions do
// not compile is linted as far as they do. An error means that the CEL
// environment could not be made.
func Lint(in Input) (diagnostic.List, error) {
	l := &linter{in: in}
	if err := l.prepare(); err != nil {
		return nil, err
	}
	for i := range in.Policy.Policies {
		p := &in.Policy.Policies[i]
		l.lintPolicy(l.document(p.Source, policyKind, &p.ObjectMeta), &p.Spec, true)
	}
	for i := range in.Policy.AdmissionPolicies {
		p := &in.Policy.AdmissionPolicies[i]
		d := l.document(p.Source, admissionKind, &p.ObjectMeta)
		l.lintPolicy(d, &p.Spec.ValidatingAdmissionPolicySpec, false)
		podSecurityVersion(d, p.Spec.PodSecurity)
	}
	for i := range in.Policy.Bindings {
		b := &in.Policy.Bindings[i]
		l.lintBinding(l.document(b.Source, "ValidatingAdmissionPolicyBinding", &b.ObjectMeta), &b.Spec)
	}
	for i := range in.Policy.AdmissionPolicyBindings {
		b := &in.Policy.AdmissionPolicyBindings[i]
		l.lintBinding(l.document(b.Source, "AdmissionPolicyBinding", &b.ObjectMeta), &b.Spec)
	}
	for i := range in.Policy.Exceptions {
		e := &in.Policy.Exceptions[i]
		l.lintException(l.document(e.Source, "PolicyException", &e.ObjectMeta), &e.Spec)
	}
	return l.sorted(), nil
}

// located is a diagnostic and its place in the expression that it is about.
type located struct {
	diagnostic.Diagnostic
	line, column int
}

// sorted returns the diagnostics in the order in which they are shown, and those about
// one expression in the order of their places.
func (l *linter) sorted() diagnostic.List {
	slices.SortStableFunc(l.found, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	out := make(diagnostic.List, len(l.found))
	for i := range l.found {
		out[i] = l.found[i].Diagnostic
	}
	out.Sort()
	return out
}

const (
	policyKind    = "ValidatingAdmissionPolicy"
	admissionKind = "AdmissionPolicy"
)

// linter is one call of Lint.
type linter struct {
	in       Input
	schemas  *typecheck.Schemas
	checker  *typecheck.Checker
	versions versions
	found    []located
}

func (l *linter) prepare() error {
	compatibility := policy.CompatibilityVersion
	if c := l.in.Policy.Configuration; c != nil && c.CELCompatibilityVersion != "" {
		compatibility = c.CELCompatibilityVersion
	}
	var crds []*unstructured.Unstructured
	if l.in.Policy.Objects != nil {
		// An error means that none are known.
		crds, _ = l.in.Policy.Objects.List(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
			"", labels.Everything())
	}
	l.schemas = typecheck.New(crds)
	var err error
	l.checker, err = typecheck.NewChecker(l.schemas, compatibility)
	return err
}

// lintPolicy lints one policy. portable is true if the API server may be given it,
// too.
func (l *linter) lintPolicy(d document, given *admissionregistrationv1.ValidatingAdmissionPolicySpec, portable bool) {
	spec := given.DeepCopy()
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = new(admissionregistrationv1.Fail)
	}
	s := &subject{document: d, linter: l, spec: spec, portable: portable}
	s.read()

	s.lintMatching()
	if spec.MatchConstraints != nil {
		l.lintSelectors(d, spec.MatchConstraints, field.NewPath("spec", "matchConstraints"))
	}
	s.lintConditions()
	s.lintBeingDeleted()
	s.lintTypes()
	s.lintNullObjects()
	s.lintNamespaceObjects()
	s.lintOptionalFields()
	s.lintOptionals()
	s.lintLiterals()
	s.lintPortability()
	s.lintConstants()
	s.lintExpense()
	s.lintRegularExpressions()
	s.lintUnusedVariables()
	s.lintMessages()
	s.lintDuplicates()
}

func (l *linter) lintBinding(d document, spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
	if spec.MatchResources != nil {
		l.lintSelectors(d, spec.MatchResources, field.NewPath("spec", "matchResources"))
	}
}

// document is what diagnostics about one document are reported to.
type document struct {
	source, object string
	ignored        []string
	found          *[]located
}

func (l *linter) document(source, kind string, meta *metav1.ObjectMeta) document {
	name := meta.Name
	if meta.Namespace != "" {
		name = meta.Namespace + "/" + name
	}
	d := document{source: source, object: kind + "/" + name, found: &l.found}
	for code := range strings.SplitSeq(meta.Annotations[v1alpha1.LintIgnoreAnnotation], ",") {
		code = strings.TrimSpace(code)
		if code == "" {
			continue
		}
		if !slices.Contains(Codes(), Code(code)) {
			names := make([]string, 0, len(Codes()))
			for _, c := range Codes() {
				names = append(names, string(c))
			}
			d.warn(UnknownCode, field.NewPath("metadata", "annotations").Key(v1alpha1.LintIgnoreAnnotation), diagnostic.DidYouMean(code, names...),
				"%s is not the code of a finding", quoted(code))
		}
		d.ignored = append(d.ignored, code)
	}
	return d
}

// warn reports a diagnostic unless the document does not want it.
func (d document) warn(code Code, path *field.Path, hint, format string, args ...any) {
	d.add(code, path, hint, fmt.Sprintf(format, args...), 0, 0)
}

func (d document) add(code Code, path *field.Path, hint, message string, line, column int) {
	if slices.Contains(d.ignored, string(code)) {
		return
	}
	*d.found = append(*d.found, located{diagnostic.Diagnostic{
		Severity: diagnostic.Warning, Source: d.source, Object: d.object, Field: path.String(),
		Message: message, Hint: hint, Code: string(code),
	}, line, column})
}

// quoted returns a text in quotes, cut to a length that a diagnostic can hold.
func quoted(text string) string {
	const most = 80 // characters: half a line of a wide terminal
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}

func quotedList[S ~string](list []S) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quoted(string(s))
	}
	return strings.Join(out, ", ")
}
