package sidecar

import (
	"bytes"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// securityCheck holds what is added against the Pod Security level that the
// pod's namespace enforces. The API server checks it after all webhooks, and
// would refuse the pod with a message that does not name the profile.
type securityCheck struct {
	looked     bool
	level      podsecurity.Level
	enforces   bool
	violations []podsecurity.Violation
}

// harms tells whether the level admits the pod as it was in text, and does not
// with what is pending.
func (c *securityCheck) harms(m *maker, p *profile.Profile, text []byte) (bool, error) {
	if !c.looked {
		c.looked = true
		if ns := m.ns(); ns.known {
			c.level = podsecurity.OfNamespace(ns.labels)
			c.enforces = c.level.Enforces()
		}
	}
	if !c.enforces || p.CleanLevels.Has(c.level) {
		return false, nil
	}
	before, err := c.evaluate(m, text)
	if err != nil || len(before) > 0 {
		// It is refused whatever is added.
		return false, err
	}
	c.violations, err = c.evaluate(m, m.pending.Result())
	return len(c.violations) > 0, err
}

func (c *securityCheck) evaluate(m *maker, text []byte) ([]podsecurity.Violation, error) {
	pod, err := podsecurity.Decode(bytes.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("the pod cannot be read for Pod Security: %w", err)
	}
	return m.set.security.Violations(c.level, &pod.Metadata, &pod.Spec), nil
}
