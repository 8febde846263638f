package matching

import (
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selector is a label selector that selects less than everything.
type Selector struct {
	labels.Selector
	// number is the selector's place in a request's memory of outcomes: equal
	// selectors of many policies are evaluated once.
	number int
	// byName are the requirements on the label that every namespace has, its name;
	// byOthers reports whether there are more.
	byName   labels.Requirements
	byOthers bool
	// Label is one that must have one of some values, nil if there is none.
	Label *RequiredLabel
}

// RequiredLabel is a label that a namespace or an object must have, with one of the
// values.
type RequiredLabel struct {
	Key    string
	Values []string
}

// Selectors compiles selectors and constraints. It gives equal selectors the same number, and has the constraints by
// their text.
type Selectors struct {
	byString    map[string]*Selector
	constraints map[string]*Constraints
}

// NewSelectors returns Selectors that have compiled nothing yet.
func NewSelectors() Selectors {
	return Selectors{byString: map[string]*Selector{}, constraints: map[string]*Constraints{}}
}

// Count returns how many distinct selectors there are: the number for Request.Init.
func (s *Selectors) Count() int { return len(s.byString) }

// compile returns nil for a selector that selects everything. The selector was
// checked before.
func (s *Selectors) compile(spec *metav1.LabelSelector) *Selector {
	parsed, err := metav1.LabelSelectorAsSelector(spec)
	if err != nil || parsed.Empty() {
		return nil
	}
	if known := s.byString[parsed.String()]; known != nil {
		return known
	}
	out := &Selector{Selector: parsed, number: len(s.byString)}
	requirements, _ := parsed.Requirements() // every selector of this form has them
	for _, q := range requirements {
		if q.Key() == corev1.LabelMetadataName {
			out.byName = append(out.byName, q)
		} else {
			out.byOthers = true
		}
		if op := q.Operator(); out.Label == nil && (op == selection.In || op == selection.Equals || op == selection.DoubleEquals) {
			out.Label = &RequiredLabel{q.Key(), slices.Sorted(maps.Keys(q.Values()))}
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
func (r *Request) selectsNamespace(s *Selector) (bool, error) {
	if s == nil || r.Namespace == "" && r.Requested.Resource != "namespaces" {
		return true, nil
	}
	if r.selections == nil {
		r.selections = make([]selectorResult, r.selectors)
	}
	if r.selections[s.number] == undecided {
		r.selections[s.number] = r.evaluateSelector(s)
	}
	if r.selections[s.number] == unknown {
		return false, r.source.UnknownNamespace("its labels decide")
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

// SelectionLabels returns the labels by which the request's namespace is selected, and
// false if not all of them are known. What is in no namespace has none, and is
// always selected.
func (r *Request) SelectionLabels() (labels.Set, bool) {
	if !r.namespaceRead {
		r.namespaceRead = true
		if r.Namespace != "" || r.Requested.Resource == "namespaces" {
			if r.namespaceSet, r.namespaceKnown = r.namespaceLabels(); !r.namespaceKnown {
				// The API server gives every namespace this label, so it is known.
				r.namespaceSet = labels.Set{corev1.LabelMetadataName: r.Namespace}
			}
		}
	}
	return r.namespaceSet, r.namespaceKnown
}

func (r *Request) evaluateSelector(s *Selector) selectorResult {
	r.SelectionLabels()
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
func (r *Request) namespaceLabels() (labels.Set, bool) {
	if r.Requested.Resource == "namespaces" {
		if r.SubResource == "" && (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update) {
			set, _ := r.source.Labels(false)
			return set, true
		}
		if r.Requested.Group == "" {
			if set, present := r.source.Labels(true); present {
				return set, true
			}
		}
	}
	namespace, known := r.objects.Namespace(r.Namespace)
	if !known || r.Namespace == "" {
		return nil, false
	}
	return namespace.Labels, true
}

// selectsObject follows upstream's
// k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object: the object or
// the old object must be selected. The options of a CONNECT have no labels, not
// even none.
func (r *Request) selectsObject(s *Selector) bool {
	if s == nil {
		return true
	}
	if r.Operation == admissionv1.Connect {
		return false
	}
	for _, old := range [...]bool{false, true} {
		if set, present := r.source.Labels(old); present && s.Matches(set) {
			return true
		}
	}
	return false
}
