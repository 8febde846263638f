package registration

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// kube-apiserver, whose own code reads the kubeconfig here, presents the certificate at the address that it was made for,
// and at no other.
func TestAdmissionKubeconfigFitsTheAddress(t *testing.T) {
	// What kube-apiserver looks up: a Service and its port, or host and port of a URL.
	service := func(name, namespace string, port int) func(webhook.AuthenticationInfoResolver) (*rest.Config, error) {
		return func(r webhook.AuthenticationInfoResolver) (*rest.Config, error) {
			return r.ClientConfigForService(name, namespace, port)
		}
	}
	host := func(hostPort string) func(webhook.AuthenticationInfoResolver) (*rest.Config, error) {
		return func(r webhook.AuthenticationInfoResolver) (*rest.Config, error) { return r.ClientConfigFor(hostPort) }
	}
	usual := service("gatehouse", "gatehouse-system", 443)
	for name, c := range map[string]struct {
		server       Server
		right, wrong func(webhook.AuthenticationInfoResolver) (*rest.Config, error)
	}{
		"a Service":                 {Server{Namespace: "gatehouse-system", Service: "gatehouse", Port: 443}, usual, service("gatehouse", "other", 443)},
		"a Service at another port": {Server{Namespace: "gatehouse-system", Service: "gatehouse", Port: 8443}, service("gatehouse", "gatehouse-system", 8443), usual},
		"a URL with a port":         {Server{URL: "https://192.0.2.10:9443"}, host("192.0.2.10:9443"), host("192.0.2.10:443")},
		"a URL without a port":      {Server{URL: "https://gatehouse.example"}, host("gatehouse.example:443"), host("example:443")},
		"a URL with the usual port": {Server{URL: "https://gatehouse.example:443"}, host("gatehouse.example:443"), usual},
		"IPv6 with a port":          {Server{URL: "https://[2001:db8::1]:9443"}, host("[2001:db8::1]:9443"), host("[2001:db8::1]:443")},
		"IPv6 without a port":       {Server{URL: "https://[2001:db8::1]"}, host("[[2001:db8::1]]:443"), usual}, // k8s.io/apiserver/pkg/util/webhook/client.go adds brackets
		"IPv6 with the usual port":  {Server{URL: "https://[2001:db8::1]:443"}, host("[2001:db8::1]:443"), usual},
	} {
		t.Run(name, func(t *testing.T) {
			o := KubeconfigOptions{Admission: true, Name: "gatehouse", Server: c.server, ClientCert: "client.crt", ClientKey: "/abs/client.key"}
			d, err := Kubeconfig(o)
			if err != nil {
				t.Fatal(err)
			}
			text, err := YAML("", []Document{d})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "kubeconfig.yaml")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			resolver, err := webhook.NewDefaultAuthenticationInfoResolver(path)
			if err != nil {
				t.Fatal(err)
			}
			found, err := c.right(resolver)
			if err != nil || found.CertFile != filepath.Join(filepath.Dir(path), "client.crt") || found.KeyFile != "/abs/client.key" {
				t.Errorf("at the address: got %+v, %v, want the certificate", found, err)
			}
			found, err = c.wrong(resolver)
			if err != nil || found.CertFile != "" {
				t.Errorf("at another address: got %+v, %v, want no certificate", found, err)
			}
		})
	}
}
