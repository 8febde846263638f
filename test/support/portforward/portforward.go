// Package portforward is an API server for tests, through which they reach listeners of pods.
package portforward

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// APIServer is an API server with pods whose ports can be forwarded.
type APIServer struct {
	*httptest.Server

	// Mux serves more paths, which a test may add.
	Mux *http.ServeMux
	// Forbidden is a pod whose ports may not be forwarded, and Dead one on which nothing listens.
	Forbidden, Dead string
	// Listeners are the addresses of the listeners, by the name of the pod. A test may add some.
	Listeners map[string]string
}

// NewAPIServer returns a server with these pods: the handlers of their listeners, by the name of the pod.
func NewAPIServer(t *testing.T, ops map[string]http.Handler) *APIServer {
	t.Helper()
	s := &APIServer{Mux: http.NewServeMux(), Listeners: map[string]string{}}
	for name, handler := range ops {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		s.Listeners[name] = server.Listener.Addr().String()
	}
	s.Mux.HandleFunc("GET /api/v1/namespaces/gatehouse-system/pods", func(w http.ResponseWriter, r *http.Request) {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if !strings.Contains(r.URL.Query().Get("labelSelector"), "app.kubernetes.io/name=gatehouse") {
			t.Errorf("labels %q", r.URL.Query().Get("labelSelector"))
		}
		for name := range ops {
			list.Items = append(list.Items, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "gatehouse-system", Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "ops", ContainerPort: 8081}}}}},
			})
		}
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pending"}, Status: corev1.PodStatus{Phase: corev1.PodPending}})
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&list)
	})
	s.Mux.HandleFunc("/api/v1/namespaces/{namespace}/pods/{name}/portforward", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if name == s.Forbidden {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: `pods "` + name + `" is forbidden: User "joe" cannot create resource "pods/portforward" in API group "" in the namespace "gatehouse-system"`})
			return
		}
		if !strings.EqualFold(r.Header.Get("Upgrade"), spdy.HeaderSpdy31) {
			http.Error(w, "no websockets here", http.StatusBadRequest) // as before 1.31
			return
		}
		listener := forwarder(s.Listeners[name])
		if name == s.Dead {
			listener = ""
		}
		portforward.ServePortForward(w, r, listener, name, "", nil, time.Minute, time.Minute, portforward.SupportedProtocols)
	})
	s.Server = httptest.NewServer(s.Mux)
	t.Cleanup(s.Close)
	return s
}

// forwarder connects to the listener of a pod, "" for one on which nothing listens, as a kubelet does.
type forwarder string

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if f == "" || port != 8081 {
		return fmt.Errorf("failed to connect to localhost:%d: connection refused", port)
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp", string(f))
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	go func() { _, _ = io.Copy(server, stream) }()
	_, err = io.Copy(stream, server)
	return err
}

// Kubeconfig writes one for the server, without credentials, and returns its path.
func (s *APIServer) Kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: t\ncontexts: [{name: t, context: {cluster: t, user: t}}]\nusers: [{name: t}]\nclusters: [{name: t, cluster: {server: " + s.URL + "}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
