package policy

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurityapi "k8s.io/pod-security-admission/api"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// podSecurity is a Pod Security Standard in one version, evaluated by upstream's
// own checks.
type podSecurity struct {
	evaluator *podsecurity.Evaluator
	level     podsecurity.Level
	// labels is true if the namespace's own labels decide, where it has any.
	labels bool
	// auditKey is the key of the audit annotation that such labels ask for.
	auditKey string
}

// compilePodSecurity reports a standard that does not exist, and rules by which
// the policy would match what is not a pod: nothing there can be checked, and
// passing it silently would look like a check.
func compilePodSecurity(d validation.Reporter, evaluator *podsecurity.Evaluator, policy string, spec *v1alpha1.PodSecurity, match *admissionregistrationv1.MatchResources) *podSecurity {
	path := field.NewPath("spec", "podSecurity")
	level, levelKnown, versionKnown := podsecurity.Parse(spec.Level, spec.Version)
	out := &podSecurity{evaluator: evaluator, level: level, auditKey: auditKey(policy, "pod-security.audit")}
	if !levelKnown {
		d.NotSupported(path.Child("level"), spec.Level, "privileged", "baseline", "restricted")
	}
	if !level.Enforces() {
		d.Warnf(path.Child("level"), "", `"privileged" allows every pod`)
	}
	if !versionKnown {
		d.Errorf(path.Child("version"), "", `%q is not allowed; allowed are "latest" and "v1.NN"`, spec.Version)
	}
	switch spec.NamespaceLabels {
	case "", v1alpha1.IgnoreNamespaceLabels:
	case v1alpha1.HonorNamespaceLabels:
		out.labels = true
	default:
		d.NotSupported(path.Child("namespaceLabels"), string(spec.NamespaceLabels), string(v1alpha1.IgnoreNamespaceLabels), string(v1alpha1.HonorNamespaceLabels))
	}
	if match == nil {
		return out
	}
	for i := range match.ResourceRules {
		rule := &match.ResourceRules[i]
		at := field.NewPath("spec", "matchConstraints", "resourceRules").Index(i)
		for k, group := range rule.APIGroups {
			if group != "" {
				d.Errorf(at.Child("apiGroups").Index(k), `pods are in the group ""`, "%q is not allowed with podSecurity, which checks pods only", group)
			}
		}
		for k, resource := range rule.Resources {
			if resource != "pods" && resource != "pods/ephemeralcontainers" {
				d.Errorf(at.Child("resources").Index(k), "pod templates in workloads are checked without naming them here",
					`%q is not allowed with podSecurity, which checks "pods" and "pods/ephemeralcontainers" only`, resource)
			}
		}
		for k, operation := range rule.Operations {
			if operation != admissionregistrationv1.Create && operation != admissionregistrationv1.Update && validation.IsOperation(operation) {
				d.Errorf(at.Child("operations").Index(k), "",
					`%q is not allowed with podSecurity, which checks "CREATE" and "UPDATE" only`, string(operation))
			}
		}
	}
	return out
}

// check adds the checks that the request's pod fails to the results, one rule each, in
// upstream's order, or one rule that passes. As upstream does, an update is checked only
// if it changes what can change the outcome. An error means that the pod cannot be read;
// a failure leaves the decision to failurePolicy.
func (p *podSecurity) check(r *request, out *evaluation) (failure, err error) {
	level := p.level
	if p.labels {
		namespace, known := r.NamespaceObject()
		if !known {
			return r.UnknownNamespace("its labels decide"), nil
		}
		if namespace != nil {
			if _, labelled := namespace.Labels[podsecurityapi.EnforceLevelLabel]; labelled {
				level = podsecurity.OfNamespace(namespace.Labels)
			}
			out.modes = p.checkModes(r, namespace.Labels, level)
		}
	}
	found, err := p.violations(r, level)
	if err != nil {
		return nil, err
	}
	hint := ""
	if r.SubResource == "ephemeralcontainers" { // kubectl's default profile adds a capability
		hint = " (hint: kubectl debug --profile=" + level.Name() + ")"
	}
	for _, v := range found {
		out.results = append(out.results, ruleResult{
			name: "podSecurity." + v.Check, index: -1, outcome: Violated, reason: metav1.StatusReasonForbidden,
			message: podsecurity.Describe(level, v) + hint, standard: &standardResult{level, v},
		})
	}
	if len(found) == 0 {
		out.results = append(out.results, ruleResult{name: "podSecurity", index: -1, outcome: Passed})
	}
	return nil, nil
}

// modeResults are the warnings and audit annotations that the labels of a namespace ask
// for.
type modeResults []modeResult

// modeResult is an audit annotation with the key, or a warning if that is "".
type modeResult struct{ key, message string }

func (m modeResults) addTo(a *answer) {
	for _, result := range m {
		if result.key == "" {
			a.warn(result.message)
		} else {
			a.annotate(result.key, result.message)
		}
	}
}

// checkModes checks the levels that the labels of a namespace only warn about or audit,
// but for the one that is enforced.
func (p *podSecurity) checkModes(r *request, labels map[string]string, enforced podsecurity.Level) modeResults {
	var out modeResults
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
		found, err := p.violations(r, level)
		if err != nil || len(found) == 0 {
			continue // an unreadable pod is reported by the enforced level
		}
		message := podsecurity.Describe(level, found...)
		if mode.level == podsecurityapi.WarnLevelLabel {
			out = append(out, modeResult{message: "would " + strings.Replace(message, "violates", "violate", 1)})
		} else {
			out = append(out, modeResult{key: p.auditKey, message: message})
		}
	}
	return out
}

// violations returns the checks of a level that the request's pod fails.
func (p *podSecurity) violations(r *request, level podsecurity.Level) ([]podsecurity.Violation, error) {
	if !level.Enforces() {
		return nil, nil
	}
	if kind := r.Kind; kind.Group != "" || kind.Version != "v1" || kind.Kind != "Pod" {
		return nil, fmt.Errorf("podSecurity checks v1 Pods, and this is %s %s", metav1.GroupVersion{Group: kind.Group, Version: kind.Version}, kind.Kind)
	}
	object, err := r.object.json()
	if err != nil {
		return nil, err
	}
	old, err := r.oldObject.json()
	if err != nil {
		return nil, err
	}
	if r.Operation == admissionv1.Update && !r.isBefore && len(old) > 0 && !podsecurity.CanChangeOutcome(r.decider.context, object, old) {
		return nil, nil
	}
	meta, spec, err := r.pod()
	if err != nil {
		return nil, err
	}
	return p.evaluator.Violations(level, meta, spec), nil
}

// fails reports whether the request's pod fails the check of a result.
func (p *podSecurity) fails(r *request, s *standardResult) (bool, error) {
	meta, spec, err := r.pod()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(p.evaluator.Violations(s.level, meta, spec), func(v podsecurity.Violation) bool { return v.Check == s.violation.Check }), nil
}

// failedBefore reports whether the pod of an earlier request failed the check in every way
// in which it fails it now, and what fails has no more power than it had. What the pod or a
// volume violates concerns every container.
func (p *podSecurity) failedBefore(now, earlier *request, s *standardResult) bool {
	before, err := p.failures(earlier, s.level)
	if err != nil {
		return false
	}
	after, err := p.failures(now, s.level)
	if err != nil {
		return false
	}
	parts := map[string]bool{}
	for f := range after[s.violation.Check] {
		if !before[s.violation.Check][f] {
			return false
		}
		parts[f.Part] = true
	}
	if parts[""] {
		parts = nil
	}
	object, err := now.object.json()
	if err != nil {
		return false
	}
	old, err := earlier.object.json()
	return err == nil && podsecurity.KeepsPower(object, old, parts)
}

// podFailures are the failures of a pod for each check of a level.
type podFailures struct {
	level  podsecurity.Level
	checks podsecurity.Failures
}

// failures returns how the request's pod fails the checks of a level. They are computed
// once for all checks.
func (p *podSecurity) failures(r *request, level podsecurity.Level) (podsecurity.Failures, error) {
	if r.podFailures.checks != nil && r.podFailures.level == level {
		return r.podFailures.checks, nil
	}
	if _, _, err := r.pod(); err != nil {
		return nil, err
	}
	object, err := r.object.json()
	if err != nil {
		return nil, err
	}
	checks, err := p.evaluator.Failures(r.decider.context, level, r.podRead, object)
	if err != nil {
		return nil, err
	}
	r.podFailures = podFailures{level, checks}
	return checks, nil
}
