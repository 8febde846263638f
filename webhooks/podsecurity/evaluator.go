package podsecurity

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
)

// Evaluator holds upstream's checks. It is immutable and may be used
// concurrently.
type Evaluator struct {
	checks podsecuritypolicy.Evaluator
}

// Violation is a check that a pod fails.
type Violation struct {
	// Check is upstream's name for it, as "hostNamespaces".
	Check string
	// Reason is short, as "host namespaces".
	Reason string
	// Detail names containers, volumes or values, as "hostNetwork=true". It may
	// be empty.
	Detail string
}

// String returns the violation as the API server writes it: the reason, followed by
// the detail in parentheses.
func (v Violation) String() string {
	if v.Detail == "" {
		return v.Reason
	}
	return v.Reason + " (" + v.Detail + ")"
}

// Describe returns the sentence with which the API server refuses a pod for the
// violations of a level.
func Describe(level Level, violations ...Violation) string {
	texts := make([]string, len(violations))
	for i, v := range violations {
		texts[i] = v.String()
	}
	return fmt.Sprintf("violates PodSecurity %q: %s", level, strings.Join(texts, ", "))
}

// endOfID stands between the name of a check and its reason, see identify.
const endOfID = "\x00"

// New makes an Evaluator of all checks that upstream has switched on. An error
// is a mistake in the library.
func New() (*Evaluator, error) {
	e := new(Evaluator)
	checks := podsecuritypolicy.DefaultChecks()
	for i := range checks {
		check := &checks[i]
		for k := range check.Versions {
			version := &check.Versions[k]
			version.CheckPod = identify(check.ID, version.CheckPod)
		}
	}
	var err error
	if e.checks, err = podsecuritypolicy.NewEvaluator(checks, nil); err != nil {
		return nil, fmt.Errorf("pod security checks: %w", err)
	}
	return e, nil
}

// identify writes the name of a check in front of its reason: upstream's results
// do not say which check they are of, and which checks are run, in which order,
// upstream alone knows.
func identify(id podsecuritypolicy.CheckID, check podsecuritypolicy.CheckPodFn) podsecuritypolicy.CheckPodFn {
	return func(metadata *metav1.ObjectMeta, spec *corev1.PodSpec) podsecuritypolicy.CheckResult {
		result := check(metadata, spec)
		if !result.Allowed {
			result.ForbiddenReason = string(id) + endOfID + result.ForbiddenReason
		}
		return result
	}
}

// Violations returns the checks of the level that the pod fails, in upstream's
// order: those of baseline, then those of restricted, each by name. There are
// none for a pod that the level admits.
func (e *Evaluator) Violations(level Level, metadata *metav1.ObjectMeta, spec *corev1.PodSpec) []Violation {
	if !level.Enforces() {
		return nil
	}
	var out []Violation
	for _, result := range e.checks.EvaluatePod(level.standard, metadata, spec) {
		if result.Allowed {
			continue
		}
		id, reason, _ := strings.Cut(result.ForbiddenReason, endOfID)
		if reason == "" {
			reason = podsecuritypolicy.UnknownForbiddenReason
		}
		out = append(out, Violation{Check: id, Reason: reason, Detail: result.ForbiddenDetail})
	}
	return out
}

// Checks returns the names of all checks, in alphabetical order.
func Checks() []string {
	checks := podsecuritypolicy.DefaultChecks()
	out := make([]string, len(checks))
	for i := range checks {
		out[i] = string(checks[i].ID)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
