package sidecar

import (
	corev1 "k8s.io/api/core/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// answer is the result of matching a selector.
type answer uint8

const (
	no answer = iota
	yes
	cannotDecide
)

// namespace is a namespace as labels.Labels.
type namespace struct {
	name                string
	labels, annotations map[string]string
	known               bool
}

func (s *Set) lookUp(name string) namespace {
	ns := namespace{name: name}
	if s.namespaces != nil {
		var found *corev1.Namespace
		if found, ns.known = s.namespaces.Namespace(name); ns.known {
			ns.labels, ns.annotations = found.Labels, found.Annotations
		}
	}
	return ns
}

// matches reports whether the profile selects the namespace. If the namespace is not
// known, its name alone decides.
func (n *namespace) matches(p *profile.Profile) answer {
	switch {
	case n.known:
		if p.NamespaceSelector.Matches(n) {
			return yes
		}
		return no
	case n.name == "" || p.NameSelector == nil:
		return cannotDecide
	case !p.NameSelector.Matches(n):
		return no
	case p.NameOnly:
		return yes
	default:
		return cannotDecide
	}
}

// Lookup returns a label. The label with the name of the namespace is always there: the
// API server sets it, and a document may leave it out.
func (n *namespace) Lookup(key string) (string, bool) {
	if key == corev1.LabelMetadataName {
		return n.name, true
	}
	value, ok := n.labels[key]
	return value, ok
}

// Has reports whether there is such a label.
func (n *namespace) Has(key string) bool {
	_, ok := n.Lookup(key)
	return ok
}

// Get returns a label or nothing.
func (n *namespace) Get(key string) string {
	value, _ := n.Lookup(key)
	return value
}

// podLabels are the labels of a pod as labels.Labels, looked up in its text.
type podLabels struct{ object rawjson.Value }

// Lookup returns a label.
func (l *podLabels) Lookup(key string) (string, bool) {
	for name, value := range l.object.Members() {
		if name.Is(key) {
			return value.Text(), true
		}
	}
	return "", false
}

func (l *podLabels) all() map[string]string {
	all := make(map[string]string)
	for name, value := range l.object.Members() {
		all[name.Text()] = value.Text()
	}
	return all
}

// Has reports whether there is such a label.
func (l *podLabels) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

// Get returns a label or nothing.
func (l *podLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}
