package admit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Pods says what it is if policies refuse every pod that the controller of a workload will create: policies that do not look into the
// workload, as no ValidatingAdmissionPolicy does, admit that.
type Pods string

// The values of Pods.
const (
	WarnPods   Pods = "warn"
	RefusePods Pods = "refuse"
	IgnorePods Pods = "ignore"
)

// admitPods decides by policies about the pod that the controller of a workload creates from its template, and adds the violations that
// refuse it. What policies have found in the template itself, they have judged there.
func (d *Decider) admitPods(ctx context.Context, out *Decision, pod *admission.Request, template *Template, explain bool) {
	if err := setOwner(pod, template.Workload); err != nil {
		out.Err = errors.Join(out.Err, fmt.Errorf("%s: %w", template.Path, err))
		return
	}
	_, known := d.Snapshot.Policy.Lookups().Objects.Namespace(pod.Namespace)
	decision := d.Snapshot.Policy.Decide(ctx, policy.Input{Request: *pod, Violations: true, Explain: explain || !known})
	var unknown Decision
	if !known {
		d.addUnknownNamespace(&unknown, &decision, pod.Namespace)
	}
	if err := errors.Join(unknown.Err, decision.Err, decision.Undecided); err != nil && d.Pods == RefusePods {
		out.Err = errors.Join(out.Err, fmt.Errorf("%s: its pods: %w", template.Path, err))
	} else if err != nil {
		out.Warnings, out.Warned = append(out.Warnings, fmt.Sprintf("%s: it is not known whether its pods will be admitted: %s", template.Path, strings.ReplaceAll(err.Error(), "\n", "; "))), true
	}
	told := slices.Clone(out.Violations)
	for _, v := range decision.Violations {
		if !v.Refuses() || slices.ContainsFunc(told, func(t policy.Violation) bool {
			return t.Template != "" && t.Kind == v.Kind && t.Policy == v.Policy && t.Binding == v.Binding && t.Param == v.Param && t.Rule == v.Rule
		}) {
			continue
		}
		v.Template, v.Message = template.Path, "none of its pods will be admitted: "+v.Message
		if v.Actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}; d.Pods == RefusePods {
			out.Refused = true
		} else {
			v.Actions[0], out.Warned = admissionregistrationv1.Warn, true
		}
		out.Violations, out.Beside = append(out.Violations, v), append(out.Beside, v)
	}
	if !explain {
		return
	}
	for _, e := range decision.Evaluations {
		if e.Why == policy.OtherRequest || e.Why == policy.NotInForce || slices.ContainsFunc(out.Policies, func(t policy.Evaluation) bool {
			return t.Template != "" && t.Kind == e.Kind && t.Policy == e.Policy && t.Binding == e.Binding && t.Param == e.Param
		}) {
			continue
		}
		e.Template = template.Path
		out.Policies = append(out.Policies, e)
	}
}

// setOwner gives a pod the name and the owner that the controller of a workload, "Deployment/checkout", gives it: many policies are about
// pods without one.
func setOwner(pod *admission.Request, workload string) error {
	kind, name, _ := strings.Cut(workload, "/")
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: pod.UID, Controller: new(true), BlockOwnerDeletion: new(true)}
	switch kind {
	case "Deployment":
		owner.Kind, owner.Name = "ReplicaSet", name+"-xxxxxxxxxx"
	case "CronJob":
		owner.APIVersion, owner.Kind, owner.Name = "batch/v1", "Job", name+"-xxxxxxxx"
	case "Job":
		owner.APIVersion = "batch/v1"
	case "ReplicationController":
		owner.APIVersion = "v1"
	}
	var object map[string]any
	if err := json.Unmarshal(pod.Object.Raw, &object); err != nil {
		return err
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	metadata["ownerReferences"] = []metav1.OwnerReference{owner}
	if metadata["name"] == nil && metadata["generateName"] == nil && owner.Name != "" {
		metadata["generateName"] = owner.Name + "-"
	}
	text, err := json.Marshal(object)
	pod.Object.Raw = text
	return err
}
