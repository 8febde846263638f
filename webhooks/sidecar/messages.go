package sidecar

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// maxMessages is how many refusals, and how many warnings, one pod gets. Nobody reads
// more, and a pod can cause thousands.
const maxMessages = 32

type messages struct {
	refusals diagnostic.List
	warnings []string
	// unknown says why it cannot be decided what the pod should become.
	unknown []error
	// moreRefusals and moreWarnings are how many are left out.
	moreRefusals, moreWarnings int
}

func (m *messages) refuse(path, hint, format string, args ...any) {
	if len(m.refusals) == maxMessages {
		m.moreRefusals++
		return
	}
	m.refusals = append(m.refusals, diagnostic.Diagnostic{
		Severity: diagnostic.Error, Field: path, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (m *messages) warn(format string, args ...any) {
	if len(m.warnings) == maxMessages {
		m.moreWarnings++
		return
	}
	m.warnings = append(m.warnings, fmt.Sprintf(format, args...))
}

func (m *messages) cannotDecide(err error) { m.unknown = append(m.unknown, err) }

// verdictReport takes the messages and steps about one profile. It implements reporter.
type verdictReport struct {
	messages *messages
	verdict  *Verdict
}

// Step adds a step to the explanation.
func (r *verdictReport) Step(name, result, detail string) { r.verdict.step(name, result, detail) }

// Warn adds a warning.
func (r *verdictReport) Warn(format string, args ...any) { r.messages.warn(format, args...) }

// Refuse refuses the pod.
func (r *verdictReport) Refuse(path, hint, format string, args ...any) {
	r.messages.refuse(path, hint, format, args...)
}

func (r *verdictReport) notApplied(profile, why string) {
	r.verdict.warned = true
	r.Warn("sidecar profile %q is not applied: %s", profile, why)
}
