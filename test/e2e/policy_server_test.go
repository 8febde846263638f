package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const (
	// failing is the webhook of policies that fail closed, which is in front of the keys of its audit annotations.
	failing = "fail.validate.gatehouse.dev/"
	// byWebhook is what the API server puts in front of what that one refuses.
	byWebhook = `admission webhook "fail.validate.gatehouse.dev" denied the request: `
)

// newNamespace creates a namespace of a test of its own. The server that all share is told of it first: what it does not
// know, it refuses.
func (w *world) newNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	w.write(t, "namespace-"+name+".yaml", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	must(t, w.CreateNamespace(t.Context(), name, labels))
}

// policyServer is a server that some namespaces have for themselves.
type policyServer struct {
	*world
	server *gatehouse.Server
	// config is the directory of its documents.
	config string
}

// servePolicies starts a server with documents, and registers it for some namespaces as 'gatehouse manifests' says of
// other documents, or if they are "", of the same.
func (w *world) servePolicies(t *testing.T, name, documents, registered string, namespaces ...string) *policyServer {
	t.Helper()
	config := t.TempDir()
	must(t, os.WriteFile(filepath.Join(config, "documents.yaml"), []byte(documents), 0o600))
	described := config
	if registered != "" {
		described = t.TempDir()
		must(t, os.WriteFile(filepath.Join(described, "documents.yaml"), []byte(registered), 0o600))
	}
	return w.servePoliciesIn(t, name, config, described, nil, namespaces...)
}

// servePoliciesIn starts a server with a directory and further flags, and registers it for some namespaces as 'gatehouse manifests' says of the
// described directory.
func (w *world) servePoliciesIn(t *testing.T, name, config, described string, flags []string, namespaces ...string) *policyServer {
	t.Helper()
	p := &policyServer{world: w, config: config}
	var err error
	p.server, err = w.serve(t.Context(), name, config, append(w.certificateFor(t, name), flags...)...)
	must(t, err)
	showIfFailed(t, name, p.server.Log())
	t.Cleanup(p.server.Kill)

	address := []string{"--url", "https://" + p.server.Reviews.String()}
	if cluster.Namespaced() {
		address = []string{"--service", system + "/" + name}
		must(t, w.endpoints(t.Context(), name, p.server))
	}
	output, err := gatehouse.Run(t.Context(), append([]string{"manifests", "--name", name, "--ca-file", w.path("ca.crt"), "--config", described}, address...)...)
	must(t, err)
	found := false
	for document := range strings.SplitSeq(gatehouse.Patient(output), "\n---\n") {
		var registration unstructured.Unstructured
		must(t, yaml.Unmarshal([]byte(document), &registration.Object))
		resource := map[string]string{
			"MutatingWebhookConfiguration": "mutatingwebhookconfigurations", "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
		}[registration.GetKind()]
		if resource == "" {
			continue
		}
		found = true
		must(t, limitTo(&registration, namespaces))
		client := w.dynamic(t).Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource))
		_, err := client.Create(t.Context(), &registration, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			err := client.Delete(context.WithoutCancel(t.Context()), registration.GetName(), metav1.DeleteOptions{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	if !found {
		t.Fatalf("there is no registration in\n%s", output)
	}
	return p
}

// limitTo limits a registration to namespaces.
func limitTo(registration *unstructured.Unstructured, namespaces []string) error {
	webhooks, _, err := unstructured.NestedSlice(registration.Object, "webhooks")
	if err != nil {
		return err
	}
	names := make([]any, len(namespaces))
	for i := range namespaces {
		names[i] = namespaces[i]
	}
	for _, webhook := range webhooks {
		fields := webhook.(map[string]any) //nolint:forcetypeassert // see above
		all, _, err := unstructured.NestedSlice(fields, "namespaceSelector", "matchExpressions")
		if err != nil {
			return err
		}
		all = append(all, map[string]any{"key": corev1.LabelMetadataName, "operator": string(metav1.LabelSelectorOpIn), "values": names})
		err = unstructured.SetNestedSlice(fields, all, "namespaceSelector", "matchExpressions")
		if err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(registration.Object, webhooks, "webhooks")
}

// certificateFor returns the flags of a certificate for a Service of that name.
func (w *world) certificateFor(t *testing.T, name string) []string {
	t.Helper()
	cert, key, err := w.authority.Serve(cluster.ListenAddress(), name+"."+system+".svc")
	must(t, err)
	certFile, keyFile := w.path(name+".crt"), w.path(name+".key")
	must(t, os.WriteFile(certFile, cert, 0o600))
	must(t, os.WriteFile(keyFile, key, 0o600))
	return []string{"--tls-cert", certFile, "--tls-key", keyFile}
}
