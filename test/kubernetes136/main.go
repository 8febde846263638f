// Command kubernetes136 makes a recording by the code of Kubernetes 1.36: it decides requests by
// ValidatingAdmissionPolicies with k8s.io/apiserver v0.36 and its CEL, and writes the answers as 'gatehouse serve --record'
// does. The test of the upgrade preview replays it with the current program.
//
// It is a module of its own, because a program has one version of each module. The packages of Gatehouse
// do not compile in it: they use what cel-go has since v0.28, and Kubernetes 1.36 has v0.26.
//
// Usage: kubernetes136 CONFIG.yaml > RECORDING
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/klauspost/compress/zstd"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kubernetes136 CONFIG.yaml > RECORDING")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes136:", err)
		os.Exit(1)
	}
}

// decider is a policy that is compiled.
type decider struct {
	name      string
	validator validating.Validator
}

func run(config string, out io.Writer) error {
	deciders, err := compile(config)
	if err != nil {
		return err
	}
	begin := time.Date(2026, time.November, 2, 9, 0, 0, 0, time.UTC)
	lines := []any{
		map[string]any{"header": map[string]any{
			"format": 1, "program": "kubernetes-" + version("k8s.io/apiserver"), "kubernetes": environment.DefaultCompatibilityVersion().String(),
			"cel": version("github.com/google/cel-go"), "source": "server", "started": begin, "redaction": map[string]any{"key": "none"}, "sampling": "all",
		}},
		map[string]any{"object": map[string]any{"id": 1, "value": map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}},
	}
	for i, pod := range pods() {
		review, err := decide(deciders, pod, types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)))
		if err != nil {
			return err
		}
		decision := "allowed"
		if !review.Response.Allowed {
			decision = "denied"
		}
		kind := review.TypeMeta
		lines = append(lines, map[string]any{"review": map[string]any{
			"id": review.Request.UID, "time": begin.Add(time.Duration(i) * time.Second), "endpoint": "validate", "decision": decision,
			"request":  admissionv1.AdmissionReview{TypeMeta: kind, Request: review.Request},
			"response": admissionv1.AdmissionReview{TypeMeta: kind, Response: review.Response},
			"lookups":  map[string]any{"namespaces": []any{map[string]any{"name": "shop", "object": 1}}},
		}})
	}
	compressor, err := zstd.NewWriter(out)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(compressor)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return compressor.Close()
}

// version returns that of a module that this program is built with.
func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "unknown"
}

// compile compiles the policies of a file. Bindings are taken to be for all requests.
func compile(file string) ([]decider, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var deciders []decider
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for buffer := make([]byte, len(text)+1); ; {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return deciders, nil
		}
		if err != nil {
			return nil, err
		}
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal(buffer[:n], &policy); err != nil {
			return nil, err
		}
		if policy.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		if err != nil {
			return nil, err
		}
		with := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
		var validations, none []plugincel.ExpressionAccessor
		for _, v := range policy.Spec.Validations {
			validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
			none = append(none, nil)
		}
		deciders = append(deciders, decider{policy.Name, validating.NewValidator(
			compiler.CompileCondition(validations, with, environment.StoredExpressions), nil,
			compiler.CompileCondition(nil, with, environment.StoredExpressions),
			compiler.CompileCondition(none, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions),
			policy.Spec.FailurePolicy, nil)})
	}
}

// decide returns the review of the creation of a pod, with its answer.
func decide(deciders []decider, pod map[string]any, uid types.UID) (*admissionv1.AdmissionReview, error) {
	object := &unstructured.Unstructured{Object: pod}
	raw, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	who := &user.DefaultInfo{Name: "jane", Groups: []string{"dev", "system:authenticated"}}
	attributes := admission.NewAttributesRecord(object, nil, kind, "shop", object.GetName(), resource, "", admission.Create, nil, false, who)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: object}
	response := &admissionv1.AdmissionResponse{UID: uid, Allowed: true}
	for _, d := range deciders {
		result := d.validator.Validate(context.Background(), resource, versioned, nil, nil, celconfig.RuntimeCELCostBudget, nil)
		for _, decision := range result.Decisions {
			if decision.Action == validating.ActionDeny && response.Allowed {
				response.Allowed = false
				response.Result = &metav1.Status{
					Message: fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", d.name, d.name, decision.Message),
					Reason:  metav1.StatusReasonInvalid, Code: 422,
				}
			}
		}
	}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: uid, Kind: metav1.GroupVersionKind(kind), Resource: metav1.GroupVersionResource(resource),
			RequestKind: (*metav1.GroupVersionKind)(&kind), RequestResource: (*metav1.GroupVersionResource)(&resource),
			Name: object.GetName(), Namespace: "shop", Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: who.Name, Groups: who.Groups},
			Object:   runtime.RawExtension{Raw: raw}, DryRun: new(bool),
		},
		Response: response,
	}, nil
}

// pods are the pods that are created: with and without each field that a policy reads.
func pods() []map[string]any {
	pod := func(name string, spec map[string]any) map[string]any {
		spec["containers"] = []any{map[string]any{"name": "app", "image": "registry.example/app:1"}}
		return map[string]any{
			"apiVersion": "v1", "kind": "Pod", "spec": spec,
			"metadata": map[string]any{"name": name, "namespace": "shop", "labels": map[string]any{"app": name}},
		}
	}
	return []map[string]any{
		pod("plain", map[string]any{}),
		pod("without-token", map[string]any{"automountServiceAccountToken": false}),
		pod("with-token", map[string]any{"automountServiceAccountToken": true}),
		pod("host-network", map[string]any{"hostNetwork": true}),
		pod("own-network", map[string]any{"hostNetwork": false}),
	}
}
