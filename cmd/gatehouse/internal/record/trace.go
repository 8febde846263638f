package record

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Trace notes what one decision reads. It answers as the lookups that it stands in front of
// do. It is for one goroutine.
type Trace struct {
	recorder *Recorder
	base     webhooks.Lookups
	// traced is true once there is something to note. A review may be answered without a
	// decision.
	traced bool
	// noAuthorizer is true if there is no authorizer to ask.
	noAuthorizer bool
	// digest is that of the configuration that decides.
	digest string

	namespaces []namespaceAnswer
	kinds      []kindAnswer
	objects    []objectAnswer
	lists      []listAnswer
	configMaps []configMapAnswer
	authorizer []authorizerAnswer
}

type (
	namespaceAnswer struct {
		name  string
		found *corev1.Namespace
	}
	kindAnswer struct {
		kind       schema.GroupVersionKind
		namespaced bool
		err        error
	}
	objectAnswer struct {
		kind            schema.GroupVersionKind
		namespace, name string
		found           *unstructured.Unstructured
		err             error
	}
	listAnswer struct {
		kind                schema.GroupVersionKind
		namespace, selector string
		found               []*unstructured.Unstructured
		err                 error
	}
	configMapAnswer struct {
		namespace, name string
		data            map[string]string
		known           bool
	}
	authorizerAnswer struct {
		attributes string
		extra      map[string][]string
		decision   authorizer.Decision
		reason     string
		err        error
	}
)

// Finish records the finished review.
func (t *Trace) Finish(o *review.Outcome, x review.Exchange) { t.recorder.add(o, x, t) }

// Snapshot returns the snapshot to decide with, which notes what the decision reads.
func (t *Trace) Snapshot(s *webhooks.Snapshot) *webhooks.Snapshot {
	t.base, t.digest, t.traced = s.Lookups(), s.Digest, true
	t.noAuthorizer = t.base.Authorizer == nil
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
	return s.With(l)
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
	case name == "" || t.hasNamespace(name):
	case t.base.Objects != nil:
		_, _ = t.Namespace(name)
	case t.base.Namespaces != nil:
		_, _ = tracedNamespaces{t}.Namespace(name)
	}
}

func (t *Trace) hasNamespace(name string) bool {
	_, has := t.findNamespace(name)
	return has
}

// findNamespace returns a namespace that was looked up, nil for one that does not exist.
func (t *Trace) findNamespace(name string) (found *corev1.Namespace, has bool) {
	for i := range t.namespaces {
		if t.namespaces[i].name == name {
			return t.namespaces[i].found, true
		}
	}
	return nil, false
}

func (t *Trace) addNamespace(name string, found *corev1.Namespace) {
	if !t.hasNamespace(name) {
		t.namespaces = append(t.namespaces, namespaceAnswer{name, found})
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
	if !slices.ContainsFunc(t.kinds, func(k kindAnswer) bool { return k.kind == kind }) {
		t.kinds = append(t.kinds, kindAnswer{kind, namespaced, err})
	}
	return namespaced, err
}

// Get implements policy.Objects.
func (t *Trace) Get(kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	found, err := t.base.Objects.Get(kind, namespace, name)
	if !slices.ContainsFunc(t.objects, func(o objectAnswer) bool { return o.kind == kind && o.namespace == namespace && o.name == name }) {
		t.objects = append(t.objects, objectAnswer{kind, namespace, name, found, err})
	}
	return found, err
}

// List implements policy.Objects.
func (t *Trace) List(kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	found, err := t.base.Objects.List(kind, namespace, selector)
	text := SelectorText(selector)
	if !slices.ContainsFunc(t.lists, func(l listAnswer) bool { return l.kind == kind && l.namespace == namespace && l.selector == text }) {
		t.lists = append(t.lists, listAnswer{kind, namespace, text, found, err})
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
	if !slices.ContainsFunc(t.configMaps, func(c configMapAnswer) bool { return c.namespace == namespace && c.name == name }) {
		t.configMaps = append(t.configMaps, configMapAnswer{namespace, name, data, known})
	}
	return data, known
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (t *Trace) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := t.base.Authorizer.Authorize(ctx, a)
	answer := authorizerAnswer{attributesKey(a), nil, decision, reason, err}
	if user := a.GetUser(); user != nil {
		answer.extra = user.GetExtra()
	}
	t.authorizer = append(t.authorizer, answer)
	return decision, reason, err //nolint:wrapcheck // it is that of the authorizer behind this one
}

// AttributesKey returns what an authorizer is asked, as one string: the same question has the same
// string. It is for requests of a recording, in which the extra values of users are redacted.
func AttributesKey(a authorizer.Attributes) string {
	key := attributesKey(a)
	if user := a.GetUser(); user != nil {
		key += extraKey(user.GetExtra(), func(value string) string { return value })
	}
	return key
}

// extraKey returns the part of AttributesKey that says what the extra values of the user are.
func extraKey(extra map[string][]string, redact func(string) string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		fmt.Fprintf(&b, " extra %q", name)
		for _, value := range extra[name] {
			if value != "" {
				value = redact(value)
			}
			fmt.Fprintf(&b, " %q", value)
		}
	}
	return b.String()
}

// attributesKey returns AttributesKey without the extra values.
func attributesKey(a authorizer.Attributes) string {
	var b strings.Builder
	if user := a.GetUser(); user != nil {
		groups := append([]string(nil), user.GetGroups()...)
		sort.Strings(groups)
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
