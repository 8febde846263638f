package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestNotEverythingIsSaid bounds what a pod with thousands of conflicts makes the
// answer say.
func TestNotEverythingIsSaid(t *testing.T) {
	t.Parallel()
	var containers []string
	for i := range 1000 {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","ports":[{"containerPort":80}]}`, i))
	}
	pod := []byte(`{"spec":{"containers":[` + strings.Join(containers, ",") + `]}}`)
	const template = "template: {spec: {initContainers: [{name: a, image: a, restartPolicy: Always, ports: [{containerPort: 80}], startupProbe: {tcpSocket: {port: 80}}}]}}"
	refused := compile(t, optOut("a", template)).Decide(t.Context(), sidecar.ForPod("shop", pod))
	if n := len(refused.Refusals); n != 33 || refused.Refusals[32].Message != "and 968 more" {
		t.Errorf("%d refusals, the last is %+v", n, refused.Refusals[n-1])
	}
	if warned := compile(t, optOut("a", "onConflict: Skip\n"+template)).Decide(t.Context(), sidecar.ForPod("shop", pod)); len(warned.Warnings) != 33 || warned.Warnings[32] != "and 968 more warnings" {
		t.Errorf("%d warnings", len(warned.Warnings))
	}
}

// TestHugeQuantities: comparing a quantity with a huge exponent takes minutes, and
// the API server passes one on.
func TestHugeQuantities(t *testing.T) {
	t.Parallel()
	set := compile(t, optOut("a", "onConflict: Skip\ntemplate: {spec: {volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]}}"))
	d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(`{"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1e2147483647"}}]}}`)))
	if d.Verdicts[0].Reason != sidecar.Conflict {
		t.Errorf("got %+v", d)
	}
}
