package policy_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// aboutResource returns a policy about a resource, that denies with what an expression
// sees.
func aboutResource(group, version, resource, spec, text, binding string) string {
	return denyAll("p", fmt.Sprintf(`%s matchConstraints: {%%s resourceRules: [{apiGroups: [%q], apiVersions: [%s], operations: ["*"], resources: [%q]}]}, validations: [{expression: "false", messageExpression: %q}]`,
		strings.TrimSuffix(spec, "@"), group, version, resource, text), binding)
}

func constrained(policy, constraints string) string {
	return strings.Replace(policy, "%s", constraints, 1)
}

// TestEquivalentResources holds that a policy judges an object whatever version or
// group of it the client asked for, and whatever the API server sent, as upstream.
func TestEquivalentResources(t *testing.T) {
	t.Parallel()
	const (
		coreEvent  = `{apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop}, involvedObject: {kind: Pod, name: web-1}, message: started}`
		event      = `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: e, namespace: shop}, regarding: {kind: Pod, name: web-1}, note: started}`
		autoscaler = `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: web}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]}}`
		older      = `{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: web}, targetCPUUtilizationPercentage: 70}}`
		claim      = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, namespace: shop}}`
		cidr       = `{apiVersion: networking.k8s.io/v1beta1, kind: ServiceCIDR, metadata: {name: c}, spec: {cidrs: [10.0.0.0/8]}}`
		thing      = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, namespace: shop}, spec: {other: x}}`
		crd        = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com}, spec: {versions: [{name: v1, served: true}, {name: v1beta1, served: true}, {name: v1alpha1, served: false}]}}`

		scale = `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: t, namespace: shop}, spec: {replicas: 3}}`

		autoscalers = "horizontalpodautoscalers"
		seenV1      = "string(object.spec.?targetCPUUtilizationPercentage.orValue(-1)) + ' ' + request.kind.version + ' ' + request.resource.version + ' of ' + request.requestKind.version + ' ' + request.requestResource.version"
		seenV2      = "string(object.spec.metrics[0].resource.target.averageUtilization) + ' ' + request.kind.version + ' ' + request.resource.version + ' of ' + request.requestKind.version + ' ' + request.requestResource.version"
		denied      = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "
		unconverted = denied + "failed to configure binding: failed to convert object version: the object was sent as %s, and the policy names %s: name the versions of policies in the webhook configuration, with matchPolicy Equivalent"
	)
	none := func(*admission.Request) {}
	requested := func(group, version string) func(*admission.Request) {
		return func(req *admission.Request) {
			req.RequestResource = &metav1.GroupVersionResource{Group: group, Version: version, Resource: req.Resource.Resource}
			req.RequestKind = &metav1.GroupVersionKind{Group: group, Version: version, Kind: req.Kind.Kind}
		}
	}
	scaling := func(req *admission.Request) {
		updating(t, scale)(req)
		req.Resource = metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
		req.SubResource = "scale"
	}
	binding := func(version string) string {
		return `matchResources: {resourceRules: [{apiGroups: ["*"], apiVersions: [` + version + `], operations: ["*"], resources: ["*/*"]}]}`
	}
	hpa := func(version, spec, text, binding string) string {
		return aboutResource("autoscaling", version, autoscalers, spec, text, binding)
	}
	things := func(version, spec, binding string) string {
		return aboutResource("example.com", version, "things", spec, "'seen'", binding)
	}
	renamed := aboutResource("example.com", "v1beta1", "things", "", "object.apiVersion + ' ' + request.kind.version + ' of ' + request.requestKind.version + ' with ' + object.spec.other", "")
	for _, tc := range []struct {
		name, policy, constraints, object string
		options                           func(*admission.Request)
		want                              string
	}{
		// Events of both groups are the same objects.
		{"an Event of events.k8s.io, and a policy about those of the core group", aboutResource("", "v1", "events", "", "object.message + ' ' + object.involvedObject.name + ' ' + request.kind.version", ""), "", event, none, denied + "started web-1 v1"},
		{"an Event of the core group, and a policy about those of events.k8s.io", aboutResource("events.k8s.io", "v1", "events", "", "object.note + ' ' + object.regarding.name + ' ' + request.kind.group", ""), "", coreEvent, none, denied + "started web-1 events.k8s.io"},
		{"an Event, and a policy that ignores failures", aboutResource("", "v1", "events", "failurePolicy: Ignore, ", "string(object.message)", ""), "", event, none, denied + "started"},
		{"an Event, and a policy about exactly the other group", aboutResource("", "v1", "events", "", "'seen'", ""), "matchPolicy: Exact, ", event, none, "allowed"},
		{"an Event that is excluded by the other group", aboutResource("*", "v1", "events", "", "'seen'", ""), `excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [events]}], `, event, none, "allowed"},
		{"an Event, and a binding about the other group", aboutResource("events.k8s.io", "v1", "events", "", "string(object.note)", `matchResources: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [events]}]}`), "", event, none, denied + "started"},
		{"an Event, and a version that is not served", aboutResource("events.k8s.io", "v1beta1", "events", "", "'seen'", ""), "", coreEvent, none, "allowed"},
		{"an Event that was sent as one of the other group", aboutResource("events.k8s.io", "v1", "events", "", "object.note + ' ' + request.kind.group", ""), "matchPolicy: Exact, ", coreEvent, requested("events.k8s.io", "v1"), denied + "started events.k8s.io"},
		{"an Event that is deleted", aboutResource("", "v1", "events", "", "string(oldObject.message)", ""), "", event, deleting, denied + "started"},

		// Autoscalers have two versions.
		{"an autoscaler of v2, and a policy about v1", hpa("v1", "", seenV1, ""), "", autoscaler, none, denied + "60 v1 v1 of v2 v2"},
		{"an autoscaler of v1, and a policy about v2", hpa("v2", "", seenV2, ""), "", older, none, denied + "70 v2 v2 of v1 v1"},
		{"an autoscaler, and a policy that ignores failures", hpa("v1", "failurePolicy: Ignore, ", seenV1, ""), "", autoscaler, none, denied + "60 v1 v1 of v2 v2"},
		{"an autoscaler of v2 that was sent as v1, and a policy about v1", hpa("v1", "", seenV1, ""), "", older, requested("autoscaling", "v2"), denied + "70 v1 v1 of v2 v2"},
		{"an autoscaler of v2 that was sent as v1, and a policy about v2", hpa("v2", "", seenV2, ""), "", older, requested("autoscaling", "v2"), denied + "70 v2 v2 of v2 v2"},
		{"an autoscaler of v2 that was sent as v1, and a policy about exactly v2", hpa("v2", "", seenV2, ""), "matchPolicy: Exact, ", older, requested("autoscaling", "v2"), denied + "70 v2 v2 of v2 v2"},
		{"an autoscaler of v2 that was sent as v1, and a policy about any version", hpa(`"*"`, "", seenV2, ""), "", older, requested("autoscaling", "v2"), denied + "70 v2 v2 of v2 v2"},
		{"an autoscaler of v2, and a policy about exactly v1", hpa("v1", "", seenV1, ""), "matchPolicy: Exact, ", autoscaler, none, "allowed"},
		{"an autoscaler that is updated", hpa("v1", "", "string(oldObject.spec.targetCPUUtilizationPercentage) + ' to ' + string(object.spec.targetCPUUtilizationPercentage)", ""), "", autoscaler, updating(t, strings.Replace(autoscaler, ": 60", ": 50", 1)), denied + "50 to 60"},
		{"the status of an autoscaler", aboutResource("autoscaling", "v1", autoscalers+"/status", "", seenV1, ""), "", autoscaler, func(req *admission.Request) {
			updating(t, autoscaler)(req)
			req.SubResource = "status"
		}, denied + "60 v1 v1 of v2 v2"},
		{"match conditions see the version that was requested", hpa("v1", "matchConditions: [{name: c, expression: \"request.resource.version == 'v2' && request.kind.version == 'v1' && !has(object.spec.metrics)\"}], ", "'seen'", ""), "", autoscaler, none, denied + "seen"},
		{"a version that is not served", hpa("v2beta2", "", "'seen'", ""), "", autoscaler, none, "allowed"},
		{"excluded in the other version", hpa(`"*"`, "", "'seen'", ""), `excludeResourceRules: [{apiGroups: ["*"], apiVersions: [v1], operations: ["*"], resources: ["*"]}], `, autoscaler, none, "allowed"},
		{"excluded in a version that is not served", hpa(`"*"`, "", "'seen'", ""), `excludeResourceRules: [{apiGroups: ["*"], apiVersions: [v2beta2], operations: ["*"], resources: ["*"]}], `, autoscaler, none, denied + "seen"},
		{"bound in the other version", hpa("v1", "", seenV1, binding("v1")), "", autoscaler, none, denied + "60 v1 v1 of v2 v2"},
		{"bound in a version that is not served", hpa("v1", "", seenV1, binding("v2beta2")), "", autoscaler, none, "allowed"},

		// Versions that are served only if somebody asks for them.
		{"a version of the same shape", aboutResource("networking.k8s.io", "v1", "servicecidrs", "", "object.apiVersion + ' ' + object.spec.cidrs[0]", ""), "", cidr, none, denied + "networking.k8s.io/v1 10.0.0.0/8"},
		{
			"excluded in a version that may be served", aboutResource("*", `"*"`, "resourceclaims", "", "'seen'", ""), `excludeResourceRules: [{apiGroups: ["*"], apiVersions: [v1beta1], operations: ["*"], resources: ["*"]}], `, claim, none,
			"ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: the object is resource.k8s.io/v1, and excluded as resource.k8s.io/v1beta1, of which it is not known whether the API server has it",
		},
		{"a version that is not converted", aboutResource("resource.k8s.io", "v1beta1", "resourceclaims", "", "'seen'", ""), "", claim, none, fmt.Sprintf(unconverted, "resource.k8s.io/v1", "resource.k8s.io/v1beta1")},
		{"a version that is not converted, failures ignored", aboutResource("resource.k8s.io", "v1beta1", "resourceclaims", "failurePolicy: Ignore, ", "'seen'", ""), "", claim, none, "allowed"},
		{"a version that is not converted, and not bound", aboutResource("resource.k8s.io", "v1beta1", "resourceclaims", "", "'seen'", "matchResources: {objectSelector: {matchLabels: {a: b}}}"), "", claim, none, "allowed"},

		// Custom resources.
		{"a custom resource in another version", things("v1beta1", "", ""), "", thing, none, fmt.Sprintf(unconverted, "example.com/v1", "example.com/v1beta1")},
		{"a custom resource in a version that is served", documents(renamed, crd), "", thing, none, denied + "example.com/v1beta1 v1beta1 of v1 with x"},
		{"a custom resource in a version that is served, without conversion", documents(renamed, strings.Replace(crd, "spec: {", "spec: {conversion: {strategy: None}, ", 1)), "", thing, none, denied + "example.com/v1beta1 v1beta1 of v1 with x"},
		{"a custom resource in a version that a webhook converts", documents(renamed, strings.Replace(crd, "spec: {", "spec: {conversion: {strategy: Webhook}, ", 1)), "", thing, none, fmt.Sprintf(unconverted, "example.com/v1", "example.com/v1beta1")},
		{"a custom resource in a version that is served, deleted", documents(aboutResource("example.com", "v1beta1", "things", "", "string(oldObject.apiVersion)", ""), crd), "", thing, deleting, denied + "example.com/v1beta1"},
		{"a custom resource in a version that is not served", documents(things("v1alpha1", "", ""), crd), "", thing, none, "allowed"},
		{"a custom resource in a version that there is not", documents(things("v9", "", ""), crd), "", thing, none, "allowed"},
		{"a custom resource excluded in a version that is served", documents(things(`"*"`, "", ""), crd), `excludeResourceRules: [{apiGroups: ["*"], apiVersions: [v1beta1], operations: ["*"], resources: ["*"]}], `, thing, none, "allowed"},
		{"a custom resource excluded in a version that is not served", documents(things(`"*"`, "", ""), crd), `excludeResourceRules: [{apiGroups: ["*"], apiVersions: [v1alpha1], operations: ["*"], resources: ["*"]}], `, thing, none, denied + "seen"},
		{"a custom resource bound in a version that is served", documents(things("v1", "", binding("v1beta1")), crd), "", thing, none, denied + "seen"},
		{"a custom resource bound in a version that is not served", documents(things("v1", "", binding("v1alpha1")), crd), "", thing, none, "allowed"},
		{"the Scale of a custom resource, which has a version of its own", documents(aboutResource("example.com", "v1beta1", "things/scale", "", "request.kind.version + ' ' + request.resource.version + ' of ' + request.requestResource.version", ""), crd), "", scale, scaling, denied + "v1 v1beta1 of v1"},
		{"the Scale of a custom resource of which nothing is known", aboutResource("example.com", "v1beta1", "things/scale", "", "'seen'", ""), "", scale, scaling, fmt.Sprintf(unconverted, "example.com/v1", "example.com/v1beta1")},
		{"a custom resource bound in a version of which nothing is known", things("v1", "", binding("v1alpha1")), "", thing, none, denied + "seen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			response := decide(t, compile(t, constrained(tc.policy, tc.constraints)), review(t, tc.object, tc.options))
			got := verdict(response)
			if got == "denied" {
				got = message(response)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestConvertedOnce holds that policies that name the same version share a
// conversion, and that policies that name what was sent cause none.
func TestConvertedOnce(t *testing.T) { //nolint:paralleltest // it counts allocations
	const object = `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop}, spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: web}}}`
	named := func(n int, version string) *policy.Set {
		var list []string
		for i := range n {
			list = append(list, denyAll(fmt.Sprintf("p%d", i), `matchConstraints: {resourceRules: [{apiGroups: [autoscaling], apiVersions: [`+version+`], operations: ["*"], resources: ["*"]}]}, validations: [{expression: "object.spec.maxReplicas == 3"}]`, ""))
		}
		return compile(t, documents(list...))
	}
	req := review(t, object, func(req *admission.Request) { req.Operation = admissionv1.Create })
	allocations := func(set *policy.Set) float64 {
		return testing.AllocsPerRun(20, func() {
			if response := set.Decide(t.Context(), policy.Input{Request: req}).Response(); !response.Allowed {
				t.Error(message(response))
			}
		})
	}
	more := func(version string) float64 { return allocations(named(5, version)) - allocations(named(1, version)) }
	if converted, sent := more("v1"), more("v2"); converted > sent+50 { // one conversion takes hundreds
		t.Errorf("four more policies take %v more allocations, and %v if they name what was sent", converted, sent)
	}
}
