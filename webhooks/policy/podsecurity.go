package policy

import (
	"bytes"
	"fmt"
	"iter"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurityapi "k8s.io/pod-security-admission/api"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// podSecurity is a Pod Security Standard in one version, evaluated by upstream's
// own checks.
type podSecurity struct {
	evaluator *podsecurity.Evaluator
	level     podsecurity.Level
	// labels is true if the namespace's own labels decide, where it has any.
	labels bool
}

// compilePodSecurity reports a standard that does not exist, and rules by which
// the policy would match what is not a pod: nothing there can be checked, and
// passing it silently would look like a check.
func compilePodSecurity(d document, evaluator *podsecurity.Evaluator, spec *v1alpha1.PodSecurity, match *admissionregistrationv1.MatchResources) *podSecurity {
	path := field.NewPath("spec", "podSecurity")
	level, levelKnown, versionKnown := podsecurity.Parse(spec.Level, spec.Version)
	out := &podSecurity{evaluator: evaluator, level: level}
	if !levelKnown {
		d.oneOf(path.Child("level"), spec.Level, "privileged", "baseline", "restricted")
	}
	if !level.Enforces() {
		d.warnf(path.Child("level"), "", `"privileged" allows every pod`)
	}
	if !versionKnown {
		d.errorf(path.Child("version"), "", `%q is not allowed; allowed are "latest" and "v1.NN"`, spec.Version)
	}
	switch spec.NamespaceLabels {
	case "", v1alpha1.IgnoreNamespaceLabels:
	case v1alpha1.HonorNamespaceLabels:
		out.labels = true
	default:
		d.oneOf(path.Child("namespaceLabels"), string(spec.NamespaceLabels), string(v1alpha1.IgnoreNamespaceLabels), string(v1alpha1.HonorNamespaceLabels))
	}
	if match == nil {
		return out
	}
	for i := range match.ResourceRules {
		rule := &match.ResourceRules[i]
		at := field.NewPath("spec", "matchConstraints", "resourceRules").Index(i)
		for k, group := range rule.APIGroups {
			if group != "" {
				d.errorf(at.Child("apiGroups").Index(k), `pods are in the group ""`, "%q is not allowed with podSecurity, which looks at pods only", group)
			}
		}
		for k, resource := range rule.Resources {
			if resource != "pods" && resource != "pods/ephemeralcontainers" {
				d.errorf(at.Child("resources").Index(k), "pod templates in workloads are checked without naming them here",
					`%q is not allowed with podSecurity, which looks at "pods" and "pods/ephemeralcontainers" only`, resource)
			}
		}
		for k, operation := range rule.Operations {
			if operation != admissionregistrationv1.Create && operation != admissionregistrationv1.Update {
				d.errorf(at.Child("operations").Index(k), "",
					`%q is not allowed with podSecurity, which looks at "CREATE" and "UPDATE" only`, string(operation))
			}
		}
	}
	return out
}

// check adds the checks that the request's pod fails, one rule each, in
// upstream's order, or one rule that is kept. As upstream does, an update is
// looked at only if it changes what can change the outcome. An error means that
// the pod cannot be read; it is not ok if failurePolicy has decided.
func (p *podSecurity) check(e *evaluator) (ok bool, err error) {
	level := p.level
	if p.labels {
		namespace, known := e.inNamespace()
		if !known {
			e.fails("podSecurity", fmt.Errorf("namespace %q is not known, and its labels decide", e.Namespace))
			return false, nil
		}
		if namespace != nil {
			if _, labelled := namespace.Labels[podsecurityapi.EnforceLevelLabel]; labelled {
				level = podsecurity.OfNamespace(namespace.Labels)
			}
			p.checkModes(e, namespace.Labels, level)
		}
	}
	found, err := p.violations(e.request, level)
	if err != nil {
		return false, err
	}
	for _, v := range found {
		e.out.rules = append(e.out.rules, ruleResult{
			name: "podSecurity." + v.Check, index: -1, outcome: Violated, reason: metav1.StatusReasonForbidden,
			message: podsecurity.Describe(level, v), standard: &standardResult{level, v},
		})
	}
	if len(found) == 0 {
		e.out.rules = append(e.out.rules, ruleResult{name: "podSecurity", index: -1, outcome: Passed})
	}
	return true, nil
}

// checkModes warns about and notes what the labels of a namespace say that is to
// be warned about and noted, unless it refuses the pod anyway.
func (p *podSecurity) checkModes(e *evaluator, labels map[string]string, enforced podsecurity.Level) {
	for _, mode := range [...]struct{ level, version string }{
		{podsecurityapi.WarnLevelLabel, podsecurityapi.WarnVersionLabel},
		{podsecurityapi.AuditLevelLabel, podsecurityapi.AuditVersionLabel},
	} {
		name, labelled := labels[mode.level]
		if !labelled {
			continue
		}
		level, _, _ := podsecurity.Parse(name, labels[mode.version])
		if level == enforced {
			continue
		}
		found, err := p.violations(e.request, level)
		if err != nil || len(found) == 0 {
			continue // what cannot be read is reported by what is enforced
		}
		text := podsecurity.Describe(level, found...)
		if mode.level == podsecurityapi.WarnLevelLabel {
			e.warn("would " + strings.Replace(text, "violates", "violate", 1))
		} else {
			e.annotate(auditKey(e.policy.name, "pod-security.audit"), text)
		}
	}
}

// violations are the checks of a level that the request's pod fails.
func (p *podSecurity) violations(r *request, level podsecurity.Level) ([]podsecurity.Violation, error) {
	if !level.Enforces() {
		return nil, nil
	}
	if kind := r.Kind; kind.Group != "" || kind.Version != "v1" || kind.Kind != "Pod" {
		return nil, fmt.Errorf("podSecurity looks at v1 Pods, and this is %s %s", metav1.GroupVersion{Group: kind.Group, Version: kind.Version}, kind.Kind)
	}
	object, err := r.object.json()
	if err != nil {
		return nil, err
	}
	old, err := r.oldObject.json()
	if err != nil {
		return nil, err
	}
	if r.Operation == admissionv1.Update && !r.whole && len(old) > 0 && !changesSecurity(object, old) {
		return nil, nil
	}
	meta, spec, err := r.pod()
	if err != nil {
		return nil, err
	}
	return p.evaluator.Violations(level, meta, spec), nil
}

// stood tells whether the pod of an earlier request failed the check in the same
// way: by the pod as a whole, or by containers of the same names.
func (p *podSecurity) stood(now, earlier *request, s *standardResult) bool {
	before, err := p.failing(earlier, s)
	if err != nil {
		return false
	}
	after, err := p.failing(now, s)
	if err != nil {
		return false
	}
	for key := range after {
		if !before[key] {
			return false
		}
	}
	return true
}

// failure is a way in which a pod fails a check: by one container or volume, or
// without any, and what is wrong with it.
type failure struct{ part, detail string }

// failing are the ways in which a pod fails a check, part by part. Upstream's
// details name volumes and sysctls and not what they are, so that their text is
// part of it.
func (p *podSecurity) failing(r *request, s *standardResult) (map[failure]bool, error) {
	meta, spec, err := r.pod()
	if err != nil {
		return nil, err
	}
	object, err := r.object.json()
	if err != nil {
		return nil, err
	}
	out := map[failure]bool{}
	look := func(part string, spec *corev1.PodSpec) {
		for _, v := range p.evaluator.Violations(s.level, meta, spec) {
			if v.Check == s.violation.Check {
				out[failure{part, v.Detail}] = true
			}
		}
	}
	bare := *spec
	bare.Containers, bare.InitContainers, bare.EphemeralContainers, bare.Volumes = nil, nil, nil, nil
	look(string(object.Get("spec", "securityContext", "sysctls")), &bare)
	for i, volume := range object.Get("spec", "volumes").Elements() {
		if i < len(spec.Volumes) {
			one := bare
			one.Volumes = spec.Volumes[i : i+1]
			look(string(volume), &one)
		}
	}
	for i := range spec.Containers {
		one := bare
		one.Containers = spec.Containers[i : i+1]
		look("containers/"+spec.Containers[i].Name, &one)
	}
	for i := range spec.InitContainers {
		one := bare
		one.InitContainers = spec.InitContainers[i : i+1]
		look("initContainers/"+spec.InitContainers[i].Name, &one)
	}
	for i := range spec.EphemeralContainers {
		one := bare
		one.EphemeralContainers = spec.EphemeralContainers[i : i+1]
		look("ephemeralContainers/"+spec.EphemeralContainers[i].Name, &one)
	}
	return out, nil
}

// changesSecurity tells whether an update of a pod can change the outcome: of
// what a standard looks at, only images, and the list of ephemeral containers,
// can be changed in a pod that exists. The rule is upstream's,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/staging/src/k8s.io/pod-security-admission/admission/admission.go.
func changesSecurity(object, old rawjson.Value) bool {
	for _, list := range []string{"containers", "initContainers"} {
		if !sameImages(object.Get("spec", list), old.Get("spec", list)) {
			return true
		}
	}
	before := old.Get("spec", "ephemeralContainers")
	for _, container := range object.Get("spec", "ephemeralContainers").Elements() {
		name, known := container.Get("name").Text(), false
		for _, other := range before.Elements() {
			if other.Get("name").Text() == name {
				known = sameText(container.Get("image"), other.Get("image"))
				break
			}
		}
		if !known {
			return true
		}
	}
	return false
}

func sameImages(a, b rawjson.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	next, stop := iter.Pull2(b.Elements())
	defer stop()
	for _, container := range a.Elements() {
		_, other, _ := next()
		if !sameText(container.Get("image"), other.Get("image")) {
			return false
		}
	}
	return true
}

func sameText(a, b rawjson.Value) bool {
	return bytes.Equal(a, b) || a.Kind() == rawjson.String && b.Kind() == rawjson.String && a.Text() == b.Text()
}
