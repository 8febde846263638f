package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// newHandler returns a handler with the admission endpoints, by documentsText. A request about a
// document of Gatehouse compiles it, together with the others.
func newHandler() (http.Handler, error) {
	dir, err := os.MkdirTemp("", "gatehouse-growth-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), documentsText, 0o600); err != nil {
		return nil, err
	}
	active, snapshot, found := config.CompileDir(dir)
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("config.yaml: %w", err)
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
				return compile(active, r.Object.Raw)
			}
			return e.Admission(ctx, snapshot, webhooks.Input{Request: r.Request, Checked: true, Index: r.Index, Observers: observers})
		}, options))
	}
	return mux, nil
}

// compile refuses a document that does not compile with those of a configuration.
func compile(active *config.Config, object []byte) admission.Response {
	tree, err := rawjson.Value(object).Decode()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	fields, ok := tree.(map[string]any)
	if !ok {
		return admission.Errored(http.StatusInternalServerError, errors.New("no object"))
	}
	resource := config.ReadResource(&unstructured.Unstructured{Object: fields})
	found := resource.Found
	if found.Err() == nil {
		with, also := active.With([]*config.Resource{resource})
		_, found = config.Compile(with, also)
	}
	if err := found.Err(); err != nil {
		return admission.Denied(err.Error())
	}
	return admission.Allowed("")
}
