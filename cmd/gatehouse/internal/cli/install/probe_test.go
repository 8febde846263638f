package install

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/cert"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// probed is a Service with a webhook server behind it, and the webhook configurations that name it.
type probed struct {
	ca      []byte
	address netip.AddrPort
}

// newProbed starts a server whose certificate is for a name.
func newProbed(t *testing.T, name string, answer http.HandlerFunc, change ...func(*tls.Config)) *probed {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(answer)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	for _, f := range change {
		f(server.TLS)
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	server.StartTLS()
	t.Cleanup(server.Close)
	return &probed{ca: certificate, address: netip.MustParseAddrPort(server.Listener.Addr().String())}
}

// objects are those of the cluster.
func (p *probed) objects() []runtime.Object {
	config := admissionregistrationv1.WebhookClientConfig{
		CABundle: p.ca,
		Service:  &admissionregistrationv1.ServiceReference{Namespace: "gatehouse-system", Name: "gatehouse", Path: new("/validate"), Port: new(int32(p.address.Port()))},
	}
	named := metav1.ObjectMeta{Name: "gatehouse"}
	return []runtime.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "gatehouse", Namespace: "gatehouse-system"}, Spec: corev1.ServiceSpec{ClusterIP: p.address.Addr().String()}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "fail.validate.gatehouse.dev", ClientConfig: config}}},
	}
}

// probe runs probe against the objects of a cluster.
func probe(t *testing.T, timeout time.Duration, objects ...runtime.Object) (stdout, problem string, code int) {
	t.Helper()
	f := &probeFlags{installFlags: installFlags{name: "gatehouse", namespace: "gatehouse-system", timeout: timeout}}
	var out bytes.Buffer
	err := f.run(t.Context(), fake.NewClientset(objects...), cli.Streams{Out: &out, Err: io.Discard})
	if err != nil {
		problem, code = err.Error(), cli.WorstCode(err)
	}
	return out.String(), problem, code
}

// respond answers a review, which must be one that the API server could send.
func respond(t *testing.T, change func(*admissionv1.AdmissionResponse)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err != nil || r.URL.Path != "/validate" || review.Request == nil || review.Request.DryRun == nil || !*review.Request.DryRun {
			t.Errorf("probe sent to %s: %s (%v)", r.URL, body, err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		if change != nil {
			change(review.Response)
		}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}
}

const probedName = "gatehouse.gatehouse-system.svc"

// TestProbeAnswers: an answer is one whatever it decides.
func TestProbeAnswers(t *testing.T) {
	t.Parallel()
	allowed := newProbed(t, probedName, respond(t, nil))
	stdout, problem, code := probe(t, time.Minute, allowed.objects()...)
	if want := "ValidatingWebhookConfiguration/gatehouse: fail.validate.gatehouse.dev answers: allowed\n"; stdout != want || code != 0 {
		t.Errorf("it ends with %d, %q and %q, want %q", code, problem, stdout, want)
	}
	// What replicas report is a warning.
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "gatehouse-report-a", Namespace: "gatehouse-system", Labels: map[string]string{"gatehouse.dev/report": "gatehouse"}, Annotations: map[string]string{
			"gatehouse.dev/problems": "Configuration=False since 2026-01-01T00:00:00Z: wrong\nParams=False: none",
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a"), RenewTime: new(metav1.NowMicro())},
	}
	var stderr bytes.Buffer
	f := &probeFlags{installFlags: installFlags{name: "gatehouse", namespace: "gatehouse-system", timeout: time.Minute}}
	err := f.run(t.Context(), fake.NewClientset(append(allowed.objects(), lease)...), cli.Streams{Out: io.Discard, Err: &stderr})
	if want := "warning: a: Configuration=False since 2026-01-01T00:00:00Z: wrong\nwarning: a: Params=False: none\n"; err != nil || !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("%v, %q", err, stderr.String())
	}
	denied := newProbed(t, probedName, respond(t, func(r *admissionv1.AdmissionResponse) {
		r.Allowed, r.Result = false, &metav1.Status{Message: "images come from\nregistry.example"}
	}))
	stdout, problem, code = probe(t, time.Minute, denied.objects()...)
	if want := `answers: denied: images come from registry.example` + "\n"; !strings.HasSuffix(stdout, want) || code != 0 {
		t.Errorf("it ends with %d, %q and %q, want %q", code, problem, stdout, want)
	}
}

// TestProbeWarns: a server that asks for no client certificate gets one warning, and is no failure.
func TestProbeWarns(t *testing.T) {
	t.Parallel()
	p := newProbed(t, probedName, respond(t, nil), func(c *tls.Config) { c.ClientAuth = tls.NoClientCert })
	objects := p.objects()
	validating, _ := objects[2].(*admissionregistrationv1.ValidatingWebhookConfiguration)
	validating.Webhooks = append(validating.Webhooks, validating.Webhooks[0])
	f := &probeFlags{installFlags: installFlags{name: "gatehouse", namespace: "gatehouse-system", timeout: time.Minute}}
	var out, warnings bytes.Buffer
	err := f.run(t.Context(), fake.NewClientset(objects...), cli.Streams{Out: &out, Err: &warnings})
	if err != nil || strings.Count(out.String(), "answers: allowed\n") != 2 || strings.Count(warnings.String(), "warning: Gatehouse asks callers for no client certificate") != 1 {
		t.Errorf("it ends with %v, %q and %q", err, out.String(), warnings.String())
	}
}

// TestProbeFails: each thing that keeps the API server from an answer is told, with where it was asked.
func TestProbeFails(t *testing.T) {
	t.Parallel()
	other := newProbed(t, probedName, respond(t, nil))
	for name, c := range map[string]struct {
		// certified is the name in the certificate.
		certified string
		answer    http.HandlerFunc
		change    func(p *probed)
		want      string
		code      int
	}{
		"an error of HTTP": {
			answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "draining", http.StatusServiceUnavailable) },
			want:   "the server is currently unable to handle the request",
		},
		"no review":          {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, want: "the API server takes this for no answer, and failurePolicy decides: webhook response was absent"},
		"of another request": {answer: respond(t, func(r *admissionv1.AdmissionResponse) { r.UID = "other" }), want: `expected response.uid="`},
		"a validating webhook that denies, with a patch": {answer: respond(t, func(r *admissionv1.AdmissionResponse) {
			r.Allowed, r.Patch, r.PatchType = false, []byte("[]"), new(admissionv1.PatchTypeJSONPatch)
		}), want: "validating webhook may not return response.patch"},
		"another name":          {certified: "gatehouse.elsewhere.svc", want: "its caBundle does not verify the certificate: x509: certificate is valid for gatehouse.elsewhere.svc, not " + probedName},
		"another CA":            {change: func(p *probed) { p.ca = other.ca }, want: "its caBundle does not verify the certificate: x509: "},
		"no CA":                 {change: func(p *probed) { p.ca = nil }, want: "caBundle is empty, so the API server does not trust any certificate"},
		"a CA that is none":     {change: func(p *probed) { p.ca = []byte("x") }, want: "unable to load root certificates"},
		"no listener":           {change: func(p *probed) { p.address = netip.MustParseAddrPort("127.0.0.1:1") }, want: "dial tcp 127.0.0.1:1: connect: connection refused"},
		"a Service without one": {change: func(p *probed) { p.address = netip.AddrPort{} }, want: "cannot read the Service gatehouse-system/gatehouse: ", code: cli.ExitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.answer == nil {
				c.answer = respond(t, nil)
			}
			if c.certified == "" {
				c.certified = probedName
			}
			if c.code == 0 {
				c.code = cli.ExitNo
			}
			p := newProbed(t, c.certified, c.answer)
			if c.change != nil {
				c.change(p)
			}
			objects := p.objects()
			if !p.address.IsValid() {
				objects = objects[1:]
			}
			stdout, problem, code := probe(t, probeInterval/2, objects...)
			if stdout != "" || !strings.Contains(problem, c.want) || code != c.code {
				t.Errorf("it ends with %d, %q and %q, want %d and %q", code, problem, stdout, c.code, c.want)
			}
		})
	}
}

// TestProbeTriesAgain: an install that is not ready yet is waited for.
func TestProbeTriesAgain(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	ready := respond(t, nil)
	p := newProbed(t, probedName, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		ready(w, r)
	})
	stdout, problem, code := probe(t, time.Minute, p.objects()...)
	if code != 0 || !strings.Contains(stdout, "answers: allowed") || calls.Load() != 2 {
		t.Errorf("after %d calls it ends with %d, %q and %q", calls.Load(), code, problem, stdout)
	}
}

// TestProbeWithoutConfiguration: without webhooks nothing is green.
func TestProbeWithoutConfiguration(t *testing.T) {
	t.Parallel()
	p := newProbed(t, probedName, respond(t, nil))
	for want, objects := range map[string][]runtime.Object{
		"cannot read the webhook configurations: ":                nil,
		`the webhook configurations "gatehouse" have no webhooks`: {p.objects()[1], &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "gatehouse"}}},
	} {
		stdout, problem, code := probe(t, probeInterval/2, objects...)
		if stdout != "" || !strings.Contains(problem, want) || code != cli.ExitUnknown {
			t.Errorf("it ends with %d, %q and %q, want %q", code, problem, stdout, want)
		}
	}
}

// TestProbeURL: a server without a cluster is asked at both endpoints, and trusted by --ca-file alone.
func TestProbeURL(t *testing.T) {
	t.Parallel()
	p := newProbed(t, "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		r.URL.Path = webhooks.ValidatePath
		respond(t, func(a *admissionv1.AdmissionResponse) { a.Allowed, a.Result = false, &metav1.Status{Message: path} })(w, r)
	})
	target := "https://" + p.address.String()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, p.ca, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, int) {
		var out, problem bytes.Buffer
		code := cli.Run(t.Context(), append([]string{"probe", "--timeout", "5s"}, args...), cli.Streams{Out: &out, Err: &problem}, NewProbeCommand)
		return out.String() + problem.String(), code
	}
	if said, code := run("--url", target, "--ca-file", file); code != 0 || said != target+": /mutate answers: denied: /mutate\n"+target+": /validate answers: denied: /validate\n" {
		t.Errorf("it ends with %d:\n%s", code, said)
	}
	if said, code := run("--url", target); code != cli.ExitNo || !strings.Contains(said, "/validate does not answer: its caBundle does not verify the certificate: x509: ") {
		t.Errorf("without --ca-file it ends with %d:\n%s", code, said)
	}
	for want, args := range map[string][]string{
		"--url excludes --in-cluster, --kubeconfig and --context": {"--url", target, "--context", "x"},
		"the scheme must be https":                                {"--url", "http://127.0.0.1"},
		"--ca-file is for --url":                                  {"--ca-file", file},
		"--ca-file probe_test.go: contains no PEM certificate":    {"--url", target, "--ca-file", "probe_test.go"},
	} {
		if said, code := run(args...); code != cli.ExitUnknown || !strings.Contains(said, want) {
			t.Errorf("it ends with %d, want %q:\n%s", code, want, said)
		}
	}
}
