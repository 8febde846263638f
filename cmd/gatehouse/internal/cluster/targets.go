package cluster

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Target is a set of objects of one kind that are looked up.
type Target struct {
	Kind schema.GroupVersionKind
	// Namespace is "" for those in every namespace, and for kinds that are in
	// none.
	Namespace string
	// Name is "" for those of every name.
	Name string
}

// covers reports whether everything in the other target is in this one.
func (t Target) covers(other Target) bool {
	return (t.Namespace == "" || t.Namespace == other.Namespace) &&
		(t.Name == "" || t.Name == other.Name) &&
		t.Kind == other.Kind
}

// WatchTargets are the objects that a configuration looks up.
type WatchTargets struct {
	// Namespaces means that namespaces are looked up, by whatever name requests
	// have.
	Namespaces bool
	// Targets are params and presets, in a fixed order. None covers another.
	Targets []Target
}

// FindWatchTargets returns those of a configuration, which may have errors: the
// params that bound policies name, the definitions of the custom resources that mutating policies match, the presets of profiles, and
// namespaces if there is a policy or a profile at all.
func FindWatchTargets(p *policy.Spec, m *mutation.Spec, s *sidecar.Spec) WatchTargets {
	n := WatchTargets{Namespaces: len(p.Policies)+len(p.AdmissionPolicies)+len(m.Policies)+len(s.Profiles) > 0}
	for _, one := range p.All() {
		for _, b := range one.Bindings {
			n.addParams(one.Spec.ParamKind, b.ParamRef)
		}
	}
	kinds := map[string]*admissionregistrationv1.ParamKind{}
	for i := range m.Policies {
		kinds[m.Policies[i].Name] = m.Policies[i].Spec.ParamKind
		n.addDefinitions(m.Policies[i].Spec.MatchConstraints)
	}
	for i := range m.Bindings {
		n.addParams(kinds[m.Bindings[i].Spec.PolicyName], m.Bindings[i].Spec.ParamRef)
	}
	for i := range s.Profiles {
		for _, preset := range s.Profiles[i].Spec.Presets {
			n.Targets = append(n.Targets, Target{
				Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: preset.ConfigMap.Namespace, Name: preset.ConfigMap.Name,
			})
		}
	}
	slices.SortFunc(n.Targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Kind.String(), b.Kind.String()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	n.Targets = slices.Compact(n.Targets)
	all := slices.Clone(n.Targets)
	n.Targets = slices.DeleteFunc(n.Targets, func(t Target) bool {
		return slices.ContainsFunc(all, func(other Target) bool { return other != t && other.covers(t) })
	})
	return n
}

// addParams adds the params of a binding.
func (n *WatchTargets) addParams(kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef) {
	if kind == nil || ref == nil {
		return
	}
	n.Targets = append(n.Targets, Target{
		Kind: schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind), Namespace: ref.Namespace, Name: ref.Name,
	})
}
