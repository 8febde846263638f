package sidecar

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// selection is the profiles that are looked at for a pod, by name, and the verdicts about
// them. A verdict without a reason is that of a profile to apply.
type selection struct {
	// profiles are indexes in the set.
	profiles []int
	verdicts []Verdict
	// notSelected is how many profiles are left out.
	notSelected int
}

func (s *selection) find(profile string) *Verdict {
	for i := range s.verdicts {
		if s.verdicts[i].Profile == profile {
			return &s.verdicts[i]
		}
	}
	return nil
}

// setRest gives a reason to the profiles that nothing keeps from being applied so far.
func (s *selection) setRest(reason Reason, detail string) {
	for i := range s.verdicts {
		if v := &s.verdicts[i]; v.Reason == "" || v.Reason == NamespaceUnknown || v.Reason == Unknown {
			v.Reason, v.Detail = reason, detail
		}
	}
}

type selector struct {
	request   *request
	messages  *messages
	selection *selection
}

// candidates returns the profiles that are looked at. The buffer is used for their
// indexes.
func (r *request) candidates(buffer []int) selection {
	s := r.set
	if s.index == nil || r.explain {
		sel := selection{verdicts: make([]Verdict, len(s.profiles)), profiles: slices.Grow(buffer, len(s.profiles))}
		for i, p := range s.profiles {
			v := &sel.verdicts[i]
			v.Profile, v.Revision = p.Name, p.FixedRevision()
			sel.profiles = append(sel.profiles, i)
			if r.explain {
				v.Explanation = new(Explanation)
			}
		}
		return sel
	}
	var few [512]bool
	marks := few[:]
	if len(s.profiles) > len(few) {
		marks = make([]bool, len(s.profiles))
	}
	s.index.candidates(marks, r.first, r.ns())
	sel := selection{profiles: buffer}
	for i, p := range s.profiles {
		if marks[i] {
			sel.profiles = append(sel.profiles, i)
			sel.verdicts = append(sel.verdicts, Verdict{Profile: p.Name, Revision: p.FixedRevision()})
		}
	}
	sel.notSelected = len(s.profiles) - len(sel.profiles)
	return sel
}

// selectProfiles gives a reason to the profiles that are not applied. The error says why
// nothing can be decided.
func (s *selector) selectProfiles() error {
	open := false
	for i := range s.selection.verdicts {
		v := &s.selection.verdicts[i]
		v.Reason = s.selects(v, s.request.set.profiles[s.selection.profiles[i]])
		open = open || v.Reason == "" || v.Reason == NamespaceUnknown
	}
	if !open {
		return nil
	}
	// The containers matter only now.
	if err := s.request.first.SpecError(); err != nil {
		return err
	}
	if s.request.first != s.request.pod {
		if err := s.request.pod.SpecError(); err != nil {
			return err
		}
	}
	for i := range s.selection.verdicts {
		v := &s.selection.verdicts[i]
		p := s.request.set.profiles[s.selection.profiles[i]]
		unknown := v.Reason == NamespaceUnknown
		if v.Reason != "" && !unknown {
			continue
		}
		if reason := s.suits(v, p, unknown); reason != "" {
			v.Reason = reason
			continue
		}
		if unknown {
			s.messages.cannotDecide(fmt.Errorf("namespace %q is not known, and sidecar profile %q selects namespaces by label", s.request.namespaceName, p.Name))
			continue
		}
		v.Reason = s.matchConditions(v, p)
	}
	s.replace()
	return nil
}

// replace resolves rollouts: a profile replaces another one for its share of workloads.
// A profile that is not applied for another reason replaces none, and a pod keeps the one
// of the two that it has.
func (s *selector) replace() {
	for i := range s.selection.verdicts {
		v, p := &s.selection.verdicts[i], s.request.set.profiles[s.selection.profiles[i]]
		if v.Reason != "" || p.ReplacedBy < 0 {
			continue
		}
		by := s.request.set.profiles[p.ReplacedBy]
		other := s.selection.find(by.Name)
		switch {
		case s.request.has(by.Name):
			v.replaced(fmt.Sprintf("sidecar profile %q, which replaces it, is already applied", by.Name))
		case other == nil || other.Reason != "" && other.Reason != Unknown:
		case s.request.has(p.Name):
			other.replaced(fmt.Sprintf("sidecar profile %q, which it replaces, is already applied", p.Name))
		default:
			v.replaced(fmt.Sprintf("sidecar profile %q replaces it for %d %% of workloads", by.Name, by.Percent))
		}
	}
}

func (v *Verdict) replaced(detail string) {
	v.Reason, v.Detail = Replaced, detail
	v.step("rollout", "no", detail)
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// describeSelector describes a selector and the labels that it does not match.
func describeSelector(selector labels.Selector, whose string, there map[string]string) string {
	const most = 200
	has := "none"
	if len(there) > 0 {
		has = strict.Cut(labels.Set(there).String(), most)
	}
	return fmt.Sprintf("requires %s; labels of %s: %s", selector, whose, has)
}

// selects returns the reason why the metadata of the pod excludes the profile, or none.
func (s *selector) selects(v *Verdict, p *profile.Profile) Reason {
	unknown := false
	if p.NamespaceSelector != nil {
		switch s.request.ns().matches(p) {
		case no:
			if v.Explanation != nil {
				v.step("namespaceSelector", "no", describeSelector(p.NamespaceSelector, "the namespace", s.request.ns().labels))
			}
			return NamespaceNotSelected
		case cannotDecide:
			v.step("namespaceSelector", "unknown", fmt.Sprintf("namespace %q is not known", s.request.namespaceName))
			unknown = true
		case yes:
			if v.Explanation != nil {
				v.step("namespaceSelector", "yes", p.NamespaceSelector.String())
			}
		}
	}
	if p.ObjectSelector != nil {
		matches := p.ObjectSelector.Matches(&podLabels{s.request.first.Labels})
		if !matches {
			if v.Explanation != nil {
				v.step("objectSelector", "no", describeSelector(p.ObjectSelector, "the pod", (&podLabels{s.request.first.Labels}).all()))
			}
			return ObjectNotSelected
		}
		if v.Explanation != nil {
			v.step("objectSelector", "yes", p.ObjectSelector.String())
		}
	}
	if s.request.first.IsMirror {
		v.step("static pod", "no", StaticPod.Text())
		return StaticPod
	}
	if reason := s.wanted(v, p); reason != "" {
		return reason
	}
	if p.Percent < 100 {
		workload := s.request.workload
		if _, name, ok := strings.Cut(workload, "/"); ok {
			workload = name
			if strings.HasPrefix(s.request.workload, "Job/") {
				workload = podtext.CronJobName(name)
			}
		} else {
			workload = s.request.first.WorkloadName()
		}
		in := isInRollout(p.AnnotationPrefix, s.request.namespaceName, workload, p.Percent)
		v.step("rollout", yesNo(in), fmt.Sprintf("%d %% of workloads; this workload is %q", p.Percent, workload))
		if !in {
			return NotInRollout
		}
	}
	if unknown {
		return NamespaceUnknown
	}
	return ""
}

// wanted returns the reason why the annotations exclude the profile, or none.
func (s *selector) wanted(v *Verdict, p *profile.Profile) Reason {
	if choice := s.request.podValue.choiceFor(p); choice != unset {
		v.step("pod", yesNo(choice == asks), v1alpha1.InjectAnnotation+": "+podtext.Quote(s.request.first.InjectAnnotation.Text()))
		if choice == declines {
			return Declined
		}
		return ""
	}
	if choice := s.request.namespaceValue.choiceFor(p); choice != unset {
		v.step("namespace", yesNo(choice == asks), v1alpha1.InjectAnnotation+": "+podtext.Quote(s.request.namespace.annotations[v1alpha1.InjectAnnotation]))
		if choice == declines {
			return DeclinedByNamespace
		}
		return ""
	}
	if p.OptOut {
		v.step("injection", "yes", "OptOut")
		return ""
	}
	v.step("injection", "no", "OptIn")
	return NotAsked
}

// suits returns the reason why the spec of the pod excludes the profile, or none.
func (s *selector) suits(v *Verdict, p *profile.Profile, unknown bool) Reason {
	if s.request.first.HostNetwork.IsTrue() {
		v.step("hostNetwork", yesNo(p.HostNetwork == v1alpha1.InjectPod), "the profile has hostNetwork: "+string(p.HostNetwork))
		if p.HostNetwork != v1alpha1.InjectPod {
			return HostNetwork
		}
	}
	if s.request.first.IsHostProcess {
		v.step("Windows host process", "no", HostProcess.Text())
		return HostProcess
	}
	if s.request.first.OS != nil && p.ExcludedSystems.Has(s.request.first.OS.Get("name").Text()) {
		v.Detail = fmt.Sprintf("spec.os.name of the pod is %s, and the profile sets fields that the API server refuses for it", podtext.Quote(s.request.first.OS.Get("name").Text()))
		v.step("operating system", "no", v.Detail)
		return OtherSystem
	}
	policy := s.request.first.RestartPolicy
	if p.AppContainer == "" || !policy.Is(string(corev1.RestartPolicyNever)) && !policy.Is(string(corev1.RestartPolicyOnFailure)) {
		return ""
	}
	message := fmt.Sprintf("its container %q would keep the pod from completing (restartPolicy: %s); a native sidecar would not", p.AppContainer, policy.Text())
	v.step("podsThatEnd", yesNo(p.PodsThatEnd == v1alpha1.InjectPod), "the profile has podsThatEnd: "+string(p.PodsThatEnd))
	switch p.PodsThatEnd {
	case v1alpha1.InjectPod:
		return ""
	case v1alpha1.RefusePod:
		s.messages.refuse("spec.restartPolicy", p.DeclineHint(), "sidecar profile %q cannot be applied: %s", p.Name, message)
		return Refused
	case v1alpha1.SkipPod:
		if !unknown {
			v.warned = true
			s.messages.warn("sidecar profile %q is not applied: %s", p.Name, message)
		}
	}
	v.Detail = message
	return MustEnd
}

// matchConditions evaluates the match conditions. As in a webhook configuration, one that
// is false decides whatever the others are.
func (s *selector) matchConditions(v *Verdict, p *profile.Profile) Reason {
	var unknown []error
	for i := range p.Conditions {
		c := &p.Conditions[i]
		is, err := c.Eval(s.request.input(p))
		if err != nil {
			v.step("matchCondition "+c.Name, "unknown", err.Error())
			unknown = append(unknown, fmt.Errorf("match condition %q of sidecar profile %q: %w", c.Name, p.Name, err))
			continue
		}
		v.step("matchCondition "+c.Name, yesNo(is), "")
		if !is {
			v.Detail = fmt.Sprintf("match condition %q is false", c.Name)
			return ConditionFalse
		}
	}
	if len(unknown) > 0 {
		s.messages.cannotDecide(errors.Join(unknown...))
		return Unknown
	}
	return ""
}

// isInRollout reports whether a workload is in the share of a rollout. It depends on names
// alone, so that every replica, a dry run and an offline run agree. A workload that is in
// at one percentage is in at every higher one. The name of the profile is part of the
// hash, so that different rollouts begin with different workloads.
func isInRollout(profile, namespace, workload string, percent int32) bool {
	sum := sha256.Sum256([]byte(profile + "\x00" + namespace + "\x00" + workload))
	const all = 100
	return binary.BigEndian.Uint64(sum[:])%all < uint64(max(percent, 0)) // #nosec G115 -- not negative
}
