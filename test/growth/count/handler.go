package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// newHandler returns a handler with the admission endpoints, by documentsText. A request about a
// document of Gatehouse compiles it, together with the others.
func newHandler() (http.Handler, error) {
	spec, err := readSpec()
	if err != nil {
		return nil, err
	}
	snapshot, err := webhooks.Compile(spec)
	if err != nil {
		return nil, err
	}
	observers := webhooks.Observers{Profiles: func([]sidecar.Verdict) {}, Policies: func([]policy.Observation) {}}
	options := review.Options{
		MaxBytes: review.MaxAdmissionBytes, MaxTime: 30 * time.Second, Now: time.Now,
		InFlight: review.NewBudget(8 * review.MaxAdmissionBytes), Slots: review.NewSlots(1),
	}
	mux := http.NewServeMux()
	for _, e := range webhooks.Endpoints() {
		if e.Admission == nil {
			continue
		}
		mux.Handle(e.Path, review.Admission(func(ctx context.Context, r *review.AdmissionRequest) admission.Response {
			if e.CustomResources && r.Kind.Group == "gatehouse.dev" {
				return compile(spec, r.Kind.Kind, r.Object.Raw)
			}
			return e.Admission(ctx, snapshot, webhooks.Input{Request: r.Request, Checked: true, Index: r.Index, Observers: observers})
		}, options))
	}
	return mux, nil
}

// compile refuses a document that does not compile with those of a Spec.
func compile(spec webhooks.Spec, kind string, object []byte) admission.Response {
	spec.Sidecar.Profiles, spec.Policy.AdmissionPolicies = slices.Clip(spec.Sidecar.Profiles), slices.Clip(spec.Policy.AdmissionPolicies)
	spec.Policy.Exceptions, spec.Authn.Tokens = slices.Clip(spec.Policy.Exceptions), slices.Clip(spec.Authn.Tokens)
	into := add(&spec, kind)
	if into == nil {
		return admission.Denied("the kind is unknown")
	}
	tree, err := rawjson.Value(object).Decode()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if found := new(strict.Checker).Compare(reflect.TypeOf(into).Elem(), tree, "", strict.Options{}); found.Err() != nil {
		return admission.Denied(found.Error())
	}
	if err := json.Unmarshal(object, into); err != nil {
		return admission.Denied(err.Error())
	}
	if _, err := webhooks.Compile(spec); err != nil {
		return admission.Denied(err.Error())
	}
	return admission.Allowed("")
}

// add adds a document of a kind to a Spec and returns it, nil for a kind that has none.
func add(spec *webhooks.Spec, kind string) any {
	switch kind {
	case "SidecarProfile":
		spec.Sidecar.Profiles = append(spec.Sidecar.Profiles, sidecar.Profile{})
		return &spec.Sidecar.Profiles[len(spec.Sidecar.Profiles)-1].SidecarProfile
	case "AdmissionPolicy":
		spec.Policy.AdmissionPolicies = append(spec.Policy.AdmissionPolicies, policy.AdmissionPolicy{})
		return &spec.Policy.AdmissionPolicies[len(spec.Policy.AdmissionPolicies)-1].AdmissionPolicy
	case "PolicyException":
		spec.Policy.Exceptions = append(spec.Policy.Exceptions, policy.Exception{})
		return &spec.Policy.Exceptions[len(spec.Policy.Exceptions)-1].PolicyException
	case "AccessToken":
		spec.Authn.Tokens = append(spec.Authn.Tokens, authn.Token{})
		return &spec.Authn.Tokens[len(spec.Authn.Tokens)-1].AccessToken
	default:
		return nil
	}
}

// readSpec reads documentsText.
func readSpec() (webhooks.Spec, error) {
	known := namespaces{}
	spec := webhooks.Spec{
		Sidecar: sidecar.Spec{Namespaces: known}, Policy: policy.Spec{Objects: known, Now: time.Now}, Authn: authn.Spec{Now: time.Now},
	}
	for _, document := range bytes.Split(documentsText, []byte("\n---\n")) {
		var of struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &of); err != nil {
			return spec, err
		}
		into := add(&spec, of.Kind)
		if of.Kind == "Namespace" {
			into = new(corev1.Namespace)
		}
		if into == nil {
			return spec, fmt.Errorf("kind %q is unknown", of.Kind)
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			return spec, err
		}
		if namespace, ok := into.(*corev1.Namespace); ok {
			known[namespace.Name] = namespace
		}
	}
	return spec, nil
}

// namespaces are the namespaces by name. There are no other objects.
type namespaces map[string]*corev1.Namespace

// Namespace implements policy.Objects and sidecar.Namespaces.
func (n namespaces) Namespace(name string) (*corev1.Namespace, bool) {
	found, known := n[name]
	return found, known
}

// Namespaced implements policy.Objects.
func (namespaces) Namespaced(schema.GroupVersionKind) (bool, error) { return true, nil }

// Get implements policy.Objects.
func (namespaces) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return nil, nil //nolint:nilnil // there is none, as the interface says
}

// List implements policy.Objects.
func (namespaces) List(schema.GroupVersionKind, string, labels.Selector) ([]*unstructured.Unstructured, error) {
	return nil, nil
}
