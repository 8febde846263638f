package record_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
)

// BenchmarkRecord measures what recording a review of a rollout costs, and its size on disk.
func BenchmarkRecord(b *testing.B) {
	env := make([]string, 12)
	for i := range env {
		env[i] = fmt.Sprintf(`{"name":"VARIABLE_%d","value":"value-%d"}`, i, i)
	}
	managed := strings.Repeat(`"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:resources":{}}}},`, 30)
	o := options(b, b.TempDir())
	r := record.New(o)
	stop := run(r)
	b.ReportAllocs()
	for i := range b.N {
		pod := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"checkout-7d9f8b6c5-%05d","namespace":"shop","labels":{"app":"checkout"},"managedFields":[{"manager":"kube","fieldsV1":{%s"x":{}}}]},"spec":{"containers":[{"name":"app","image":"registry.example/checkout:1.4.2","env":[%s]}]}}`,
			i%99999, managed, strings.Join(env, ","))
		if i == 0 {
			b.SetBytes(int64(len(pod)))
		}
		for i%256 == 0 && r.Stats().Recorded < int64(i)-500 {
			runtime.Gosched()
		}
		add(r, fmt.Sprint(i), admissionReview(fmt.Sprintf("7c0f8d9e-5d53-4d3e-9a54-%012x", i*7919), pod), []byte(`{"response":{"uid":"0","allowed":true}}`))
	}
	stop()
	b.ReportMetric(float64(size(b, o.Dir))/float64(b.N), "disk-bytes/op")
	b.ReportMetric(float64(r.Stats().Dropped["queue"]), "dropped")
}
