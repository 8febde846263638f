package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// certsAPI answers what certs status asks, and keeps what is written. What it does
// not have is not found, and what is nil is forbidden.
type certsAPI struct {
	mu      sync.Mutex
	objects map[string]any
	// broken is a path that is answered with an error.
	broken  string
	patches []string
}

func (a *certsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	object, found := a.objects[r.URL.Path]
	status := http.StatusOK
	switch {
	case r.URL.Path == a.broken:
		status, object = http.StatusInternalServerError, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: http.StatusInternalServerError, Message: "etcd"}
	case !found:
		status, object = http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
	case object == nil:
		status, object = http.StatusForbidden, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no",
		}
	case r.Method == http.MethodPatch:
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		a.patches = append(a.patches, body.String())
	}
	text, err := json.Marshal(object)
	if err != nil {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// newCertsAPI has a CA that two registrations trust and one replica serves.
func newCertsAPI(t *testing.T) *certsAPI {
	t.Helper()
	now := time.Now()
	ca := testCA(t, 1, now.Add(-time.Hour))
	data, err := rotation.Encode(&rotation.State{Lineage: "l", Created: now, Generation: 1, Phase: rotation.Stable, Since: now, Current: ca}, now)
	if err != nil {
		t.Fatal(err)
	}
	client := admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "gatehouse-system", Name: "gatehouse"}, CABundle: rotation.Bundle([]*x509.Certificate{ca.Cert}),
	}
	meta := metav1.ObjectMeta{Name: "gatehouse", ResourceVersion: "1"}
	seen := metav1.NewMicroTime(now)
	return &certsAPI{objects: map[string]any{
		clitest.SecretPath: &corev1.Secret{
			TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}, Type: corev1.SecretTypeOpaque, Data: data,
			ObjectMeta: metav1.ObjectMeta{Name: "gatehouse-ca", Namespace: "gatehouse-system", UID: "u", ResourceVersion: "7"},
		},
		clitest.LeasesPath: &coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"},
			Items: []coordinationv1.Lease{{
				ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{
					"gatehouse.dev/issuer": ca.ID(), "gatehouse.dev/certificate-sha256": strings.Repeat("ab", 32),
					"gatehouse.dev/not-after": now.Add(6 * 24 * time.Hour).UTC().Format(time.RFC3339), "gatehouse.dev/version": "v1",
				}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "gatehouse", Time: &metav1.Time{Time: now}}}},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: new("gatehouse-0"), RenewTime: &seen},
			}},
		},
		clitest.MutatingConfigurationPath: &admissionregistrationv1.MutatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{Kind: "MutatingWebhookConfiguration", APIVersion: "admissionregistration.k8s.io/v1"},
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "default.mutate.gatehouse.dev", ClientConfig: client}},
		},
		clitest.ValidatingConfigurationPath: &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{Kind: "ValidatingWebhookConfiguration", APIVersion: "admissionregistration.k8s.io/v1"},
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "fail.validate.gatehouse.dev", ClientConfig: client}},
		},
	}}
}

// clients are the addresses of both registrations.
func (a *certsAPI) clients() []*admissionregistrationv1.WebhookClientConfig {
	return []*admissionregistrationv1.WebhookClientConfig{
		&a.objects[clitest.MutatingConfigurationPath].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks[0].ClientConfig,
		&a.objects[clitest.ValidatingConfigurationPath].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks[0].ClientConfig,
	}
}

// servedAt removes the Secret and the replicas, as with --self-signed-dir, and registers a server of its own. A bundle that is nil is its CA.
func (a *certsAPI) servedAt(t *testing.T, bundle []byte) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(server.Close)
	if bundle == nil {
		bundle = rotation.Bundle([]*x509.Certificate{server.Certificate()})
	}
	delete(a.objects, clitest.SecretPath)
	a.objects[clitest.LeasesPath].(*coordinationv1.LeaseList).Items = nil
	for _, client := range a.clients() {
		*client = admissionregistrationv1.WebhookClientConfig{URL: new(server.URL + "/validate"), CABundle: bundle}
	}
}

// gatehouse runs the program with a kubeconfig for the API server.
func (a *certsAPI) gatehouse(t *testing.T, args ...string) (code int, out, remarks string) {
	t.Helper()
	server := httptest.NewServer(a)
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code = cli.Run(t.Context(), append(args, "--kubeconfig", file), cli.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, NewCommand)
	return code, stdout.String(), stderr.String()
}

func TestCertsStatus(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(t *testing.T, a *certsAPI)
		args   []string
		code   int
		want   []string
	}{
		"all is well": {
			func(*testing.T, *certsAPI) {}, nil, cli.ExitYes,
			[]string{"MutatingWebhookConfiguration/gatehouse    default.mutate.gatehouse.dev  current  yes\n", "gatehouse-0  current  "},
		},
		"one that does not exist need not": {
			func(_ *testing.T, a *certsAPI) { delete(a.objects, clitest.MutatingConfigurationPath) }, nil, cli.ExitYes,
			[]string{"ValidatingWebhookConfiguration/gatehouse  fail.validate.gatehouse.dev  current  yes\n"},
		},
		"one that was asked for does not exist": {
			func(_ *testing.T, a *certsAPI) { delete(a.objects, clitest.MutatingConfigurationPath) },
			[]string{"--registration", "mutating/gatehouse"},
			cli.ExitNo,
			[]string{"problem: MutatingWebhookConfiguration/gatehouse: does not exist: the API server does not call for it\n  remedy: apply the output of gatehouse manifests"},
		},
		"there is none": {
			func(_ *testing.T, a *certsAPI) {
				delete(a.objects, clitest.MutatingConfigurationPath)
				delete(a.objects, clitest.ValidatingConfigurationPath)
			},
			[]string{"--registration="},
			cli.ExitYes,
			[]string{"gatehouse-0  current  "},
		},
		"one trusts another CA": {
			func(t *testing.T, a *certsAPI) {
				webhooks := a.objects[clitest.ValidatingConfigurationPath].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
				webhooks[0].ClientConfig.CABundle = rotation.Bundle([]*x509.Certificate{testCA(t, 2, time.Now()).Cert})
			}, nil, cli.ExitNo,
			[]string{"problem: ValidatingWebhookConfiguration/gatehouse, webhook fail.validate.gatehouse.dev: does not trust the current CA ", ": calls to gatehouse-0 fail\n", "  not gatehouse-0\n"},
		},
		"what holds the registrations cannot be reached": {
			func(_ *testing.T, a *certsAPI) { a.broken = clitest.MutatingConfigurationPath }, nil, cli.ExitUnknown,
			[]string{"cannot decide: MutatingWebhookConfiguration/gatehouse: the API server cannot get it now: an error on the server"},
		},
		"a replica is away": {
			func(_ *testing.T, a *certsAPI) {
				lease := &a.objects[clitest.LeasesPath].(*coordinationv1.LeaseList).Items[0]
				other := lease.DeepCopy()
				away := metav1.NewMicroTime(time.Now().Add(-time.Hour))
				lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.ManagedFields = new("gatehouse-1"), &away, nil
				lease.Annotations["gatehouse.dev/issuer"] = strings.Repeat("cd", 32)
				other.Name = "y"
				a.objects[clitest.LeasesPath].(*coordinationv1.LeaseList).Items = append(a.objects[clitest.LeasesPath].(*coordinationv1.LeaseList).Items, *other)
			}, nil, cli.ExitYes,
			[]string{"note: replica gatehouse-1: is away since ", " -n gatehouse-system delete lease x\n"},
		},
		"another Secret": {
			func(*testing.T, *certsAPI) {},
			[]string{"--secret", "edge/ca"},
			cli.ExitNo,
			[]string{"problem: Secret edge/ca: there is no CA in it\n  remedy: check --secret, --dir and the flags of the servers"},
		},
		"servers without a Secret": {
			func(t *testing.T, a *certsAPI) { a.servedAt(t, nil) }, nil, cli.ExitYes,
			[]string{"note: Secret gatehouse-system/gatehouse-ca: there is no CA in it: the servers share none there, so a connection to each webhook shows what it trusts\n", "  yes\n"},
		},
		"servers without a Secret that the bundle does not verify": {
			func(t *testing.T, a *certsAPI) {
				a.servedAt(t, rotation.Bundle([]*x509.Certificate{testCA(t, 2, time.Now()).Cert}))
			}, nil, cli.ExitNo,
			[]string{
				"problem: ValidatingWebhookConfiguration/gatehouse, webhook fail.validate.gatehouse.dev: its caBundle does not verify the certificate: x509: certificate signed by unknown authority",
				"problem: Secret gatehouse-system/gatehouse-ca: there is no CA in it\n", "  no\n",
			},
		},
		"servers without a Secret that cannot be reached": {
			func(t *testing.T, a *certsAPI) {
				a.servedAt(t, nil)
				for _, client := range a.clients() {
					client.URL = new("https://127.0.0.1:1")
				}
			}, nil, cli.ExitUnknown,
			[]string{"cannot decide: ValidatingWebhookConfiguration/gatehouse, webhook fail.validate.gatehouse.dev: what it serves cannot be seen from here: dial tcp 127.0.0.1:1: connect: connection refused\n  remedy: run this, or gatehouse probe, in a pod or on a node\n"},
		},
		"a registration is not there, and nothing else may be read": {
			func(_ *testing.T, a *certsAPI) {
				clear(a.objects)
				a.objects[clitest.SecretPath], a.objects[clitest.LeasesPath] = nil, nil
			},
			[]string{"--registration", "validating/x"},
			cli.ExitNo,
			[]string{"cannot decide: Secret gatehouse-system/gatehouse-ca: ", "cannot decide: replicas: what they serve cannot be read: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newCertsAPI(t)
			test.change(t, api)
			code, out, remarks := api.gatehouse(t, append([]string{"certs", "status"}, test.args...)...)
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("standard output lacks %q:\n%s", want, out)
				}
			}
			if code != test.code || remarks != "" {
				t.Errorf("the exit code is %d, want %d; standard error has %q:\n%s", code, test.code, remarks, out)
			}
		})
	}
}

// TestCertsRotateSecret writes the request into the Secret, and nothing else.
func TestCertsRotateSecret(t *testing.T) {
	t.Parallel()
	api := newCertsAPI(t)
	code, out, remarks := api.gatehouse(t, "certs", "rotate", "--emergency", "-o", "json")
	var report rotateReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != cli.ExitYes || remarks != "" {
		t.Fatalf("%v, exit code %d, standard error %q:\n%s", err, code, remarks, out)
	}
	if len(api.patches) != 1 {
		t.Fatalf("there were %d writes", len(api.patches))
	}
	var patch struct {
		Data map[string][]byte `json:"data"`
	}
	if err := json.Unmarshal([]byte(api.patches[0]), &patch); err != nil {
		t.Fatal(err)
	}
	state, err := rotation.Decode(patch.Data)
	if err != nil {
		t.Fatal(err)
	}
	if state.Request == nil || state.Request.ID != report.ID || !state.Request.Emergency || state.Generation != 2 || state.Phase != rotation.Stable {
		t.Errorf("the request is %+v in %+v", state.Request, state)
	}
	if strings.Contains(out, "PRIVATE") {
		t.Error("a key is shown")
	}
}
