package policy

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// templateRequest returns the request to create the pod that the pod template in the object
// will become, or nil if there is no template, or no policy that checks one.
//
// The pod is what a controller makes of the template, after our own injection.
// The user is that of the request, because the user who will create the pod is not known
// for every kind.
func templateRequest(r *request) *request {
	set := r.decider.set
	if !set.checksTemplates || r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return nil
	}
	path, ok := set.workloads.Template(r.Kind.Group, r.Kind.Kind)
	if !ok {
		return nil
	}
	object, err := r.object.json()
	if err != nil {
		return nil
	}
	now := object.Get(path...)
	if now.Kind() != rawjson.Object {
		return nil
	}
	old, oldErr := r.oldObject.json()
	for _, one := range [...]struct {
		template rawjson.Value
		end      func(error)
	}{{now, r.decider.reject}, {old.Get(path...), r.decider.fail}} {
		if len(one.template) >= minCounted {
			if err := workload.CheckElements(one.template.Cursor()); err != nil {
				one.end(fmt.Errorf("the pod template cannot be checked: %s.%w", strings.Join(path, "."), err))
				return nil
			}
		}
	}
	template := r.fromTemplate(r.decider, now, path)
	if r.Operation == admissionv1.Update {
		if oldErr == nil {
			if before := old.Get(path...); before.Kind() == rawjson.Object {
				template.earlier = r.fromTemplate(r.decider.detached(), before, path)
				template.earlier.isBefore = true
				template.sameTemplate = bytes.Equal(now, before)
			}
		}
	}
	template.earlierRead = true
	return template
}

// needsDecision reports whether a policy has to decide about the template. One that has
// not changed in an update can only have violations that were there before, if the rules
// read the object alone.
func (r *request) needsDecision(p *compiledPolicy) bool {
	return !r.sameTemplate || !p.allowsExisting || !p.conditionsReadObjectOnly || slices.ContainsFunc(p.validations, func(rule ruleProgram) bool { return !rule.readsObjectOnly })
}

// fromTemplate returns the request to create the pod of a template.
func (r *request) fromTemplate(v *decider, template rawjson.Value, path []string) *request {
	req := admissionv1.AdmissionRequest{
		UID:       r.UID,
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: r.Namespace,
		Operation: admissionv1.Create,
		UserInfo:  r.UserInfo,
		DryRun:    r.DryRun,
		Options:   runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
	}
	req.RequestKind, req.RequestResource = &req.Kind, &req.Resource
	out := newRequest(v, admissionRequest(req))
	out.object.checked = true
	out.template = strings.Join(path, ".")
	name := r.objectName()
	out.owner, out.ownerGroup, out.ownerGenerated = r.Kind.Kind+"/"+name, r.Kind.Group, r.isNameGenerated()
	out.object.build = func() ([]byte, error) {
		pod := workload.AppendPod(nil, template, r.Namespace, name)
		if v.set.inject == nil {
			return pod, nil
		}
		injected, refusal, err := v.set.inject(v.context, r.Namespace, out.owner, pod)
		switch {
		case v.context.Err() != nil:
			return nil, fmt.Errorf("no decision in time: %w", context.Cause(v.context))
		case err != nil:
			// The pods themselves may get through all the same: refusing every
			// workload for what one sidecar lacks would be worse than a late answer.
			v.answer.warn(out.template + ": checked without sidecars: " + err.Error())
			return pod, nil //nolint:nilerr // the warning reports it
		}
		if refusal != "" {
			v.answer.warn(out.template + ": the pods will be refused: " + refusal)
		}
		return injected, nil
	}
	return out
}

func admissionRequest(r admissionv1.AdmissionRequest) admission.Request {
	return admission.Request{AdmissionRequest: r}
}
