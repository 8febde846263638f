package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// collector takes spans: those of an API server by gRPC, those of Gatehouse by HTTP.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	mu sync.Mutex
	// spans are by the name of their service.
	spans map[string][]*tracepb.Span
	// sent is all that Gatehouse sent.
	sent []byte
}

// Export implements collectorpb.TraceServiceServer.
func (c *collector) Export(_ context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			c.spans[service] = append(c.spans[service], scope.GetSpans()...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// ServeHTTP implements http.Handler.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectorpb.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	_, _ = c.Export(r.Context(), &request) // never an error
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, body...)
}

// find looks for a span of Gatehouse of this name whose parent is a span of the API server, in the same trace; or for
// one without a parent.
func (c *collector) find(name string, child bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := func(trace, span []byte) string { return fmt.Sprintf("%x %x", trace, span) }
	callers := map[string]bool{}
	for service, spans := range c.spans {
		for _, s := range spans {
			if service != "gatehouse" {
				callers[of(s.GetTraceId(), s.GetSpanId())] = true
			}
		}
	}
	for _, s := range c.spans["gatehouse"] {
		switch {
		case s.GetName() != name:
		case child && callers[of(s.GetTraceId(), s.GetParentSpanId())], !child && len(s.GetParentSpanId()) == 0:
			return nil
		}
	}
	return fmt.Errorf("of %d spans of Gatehouse none is called %s and has a parent (%t) among the %d of the API server", len(c.spans["gatehouse"]), name, child, len(callers))
}

// TestTracing has an API server that records every trace, and looks for the reviews in them.
func TestTracing(t *testing.T) {
	t.Parallel()
	c := &collector{spans: map[string][]*tracepb.Span{}}
	ofGatehouse := httptest.NewServer(c)
	t.Cleanup(ofGatehouse.Close)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	ofAPIServer := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(ofAPIServer, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = ofAPIServer.Serve(listener) }) // it ends with Stop
	t.Cleanup(func() {
		ofAPIServer.Stop()
		serving.Wait()
	})

	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	host := cluster.ListenAddress()
	server, err := gatehouse.Start(t.Context(), path("log"), "--config", examples+"/log-shipper", "--listen", net.JoinHostPort(host, "0"),
		"--ops-listen", "127.0.0.1:0", "--self-signed", host, "--self-signed-dir", dir, "--drain-delay", "0s", "--tracing-endpoint", ofGatehouse.URL,
		"--tracing-sample-ratio", "1")
	must(t, err)
	t.Cleanup(server.Kill)
	url := []string{"--url", "https://" + server.Reviews.String(), "--ca-file", path("ca.crt")}
	kubeconfig, err := gatehouse.Run(t.Context(), append([]string{
		"manifests", "--authentication", "--client-cert", path("apiserver-client.crt"), "--client-key", path("apiserver-client.key"),
	}, url...)...)
	must(t, err)
	must(t, os.WriteFile(path("webhook.kubeconfig"), []byte(kubeconfig), 0o600))
	must(t, os.WriteFile(path("tracing.yaml"), fmt.Appendf(nil,
		"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 1000000\n", listener.Addr()), 0o600))
	traced, err := cluster.Start(t.Context(), cluster.Options{APIServerFlags: []string{
		"--tracing-config-file=" + path("tracing.yaml"),
		"--authentication-token-webhook-config-file=" + path("webhook.kubeconfig"), "--authentication-token-webhook-version=v1",
	}})
	must(t, err)
	t.Cleanup(func() { must(t, traced.Stop()) })
	must(t, traced.CreateNamespace(t.Context(), "traced", nil))
	registration, err := gatehouse.Run(t.Context(), append([]string{"manifests"}, url...)...)
	must(t, err)
	kubectl := traced.Kubectl(t.Context(), "apply", "--filename", "-")
	kubectl.Stdin = strings.NewReader(registration)
	output, err := kubectl.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, output)
	}
	const token = "opaque-that-nobody-may-read"
	config := rest.AnonymousClientConfig(traced.Config())
	config.BearerToken = token
	stranger, err := kubernetes.NewForConfig(config)
	must(t, err)

	support.Eventually(t, "both calls are traced", func() error {
		_, err := traced.Client().CoreV1().Pods("traced").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "traced-"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/main"}}},
		}, dryRun)
		if err != nil {
			return err
		}
		_, err = stranger.CoreV1().Pods("traced").List(t.Context(), metav1.ListOptions{})
		if err == nil {
			t.Error("the token is believed")
		}
		// Kubernetes sends no trace with token reviews, so that these begin one, as --tracing-sample-ratio says.
		return errors.Join(c.find("mutate", true), c.find("validate", true), c.find("authenticate", false))
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, secret := range []string{token, "traced-", "system:masters"} {
		if strings.Contains(string(c.sent), secret) {
			t.Errorf("the spans hold %q", secret)
		}
	}
}
