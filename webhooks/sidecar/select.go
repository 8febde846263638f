package sidecar

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/strict"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
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
	if m.Err = m.first.specError(); m.Err != nil {
		return
	}
	if m.first != m.pod {
		if m.Err = m.pod.specError(); m.Err != nil {
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
			m.unknown = append(m.unknown, fmt.Errorf("namespace %q is not known, and sidecar profile %q selects namespaces by their labels", m.in.Namespace, p.name))
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
		if v.Reason != "" || p.replacedBy < 0 {
			continue
		}
		by := m.set.profiles[p.replacedBy]
		other := m.verdict(by.name)
		switch {
		case m.has(by.name):
			v.replaced(fmt.Sprintf("sidecar profile %q, which takes its place, is there already", by.name))
		case other == nil || other.Reason != "" && other.Reason != Unknown:
		case m.has(p.name):
			other.replaced(fmt.Sprintf("sidecar profile %q, whose place it takes, is there already", p.name))
		default:
			v.replaced(fmt.Sprintf("sidecar profile %q takes its place for %d %% of workloads", by.name, by.percent))
		}
	}
}

// has tells whether the pod has something of a profile.
func (m *maker) has(profile string) bool {
	e := m.status.find(profile)
	if e == nil {
		return false
	}
	there := e.prune(m.found, m.pod.names())
	return !there.empty()
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
func (m *maker) selects(v *Verdict, p *profile) Reason {
	unknown := false
	if p.namespaces != nil {
		switch m.ns().matches(p) {
		case no:
			v.step("namespaceSelector", "no", wants(p.namespaces, "the namespace", m.ns().labels))
			return NamespaceNotSelected
		case couldNotTell:
			v.step("namespaceSelector", "unknown", fmt.Sprintf("namespace %q is not known", m.in.Namespace))
			unknown = true
		case yes:
			v.step("namespaceSelector", "yes", p.namespaces.String())
		}
	}
	if p.objects != nil {
		matches := p.objects.Matches(&podLabels{m.first.labels})
		if !matches {
			if v.Explanation != nil {
				v.step("objectSelector", "no", wants(p.objects, "the pod", (&podLabels{m.first.labels}).all()))
			}
			return ObjectNotSelected
		}
		v.step("objectSelector", "yes", p.objects.String())
	}
	if m.first.mirror {
		v.step("static pod", "no", StaticPod.Text())
		return StaticPod
	}
	if reason := m.wanted(v, p); reason != "" {
		return reason
	}
	if p.percent < 100 {
		workload := m.in.Workload
		if _, name, ok := strings.Cut(workload, "/"); ok {
			workload = name
			if strings.HasPrefix(m.in.Workload, "Job/") {
				workload = jobOwner(name)
			}
		} else {
			workload = m.first.workload()
		}
		in := inShare(p.annotationPrefix, m.in.Namespace, workload, p.percent)
		v.step("rollout", yesNo(in), fmt.Sprintf("%d %% of workloads, and this is %q", p.percent, workload))
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
func (m *maker) wanted(v *Verdict, p *profile) Reason {
	if said := m.podWord.about(p); said != silent {
		v.step("pod", yesNo(said == asks), v1alpha1.InjectAnnotation+": "+quote(m.first.inject.Text()))
		if said == declines {
			return Declined
		}
		return ""
	}
	if said := m.namespaceWord.about(p); said != silent {
		v.step("namespace", yesNo(said == asks), v1alpha1.InjectAnnotation+": "+quote(m.namespace.annotations[v1alpha1.InjectAnnotation]))
		if said == declines {
			return DeclinedByNamespace
		}
		return ""
	}
	if p.optOut {
		v.step("injection", "yes", "OptOut")
		return ""
	}
	v.step("injection", "no", "OptIn")
	return NotAsked
}

// suits gives the reason for which the pod cannot take the profile, or none.
func (m *maker) suits(v *Verdict, p *profile, unknown bool) Reason {
	if m.first.hostNetwork.IsTrue() {
		v.step("hostNetwork", yesNo(p.hostNetwork == v1alpha1.InjectPod), "the profile says "+string(p.hostNetwork))
		if p.hostNetwork != v1alpha1.InjectPod {
			return HostNetwork
		}
	}
	if m.first.hostProcess {
		v.step("Windows host process", "no", HostProcess.Text())
		return HostProcess
	}
	if m.first.os != nil && p.systems.refuse(m.first.os.Get("name").Text()) {
		v.Detail = fmt.Sprintf("the pod is for %s, and the profile says what the API server does not allow there", quote(m.first.os.Get("name").Text()))
		v.step("operating system", "no", v.Detail)
		return OtherSystem
	}
	policy := m.first.restartPolicy
	if p.plain == "" || !policy.Is(string(corev1.RestartPolicyNever)) && !policy.Is(string(corev1.RestartPolicyOnFailure)) {
		return ""
	}
	message := fmt.Sprintf("its container %q would keep the pod from ending (restartPolicy: %s); a native sidecar would not", p.plain, policy.Text())
	v.step("podsThatEnd", yesNo(p.podsThatEnd == v1alpha1.InjectPod), "the profile says "+string(p.podsThatEnd))
	switch p.podsThatEnd {
	case v1alpha1.InjectPod:
		return ""
	case v1alpha1.RefusePod:
		m.refuse("spec.restartPolicy", p.declineHint(), "sidecar profile %q cannot be applied: %s", p.name, message)
		return Refused
	case v1alpha1.SkipPod:
		if !unknown {
			v.warned = true
			m.warn("sidecar profile %q is not applied: %s", p.name, message)
		}
	}
	v.Detail = message
	return MustEnd
}

// holds evaluates the match conditions. As in a webhook configuration, one that
// is false decides whatever the others are.
func (m *maker) holds(v *Verdict, p *profile) Reason {
	var unknown []error
	for i := range p.conditions {
		c := &p.conditions[i]
		is, err := c.Eval(m.input(p))
		if err != nil {
			v.step("matchCondition "+c.name, "unknown", err.Error())
			unknown = append(unknown, fmt.Errorf("match condition %q of sidecar profile %q: %w", c.name, p.name, err))
			continue
		}
		v.step("matchCondition "+c.name, yesNo(is), "")
		if !is {
			v.Detail = fmt.Sprintf("match condition %q does not hold", c.name)
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
func (m *maker) input(p *profile) *template.Input {
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
	if len(p.presets) > 0 {
		e.Presets = func(name string) (map[string]string, bool) {
			ref, ok := p.presets[name]
			if !ok || m.set.configMaps == nil {
				return nil, false
			}
			return m.set.configMaps.ConfigMapData(ref.Namespace, ref.Name)
		}
	}
	return e
}
