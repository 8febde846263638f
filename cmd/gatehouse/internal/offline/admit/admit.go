// Package admit decides about an object in a manifest as a cluster would. It does what the API server does before policies
// are evaluated, filling in defaults, applying mutating policies and injecting sidecars, and then asks the policies. The
// commands check, explain, mutate, inject and test are built on it.
package admit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// The kind and rule of a violation by which injection refuses a pod. Its policy is the profile, if the refusal is about one.
const (
	InjectionKind = "SidecarProfile"
	InjectionRule = "injection"
)

// Request returns the request that the API server would send for a Spec, with its objects as the API server decodes them: with
// defaults, and custom resources without unknown fields and with the status that the API server leaves them.
func Request(resources *request.Resources, spec request.Spec) (admission.Request, error) {
	if spec.Operation != admissionv1.Connect {
		var err, oldErr error
		var old map[string]any
		if spec.OldObject, oldErr = prepared(spec.OldObject, func(object map[string]any) {
			resources.Prepare(object, nil, true)
			old = object
		}); oldErr != nil {
			oldErr = fmt.Errorf("oldObject: %w", oldErr)
		}
		if spec.Object, err = prepared(spec.Object, func(object map[string]any) { resources.Prepare(object, old, spec.SubResource != "") }); err != nil {
			err = fmt.Errorf("object: %w", err)
		}
		if err := errors.Join(err, oldErr); err != nil {
			return admission.Request{}, err
		}
	}
	return resources.Build(spec)
}

// Defaulted returns the JSON of an object of Kubernetes' own with the defaults of the API server. Text that is no JSON object is
// returned as it is, for Resources.Build to report.
func Defaulted(text []byte) ([]byte, error) { return prepared(text, func(map[string]any) {}) }

// prepared is Defaulted, with what prepares objects of other kinds.
func prepared(text []byte, prepare func(map[string]any)) ([]byte, error) {
	value, err := rawjson.Parse(text)
	if err != nil || value.Kind() != rawjson.Object {
		return text, nil //nolint:nilerr // Resources.Build reports it
	}
	tree, err := value.Decode()
	if err != nil {
		return nil, err
	}
	object, _ := tree.(map[string]any)
	defaults.Apply(object)
	prepare(object)
	return json.Marshal(object)
}

// Mutate changes the object of a request as mutating policies do, which see it with defaults. A decision with an error or a refusal
// leaves the request as it is. Without a set nothing changes.
func Mutate(ctx context.Context, set *mutation.Set, req *admission.Request, explain bool) mutation.Decision {
	if set == nil {
		return mutation.Decision{}
	}
	d := set.Decide(ctx, mutation.Input{Request: *req, Explain: explain})
	if d.Err == nil && d.Refusal == nil && d.Object != nil {
		req.Object.Raw = d.Object
	}
	return d
}

// Inject changes the pod in a request for a new pod as the mutating endpoint and the API server's defaults do. A decision with an error or
// a refusal leaves the request as it is.
func Inject(ctx context.Context, set *sidecar.Set, req *admission.Request) sidecar.Decision {
	d := set.Decide(ctx, sidecar.Input{Request: *req})
	apply(req, &d)
	return d
}

// apply changes the pod in a request as injection has decided.
func apply(req *admission.Request, d *sidecar.Decision) {
	if d.Err != nil || len(d.Refusals) > 0 || len(d.Patches) == 0 {
		return
	}
	text, err := Patched(req.Object.Raw, d.Patches)
	if err == nil {
		text, err = Defaulted(text) // what was added has defaults, too
	}
	if err != nil {
		d.Err = fmt.Errorf("injection: %w", err)
		return
	}
	req.Object.Raw = text
}

// Patched returns a text with the operations of a patch applied.
func Patched(text []byte, operations []jsonpatch.Operation) ([]byte, error) {
	raw, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patch, err := evanphx.DecodePatch(raw)
	if err != nil {
		return nil, err
	}
	return patch.Apply(text)
}

// Refusals returns the refusals of injection as violations.
func Refusals(d *sidecar.Decision) []policy.Violation {
	var refusing []string
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Reason == sidecar.Refused {
			refusing = append(refusing, v.Profile)
		}
	}
	violations := make([]policy.Violation, 0, len(d.Refusals))
	for _, f := range d.Refusals {
		text := f.String()
		violations = append(violations, policy.Violation{
			Kind: InjectionKind, Policy: profileOf(text, refusing), Rule: InjectionRule, Message: text,
			Reason: metav1.StatusReasonInvalid, Outcome: policy.Violated,
			Actions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		})
	}
	return violations
}

// profileOf returns the profile that the text of a refusal names, if any.
func profileOf(text string, profiles []string) string {
	best, at := "", len(text)
	for _, name := range profiles {
		for _, form := range []string{"sidecar profile " + strconv.Quote(name), strconv.Quote("-" + name), "[" + name + "." + v1alpha1.ParameterDomain + "/"} {
			if i := strings.Index(text, form); i >= 0 && i < at {
				best, at = name, i
			}
		}
	}
	return best
}
