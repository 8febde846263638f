package sidecar

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// selectProfiles gives a reason to the profiles that are not to be applied.
func (m *maker) selectProfiles() {
	open := false
	for i := range m.Verdicts {
		v := &m.Verdicts[i]
		v.Reason = m.selects(v, m.set.profiles[m.about[i]])
		open = open || v.Reason == "" || v.Reason == NamespaceUnknown
	}
	if !open {
		return
	}
	// Only now it is worth a look at the containers.
	if m.Err = m.first.SpecError(); m.Err != nil {
		return
	}
	if m.first != m.pod {
		if m.Err = m.pod.SpecError(); m.Err != nil {
			return
		}
	}
	for i := range m.Verdicts {
		v := &m.Verdicts[i]
		p := m.set.profiles[m.about[i]]
		unknown := v.Reason == NamespaceUnknown
		if v.Reason != "" && !unknown {
			continue
		}
		if reason := m.suits(v, p, unknown); reason != "" {
			v.Reason = reason
			continue
		}
		if unknown {
			m.unknown = append(m.unknown, fmt.Errorf("namespace %q is not known, and sidecar profile %q selects namespaces by their labels", m.in.Namespace, p.Name))
			continue
		}
		v.Reason = m.holds(v, p)
	}
	m.replace()
}

// replace lets profiles in their rollouts take the places of others. Whatever
// keeps one from being applied leaves its place to the other, and of the two a
// pod keeps the one that it has.
func (m *maker) replace() {
	for i := range m.Verdicts {
		v, p := &m.Verdicts[i], m.set.profiles[m.about[i]]
		if v.Reason != "" || p.ReplacedBy < 0 {
			continue
		}
		by := m.set.profiles[p.ReplacedBy]
		other := m.verdict(by.Name)
		switch {
		case m.has(by.Name):
			v.replaced(fmt.Sprintf("sidecar profile %q, which takes its place, is there already", by.Name))
		case other == nil || other.Reason != "" && other.Reason != Unknown:
		case m.has(p.Name):
			other.replaced(fmt.Sprintf("sidecar profile %q, whose place it takes, is there already", p.Name))
		default:
			v.replaced(fmt.Sprintf("sidecar profile %q takes its place for %d %% of workloads", by.Name, by.Percent))
		}
	}
}

// has tells whether the pod has something of a profile.
func (m *maker) has(profile string) bool {
	e := m.status.Find(profile)
	if e == nil {
		return false
	}
	there := e.Prune(m.found, m.pod.Names())
	return !there.IsEmpty()
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

// wants is what a selector wants and what is there.
func wants(s labels.Selector, whose string, there map[string]string) string {
	const most = 200
	has := "none"
	if len(there) > 0 {
		has = strict.Cut(labels.Set(there).String(), most)
	}
	return fmt.Sprintf("wants %s; the labels of %s are %s", s, whose, has)
}

// selects gives the reason for which the profile is not to be applied, as far as
// the pod's metadata tells, or none.
func (m *maker) selects(v *Verdict, p *profile.Profile) Reason {
	unknown := false
	if p.NamespaceSelector != nil {
		switch m.ns().matches(p) {
		case no:
			v.step("namespaceSelector", "no", wants(p.NamespaceSelector, "the namespace", m.ns().labels))
			return NamespaceNotSelected
		case couldNotTell:
			v.step("namespaceSelector", "unknown", fmt.Sprintf("namespace %q is not known", m.in.Namespace))
			unknown = true
		case yes:
			v.step("namespaceSelector", "yes", p.NamespaceSelector.String())
		}
	}
	if p.ObjectSelector != nil {
		matches := p.ObjectSelector.Matches(&podLabels{m.first.Labels})
		if !matches {
			if v.Explanation != nil {
				v.step("objectSelector", "no", wants(p.ObjectSelector, "the pod", (&podLabels{m.first.Labels}).all()))
			}
			return ObjectNotSelected
		}
		v.step("objectSelector", "yes", p.ObjectSelector.String())
	}
	if m.first.IsMirror {
		v.step("static pod", "no", StaticPod.Text())
		return StaticPod
	}
	if reason := m.wanted(v, p); reason != "" {
		return reason
	}
	if p.Percent < 100 {
		workload := m.in.Workload
		if _, name, ok := strings.Cut(workload, "/"); ok {
			workload = name
			if strings.HasPrefix(m.in.Workload, "Job/") {
				workload = podtext.CronJobName(name)
			}
		} else {
			workload = m.first.WorkloadName()
		}
		in := inShare(p.AnnotationPrefix, m.in.Namespace, workload, p.Percent)
		v.step("rollout", yesNo(in), fmt.Sprintf("%d %% of workloads, and this is %q", p.Percent, workload))
		if !in {
			return NotInRollout
		}
	}
	if unknown {
		return NamespaceUnknown
	}
	return ""
}

// wanted gives the reason for which the profile is not wanted, or none.
func (m *maker) wanted(v *Verdict, p *profile.Profile) Reason {
	if said := m.podWord.about(p); said != silent {
		v.step("pod", yesNo(said == asks), v1alpha1.InjectAnnotation+": "+podtext.Quote(m.first.InjectAnnotation.Text()))
		if said == declines {
			return Declined
		}
		return ""
	}
	if said := m.namespaceWord.about(p); said != silent {
		v.step("namespace", yesNo(said == asks), v1alpha1.InjectAnnotation+": "+podtext.Quote(m.namespace.annotations[v1alpha1.InjectAnnotation]))
		if said == declines {
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

// suits gives the reason for which the pod cannot take the profile, or none.
func (m *maker) suits(v *Verdict, p *profile.Profile, unknown bool) Reason {
	if m.first.HostNetwork.IsTrue() {
		v.step("hostNetwork", yesNo(p.HostNetwork == v1alpha1.InjectPod), "the profile says "+string(p.HostNetwork))
		if p.HostNetwork != v1alpha1.InjectPod {
			return HostNetwork
		}
	}
	if m.first.IsHostProcess {
		v.step("Windows host process", "no", HostProcess.Text())
		return HostProcess
	}
	if m.first.OS != nil && p.OperatingSystems.Refuse(m.first.OS.Get("name").Text()) {
		v.Detail = fmt.Sprintf("the pod is for %s, and the profile says what the API server does not allow there", podtext.Quote(m.first.OS.Get("name").Text()))
		v.step("operating system", "no", v.Detail)
		return OtherSystem
	}
	policy := m.first.RestartPolicy
	if p.AppContainer == "" || !policy.Is(string(corev1.RestartPolicyNever)) && !policy.Is(string(corev1.RestartPolicyOnFailure)) {
		return ""
	}
	message := fmt.Sprintf("its container %q would keep the pod from ending (restartPolicy: %s); a native sidecar would not", p.AppContainer, policy.Text())
	v.step("podsThatEnd", yesNo(p.PodsThatEnd == v1alpha1.InjectPod), "the profile says "+string(p.PodsThatEnd))
	switch p.PodsThatEnd {
	case v1alpha1.InjectPod:
		return ""
	case v1alpha1.RefusePod:
		m.refuse("spec.restartPolicy", p.DeclineHint(), "sidecar profile %q cannot be applied: %s", p.Name, message)
		return Refused
	case v1alpha1.SkipPod:
		if !unknown {
			v.warned = true
			m.warn("sidecar profile %q is not applied: %s", p.Name, message)
		}
	}
	v.Detail = message
	return MustEnd
}

// holds evaluates the match conditions. As in a webhook configuration, one that
// is false decides whatever the others are.
func (m *maker) holds(v *Verdict, p *profile.Profile) Reason {
	var unknown []error
	for i := range p.Conditions {
		c := &p.Conditions[i]
		is, err := c.Eval(m.input(p))
		if err != nil {
			v.step("matchCondition "+c.Name, "unknown", err.Error())
			unknown = append(unknown, fmt.Errorf("match condition %q of sidecar profile %q: %w", c.Name, p.Name, err))
			continue
		}
		v.step("matchCondition "+c.Name, yesNo(is), "")
		if !is {
			v.Detail = fmt.Sprintf("match condition %q does not hold", c.Name)
			return ConditionFalse
		}
	}
	if len(unknown) > 0 {
		m.unknown = append(m.unknown, errors.Join(unknown...))
		return Unknown
	}
	return ""
}

// input is what expressions of a profile see, but for the parameters.
func (m *maker) input(p *profile.Profile) *template.Input {
	e := &m.expression
	if !m.ready {
		m.ready = true
		e.Context = m.in.Context
		e.Pod = m.firstText
		e.NamespaceName = m.in.Namespace
		if ns := m.ns(); ns.known {
			e.Namespace = &template.Namespace{Name: ns.name, Labels: ns.labels, Annotations: ns.annotations}
		}
	}
	e.Params = template.Params{}
	e.Presets = nil
	if len(p.Presets) > 0 {
		e.Presets = func(name string) (map[string]string, bool) {
			ref, ok := p.Presets[name]
			if !ok || m.set.configMaps == nil {
				return nil, false
			}
			return m.set.configMaps.ConfigMapData(ref.Namespace, ref.Name)
		}
	}
	return e
}
