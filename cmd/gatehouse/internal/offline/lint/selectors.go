package lint

import (
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// lintSelectors lints the selectors of a policy or binding.
func (l *linter) lintSelectors(d document, match *admissionregistrationv1.MatchResources, at *field.Path) {
	if !contradiction(d, match.NamespaceSelector, at.Child("namespaceSelector")) {
		l.namespaceSelector(d, match.NamespaceSelector, at.Child("namespaceSelector"))
	}
	contradiction(d, match.ObjectSelector, at.Child("objectSelector"))
}

// contradiction reports a selector that no labels match. True is also for one
// that Compile refuses, of which it cannot be decided.
func contradiction(d document, selector *metav1.LabelSelector, at *field.Path) bool {
	if selector == nil {
		return false
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return true
	}
	requirements := make([]metav1.LabelSelectorRequirement, 0, len(selector.MatchLabels)+len(selector.MatchExpressions))
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		requirements = append(requirements,
			metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{selector.MatchLabels[key]}})
	}
	byKey := map[string]*allowed{}
	for _, r := range append(requirements, selector.MatchExpressions...) {
		if byKey[r.Key] == nil {
			byKey[r.Key] = &allowed{}
		}
		byKey[r.Key].require(r)
	}
	found := false
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if byKey[key].nothing() {
			d.warn(Selector, at, "drop one of the requirements", "selects nothing: what it requires of label %s contradicts itself", quoted(key))
			found = true
		}
	}
	return found
}

// allowed is what requirements leave of the values of a label.
type allowed struct {
	present, absent bool
	// in has the values that are left if limited is true.
	limited bool
	in, not []string
}

func (a *allowed) require(r metav1.LabelSelectorRequirement) {
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		a.present = true
		if a.limited {
			a.in = slices.DeleteFunc(a.in, func(v string) bool { return !slices.Contains(r.Values, v) })
		} else {
			a.limited, a.in = true, slices.Clone(r.Values)
		}
	case metav1.LabelSelectorOpNotIn:
		a.not = append(a.not, r.Values...)
	case metav1.LabelSelectorOpExists:
		a.present = true
	case metav1.LabelSelectorOpDoesNotExist:
		a.absent = true
	}
}

func (a *allowed) nothing() bool {
	left := !a.limited || slices.ContainsFunc(a.in, func(v string) bool { return !slices.Contains(a.not, v) })
	return a.present && a.absent || !left
}

// namespaceSelector reports one that selects none of the namespaces that are
// known. Without any, nothing is known.
func (l *linter) namespaceSelector(d document, selector *metav1.LabelSelector, at *field.Path) {
	if selector == nil || len(l.in.Namespaces) == 0 {
		return
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || s.Empty() {
		return
	}
	var known []string
	for _, n := range l.in.Namespaces {
		set := namespaceLabels(n)
		if s.Matches(set) {
			return
		}
		for key, value := range set {
			known = append(known, key+"="+value)
		}
	}
	slices.Sort(known)
	hint := ""
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		wanted := key + "=" + selector.MatchLabels[key]
		if !slices.Contains(known, wanted) {
			hint = diagnostic.DidYouMean(wanted, known...)
			break
		}
	}
	d.warn(NamespaceSelector, at, hint, "selects none of the namespaces here")
}

// namespaceLabels returns a namespace's labels as the API server completes them.
func namespaceLabels(n *corev1.Namespace) labels.Set {
	set := labels.Set{}
	maps.Copy(set, n.Labels)
	set[corev1.LabelMetadataName] = n.Name
	return set
}
