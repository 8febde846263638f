package sidecar_test

import (
	"context"
	"strings"
	"testing"
)

// TestRefusals shows the whole message: it is all that the pod's author sees.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const web = `
metadata: {name: web}
spec:
  injection: OptOut
  template:
    spec:
      initContainers:
      - {name: setup, image: example/setup:1, ports: [{containerPort: 9999}]}
      - {name: proxy, image: example/proxy:1, restartPolicy: Always, ports: [{containerPort: 8080}, {containerPort: 53, protocol: UDP}]}
      containers:
      - {name: agent, image: example/agent:1, ports: [{containerPort: 9090, hostPort: 90, hostIP: 10.0.0.1}]}
      volumes:
      - {name: data, configMap: {name: settings}}
`
	const words = `allowed are "true", "false", or names of profiles, with a minus to decline: "mesh,-logs"`
	const decline = `or decline the profile with the annotation sidecar.gatehouse.dev/inject: "-web")`
	for _, tc := range []struct {
		name, pod string
		want      []string // lines; none if the pod is accepted
	}{
		{"unknown word", `{"metadata":{"annotations":{"sidecar.gatehouse.dev/inject":"yes"}},"spec":{}}`, []string{`metadata.annotations[sidecar.gatehouse.dev/inject]: "yes" is not the name of a sidecar profile: ` + words}},
		{"empty word", `{"metadata":{"annotations":{"sidecar.gatehouse.dev/inject":""}},"spec":{}}`, []string{`metadata.annotations[sidecar.gatehouse.dev/inject]: "" is not known: ` + words}},
		{"word in capitals and no spec", `{"metadata":{"annotations":{"sidecar.gatehouse.dev/inject":"True"}}}`, []string{`metadata.annotations[sidecar.gatehouse.dev/inject]: "True" is not the name of a sidecar profile: ` + words + ` (hint: did you mean "true"?)`}},
		{
			"all at once", `{"spec":{"initContainers":[{"name":"agent"}],"containers":[{"name":"app"},{"name":"proxy"}],"ephemeralContainers":[{"name":"setup"}],"volumes":[{"name":"data","emptyDir":{}}]}}`,
			[]string{
				`spec.ephemeralContainers[0].name: "setup" is the name of a container that sidecar profile "web" adds (hint: rename it, ` + decline,
				`spec.containers[1].name: "proxy" is the name of a container that sidecar profile "web" adds (hint: rename it, ` + decline,
				`spec.initContainers[0].name: "agent" is the name of a container that sidecar profile "web" adds (hint: rename it, ` + decline,
				`spec.volumes[0].name: "data" is the name of a volume that sidecar profile "web" adds, and is not equal to it (hint: rename it, ` + strings.TrimSuffix(decline, ")") + `; an equal volume would be used as it is)`,
			},
		},
		{"an escaped name", `{"spec":{"containers":[{"name":"\u0070roxy"}]}}`, []string{`spec.containers[0].name: "proxy" is the name of a container that sidecar profile "web" adds (hint: rename it, ` + decline}},
		{
			"container ports", `{"spec":{"containers":[{"name":"app","ports":[{"containerPort":80},{"containerPort":8080,"protocol":"TCP"}]},{"name":"dns","ports":[{"containerPort":53,"protocol":"UDP"}]}]}}`,
			[]string{
				`spec.containers[0].ports[1].containerPort: containerPort 8080/TCP is declared by container "proxy" of sidecar profile "web" too (hint: change the port, ` + decline,
				`spec.containers[1].ports[0].containerPort: containerPort 53/UDP is declared by container "proxy" of sidecar profile "web" too (hint: change the port, ` + decline,
			},
		},
		{"the same number of another protocol", `{"spec":{"containers":[{"name":"app","ports":[{"containerPort":8080,"protocol":"UDP"},{"containerPort":53}]}]}}`, nil},
		{"a port of an init container that has ended", `{"spec":{"containers":[{"name":"app","ports":[{"containerPort":9999}]}]}}`, nil},
		{"host port", `{"spec":{"containers":[{"name":"app","ports":[{"containerPort":1,"hostPort":90}]}]}}`, []string{`spec.containers[0].ports[0].hostPort: hostPort 90/TCP is declared by container "agent" of sidecar profile "web" too (hint: change the port, ` + decline}},
		{"host port on another address", `{"spec":{"containers":[{"name":"app","ports":[{"containerPort":1,"hostPort":90,"hostIP":"10.0.0.2"}]}]}}`, nil},
		{"init container beside a native sidecar", `{"spec":{"initContainers":[{"name":"own","ports":[{"containerPort":8080}]}]}}`, []string{`spec.initContainers[0].ports[0].containerPort: containerPort 8080/TCP is declared by container "proxy" of sidecar profile "web" too (hint: change the port, ` + decline}},
		{"init container that ends before containers start", `{"spec":{"initContainers":[{"name":"own","ports":[{"containerPort":9090}]}]}}`, nil},
		{"native sidecar beside containers", `{"spec":{"initContainers":[{"name":"own","restartPolicy":"Always","ports":[{"containerPort":9090}]}]}}`, []string{`spec.initContainers[0].ports[0].containerPort: containerPort 9090/TCP is declared by container "agent" of sidecar profile "web" too (hint: change the port, ` + decline}},
		{"ports that are no numbers", `{"spec":{"containers":[{"name":"app","ports":[{"containerPort":"8080"},{"containerPort":8.08e3},{"containerPort":99999999999},"x",null]}]}}`, nil},
		{"an equal volume", `{"spec":{"volumes":[{"name":"data","configMap":{"name":"settings"}}]}}`, nil},
		{"an equal volume with the API server's defaults", `{"spec":{"volumes":[{"name":"data","configMap":{"name":"settings","defaultMode":420}}]}}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, web)
			response := set.Review(context.Background(), request("shop", tc.pod))
			if len(tc.want) == 0 {
				if !response.Allowed {
					t.Fatalf("got %+v", response.Result)
				}
				checkTwice(t, set, "shop", tc.pod, response)
				return
			}
			if response.Allowed || response.Patches != nil || response.Result.Code != 422 || response.Result.Reason != "Invalid" {
				t.Fatalf("got %+v", response)
			}
			if want := strings.Join(tc.want, "\n"); response.Result.Message != want {
				t.Errorf("got\n%s\nwant\n%s", response.Result.Message, want)
			}
			if got := response.AuditAnnotations["profiles"]; got != "web=refused" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestRefusalHoldsWithoutTheRest: what is wrong for one profile is wrong whatever
// cannot be told about another.
func TestRefusalHoldsWithoutTheRest(t *testing.T) {
	t.Parallel()
	set := compile(t, both, spec("z", "{}", "OptOut"), spec("labelled", "{namespaceSelector: {matchLabels: {logs: shipped}}}", "OptOut"))
	response := set.Review(context.Background(), request("elsewhere", `{"spec":{"containers":[{"name":"agent"}]}}`))
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
			response := set.Review(context.Background(), request("shop", pod))
			if response.Allowed != tc.equal {
				t.Fatalf("got %+v", response.Result)
			}
			if tc.equal {
				patched := checkTwice(t, set, "shop", pod, response)
				if got := names(t, patched, "volumes"); got != "shared" {
					t.Errorf("volumes: %s", got)
				}
			}
		})
	}
}
