package replay_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// tenPolicies are ten policies as clusters have them.
func tenPolicies() string {
	rules := []string{
		"object.spec.containers.all(c, !c.image.endsWith(':latest'))",
		"object.spec.containers.all(c, has(c.resources) && has(c.resources.requests))",
		"!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
		"object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
		"has(object.metadata.labels) && 'team' in object.metadata.labels",
		"object.spec.containers.all(c, c.image.startsWith('registry.example/'))",
		"!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
		"object.spec.containers.all(c, !has(c.env) || c.env.all(e, !has(e.value) || e.name != 'PASSWORD'))",
		"size(object.spec.containers) < 10",
		"namespaceObject.metadata.labels['team'] == object.metadata.labels['team']",
	}
	all := []string{shop}
	for i, rule := range rules {
		all = append(all, admissionPolicy(fmt.Sprint("p", i), rule))
	}
	return documents(all...)
}

// rolloutPod returns a pod of 5 KB.
func rolloutPod(i int) string {
	env := make([]string, 12)
	for k := range env {
		env[k] = fmt.Sprintf(`{"name":"VARIABLE_%d","value":"value-%d"}`, k, k)
	}
	managed := ""
	for k := range 46 {
		managed += fmt.Sprintf(`"f:spec%02d":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:resources":{}}}},`, k)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"checkout-7d9f8b6c5-%05d","namespace":"shop","labels":{"team":"shop","pod-template-hash":"7d9f8b6c5"},`+
		`"ownerReferences":[{"controller":true,"kind":"ReplicaSet","name":"checkout-7d9f8b6c5"}],"managedFields":[{"manager":"kube","fieldsV1":{%s"x":{}}}]},`+
		`"spec":{"containers":[{"name":"app","image":"registry.example/checkout:1.4.2","resources":{"requests":{"cpu":"1"}},"env":[%s]}]}}`, i, managed, strings.Join(env, ","))
}

// cpuTime returns the processor time of the process so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkReplay measures a replay of a rollout under ten policies.
func BenchmarkReplay(b *testing.B) {
	s := newServer(b, tenPolicies())
	const recorded = 2000
	for i := range recorded {
		s.answer(request{namespace: "shop", object: rolloutPod(i)})
		if s.decision != review.Allowed {
			b.Fatalf("review %d is %s", i, s.decision)
		}
	}
	once, candidate := s.recording(), load(b, tenPolicies())
	var all []replay.Source
	for range (b.N + recorded - 1) / recorded {
		all = append(all, once...)
	}
	before := cpuTime(b)
	b.SetBytes(int64(len(rolloutPod(0))))
	b.ReportAllocs()
	b.ResetTimer()
	report, err := replay.Run(b.Context(), replay.Options{Sources: all, Candidate: candidate})
	b.StopTimer()
	if err != nil || report.Reviews < int64(b.N) || report.Unchanged != report.Reviews {
		b.Fatalf("%+v, %v", report, err)
	}
	const cores = 2
	b.ReportMetric(cores*float64(report.Reviews)/(cpuTime(b)-before).Seconds(), "reviews/s-on-two-cores")
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(status)) {
			if peak, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				b.Log("peak", strings.TrimSpace(peak))
			}
		}
	}
}
