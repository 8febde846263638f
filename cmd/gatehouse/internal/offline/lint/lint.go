// Package lint finds what is likely to be wrong with policies that compile: rules that never match, fields that an object may lack,
// costs above the API server's limits.
//
// Every diagnostic is a warning or a note, and has a code. The annotation v1alpha1.LintIgnoreAnnotation of a document suppresses codes. Only the
// command lint runs it, never the server.
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Input is what is linted.
type Input struct {
	Policy policy.Spec
	// Profiles are the sidecar profiles.
	Profiles []sidecar.Profile
	// Mutating are the mutating policies.
	Mutating mutation.Spec
	// Authn is how users and tokens are authenticated.
	Authn authn.Spec
	// ScopesEnforced asks an API server whether it enforces the scopes of tokens, and returns why this does not hold or is not known. It is
	// nil if there is no API server to ask.
	ScopesEnforced func() error
	// Now is the time by which exceptions and baselines expire.
	Now time.Time
}

// Lint returns the diagnostics of the policies, in a fixed order, without those of policy.Compile: expressions that do not compile
// are skipped. An error means that the CEL environment could not be made.
func Lint(in Input) (diagnostic.List, error) {
	l := &linter{in: in, policies: in.Policy.All()}
	if err := l.prepare(); err != nil {
		return nil, err
	}
	for i := range in.Policy.Policies {
		p := &in.Policy.Policies[i]
		l.lintPolicy(l.document(p.Source, policyKind, &p.ObjectMeta), &p.Spec)
	}
	for i := range in.Mutating.Policies {
		p := &in.Mutating.Policies[i]
		l.lintMutating(l.document(p.Source, admit.MutationKind, &p.ObjectMeta), p)
	}
	for i := range in.Policy.AdmissionPolicies {
		p := &in.Policy.AdmissionPolicies[i]
		l.lintPolicy(l.document(p.Source, admissionKind, &p.ObjectMeta), p.Spec.Upstream())
	}
	for i := range in.Policy.Exceptions {
		e := &in.Policy.Exceptions[i]
		l.lintException(l.document(e.Source, "PolicyException", &e.ObjectMeta), &e.Spec)
	}
	for i := range in.Policy.Baselines {
		b := &in.Policy.Baselines[i]
		l.lintBaseline(l.document(b.Source, "PolicyBaseline", &b.ObjectMeta), b)
	}
	for i := range in.Profiles {
		p := &in.Profiles[i]
		l.lintProfile(l.document(p.Source, "SidecarProfile", &p.ObjectMeta), &p.Spec)
	}
	l.lintTokenScopes()
	return l.sorted(), nil
}

// sorted returns the diagnostics in their order, those about one expression by position.
func (l *linter) sorted() diagnostic.List {
	slices.SortStableFunc(l.found, func(a, b diagnostic.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.In.Line, b.In.Line), cmp.Compare(a.In.Column, b.In.Column))
	})
	l.found.Sort()
	return l.found
}

const (
	policyKind    = "ValidatingAdmissionPolicy"
	admissionKind = "AdmissionPolicy"
)

// linter is one call of Lint.
type linter struct {
	in Input
	// policies are those of in, of both kinds.
	policies []policy.Any
	schemas  *typecheck.Schemas
	checker  *typecheck.Checker
	custom   *mutation.CustomKinds
	found    diagnostic.List
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
	l.schemas, l.custom = typecheck.New(crds), mutation.NewCustomKinds(crds)
	var err error
	l.checker, err = typecheck.NewChecker(l.schemas, compatibility)
	return err
}

// lintPolicy lints one policy.
func (l *linter) lintPolicy(d document, given *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
	spec := given.DeepCopy()
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = new(admissionregistrationv1.Fail)
	}
	s := &subject{document: d, linter: l, spec: spec}
	s.read()

	s.lintMatching()
	s.lintSubresources()
	s.lintBeingDeleted()
	s.lintTypes()
	s.lintNullObjects()
	s.lintNamespaceObjects()
	s.lintMessages()
	s.lintOptionalFields()
	s.lintCost()
}

// document is what diagnostics about one document are reported to.
type document struct {
	source, object string
	ignored        []string
	found          *diagnostic.List
}

func (l *linter) document(source, kind string, meta *metav1.ObjectMeta) document {
	name := meta.Name
	if meta.Namespace != "" {
		name = meta.Namespace + "/" + name
	}
	d := document{source: source, object: kind + "/" + name, found: &l.found}
	for code := range strings.SplitSeq(meta.Annotations[v1alpha1.LintIgnoreAnnotation], ",") {
		d.ignored = append(d.ignored, strings.TrimSpace(code))
	}
	return d
}

// warn reports a diagnostic unless the document ignores its code.
func (d document) warn(code Code, path *field.Path, hint, format string, args ...any) {
	d.addAt(code, path.String(), hint, fmt.Sprintf(format, args...))
}

// addAt is warn for the path of a field as a string.
func (d document) addAt(code Code, field, hint, message string) {
	d.add(diagnostic.Diagnostic{Field: field, Message: message, Hint: hint, Code: string(code)})
}

func (d document) add(found diagnostic.Diagnostic) {
	if slices.Contains(d.ignored, found.Code) {
		return
	}
	found.Severity, found.Source, found.Object = cmp.Or(found.Severity, diagnostic.Warning), d.source, d.object
	*d.found = append(*d.found, found)
}

// quoted returns a text in quotes, shortened.
func quoted(text string) string {
	const most = 81 // characters: half a line of a wide terminal
	return strconv.Quote(truncate.Runes(text, most))
}
