package config_test

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// handler returns an endpoint as a handler of controller-runtime. The Snapshot decides until it is replaced.
func handler(endpoint webhooks.Endpoint, snapshot *webhooks.Snapshot) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
		return endpoint.Admission(ctx, snapshot, webhooks.Input{Request: r})
	})
}

// A webhook server of controller-runtime serves injection and policies of a directory beside its own webhooks.
func Example() {
	_, snapshot, found := config.CompileDir("../../manifests/examples/quickstart/config")
	if err := found.Err(); err != nil {
		fmt.Println(err)
		return
	}
	server := webhook.NewServer(webhook.Options{Port: 9443})
	for _, endpoint := range webhooks.Endpoints() {
		if endpoint.Admission != nil {
			server.Register(endpoint.Path, &webhook.Admission{Handler: handler(endpoint, snapshot)})
			fmt.Println(endpoint.Path)
		}
	}
	// Output:
	// /mutate
	// /validate
}

// The same functions decide without a server.
func ExampleCompileDir() {
	_, snapshot, found := config.CompileDir("../../manifests/examples/quickstart/config")
	if err := found.Err(); err != nil {
		fmt.Println(err)
		return
	}
	pod := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: "shop", Name: "checkout",
		Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"checkout","namespace":"shop"},` +
			`"spec":{"containers":[{"name":"checkout","image":"checkout:1"}]}}`)},
	}}
	for _, endpoint := range webhooks.Endpoints() {
		if endpoint.Path != webhooks.ValidatePath {
			continue
		}
		response := endpoint.Admission(context.Background(), snapshot, webhooks.Input{Request: pod})
		fmt.Println(response.Allowed)
		fmt.Println(response.Result.Message)
	}
	// Output:
	// false
	// 2 violations: 1. AdmissionPolicy 'safe-pods' denied request: images must come from registry.example
	// 2. AdmissionPolicy 'safe-pods' denied request: every container needs a memory limit
}
