package sidecar_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// spec returns the YAML of a profile with one native sidecar called like the profile.
func spec(name, match, injection string) string {
	return fmt.Sprintf(`
metadata: {name: %[1]s}
spec:
  match: %[2]s
  injection: %[3]s
  template:
    spec:
      initContainers:
      - {name: %[1]s, image: "example/%[1]s:1", restartPolicy: Always, startupProbe: {exec: {command: [ok]}}}
`, name, match, injection)
}

// TestInjectionLeftOut: a profile that does not say is OptIn.
func TestInjectionLeftOut(t *testing.T) {
	t.Parallel()
	d, _ := inject(t, compile(t, spec("a", "{}", "")), "{}")
	check(t, "reasons", reasons(&d), "a=not-asked")
}

// checkTwice applies the patch and asks again: the second answer must change
// nothing. It returns the patched pod.
func checkTwice(t testing.TB, set *sidecar.Set, pod string, response admission.Response) string {
	t.Helper()
	patched := apply(t, pod, response.Patches)
	again := set.Decide(context.Background(), sidecar.Input{Request: request("shop", patched)}).Response()
	if !again.Allowed || again.Patches != nil {
		t.Errorf("second call on %s: %+v %+v", patched, again, again.Result)
	}
	return patched
}

// TestOtherRequests allows, unseen, what this endpoint is not about.
func TestOtherRequests(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("a", "{}", "OptOut"))
	for name, change := range map[string]func(*admission.Request){
		"update":               func(r *admission.Request) { r.Operation = admissionv1.Update },
		"delete":               func(r *admission.Request) { r.Operation = admissionv1.Delete; r.Object.Raw = nil },
		"connect":              func(r *admission.Request) { r.Operation = admissionv1.Connect },
		"ephemeral containers": func(r *admission.Request) { r.SubResource = "ephemeralcontainers" },
		"binding":              func(r *admission.Request) { r.SubResource = "binding"; r.Kind.Kind = "Binding" },
		"deployment": func(r *admission.Request) {
			r.Kind.Group, r.Kind.Kind, r.Resource.Group, r.Resource.Resource = "apps", "Deployment", "apps", "deployments"
		},
		"pods of another group": func(r *admission.Request) {
			r.Kind.Group, r.Resource.Group = "metrics.example", "metrics.example"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request("shop", `{`)
			change(&r)
			response := set.Decide(context.Background(), sidecar.Input{Request: r}).Response()
			if !response.Allowed || response.Patches != nil || len(response.Warnings) > 0 {
				t.Errorf("got %+v", response)
			}
		})
	}
}

func TestNoProfilesDoNothing(t *testing.T) {
	t.Parallel()
	set, err := sidecar.Compile(sidecar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	response := set.Decide(context.Background(), sidecar.Input{Request: request("shop", `{"metadata":{"annotations":{"sidecar.gatehouse.dev/inject":"yes"}}}`)}).Response()
	if !response.Allowed || response.Patches != nil {
		t.Errorf("got %+v", response)
	}
}

// TestCannotDecide leaves to the failure policy what cannot be decided.
func TestCannotDecide(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("a", "{namespaceSelector: {matchLabels: {logs: shipped}}}", "OptOut"), spec("b", "{objectSelector: {matchLabels: {tier: web}}}", "OptOut"), `
metadata: {name: ports}
spec:
  injection: OptOut
  template: {spec: {containers: [{name: ports, image: example/ports:1, ports: [{containerPort: 1}]}]}}
`)
	for _, tc := range []struct {
		name   string
		change func(*admission.Request)
		pod    string
		want   string
	}{
		{name: "kind is not Pod", change: func(r *admission.Request) { r.Kind.Kind = "Binding" }, pod: `{"spec":{}}`, want: "do not match"},
		{name: "resource is not pods", change: func(r *admission.Request) { r.Resource.Resource = "podtemplates" }, pod: `{"spec":{}}`, want: "do not match"},
		{name: "no object", pod: ``, want: "has no object"},
		{name: "not JSON", pod: `{"spec":`, want: "invalid JSON"},
		{name: "null", pod: `null`, want: "the object is null, not a pod"},
		{name: "an array", pod: `[{}]`, want: "the object is an array, not a pod"},
		{name: "another kind inside", pod: `{"kind":"Deployment","spec":{}}`, want: "not of kind Pod"},
		{name: "another version inside", pod: `{"apiVersion":"apps/v1","kind":"Pod","spec":{}}`, want: "not of apiVersion v1"},
		{name: "no spec", pod: `{"metadata":{}}`, want: "spec is nothing, not an object"},
		{name: "spec is null", pod: `{"spec":null}`, want: "spec is null, not an object"},
		{name: "spec is an array", pod: `{"spec":[]}`, want: "spec is an array, not an object"},
		{name: "metadata is a string", pod: `{"metadata":"x","spec":{}}`, want: "metadata is a string, not an object"},
		{name: "annotations are an array", pod: `{"metadata":{"annotations":[]},"spec":{}}`, want: "metadata.annotations is an array"},
		{name: "labels are a number", pod: `{"metadata":{"labels":7},"spec":{}}`, want: "metadata.labels is a number"},
		{name: "annotation is a boolean", pod: `{"metadata":{"annotations":{"sidecar.gatehouse.dev/inject":true}},"spec":{}}`, want: "metadata.annotations[sidecar.gatehouse.dev/inject] is a boolean, not a string"},
		{name: "containers are an object", pod: `{"spec":{"containers":{}}}`, want: "spec.containers is an object, not an array"},
		{name: "a container is a string", pod: `{"spec":{"containers":[{},"x"]}}`, want: "spec.containers[1] is a string, not an object"},
		{name: "a volume is null", pod: `{"spec":{"volumes":[null]}}`, want: "spec.volumes[0] is null, not an object"},
		{name: "unknown namespace", change: func(r *admission.Request) { r.Namespace = "elsewhere" }, pod: `{"spec":{}}`, want: `namespace "elsewhere" is not known, and sidecar profile "a" selects namespaces by label`},
		{name: "no namespace", change: func(r *admission.Request) { r.Namespace = "" }, pod: `{"spec":{}}`, want: `namespace "" is not known, and sidecar profile "a"`},

		{name: "metadata twice", pod: `{"metadata":{},"spec":{},"metadata":{}}`, want: `the object: member "metadata" occurs twice`},
		{name: "metadata twice, once escaped", pod: `{"metadata":{},"spec":{},"meta\u0064ata":{}}`, want: `the object: member "metadata" occurs twice`},
		{name: "annotations twice", pod: `{"metadata":{"annotations":{},"annotations":{}},"spec":{}}`, want: `metadata: member "annotations" occurs twice`},
		{name: "an annotation twice", pod: `{"metadata":{"annotations":{"sidecar.gatehouse.dev/inject":"false","sidecar.gatehouse.dev/inject":"true"}},"spec":{}}`, want: `metadata.annotations: member "sidecar.gatehouse.dev/inject" occurs twice`},
		{name: "a label twice", pod: `{"metadata":{"labels":{"tier":"web","tier":"db"}},"spec":{}}`, want: `metadata.labels: member "tier" occurs twice`},
		{name: "a label twice among many", pod: `{"metadata":{"labels":{` + manyMembers(200) + `,"k100":""}},"spec":{}}`, want: `metadata.labels: member "k100" occurs twice`},
		{name: "an early label twice among many", pod: `{"metadata":{"labels":{` + manyMembers(200) + `,"k0":""}},"spec":{}}`, want: `metadata.labels: member "k0" occurs twice`},
		{name: "containers twice", pod: `{"spec":{"containers":[],"containers":[]}}`, want: `spec: member "containers" occurs twice`},
		{name: "a container's name twice", pod: `{"spec":{"containers":[{"name":"x"},{"name":"a","image":"i","name":"x"}]}}`, want: `spec.containers[1]: member "name" occurs twice`},
		{name: "a security context's options twice", pod: `{"spec":{"containers":[{"name":"x","securityContext":{"windowsOptions":{"hostProcess":true},"windowsOptions":{}}}]}}`, want: `spec.containers[0].securityContext: member "windowsOptions" occurs twice`},
		{name: "host process twice", pod: `{"spec":{"securityContext":{"windowsOptions":{"hostProcess":false,"hostProcess":true}}}}`, want: `spec.securityContext.windowsOptions: member "hostProcess" occurs twice`},
		{name: "a port's number twice", pod: `{"spec":{"containers":[{"name":"x","ports":[{"containerPort":2,"containerPort":1}]}]}}`, want: `spec.containers[0].ports[0]: member "containerPort" occurs twice`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := request("shop", tc.pod)
			if tc.change != nil {
				tc.change(&r)
			}
			response := set.Decide(context.Background(), sidecar.Input{Request: r}).Response()
			if response.Allowed || response.Patches != nil || response.Result == nil || response.Result.Code != 500 {
				t.Fatalf("got %+v", response)
			}
			if !strings.Contains(response.Result.Message, tc.want) {
				t.Errorf("got %q, want %q", response.Result.Message, tc.want)
			}
		})
	}
}

// manyMembers returns so many members called k0, k1, ….
func manyMembers(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"k%d":""`, i)
	}
	return strings.Join(members, ",")
}

// TestManyMembersAreRead shows that a pod with more annotations than fit into
// the buffer of the fast path is read like any other.
func TestManyMembersAreRead(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("a", "{}", "OptIn"))
	pod := `{"metadata":{"annotations":{` + manyMembers(500) + `,"sidecar.gatehouse.dev/inject":"true"},"labels":{` + manyMembers(300) + `}},"spec":{"containers":[{` + manyMembers(200) + `}]}}`
	response := set.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response()
	if !response.Allowed || response.Patches == nil {
		t.Fatalf("got %+v", response)
	}
	checkTwice(t, set, pod, response)
}

// TestAuditIsBounded keeps the annotation short and the profiles that matter in
// it.
func TestAuditIsBounded(t *testing.T) {
	t.Parallel()
	var profiles []string
	for i := range 100 {
		profiles = append(profiles, spec(fmt.Sprintf("profile-%02d", i), "{}", "OptIn"))
	}
	profiles = append(profiles, spec("z", "{}", "OptOut"))
	set := compile(t, profiles...)
	got := set.Decide(context.Background(), sidecar.Input{Request: request("shop", `{"spec":{}}`)}).Response().AuditAnnotations["profiles"]
	if got != "z=applied,+100" {
		t.Errorf("got %s", got)
	}
}
