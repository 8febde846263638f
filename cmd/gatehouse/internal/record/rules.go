package record

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Candidate is a review that may be recorded.
type Candidate struct {
	Review *Review
	// Body is the AdmissionReview as it came, nil for a TokenReview.
	Body []byte
	// Namespace is the name of the request's namespace, and Object that namespace, nil if it is not known.
	Namespace string
	Object    *corev1.Namespace
	// Warned reports whether the answer has a warning.
	Warned bool
}

// Rules are a compiled RecordingConfiguration. They are immutable.
type Rules struct {
	// selects denies what is to be recorded. It is nil if all is.
	selects *policy.Set
	share   float64
	text    string
}

// CompileRules compiles a RecordingConfiguration. It returns every error and warning; with an
// error there are no Rules.
func CompileRules(source string, c *v1alpha1.RecordingConfiguration) (*Rules, diagnostic.List) {
	k := checks{source: source}
	r := &Rules{share: 1}
	if c.Sampling.Default != nil {
		r.share = *c.Sampling.Default
	}
	if !(r.share >= 0 && r.share <= 1) { // not a number is neither
		k.error("sampling.default", fmt.Sprintf("%g must be from 0 to 1", r.share), "0.01 records one of a hundred reviews")
	}
	_, err := NewRedactor(make([]byte, MinKey), c.Redaction.Paths, c.Redaction.Annotations)
	for _, one := range unjoin(err) {
		k.error("redaction.paths", one.Error(), "")
	}
	r.selects = k.match(&c.Match)
	r.text = describe(c)
	if k.found.Err() != nil {
		return nil, k.found
	}
	return r, k.found
}

// ReadRules reads and compiles the RecordingConfiguration of a file, which holds nothing else. It returns every error and warning; with
// an error there are no Rules. The configuration is returned too, for what the Rules do not hold.
func ReadRules(path string) (*v1alpha1.RecordingConfiguration, *Rules, diagnostic.List) {
	c, found := config.InspectFile(path)
	if found.Err() != nil && (c == nil || c.Documents > 0) {
		return nil, nil, found
	}
	if c.Recording == nil || c.Documents > 1 {
		return nil, nil, diagnostic.List{{
			Severity: diagnostic.Error, Source: filepath.ToSlash(path), Message: "must hold one document, a " + kind,
			Hint: "write apiVersion: " + v1alpha1.GroupVersion.String() + " and kind: " + kind,
		}}
	}
	rules, compiled := CompileRules(filepath.ToSlash(path), &c.Recording.RecordingConfiguration)
	found = append(found, compiled...)
	found.Sort()
	return &c.Recording.RecordingConfiguration, rules, found
}

func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// checks collects what is wrong with a RecordingConfiguration.
type checks struct {
	source string
	found  diagnostic.List
}

// kind is the kind of the configuration.
const kind = "RecordingConfiguration"

func (k *checks) error(field, message, hint string) {
	k.found = append(k.found, diagnostic.Diagnostic{Severity: diagnostic.Error, Source: k.source, Object: kind, Field: field, Message: message, Hint: hint})
}

// match compiles a policy that denies what is selected. It is upstream's kind: pod templates
// in workloads are no pods, and updates are not compared with what was before.
func (k *checks) match(m *v1alpha1.RecordingMatch) *policy.Set {
	if m.MatchConstraints == nil && len(m.MatchConditions) == 0 {
		return nil
	}
	constraints := m.MatchConstraints.DeepCopy()
	if constraints == nil {
		constraints = new(admissionregistrationv1.MatchResources)
	}
	if len(constraints.ResourceRules) == 0 {
		every := []string{"*"}
		constraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: every, APIVersions: every, Resources: []string{"*/*"}},
		}}}
	}
	const name = "recording"
	set, err := policy.Compile(policy.Spec{
		Policies: []policy.Policy{{Source: k.source, ValidatingAdmissionPolicy: admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: constraints, MatchConditions: m.MatchConditions,
				Validations: []admissionregistrationv1.Validation{{Expression: "false"}},
			},
		}}},
		Bindings: []policy.Binding{{Source: k.source, ValidatingAdmissionPolicyBinding: admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}}},
	})
	found, ok := errors.AsType[diagnostic.List](err)
	switch {
	case err == nil:
		found = set.Warnings()
	case !ok:
		k.error("match", err.Error(), "")
	}
	for _, one := range found {
		if field, ok := strings.CutPrefix(one.Field, "spec."); ok && strings.HasPrefix(field, "match") {
			one.Field, one.Object = "match."+field, kind
			k.found = append(k.found, one)
		} else if one.Severity == diagnostic.Error {
			k.error("match", one.Message, one.Hint)
		}
	}
	return set
}

// describe returns the rules for people, for the header of a segment.
func describe(c *v1alpha1.RecordingConfiguration) string {
	var parts []string
	if c.Match.MatchConstraints != nil || len(c.Match.MatchConditions) > 0 {
		parts = append(parts, "matching requests")
	}
	if d := c.Sampling.Default; d != nil && *d < 1 {
		parts = append(parts, fmt.Sprintf("share %g", *d))
	}
	return strings.Join(parts, "; ")
}

// String describes the rules for people, "" for all.
func (r *Rules) String() string { return r.text }

// Keep reports whether to record a review.
func (r *Rules) Keep(ctx context.Context, c *Candidate) bool {
	if r.selects != nil && c.Body != nil && !r.isSelected(ctx, c) {
		return false
	}
	return c.Review.Decision != review.Allowed || c.Warned || isInShare(c.Review.ID, r.share)
}

// isSelected reports whether the configuration's match selects an admission request. It does if that
// cannot be decided.
func (r *Rules) isSelected(ctx context.Context, c *Candidate) bool {
	var body admissionv1.AdmissionReview
	if json.Unmarshal(c.Body, &body) != nil || body.Request == nil {
		return true
	}
	set := r.selects.With(policy.Lookups{Objects: oneNamespace{c.Object}})
	return !set.Decide(ctx, policy.Input{Request: admission.Request{AdmissionRequest: *body.Request}}).Response().Allowed
}

// isInShare reports whether a review belongs to a share of all. The same review always does.
func isInShare(id string, share float64) bool {
	const bits = 53 // of a float64
	sum := sha256.Sum256([]byte(id))
	return float64(binary.BigEndian.Uint64(sum[:])>>(64-bits))/(1<<bits) < share
}

// oneNamespace are the Objects of a request whose namespace is known.
type oneNamespace struct{ object *corev1.Namespace }

// Namespace implements policy.Objects.
func (n oneNamespace) Namespace(name string) (*corev1.Namespace, bool) {
	if n.object == nil || n.object.Name != name {
		return nil, false
	}
	return n.object, true
}

// Namespaced implements policy.Objects. There are no params.
func (oneNamespace) Namespaced(schema.GroupVersionKind) (bool, error) { return true, nil }

// Get implements policy.Objects.
func (oneNamespace) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return nil, nil //nolint:nilnil // there is none, as the interface says
}

// List implements policy.Objects.
func (oneNamespace) List(schema.GroupVersionKind, string, labels.Selector) ([]*unstructured.Unstructured, error) {
	return nil, nil
}
