package sidecar

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// KnownNamespace is a namespace and where it was found.
type KnownNamespace struct {
	// Source is the file and document, for messages only.
	Source string
	*corev1.Namespace
}

// lintNamespaces warns about annotations of namespaces that have no effect. They are not
// errors, because a namespace is not part of the configuration.
func (s *Set) lintNamespaces(all []KnownNamespace) diagnostic.List {
	var found diagnostic.List
	for _, ns := range all {
		warn := func(key, hint, message string) {
			found = append(found, diagnostic.Diagnostic{
				Severity: diagnostic.Warning, Source: ns.Source, Object: "Namespace/" + ns.Name,
				Field: "metadata.annotations[" + key + "]", Message: message, Hint: hint,
			})
		}
		for _, key := range slices.Sorted(maps.Keys(ns.Annotations)) {
			if key == v1alpha1.InjectAnnotation {
				if _, bad := s.parseInject(ns.Annotations[key]); bad != nil {
					warn(key, bad.hint, "the annotation is ignored: "+bad.message)
				}
				continue
			}
			if because, hint := s.withoutEffect(key, true); because != "" {
				warn(key, "", "has no effect: "+because+hint)
				continue
			}
			domain, name, _ := strings.Cut(key, "/")
			i, known := s.byName[strings.TrimSuffix(domain, "."+v1alpha1.ParameterDomain)]
			if !known || !strings.HasSuffix(domain, "."+v1alpha1.ParameterDomain) {
				continue
			}
			p := s.profiles[i]
			if !s.hasParameter(p, name) {
				warn(key, parameterHint(p, name), fmt.Sprintf("has no effect: %s is not a parameter of sidecar profile %q", podtext.Quote(name), p.Name))
			}
		}
		for _, p := range s.profiles {
			for _, bad := range s.invalidIn(p, ns.Namespace) {
				result := "are refused"
				if bad.Skip {
					result = "do not get sidecar profile " + podtext.Quote(p.Name)
				}
				warn(p.AnnotationPrefix+bad.Parameter, "", fmt.Sprintf("%s is invalid, and pods that do not set the parameter %s: must be %s", podtext.Quote(bad.Text), result, bad.Allowed))
			}
		}
	}
	return found
}

func (s *Set) invalidIn(p *profile.Profile, ns *corev1.Namespace) []template.Invalid {
	_, invalid := p.Scope.Resolve(
		func(string) (string, bool) { return "", false },
		func(name string) (string, bool) {
			text, ok := ns.Annotations[p.AnnotationPrefix+name]
			return text, ok
		},
	)
	return slices.DeleteFunc(invalid, func(bad template.Invalid) bool { return bad.From != template.FromNamespace })
}
