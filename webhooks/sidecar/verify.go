package sidecar

import (
	"bytes"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/inject"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// verify checks the pod that a profile makes against what the API server checks after
// all webhooks, and the kubelet later. They would refuse the pod with a message that does
// not name the profile.
func (i *injector) verify(p *profile.Profile, after *inject.State) Reason {
	conflict := func(path, message string) Reason { // There is nothing to keep.
		return i.resolveConflicts(p, []inject.Conflict{{Path: path, Hint: p.DeclineHint(), Message: message}}, p.OnConflict != v1alpha1.RefuseConflict)
	}
	if path, message := inject.CheckConstraints(p, after); message != "" {
		return conflict(path, message)
	}
	violations, err := i.security.violations(i.request, i.pod.Text, after)
	switch {
	case err != nil:
		i.messages.cannotDecide(fmt.Errorf("sidecar profile %q: %w", p.Name, err))
		return Unknown
	case len(violations) == 0:
		if path, message := inject.CheckUsers(p, i.pod.Pod, after); message != "" {
			return conflict(path, message)
		}
		return Applied
	}
	v := i.report.verdict
	v.Detail = fmt.Sprintf("with sidecar profile %q, the pod %s, which namespace %q enforces",
		p.Name, podsecurity.Describe(i.security.level, violations...), i.request.namespaceName)
	v.step("Pod Security", "no", v.Detail)
	if p.OnConflict == v1alpha1.RefuseConflict {
		i.messages.refuse("spec", p.DeclineHint(), "%s", v.Detail)
		return Refused
	}
	i.report.notApplied(p.Name, v.Detail)
	return PodSecurity
}

// securityCheck checks a pod against the Pod Security level that its namespace enforces.
type securityCheck struct {
	lookedUp bool // level is known
	level    podsecurity.Level
	enforces bool
}

// violations returns those that the pod has with a profile and did not have before.
func (c *securityCheck) violations(r *request, before []byte, after *inject.State) ([]podsecurity.Violation, error) {
	if !c.lookedUp {
		c.lookedUp = true
		if ns := r.ns(); ns.known {
			c.level = podsecurity.OfNamespace(ns.labels)
			c.enforces = c.level.Enforces()
		}
	}
	if !c.enforces {
		return nil, nil
	}
	found, err := c.evaluate(r, after.Editor.Result())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if earlier, err := c.evaluate(r, before); err != nil || len(earlier) > 0 {
		return nil, err // The pod is refused whatever is added.
	}
	return found, nil
}

func (c *securityCheck) evaluate(r *request, text []byte) ([]podsecurity.Violation, error) {
	pod, err := podsecurity.Decode(bytes.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("cannot decode the pod for Pod Security: %w", err)
	}
	return r.set.security.Violations(c.level, &pod.Metadata, &pod.Spec), nil
}
