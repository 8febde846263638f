package policy

import (
	"bytes"
	"fmt"
	"iter"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// podSecurity is a Pod Security Standard in one version, evaluated by upstream's
// own checks.
type podSecurity struct {
	evaluator *podsecurity.Evaluator
	level     podsecurity.Level
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
				d.errorf(at.Child("resources").Index(k), "a workload's pods are checked when they are created",
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

// violations are the checks that the request's pod fails, one text each, in
// upstream's order. As upstream does, an update is looked at only if it changes
// what can change the outcome. An error means that the pod cannot be read.
func (p *podSecurity) violations(r *request) ([]string, error) {
	if !p.level.Enforces() {
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
	if r.Operation == admissionv1.Update && len(old) > 0 && !changesSecurity(object, old) {
		return nil, nil
	}
	meta, spec, err := r.pod()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, violation := range p.evaluator.Violations(p.level, meta, spec) {
		out = append(out, podsecurity.Describe(p.level, violation))
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
