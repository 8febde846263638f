package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Trace notes what one decision reads, and is then the review in the queue of its Recorder. It answers as the lookups
// that it stands in front of do. It is for one goroutine, and used again for later reviews.
type Trace struct {
	recorder *Recorder
	// of is the snapshot that decides, and view the same with this Trace in front of its lookups.
	of, view *webhooks.Snapshot
	base     webhooks.Lookups
	// traced is true once a decision has begun. A review may be answered without one.
	traced  bool
	lookups Lookups

	review       Review
	body, answer []byte
	// isSecret reports whether the review is about a Secret, and isAccess whether it is one of access.
	isSecret, isAccess bool
}

// Finish records the finished review. The Trace must not be used any more.
func (t *Trace) Finish(o *review.Outcome, x review.Exchange) { t.recorder.add(o, x, t) }

// Snapshot returns the snapshot to decide with, which notes what the decision reads.
func (t *Trace) Snapshot(s *webhooks.Snapshot) *webhooks.Snapshot {
	t.traced = true
	if t.of != s {
		t.of, t.base = s, s.Lookups()
		l := webhooks.Lookups{Now: t.base.Now}
		if t.base.Objects != nil {
			l.Objects = t
		}
		if t.base.Namespaces != nil {
			l.Namespaces = tracedNamespaces{t}
		}
		if t.base.ConfigMaps != nil {
			l.ConfigMaps = t
		}
		if t.base.Authorizer != nil {
			l.Authorizer = t
		}
		t.view = s.With(l)
	}
	t.lookups.NoAuthorizer = t.base.Authorizer == nil
	return t.view
}

// reset makes the Trace ready for another review. It keeps memory that is not large.
func (t *Trace) reset() {
	const kept = 64 << 10 // bytes
	l, body, answer := &t.lookups, t.body[:0], t.answer[:0]
	if cap(body)+cap(answer) > kept {
		body, answer = nil, nil
	}
	clear(l.Namespaces)
	*t = Trace{recorder: t.recorder, of: t.of, view: t.view, base: t.base, body: body, answer: answer, lookups: Lookups{Namespaces: l.Namespaces[:0]}}
}

// Namespace implements policy.Objects.
func (t *Trace) Namespace(name string) (*corev1.Namespace, bool) {
	found, known := t.base.Objects.Namespace(name)
	t.addNamespace(name, found)
	return found, known
}

// noteNamespace notes the namespace of a request, whether or not the decision has read it:
// other configurations may.
func (t *Trace) noteNamespace(name string) {
	switch {
	case name == "" || !t.traced || t.hasNamespace(name):
	case t.base.Objects != nil:
		_, _ = t.Namespace(name)
	case t.base.Namespaces != nil:
		_, _ = tracedNamespaces{t}.Namespace(name)
	}
}

func (t *Trace) hasNamespace(name string) bool {
	return slices.ContainsFunc(t.lookups.Namespaces, func(n NamespaceLookup) bool { return n.Name == name })
}

func (t *Trace) addNamespace(name string, found *corev1.Namespace) {
	if !t.hasNamespace(name) {
		t.lookups.Namespaces = append(t.lookups.Namespaces, NamespaceLookup{Name: name, found: found})
	}
}

// tracedNamespaces is a Trace as sidecar.Namespaces.
type tracedNamespaces struct{ t *Trace }

// Namespace implements sidecar.Namespaces.
func (n tracedNamespaces) Namespace(name string) (*corev1.Namespace, bool) {
	found, known := n.t.base.Namespaces.Namespace(name)
	n.t.addNamespace(name, found)
	return found, known
}

// Namespaced implements policy.Objects.
func (t *Trace) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	namespaced, err := t.base.Objects.Namespaced(kind)
	of := metav1.GroupVersionKind(kind)
	if !slices.ContainsFunc(t.lookups.Kinds, func(k KindLookup) bool { return k.Kind == of }) {
		t.lookups.Kinds = append(t.lookups.Kinds, KindLookup{of, namespaced, errorText(err), errors.Is(err, policy.ErrNotServed)})
	}
	return namespaced, err
}

// Get implements policy.Objects.
func (t *Trace) Get(kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	found, err := t.base.Objects.Get(kind, namespace, name)
	of := metav1.GroupVersionKind(kind)
	if !slices.ContainsFunc(t.lookups.Objects, func(o ObjectLookup) bool { return o.Kind == of && o.Namespace == namespace && o.Name == name }) {
		t.lookups.Objects = append(t.lookups.Objects, ObjectLookup{Kind: of, Namespace: namespace, Name: name, Error: errorText(err), found: found})
	}
	return found, err
}

// List implements policy.Objects.
func (t *Trace) List(kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	found, err := t.base.Objects.List(kind, namespace, selector)
	of, text := metav1.GroupVersionKind(kind), SelectorText(selector)
	if !slices.ContainsFunc(t.lookups.Lists, func(l ListLookup) bool { return l.Kind == of && l.Namespace == namespace && l.Selector == text }) {
		t.lookups.Lists = append(t.lookups.Lists, ListLookup{Kind: of, Namespace: namespace, Selector: text, Error: errorText(err), found: found})
	}
	return found, err
}

// SelectorText returns a selector as ListLookup has it.
func SelectorText(selector labels.Selector) string {
	if selector == nil {
		return ""
	}
	return selector.String()
}

// ConfigMapData implements sidecar.ConfigMaps.
func (t *Trace) ConfigMapData(namespace, name string) (map[string]string, bool) {
	data, known := t.base.ConfigMaps.ConfigMapData(namespace, name)
	if !slices.ContainsFunc(t.lookups.ConfigMaps, func(c ConfigMapLookup) bool { return c.Namespace == namespace && c.Name == name }) {
		t.lookups.ConfigMaps = append(t.lookups.ConfigMaps, ConfigMapLookup{Namespace: namespace, Name: name, data: data, known: known})
	}
	return data, known
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (t *Trace) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := t.base.Authorizer.Authorize(ctx, a)
	t.lookups.Authorizer = append(t.lookups.Authorizer, Authorization{AttributesKey(a), decisionTexts[decision], reason, errorText(err)})
	return decision, reason, err //nolint:wrapcheck // it is that of the authorizer behind this one
}

//nolint:gochecknoglobals // constant
var decisionTexts = map[authorizer.Decision]string{authorizer.DecisionAllow: "allow", authorizer.DecisionDeny: "deny", authorizer.DecisionNoOpinion: "noOpinion"}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// AttributesKey returns what an authorizer is asked about a request, as one string: the same question has the same
// string. The extra values of the user are left out: they are those of the request.
func AttributesKey(a authorizer.Attributes) string {
	var b strings.Builder
	if user := a.GetUser(); user != nil {
		groups := slices.Sorted(slices.Values(user.GetGroups()))
		fmt.Fprintf(&b, "%q %q %q ", user.GetName(), user.GetUID(), groups)
	}
	if !a.IsResourceRequest() {
		fmt.Fprintf(&b, "%s path %q", a.GetVerb(), a.GetPath())
		return b.String()
	}
	fmt.Fprintf(&b, "%s %q %q %q %q in %q named %q", a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName())
	if fields, err := a.GetFieldSelector(); err == nil && len(fields) > 0 {
		fmt.Fprintf(&b, " fields %v", fields)
	}
	if selector, err := a.GetLabelSelector(); err == nil && len(selector) > 0 {
		fmt.Fprintf(&b, " labels %v", selector)
	}
	return b.String()
}
