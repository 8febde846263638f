package gitops

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Object is an object of a manifest.
type Object struct {
	Group, Version, Kind, Namespace, Name string
	// Paths are the fields that admission changes, none for an object that stays as it is.
	Paths []Path
}

// ArgoRule is an element of spec.ignoreDifferences of an Application of Argo CD, which removes the fields from the manifest and from the
// object before it compares them.
type ArgoRule struct {
	Group             string   `yaml:"group,omitempty"`
	Kind              string   `yaml:"kind"`
	Name              string   `yaml:"name,omitempty"`
	Namespace         string   `yaml:"namespace,omitempty"`
	JSONPointers      []string `yaml:"jsonPointers,omitempty"`
	JQPathExpressions []string `yaml:"jqPathExpressions,omitempty"`
}

// ArgoCD returns the rules for the objects of an Application, sorted. If the same fields of all objects of a kind in a namespace are
// changed, they get one rule without a name, and one without a namespace if that is so in all namespaces.
func ArgoCD(objects []Object) []ArgoRule {
	rules := make([]ArgoRule, 0, len(objects))
	for i := range objects {
		o := &objects[i]
		rule := ArgoRule{Group: o.Group, Kind: o.Kind, Name: o.Name, Namespace: o.Namespace}
		for _, p := range o.Paths {
			if pointer, _ := p.Pointer(); !p.hasElement() {
				rule.JSONPointers = append(rule.JSONPointers, pointer)
			} else {
				rule.JQPathExpressions = append(rule.JQPathExpressions, p.JQ())
			}
		}
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b ArgoRule) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	rules = slices.CompactFunc(rules, isSameArgo)
	rules = merged(rules, func(r ArgoRule) ArgoRule { r.Name = ""; return r }, func(r *ArgoRule) string { return r.Group + "/" + r.Kind + "/" + r.Namespace })
	rules = merged(rules, func(r ArgoRule) ArgoRule { r.Name, r.Namespace = "", ""; return r }, func(r *ArgoRule) string { return r.Group + "/" + r.Kind })
	return slices.DeleteFunc(rules, func(r ArgoRule) bool { return len(r.JSONPointers)+len(r.JQPathExpressions) == 0 })
}

func isSameArgo(a, b ArgoRule) bool {
	return a.Group == b.Group && a.Kind == b.Kind && a.Name == b.Name && a.Namespace == b.Namespace &&
		slices.Equal(a.JSONPointers, b.JSONPointers) && slices.Equal(a.JQPathExpressions, b.JQPathExpressions)
}

// merged returns rules in which all rules of a group, of several, are one wider rule if they all become the same.
func merged(rules []ArgoRule, widen func(ArgoRule) ArgoRule, group func(*ArgoRule) string) (out []ArgoRule) {
	for len(rules) > 0 {
		n := slices.IndexFunc(rules, func(r ArgoRule) bool { return group(&r) != group(&rules[0]) })
		if n < 0 {
			n = len(rules)
		}
		wide := widen(rules[0])
		if n > 1 && !slices.ContainsFunc(rules[:n], func(r ArgoRule) bool { return !isSameArgo(widen(r), wide) }) {
			out = append(out, wide)
		} else {
			out = append(out, rules[:n]...)
		}
		rules = rules[n:]
	}
	return out
}

// FluxRule is an element of spec.driftDetection.ignore of a HelmRelease of Flux, and of spec.ignore of a Kustomization.
type FluxRule struct {
	Target FluxTarget `yaml:"target"`
	// Paths are JSON pointers, which are removed one after the other.
	Paths []string `yaml:"paths"`
}

// FluxTarget selects objects by regular expressions, which must match the whole text.
type FluxTarget struct {
	Group     string `yaml:"group,omitempty"`
	Version   string `yaml:"version"`
	Kind      string `yaml:"kind"`
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace,omitempty"`
}

// Flux returns the rules for objects, sorted; objects of a kind and namespace with the same fields have one rule. Left are the paths that
// no JSON pointer has.
func Flux(objects []Object) (rules []FluxRule, left map[*Object][]Path) {
	left = map[*Object][]Path{}
	sorted := make([]*Object, 0, len(objects))
	for i := range objects {
		sorted = append(sorted, &objects[i])
	}
	slices.SortStableFunc(sorted, func(a, b *Object) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	rules = []FluxRule{}
	for _, o := range sorted {
		rule := FluxRule{Target: FluxTarget{
			Group: regexp.QuoteMeta(o.Group), Version: regexp.QuoteMeta(o.Version), Kind: regexp.QuoteMeta(o.Kind),
			Name: regexp.QuoteMeta(o.Name), Namespace: regexp.QuoteMeta(o.Namespace),
		}}
		for _, p := range o.Paths {
			if pointer, ok := p.Pointer(); !ok {
				left[o] = append(left[o], p)
			} else if !slices.Contains(rule.Paths, pointer) { // an element of each side may have this place
				rule.Paths = append(rule.Paths, pointer)
			}
		}
		if len(rule.Paths) == 0 {
			continue
		}
		same := slices.IndexFunc(rules, func(r FluxRule) bool {
			r.Target.Name = rule.Target.Name
			return r.Target == rule.Target && slices.Equal(r.Paths, rule.Paths)
		})
		switch {
		case same < 0:
			rules = append(rules, rule)
		case !slices.Contains(strings.Split(rules[same].Target.Name, "|"), rule.Target.Name):
			rules[same].Target.Name += "|" + rule.Target.Name
		}
	}
	return rules, left
}
