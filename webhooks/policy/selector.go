package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawcel"
)

// selector is a label selector that selects less than everything.
type selector struct {
	labels.Selector
	// number is the selector's place in a request's memory of outcomes: equal
	// selectors of many policies are evaluated once.
	number int
	// byName are the requirements on the label that every namespace has, its name;
	// byOthers reports whether there are more.
	byName   labels.Requirements
	byOthers bool
	// label is one that must have one of some values, nil if there is none.
	label *requiredLabel
}

// selectors gives equal selectors the same number, and has the constraints by their text.
type selectors struct {
	byString    map[string]*selector
	constraints map[string]*constraints
}

// compile returns nil for a selector that selects everything. The selector was
// checked before.
func (s *selectors) compile(spec *metav1.LabelSelector) *selector {
	parsed, err := metav1.LabelSelectorAsSelector(spec)
	if err != nil || parsed.Empty() {
		return nil
	}
	if known := s.byString[parsed.String()]; known != nil {
		return known
	}
	out := &selector{Selector: parsed, number: len(s.byString)}
	requirements, _ := parsed.Requirements() // every selector of this form has them
	for _, q := range requirements {
		if q.Key() == corev1.LabelMetadataName {
			out.byName = append(out.byName, q)
		} else {
			out.byOthers = true
		}
		if op := q.Operator(); out.label == nil && (op == selection.In || op == selection.Equals || op == selection.DoubleEquals) {
			out.label = &requiredLabel{q.Key(), slices.Sorted(maps.Keys(q.Values()))}
		}
	}
	s.byString[parsed.String()] = out
	return out
}

// selectsNamespace follows upstream's
// k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace: what is in
// no namespace is always selected, and a namespace is selected by its own
// labels, the new ones when it is created or updated. An error means that the
// labels that the selector needs are not known.
func (r *request) selectsNamespace(s *selector) (bool, error) {
	if s == nil || r.Namespace == "" && r.requested.Resource != "namespaces" {
		return true, nil
	}
	if r.selections == nil {
		r.selections = make([]selectorResult, r.review.set.selectors)
	}
	if r.selections[s.number] == undecided {
		r.selections[s.number] = r.evaluateSelector(s)
	}
	if r.selections[s.number] == unknown {
		return false, r.unknownNamespace("its labels decide")
	}
	return r.selections[s.number] == selected, nil
}

// selectorResult is what a namespace selector says about the request's namespace.
type selectorResult uint8

const (
	undecided selectorResult = iota
	selected
	rejected
	unknown
)

// selectionLabels returns the labels by which the request's namespace is selected, and
// false if not all of them are known. What is in no namespace has none, and is
// always selected.
func (r *request) selectionLabels() (labels.Set, bool) {
	if !r.namespaceRead {
		r.namespaceRead = true
		if r.Namespace != "" || r.requested.Resource == "namespaces" {
			if r.namespaceSet, r.namespaceKnown = r.namespaceLabels(); !r.namespaceKnown {
				// The API server gives every namespace this label, so it is known.
				r.namespaceSet = labels.Set{corev1.LabelMetadataName: r.Namespace}
			}
		}
	}
	return r.namespaceSet, r.namespaceKnown
}

func (r *request) evaluateSelector(s *selector) selectorResult {
	r.selectionLabels()
	if r.namespaceKnown {
		if s.Matches(r.namespaceSet) {
			return selected
		}
		return rejected
	}
	for i := range s.byName {
		if !s.byName[i].Matches(r.namespaceSet) {
			return rejected
		}
	}
	if s.byOthers {
		return unknown
	}
	return selected
}

// namespaceLabels returns the labels by which the request's namespace is selected.
func (r *request) namespaceLabels() (labels.Set, bool) {
	if r.requested.Resource == "namespaces" {
		if r.SubResource == "" && (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update) {
			return r.objectLabels(&r.object), true
		}
		if r.requested.Group == "" && r.oldObject.present() {
			return r.objectLabels(&r.oldObject), true
		}
	}
	namespace, known := r.review.set.objects.Namespace(r.Namespace)
	if !known || r.Namespace == "" {
		return nil, false
	}
	return namespace.Labels, true
}

// selectsObject follows upstream's
// k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object: the object or
// the old object must be selected. The options of a CONNECT have no labels, not
// even none.
func (r *request) selectsObject(s *selector) bool {
	if s == nil {
		return true
	}
	if r.Operation == admissionv1.Connect {
		return false
	}
	for _, object := range []*payload{&r.object, &r.oldObject} {
		if object.present() && s.Matches(r.objectLabels(object)) {
			return true
		}
	}
	return false
}

// objectLabels reads the labels of an object. If they cannot be read, the
// request fails.
func (r *request) objectLabels(object *payload) labels.Set {
	if object.labels != nil {
		return object.labels
	}
	object.labels = labels.Set{}
	read := r.ObjectValue
	if object == &r.oldObject {
		read = r.OldObjectValue
	}
	metadata, _, _ := rawcel.Member(read(), "metadata")
	value, _, _ := rawcel.Member(metadata, "labels")
	switch found, areStrings, isObject := rawcel.Strings(value); {
	case value == nil || value == types.NullValue:
	case !isObject:
		r.review.fail(fmt.Errorf("%s: metadata.labels is not an object", object.name))
	case !areStrings:
		r.review.fail(fmt.Errorf("%s: a label is not a string", object.name))
	default:
		object.labels = found
	}
	return object.labels
}
