package sidecar_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestRefusals: a refusal is the answer 422 with everything that is wrong, however it is
// written. testdata/decisions has the messages.
func TestRefusals(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("web", "{}", "OptOut"), optOut("ports", "template: {spec: {initContainers: ["+native("proxy", ", ports: [{containerPort: 8080}]")+"]}}"))
	for pod, want := range map[string]string{
		`{"spec":{"containers":[{"name":"\u0077eb"}]}}`: `spec.containers[0].name: "web" is the name of a container that sidecar profile "web" adds (hint: rename the container, or decline the profile with the annotation sidecar.gatehouse.dev/inject: "-web")`,
		`{"spec":{"containers":[{"name":"app","ports":[{"containerPort":"8080"},{"containerPort":8.08e3},{"containerPort":99999999999},"x",null]}]}}`: "",
	} {
		response := set.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response()
		switch {
		case want == "":
			checkTwice(t, set, pod, response)
		case response.Allowed || response.Patches != nil || response.Result.Code != 422 || response.Result.Reason != "Invalid" || response.Result.Message != want:
			t.Errorf("%s: got %+v", pod, response)
		case response.AuditAnnotations["profiles"] != "ports=refused,web=refused":
			t.Errorf("%s: got %q", pod, response.AuditAnnotations)
		}
	}
}

// TestRefusalHoldsWithoutTheRest: what is wrong for one profile is wrong whatever
// cannot be decided about another.
func TestRefusalHoldsWithoutTheRest(t *testing.T) {
	t.Parallel()
	set := compile(t, both, spec("z", "{}", "OptOut"), spec("labelled", "{namespaceSelector: {matchLabels: {logs: shipped}}}", "OptOut"))
	response := set.Decide(context.Background(), sidecar.Input{Request: request("elsewhere", `{"spec":{"containers":[{"name":"agent"}]}}`)}).Response()
	if response.Allowed || response.Result.Code != 422 {
		t.Fatalf("got %+v", response)
	}
	if got := response.AuditAnnotations["profiles"]; got != "both=refused,labelled=refused,z=refused" {
		t.Errorf("got %q", got)
	}
}

// TestEqualVolumes says which volume of a pod is used instead of the profile's.
func TestEqualVolumes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, template, pod string
		equal               bool
	}{
		{"written alike", `{emptyDir: {sizeLimit: 1Gi}}`, `"emptyDir":{"sizeLimit":"1Gi"}`, true},
		{"quantity written otherwise", `{emptyDir: {sizeLimit: 1Gi}}`, `"emptyDir":{"sizeLimit":"1024Mi"}`, true},
		{"another size", `{emptyDir: {sizeLimit: 1Gi}}`, `"emptyDir":{"sizeLimit":"2Gi"}`, false},
		{"another source", `{emptyDir: {}}`, `"hostPath":{"path":"/","type":""}`, false},
		{"no source is emptyDir", `{}`, `"emptyDir":{}`, true},
		{"unknown member", `{emptyDir: {}}`, `"emptyDir":{"future":1}`, false},
		{"member twice", `{emptyDir: {}}`, `"emptyDir":{},"emptyDir":{}`, false},
		{"secret", `{secret: {secretName: s}}`, `"secret":{"secretName":"s","defaultMode":420}`, true},
		{"secret of another mode", `{secret: {secretName: s}}`, `"secret":{"secretName":"s","defaultMode":256}`, false},
		{"host path", `{hostPath: {path: /x}}`, `"hostPath":{"path":"/x","type":""}`, true},
		{"downward API", `{downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}`, `"downwardAPI":{"defaultMode":420,"items":[{"path":"p","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}]}`, true},
		{
			"projected", `{projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}`,
			`"projected":{"defaultMode":420,"sources":[{"serviceAccountToken":{"path":"t","expirationSeconds":3600}},{"downwardAPI":{"items":[{"path":"p","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}]}}]}`, true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, strings.Replace(`
metadata: {name: a}
spec:
  injection: OptOut
  template: {spec: {containers: [{name: a, image: example/a:1}], volumes: [{name: shared, SOURCE]}}
`, "SOURCE", strings.Replace(tc.template, "{", "", 1), 1))
			pod := `{"spec":{"volumes":[{"name":"shared",` + tc.pod + `}]}}`
			response := set.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response()
			if response.Allowed != tc.equal {
				t.Fatalf("got %+v", response.Result)
			}
			if tc.equal {
				patched := checkTwice(t, set, pod, response)
				if got := names(t, patched, "volumes"); got != "shared" {
					t.Errorf("volumes: %s", got)
				}
			}
		})
	}
}

// TestMembersThatOccurTwice: where a template is merged into an object in which a
// member occurs twice, nobody can tell which of them holds.
func TestMembersThatOccurTwice(t *testing.T) {
	t.Parallel()
	set := compile(t, optOut("a", "template: {spec: {dnsConfig: {searches: [a]}}}\nappContainers: [{template: {resources: {limits: {cpu: 1}}}}]"))
	for pod, where := range map[string]string{
		`{"spec":{"dnsConfig":{"searches":[],"searches":["b"]}}}`:                                    `spec.dnsConfig: member "searches" occurs twice in one object`,
		`{"spec":{"containers":[{"name":"app","resources":{"limits":{},"limits":null}}]}}`:           `spec.containers[0].resources: member "limits" occurs twice in one object`,
		`{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"1","c\u0070u":"2"}}}]}}`: `spec.containers[0].resources.limits: member "cpu" occurs twice in one object`,
	} {
		d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(pod)))
		check(t, pod, said(&d), `cannot decide: sidecar profile "a": `+where)
		if d.Patches != nil {
			t.Errorf("%s: got %v", pod, d.Patches)
		}
	}
}
