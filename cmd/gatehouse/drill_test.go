package main

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/test/support/portforward"
)

// drilledCluster returns an API server that has the example of drill, with a pod that is ready and has a certificate of a CA.
func drilledCluster(t *testing.T, trusted bool) (*fakeapi.Server, *portforward.APIServer) {
	t.Helper()
	group := func(name string) schema.GroupVersion { return schema.GroupVersion{Group: name, Version: "v1"} }
	api := fakeapi.New(
		resource(group("admissionregistration.k8s.io"), "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false),
		resource(group("admissionregistration.k8s.io"), "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false),
		resource(group("apiextensions.k8s.io"), "customresourcedefinitions", "CustomResourceDefinition", false), resource(group("apiregistration.k8s.io"), "apiservices", "APIService", false),
		resource(corev1.SchemeGroupVersion, "namespaces", "Namespace", false), resource(corev1.SchemeGroupVersion, "services", "Service", true), resource(corev1.SchemeGroupVersion, "pods", "Pod", true),
		resource(group("discovery.k8s.io"), "endpointslices", "EndpointSlice", true), resource(group("policy"), "poddisruptionbudgets", "PodDisruptionBudget", true),
		resource(appsv1.SchemeGroupVersion, "deployments", "Deployment", true), resource(appsv1.SchemeGroupVersion, "statefulsets", "StatefulSet", true), resource(appsv1.SchemeGroupVersion, "daemonsets", "DaemonSet", true),
	)
	authority, err := cluster.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Serve("guard.guard.svc")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	if !trusted {
		if authority, err = cluster.NewAuthority("another"); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../../manifests/examples/outage/guard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example := strings.Replace(string(text), "clientConfig:", "clientConfig:\n      caBundle: "+base64.StdEncoding.EncodeToString(authority.CertPEM()), 1)
	for _, document := range append(strings.Split(example, "\n---\n"),
		`{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, labels: {kubernetes.io/metadata.name: kube-system}}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: guard-0, namespace: guard, labels: {app: guard, pod-template-hash: x}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: guard-x, uid: u, controller: true}]}, spec: {nodeName: a, containers: [{name: a, image: a}]}, status: {conditions: [{type: Ready, status: "True"}]}}`,
		`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: guard-1, namespace: guard, labels: {kubernetes.io/service-name: guard}}, addressType: IPv4, ports: [{name: "", port: 8081}],
  endpoints: [{addresses: [192.0.2.1], targetRef: {kind: Pod, namespace: guard, name: guard-0}}]}`) {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		api.Put(object)
	}
	server := portforward.NewAPIServer(t, nil)
	server.Mux.Handle("/", fakeapi.Handler(api))
	server.Mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"major": "1", "minor": "37+"}`)
	})
	pod := httptest.NewUnstartedServer(http.NotFoundHandler())
	pod.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	pod.StartTLS()
	t.Cleanup(pod.Close)
	server.Listeners["guard-0"] = pod.Listener.Addr().String()
	return api, server
}

// TestDrillOfCluster: what cannot be read is named, and no answer is certain then.
func TestDrillOfCluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		noRight, noForward string
		trusted            bool
		args               []string
		code               int
		says               []string
	}{
		"all read":           {"", "", true, nil, cli.ExitNo, []string{"lockout  own-pods: ", "1 lockout, 2 risks and 1 note for 1 of 1 webhook in the cluster http"}},
		"no such threshold":  {"", "", true, []string{"--fail-on", "bad"}, cli.ExitUnknown, []string{"must be lockout, risk or note"}},
		"no right":           {"pods", "", true, nil, cli.ExitUnknown, []string{"lockout  own-pods: ", "unknown: the right to list pods is missing"}},
		"no right to some":   {"namespaces", "", true, nil, cli.ExitUnknown, []string{"unknown: the right to list namespaces is missing"}},
		"a trusted pod":      {"", "", true, []string{"--handshake"}, cli.ExitNo, []string{"1 lockout, 2 risks and 1 note"}},
		"an untrusted pod":   {"", "", false, []string{"--handshake"}, cli.ExitNo, []string{"risk     ca-mismatch: the API server does not trust what a pod of guard/guard serves: x509: "}},
		"no right to a pod":  {"", "guard-0", true, []string{"--handshake"}, cli.ExitUnknown, []string{"unknown: the certificate that guard/guard serves was not seen: "}},
		"files and clusters": {"", "", true, []string{"-f", "."}, cli.ExitUnknown, []string{"files and a cluster cannot be given together"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, server := drilledCluster(t, c.trusted)
			server.Forbidden = c.noForward
			api.Intercept = func(r *fakeapi.Request) (any, error) {
				if c.noRight != "" && r.Resource == c.noRight {
					return nil, apierrors.NewForbidden(schema.GroupResource{Resource: r.Resource}, "", fmt.Errorf("User %q cannot %s resource %q in API group %q at the cluster scope", "joe", r.Verb, r.Resource, ""))
				}
				return nil, nil
			}
			got := clitest.Run(t.Context(), "", append([]string{"drill", "--kubeconfig", server.Kubeconfig(t)}, c.args...), commands()...)
			for _, text := range c.says {
				if got.Code != c.code || !strings.Contains(got.Out+got.Err, text) {
					t.Errorf("exit code %d, want %d and %q:\n%s%s", got.Code, c.code, text, got.Out, got.Err)
				}
			}
			if writes := api.Requests(func(r *fakeapi.Request) bool { return r.Verb != "list" && r.Verb != "get" }); len(writes) > 0 {
				t.Errorf("drill made the requests %v", writes)
			}
		})
	}
}

// TestDrillOfRecording judges the requests of a recording: the pods among them.
func TestDrillOfRecording(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t.Context(), "", []string{"drill", "-f", "../../manifests/examples/outage", "--record", filepath.Join(replayExample, "recording")}, commands()...)
	for _, text := range []string{"10 requests from 2026-11-20T09:00:00Z to 2026-11-20T09:09:00Z were judged:", "6 requests would have failed, 6 of them to heal the cluster"} {
		if got.Code != cli.ExitNo || !strings.Contains(got.Out, text) {
			t.Errorf("exit code %d, want %q:\n%s%s", got.Code, text, got.Out, got.Err)
		}
	}
}
