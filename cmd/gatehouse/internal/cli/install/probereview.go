package install

import (
	"encoding/json"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// probeName is the name of the object and of the user of a review.
const probeName = "gatehouse-probe"

// probeRequest says what a review is about.
type probeRequest struct {
	resource    schema.GroupVersionResource
	subresource string
	operation   admissionv1.Operation
	// clusterScoped reports whether the rule is about objects outside of namespaces alone.
	clusterScoped bool
}

// requestOf returns a request that rules match: the creation of a pod if that is one, or else one of the first rule. An object of
// Gatehouse's own kinds is updated and not changed, which no server refuses.
func requestOf(rules []admissionregistrationv1.RuleWithOperations) probeRequest {
	pod := probeRequest{resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, operation: admissionv1.Create}
	if len(rules) == 0 || slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return has(r.APIGroups, "") && has(r.APIVersions, "v1") && has(r.Resources, "pods") && has(r.Operations, admissionregistrationv1.Create)
	}) {
		return pod
	}
	rule := &rules[0]
	if len(rule.APIGroups)*len(rule.APIVersions)*len(rule.Resources)*len(rule.Operations) == 0 {
		return pod
	}
	or := func(value, otherwise string) string {
		if value == "*" {
			return otherwise
		}
		return value
	}
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	version := "v1"
	if rule.APIGroups[0] == crdadmission.Group {
		version = v1alpha1.GroupVersion.Version
	}
	r := probeRequest{
		resource:    schema.GroupVersionResource{Group: or(rule.APIGroups[0], ""), Version: or(rule.APIVersions[0], version), Resource: or(resource, "pods")},
		subresource: or(subresource, "status"), operation: admissionv1.Operation(or(string(rule.Operations[0]), string(admissionv1.Create))),
		clusterScoped: rule.Scope != nil && *rule.Scope == admissionregistrationv1.ClusterScope,
	}
	if r.resource.Group == crdadmission.Group && has(rule.Operations, admissionregistrationv1.Update) {
		r.operation = admissionv1.Update
	}
	return r
}

// has reports whether a list of a rule has a value.
func has[T ~string](list []T, value T) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}

// kindOf returns the kind of a resource, and whether its objects are outside of namespaces. Of an unknown resource it is the name.
func kindOf(resource schema.GroupVersionResource) (kind schema.GroupVersionKind, clusterScoped bool) {
	kinds := config.ResourceKinds()
	for name := range scheme.Scheme.KnownTypes(resource.GroupVersion()) {
		kinds = append(kinds, resource.GroupVersion().WithKind(name))
	}
	known := request.NewResources(crdadmission.Definitions())
	for _, kind := range kinds {
		if found := known.Of(kind); kind.GroupVersion() == resource.GroupVersion() && !found.Guessed && found.Name == resource.Resource {
			return kind, found.ClusterScoped
		}
	}
	return resource.GroupVersion().WithKind(resource.Resource), false
}

// probeReview returns a dry run of a request that rules match.
func probeReview(rules []admissionregistrationv1.RuleWithOperations, namespace string) *admissionv1.AdmissionReview {
	r := requestOf(rules)
	kind, clusterScoped := kindOf(r.resource)
	if clusterScoped || r.clusterScoped {
		namespace = ""
	}
	body := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": map[string]any{"name": probeName, "namespace": namespace}}
	if kind.Group == "" && kind.Kind == "Pod" {
		body["spec"] = map[string]any{"containers": []any{map[string]any{"name": probeName, "image": probeName}}}
	}
	if own, is := request.SubresourceKind(r.resource, r.subresource); is {
		kind = own
		body = map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": body["metadata"]}
	}
	text, _ := json.Marshal(body) //nolint:errchkjson // strings are always encoded
	object := runtime.RawExtension{Raw: text}
	gvk, gvr := metav1.GroupVersionKind(kind), metav1.GroupVersionResource(r.resource)
	sent := &admissionv1.AdmissionRequest{
		UID: uuid.NewUUID(), Kind: gvk, Resource: gvr, SubResource: r.subresource, RequestKind: &gvk, RequestResource: &gvr, RequestSubResource: r.subresource,
		Name: probeName, Namespace: namespace, Operation: r.operation, UserInfo: authenticationv1.UserInfo{Username: probeName},
		DryRun: new(true),
	}
	options := map[admissionv1.Operation]string{admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions", admissionv1.Delete: "DeleteOptions"}
	if name := options[r.operation]; name != "" {
		sent.Options.Raw = []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"` + name + `","dryRun":["All"]}`)
	}
	if r.operation != admissionv1.Delete {
		sent.Object = object
	}
	if r.operation == admissionv1.Delete || r.operation == admissionv1.Update {
		sent.OldObject = object
	}
	return &admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: sent}
}
