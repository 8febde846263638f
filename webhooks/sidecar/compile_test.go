package sidecar_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestFindings shows everything that can be wrong with profiles, as lint shows
// it: all at once, in one order.
func TestFindings(t *testing.T) {
	t.Parallel()
	spec := sidecar.Spec{}
	for _, document := range []struct{ source, text string }{
		{"a.yaml#1", `
metadata: {name: Bad_Name}
spec:
  match:
    namespaceSelector:
      matchLabels: {"not a key": x, ok: "not a value!", "-": x}
      matchExpressions:
      - {key: tier, operator: Equals, values: [web]}
      - {key: tier, operator: In}
    objectSelector:
      matchExpressions:
      - {key: tier, operator: Exists, values: [web]}
  injection: Always
  template: {spec: {}}
`},
		{"a.yaml#2", `
spec:
  template:
    spec:
      initContainers:
      - name: Setup
        image: example/setup:1
        lifecycle: {preStop: {exec: {command: [x]}}}
        livenessProbe: {exec: {command: [x]}}
        readinessProbe: {exec: {command: [x]}}
        startupProbe: {exec: {command: [x]}}
        ports: [{containerPort: 80}]
      - name: proxy
        image: example/proxy:1
        restartPolicy: Always
        ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 80, hostPort: 8081}, {containerPort: 0}, {containerPort: 65536, hostPort: -1, protocol: HTTP}]
      containers:
      - name: proxy
        restartPolicy: Sometimes
        ports: [{containerPort: 80}, {containerPort: 81, hostPort: 8080, hostIP: 10.0.0.1}, {containerPort: 80, protocol: UDP}]
        volumeMounts:
        - {name: data, mountPath: /data}
        - {name: data, mountPath: /data}
        - {name: other, mountPath: /other}
        - {name: data}
        volumeDevices:
        - {name: disk, devicePath: /dev/x}
      - image: " "
      volumes:
      - {name: data}
      - {name: data, emptyDir: {}}
      - {emptyDir: {}}
`},
		{"b.yaml", `
metadata: {name: first}
spec:
  template: {spec: {initContainers: [{name: shared, image: i, restartPolicy: Always, startupProbe: {exec: {command: [x]}}, ports: [{containerPort: 9000}]}], volumes: [{name: tmp, emptyDir: {}}]}}
`},
		{"c.yaml", `
metadata: {name: second}
spec:
  template: {spec: {containers: [{name: shared, image: i, ports: [{containerPort: 1, hostPort: 1}, {containerPort: 9000}]}], volumes: [{name: tmp, emptyDir: {}}]}}
`},
		{"d.yaml", `
metadata: {name: first}
spec:
  template: {spec: {volumes: [{name: unique, emptyDir: {}}]}}
`},
	} {
		spec.Profiles = append(spec.Profiles, profile(t, document.source, document.text))
	}
	set, err := sidecar.Compile(spec)
	var found diagnostic.List
	if set != nil || !errors.As(err, &found) {
		t.Fatalf("got %v, %v", set, err)
	}
	var b strings.Builder
	for _, f := range found {
		b.WriteString(string(f.Severity) + ": " + f.String() + "\n")
	}
	golden(t, "findings.txt", b.String())
}

// TestWarnings shows what compiles, but is worth a look.
func TestWarnings(t *testing.T) {
	t.Parallel()
	set, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{profile(t, "w.yaml", `
metadata: {name: w}
spec:
  template:
    spec:
      initContainers:
      - {name: proxy, image: example/proxy:1, restartPolicy: Always}
      containers:
      - {name: agent, image: example/agent:1}
      volumes:
      - {name: data}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	warnings := set.Warnings()
	const want = `warning: w.yaml: SidecarProfile/w: spec.template.spec.containers[0]: container "agent" is not a native sidecar: it starts and ends in no order with the pod's own containers, and pods that must end do not get the profile (hint: make it an init container with restartPolicy: Always)
warning: w.yaml: SidecarProfile/w: spec.template.spec.initContainers[0]: native sidecar "proxy" has no startupProbe: the pod's own containers start without waiting until it is ready (hint: add a startupProbe)
warning: w.yaml: SidecarProfile/w: spec.template.spec.volumes[0]: volume "data" has no source: the API server makes it an emptyDir (hint: write emptyDir: {})`
	if got := warnings.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if warnings.Err() != nil {
		t.Error("a warning has the severity of an error")
	}
}

// TestProfilesThatExcludeEachOther may share names: no pod gets both. Others may
// not.
func TestProfilesThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, a, b string
		exclude    bool
	}{
		{"no selectors", `{}`, `{}`, false},
		{"one selector", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{}`, false},
		{"other values", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{namespaceSelector: {matchLabels: {env: dev}}}`, true},
		{"the same value", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{namespaceSelector: {matchLabels: {env: prod}}}`, false},
		{"other keys", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{namespaceSelector: {matchLabels: {tier: dev}}}`, false},
		{"values of namespace and pod", `{namespaceSelector: {matchLabels: {env: prod}}}`, `{objectSelector: {matchLabels: {env: dev}}}`, false},
		{"pods", `{objectSelector: {matchLabels: {env: prod}}}`, `{objectSelector: {matchLabels: {env: dev}}}`, true},
		{"one of several values", `{objectSelector: {matchExpressions: [{key: env, operator: In, values: [a, b]}]}}`, `{objectSelector: {matchExpressions: [{key: env, operator: In, values: [b, c]}]}}`, false},
		{"value and its absence", `{objectSelector: {matchExpressions: [{key: env, operator: In, values: [a, b]}]}}`, `{objectSelector: {matchExpressions: [{key: env, operator: NotIn, values: [a, b, c]}]}}`, true},
		{"value and the absence of one of two", `{objectSelector: {matchExpressions: [{key: env, operator: NotIn, values: [a]}]}}`, `{objectSelector: {matchExpressions: [{key: env, operator: In, values: [a, b]}]}}`, false},
		{"there and not there", `{objectSelector: {matchExpressions: [{key: env, operator: Exists}]}}`, `{objectSelector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}`, true},
		{"a value and not there", `{objectSelector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}`, `{objectSelector: {matchLabels: {env: a}}}`, true},
		{"a value and there", `{objectSelector: {matchExpressions: [{key: env, operator: Exists}]}}`, `{objectSelector: {matchLabels: {env: a}}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{
				profile(t, "a.yaml", strings.Replace(spec("same", tc.a, "OptOut"), "name: same}", "name: a}", 1)),
				profile(t, "b.yaml", strings.Replace(spec("same", tc.b, "OptOut"), "name: same}", "name: b}", 1)),
			}})
			if tc.exclude != (err == nil) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestRevision changes with the template and with nothing else.
func TestRevision(t *testing.T) {
	t.Parallel()
	revision := func(text string) string {
		return compile(t, text).Decide(sidecar.Input{Namespace: "shop", Pod: []byte(`{}`)}).Verdicts[0].Revision
	}
	base := revision(both)
	if len(base) != 12 {
		t.Errorf("revision %q", base)
	}
	if revision(strings.Replace(both, "OptOut", "OptIn", 1)) != base || revision(strings.Replace(both, "name: both", "name: other", 1)) != base {
		t.Error("the revision depends on more than the template")
	}
	for _, change := range []string{"example/setup:1", "example/agent:1", "scratch"} {
		if revision(strings.Replace(both, change, "changed", 1)) == base {
			t.Errorf("the revision does not depend on %s", change)
		}
	}
}
