package policy

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// inVersion returns the request as a policy sees it that names the resource: with the
// object in that version. An error says why it cannot be converted.
func (r *request) inVersion(c *matching.Constraints, resource schema.GroupVersionResource) (*request, error) {
	if known, ok := r.conversions[resource]; ok {
		return known.request, known.err
	}
	if !r.IsRenamed(resource) {
		if needed, err := r.NeedsConversion(c, resource); err != nil || !needed {
			return r, err
		}
	}
	converted, err := r.convert(resource)
	if r.conversions == nil {
		r.conversions = map[schema.GroupVersionResource]conversion{}
	}
	r.conversions[resource] = conversion{converted, err}
	return converted, err
}

// conversion is a request as one of an equivalent resource, or why there is none.
type conversion struct {
	request *request
	err     error
}

func (r *request) convert(resource schema.GroupVersionResource) (*request, error) {
	req := r.AdmissionRequest
	if req.RequestKind == nil {
		req.RequestKind = new(r.Kind)
	}
	req.RequestResource = (*metav1.GroupVersionResource)(&r.Requested)
	req.Resource = metav1.GroupVersionResource(resource)
	if r.HasOwnKind() {
		return r.converted(req), nil
	}
	req.Kind.Group, req.Kind.Version = resource.Group, resource.Version
	renamed := r.IsRenamed(resource)
	for _, object := range [...]struct {
		from *payload
		to   *runtime.RawExtension
	}{{&r.object, &req.Object}, {&r.oldObject, &req.OldObject}} {
		if !object.from.present() {
			continue
		}
		text, err := object.from.json()
		if err != nil {
			r.decider.fail(err)
			return nil, err
		}
		if renamed {
			object.to.Raw = kindversions.WithVersion(text, resource.GroupVersion().String())
			continue
		}
		if object.to.Raw, err = kindversions.Convert(text, r.SentResource(), resource); err != nil {
			return nil, fmt.Errorf("failed to convert object version: %s: %w", object.from.name, err)
		}
	}
	out := r.converted(req)
	out.object.checked, out.oldObject.checked = true, true
	return out, nil
}

// converted returns the request of the review in another form.
func (r *request) converted(req admissionv1.AdmissionRequest) *request {
	out := newRequest(r.decider, admissionRequest(req))
	out.object.checked, out.oldObject.checked = r.object.checked, r.oldObject.checked
	out.ShareEquivalents(&r.Request)
	out.isBefore = r.isBefore
	return out
}
