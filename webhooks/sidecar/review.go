package sidecar

import (
	"errors"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

const (
	// codeInvalid refuses a pod: 422, as the API server answers one that fails its own
	// validation. Not 409, which clients retry.
	codeInvalid = 422
	// codeCannotDecide leaves the decision to the webhook's failurePolicy.
	codeCannotDecide = 500
)

// The keys of the audit annotation that holds the reason of every profile. The
// API server keeps the first value under a key and logs a warning at every
// other, so a pod that comes a second time needs a key of its own.
const (
	// AuditKey is for a pod without a status annotation.
	AuditKey = "profiles"
	// AuditKeyAgain is for a pod with one.
	AuditKeyAgain = "profiles-again"

	// maxAudit bounds the value, in bytes: it is written for every pod.
	maxAudit = 1024
)

// Response returns the answer to the API server. It is an error if it cannot be decided what
// the pod should become.
func (d Decision) Response() admission.Response {
	switch {
	case d.Err == nil && len(d.Verdicts)+d.NotSelected == 0:
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true}}
	case errors.Is(d.Err, workload.ErrElements):
		return admission.Errored(codeInvalid, d.Err)
	case d.Err != nil:
		return admission.Errored(codeCannotDecide, d.Err)
	}
	key := AuditKey
	if d.Again {
		key = AuditKeyAgain
	}
	response := admission.Response{
		Patches: d.Patches,
		AdmissionResponse: admissionv1.AdmissionResponse{
			Allowed:          len(d.Refusals) == 0,
			Warnings:         d.Warnings,
			AuditAnnotations: map[string]string{key: d.audit()},
		},
	}
	if !response.Allowed {
		response.Result = &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    codeInvalid,
			Reason:  metav1.StatusReasonInvalid,
			Message: d.Refusals.Error(),
		}
	}
	return response
}

// audit returns the reason of every profile, by name: "log-shipper=applied,mesh=not-asked".
// Where there are too many, only those that select the pod are given and the rest is
// counted, as are those that are excluded by labels in a large set.
func (d *Decision) audit() string {
	text, left := d.reasons(func(Reason) bool { return true })
	if left > d.NotSelected {
		text, _ = d.reasons(Reason.Selected)
	}
	return text
}

// reasons returns the reasons of a sort, as many as there is room for, and the number of those that are left out.
func (d *Decision) reasons(of func(Reason) bool) (text string, left int) {
	var b strings.Builder
	left = d.NotSelected
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !of(v.Reason) || b.Len()+len(v.Profile)+len(v.Reason) > maxAudit-len(",=,+2147483647") {
			left++
			continue
		}
		v.write(&b)
	}
	if left > 0 {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('+')
		b.WriteString(strconv.Itoa(left))
	}
	return b.String(), left
}

func (v *Verdict) write(b *strings.Builder) {
	if b.Len() > 0 {
		b.WriteByte(',')
	}
	b.WriteString(v.Profile)
	b.WriteByte('=')
	b.WriteString(string(v.Reason))
}
