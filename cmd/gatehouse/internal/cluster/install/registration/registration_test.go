package registration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// options are valid options for a Service.
func options(change ...func(*Options)) Options {
	o := Options{
		Name: "gatehouse", Namespace: "gatehouse-system",
		Server: Server{Namespace: "gatehouse-system", Service: "gatehouse", Port: 443},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func named(groups, versions, resources string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: strings.Split(groups, ","), APIVersions: strings.Split(versions, ","), Resources: strings.Split(resources, ","),
		},
	}}
}

const (
	create  = admissionregistrationv1.Create
	update  = admissionregistrationv1.Update
	remove  = admissionregistrationv1.Delete
	connect = admissionregistrationv1.Connect
)

// specWith is a policy's spec.
func specWith(failurePolicy admissionregistrationv1.FailurePolicyType, rules ...admissionregistrationv1.NamedRuleWithOperations) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	s := admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules}}
	if failurePolicy != "" {
		s.FailurePolicy = &failurePolicy
	}
	return s
}

func upstream(name string, spec admissionregistrationv1.ValidatingAdmissionPolicySpec) policy.Policy {
	p := policy.Policy{}
	p.Name, p.Spec = name, spec
	return p
}

func bindingOf(name string) policy.Binding {
	b := policy.Binding{}
	b.Name, b.Spec.PolicyName = name, name
	return b
}

func ours(name string, spec admissionregistrationv1.ValidatingAdmissionPolicySpec) policy.AdmissionPolicy {
	p := policy.AdmissionPolicy{}
	p.Name, p.Spec = name, own(spec)
	p.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	p.Spec.WorkloadTemplates = v1alpha1.IgnoreTemplates
	return p
}

// selecting is a policy with selectors of namespaces and objects, each by a label unless it is "".
func selecting(name string, failurePolicy admissionregistrationv1.FailurePolicyType, namespaces, objects string, rules ...testRule) policy.AdmissionPolicy {
	p := ours(name, specWith(failurePolicy, rules...))
	for label, selector := range map[string]**metav1.LabelSelector{namespaces: &p.Spec.MatchConstraints.NamespaceSelector, objects: &p.Spec.MatchConstraints.ObjectSelector} {
		*selector = &metav1.LabelSelector{}
		if label != "" {
			(*selector).MatchLabels = map[string]string{label: "true"}
		}
	}
	return p
}

// own is the spec of an AdmissionPolicy that matches what a ValidatingAdmissionPolicy matches.
func own(spec admissionregistrationv1.ValidatingAdmissionPolicySpec) v1alpha1.AdmissionPolicySpec {
	return v1alpha1.AdmissionPolicySpec{FailurePolicy: spec.FailurePolicy, MatchConstraints: spec.MatchConstraints, MatchConditions: spec.MatchConditions}
}

// spec is a configuration with a profile, a policy that fails closed and one
// that fails open.
func spec() *webhooks.Spec {
	return &webhooks.Spec{
		Sidecar: sidecar.Spec{Profiles: make([]sidecar.Profile, 1)},
		Policy: policy.Spec{
			Policies:          []policy.Policy{upstream("replicas", specWith("", named("apps", "v1", "deployments,statefulsets", create, update)))},
			Bindings:          []policy.Binding{bindingOf("replicas")},
			AdmissionPolicies: []policy.AdmissionPolicy{ours("hosts", specWith("Ignore", named("networking.k8s.io", "v1", "ingresses", create, update), named("apps", "v1", "deployments", create)))},
		},
	}
}

// admissionOf returns the documents that valid options make.
func admissionOf(t *testing.T, o Options) Admission {
	t.Helper()
	a, err := ForAdmission(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func withURL(o *Options) {
	o.Server = Server{URL: "https://192.0.2.10:9443"}
	o.CABundle = []byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
}

// TestGolden holds the bytes of what is made: one file a behaviour.
func TestGolden(t *testing.T) {
	golden := map[string]func() ([]byte, error){}
	for name, o := range map[string]Options{
		"config.yaml": options(withURL, func(o *Options) { o.Spec = spec() }),
		"selectors.yaml": options(withURL, func(o *Options) {
			o.Spec = &webhooks.Spec{Policy: policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{
				selecting("secrets", "", "team", "pay", named("", "v1", "secrets", create, update)), selecting("services", "", "team", "pay", named("", "v1", "services", create)),
				selecting("secrets-too", "Ignore", "", "pay", named("", "v1", "secrets", create)),
			}}}
		}),
		"service-elsewhere.yaml": options(func(o *Options) {
			o.Name, o.Server = "gate", Server{Namespace: "edge", Service: "gate", Port: 8443}
			o.CABundle = options(withURL).CABundle
			o.Spec = &webhooks.Spec{Sidecar: spec().Sidecar}
		}),
	} {
		golden[name] = func() ([]byte, error) {
			a, err := ForAdmission(o)
			if err != nil {
				return nil, err
			}
			header := "A header\nof two lines"
			if a.Serve != "" {
				header += "\n" + a.Serve
			}
			return YAML(header, a.Documents)
		}
	}
	golden["kubeconfig.yaml"] = func() ([]byte, error) {
		d, err := Kubeconfig(KubeconfigOptions{
			Path: "/etc/kubernetes/gatehouse/kubeconfig.yaml",
			Name: "gatehouse", Server: Server{URL: "https://192.0.2.10:9443"},
			CAFile: "/etc/kubernetes/gatehouse/ca.crt", ClientCert: "client.crt", ClientKey: "client.key",
		})
		if err != nil {
			return nil, err
		}
		return YAML("", []Document{d})
	}
	for name, render := range golden {
		t.Run(name, func(t *testing.T) {
			got, err := render()
			if err != nil {
				t.Fatal(err)
			}
			again, err := render()
			if err != nil || !bytes.Equal(got, again) {
				t.Error("the same options do not give the same bytes")
			}
			path := filepath.Join("testdata", name)
			if os.Getenv("UPDATE_GOLDEN") == "1" {
				err := os.WriteFile(path, got, 0o600)
				if err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (regenerate with UPDATE_GOLDEN=1)", err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("differs from %s (regenerate with UPDATE_GOLDEN=1 and read the difference):\n%s", path, got)
			}
		})
	}
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if golden[f.Name()] == nil && f.Name() != "fuzz" { // where Go keeps what a fuzz target failed on
			t.Errorf("testdata/%s belongs to no test: remove it", f.Name())
		}
	}
}

// kube-apiserver reads the kubeconfig with this library.
func TestKubeconfigLoads(t *testing.T) {
	d, err := Kubeconfig(KubeconfigOptions{
		Name: "gatehouse", Server: Server{URL: "https://gatehouse.example:9443"},
		CAFile: "ca.crt", ClientCert: "client.crt", ClientKey: "/abs/client.key",
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := YAML("", []Document{d})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig.yaml")
	err = os.WriteFile(path, text, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	loaded, err := rules.Load()
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.NewDefaultClientConfig(*loaded, nil).ClientConfig()
	// The files do not exist here, which is what it says in the end.
	if err == nil || !strings.Contains(err.Error(), "client.crt") {
		t.Errorf("got %v, %v, want an error that names client.crt", c, err)
	}
	cluster, user := loaded.Clusters["gatehouse"], loaded.AuthInfos["kube-apiserver"]
	if cluster.Server != "https://gatehouse.example:9443/authenticate" || cluster.CertificateAuthority != filepath.Join(filepath.Dir(path), "ca.crt") || len(cluster.CertificateAuthorityData) > 0 {
		t.Errorf("cluster %+v", cluster)
	}
	if user.ClientCertificate != filepath.Join(filepath.Dir(path), "client.crt") || user.ClientKey != "/abs/client.key" || len(user.ClientKeyData) > 0 {
		t.Errorf("user %+v", user)
	}
	if loaded.CurrentContext != "gatehouse" || loaded.Contexts["gatehouse"].Cluster != "gatehouse" || loaded.Contexts["gatehouse"].AuthInfo != "kube-apiserver" {
		t.Errorf("context %q of %+v", loaded.CurrentContext, loaded.Contexts)
	}
}

func TestErrors(t *testing.T) {
	_, err := Kubeconfig(KubeconfigOptions{Server: Server{Namespace: "a", Service: "b", Port: 443}})
	for _, want := range []string{"does not resolve the names of Services", "path of a CA file", "paths of a client certificate"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Kubeconfig: got %v, want also %q", err, want)
		}
	}
	_, err = ForAdmission(Options{Name: "Gate", ExcludeNamespaces: []string{"a/b"}})
	for _, want := range []string{`name "Gate"`, `namespace ""`, `namespace "a/b"`, "no address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ForAdmission: got %v, want also %q", err, want)
		}
	}
	_, err = ForAdmission(options(withURL, func(o *Options) { o.ServiceAccount = "a/b" }))
	for _, want := range []string{`service account "a/b": must be a DNS name`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ForAdmission: got %v, want also %q", err, want)
		}
	}
}

func TestNotes(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		kinds   []string
		notes   []string // the beginning of each
	}{
		"everything": {options(withURL, func(o *Options) { o.Spec = spec() }), []string{"Mutating", "Validating"}, nil},
		"nothing": {
			options(withURL, func(o *Options) { o.Spec = &webhooks.Spec{} }), nil,
			[]string{"there is neither an active policy nor a SidecarProfile"},
		},
		"a policy without binding": {
			options(withURL, func(o *Options) { o.Spec = spec(); o.Spec.Policy.Bindings = nil; o.Spec.Policy.AdmissionPolicies = nil }),
			[]string{"Mutating"},
			nil,
		},
		"a policy about what is never sent": {
			options(withURL, func(o *Options) {
				o.Spec = spec()
				o.Spec.Policy.AdmissionPolicies = append(o.Spec.Policy.AdmissionPolicies, ours("n", specWith("", named("", "v1", "nodes,nodes/status,pods", create, update))))
			}),
			[]string{"Mutating", "Validating"},
			[]string{`AdmissionPolicy/n matches "nodes", which is never sent`, `AdmissionPolicy/n matches "nodes/status", which is never sent`},
		},
		"a CA of its own":           {options(func(o *Options) { o.SelfSigned = true }), []string{"Mutating", "Validating"}, nil},
		"cert-manager not excluded": {options(func(o *Options) { o.Spec = &webhooks.Spec{Sidecar: spec().Sidecar} }), []string{"Mutating"}, []string{"Gatehouse needs cert-manager"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := admissionOf(t, c.options)
			var kinds []string
			for _, d := range a.Documents {
				switch d.object.(type) {
				case *admissionregistrationv1.MutatingWebhookConfiguration:
					kinds = append(kinds, "Mutating")
				case *admissionregistrationv1.ValidatingWebhookConfiguration:
					kinds = append(kinds, "Validating")
				}
			}
			if !slices.Equal(kinds, c.kinds) {
				t.Errorf("got %v, want %v", kinds, c.kinds)
			}
			if !slices.EqualFunc(a.Notes, c.notes, strings.HasPrefix) {
				t.Errorf("got notes %q, want %q", a.Notes, c.notes)
			}
		})
	}
}

func TestParseServer(t *testing.T) {
	for text, want := range map[string]Server{
		"https://gatehouse.example:9443":  {URL: "https://gatehouse.example:9443"},
		"https://gatehouse.example":       {URL: "https://gatehouse.example"},
		"https://gatehouse.example/":      {URL: "https://gatehouse.example"},
		"https://[2001:db8::1]:9443":      {URL: "https://[2001:db8::1]:9443"},
		"https://127.0.0.1:9443":          {URL: "https://127.0.0.1:9443"},
		"http://gatehouse.example":        {},
		"gatehouse.example:9443":          {},
		"https://":                        {},
		"https://:9443":                   {},
		"https://gate house":              {},
		"https://Gatehouse.example":       {},
		"https://gatehouse_x.example":     {},
		"https://gatehouse.example:":      {},
		"https://gatehouse.example:0":     {},
		"https://gatehouse.example:65536": {},
		"https://gatehouse.example:x":     {},
		"https://gatehouse.example/x":     {},
		"https://gatehouse.example?x=y":   {},
		"https://gatehouse.example?":      {},
		"https://gatehouse.example#x":     {},
		"https://gatehouse.example#":      {},
		"https:gatehouse.example":         {},
		"https://user:secret@example":     {},
		"https://example:9443\n":          {},
		"":                                {},
	} {
		got, err := ParseURL(text)
		if got != want || (err == nil) != (want != Server{}) {
			t.Errorf("ParseURL(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error repeats a password: %v", err)
		}
	}
	for text, want := range map[string]Server{
		"system/gate":       {Namespace: "system", Service: "gate", Port: 443},
		"system/gate:8443":  {Namespace: "system", Service: "gate", Port: 8443},
		"gate":              {},
		"system/":           {},
		"/gate":             {},
		"system/gate:":      {},
		"system/gate:0":     {},
		"system/gate:https": {},
		"system/gate/x":     {},
		"system/1gate":      {},
		"System/gate":       {},
		"":                  {},
	} {
		got, err := ParseService(text)
		if got != want || (err == nil) != (want != Server{}) {
			t.Errorf("ParseService(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// certificate makes a certificate that signs itself.
func certificate(t *testing.T, name string, isCA bool, notAfter time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true, IsCA: isCA,
		NotBefore: notAfter.Add(-time.Hour), NotAfter: notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestParseCABundle(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one, two := certificate(t, "one", true, now.Add(time.Hour)), certificate(t, "two", true, now.Add(time.Hour))
	leaf, ended := certificate(t, "leaf", false, now.Add(time.Hour)), certificate(t, "ended", true, now.Add(-time.Hour))
	join := func(parts ...[]byte) string { return string(bytes.Join(parts, []byte("\n"))) }
	for name, c := range map[string]struct {
		text string
		want string // the bundle, or if that is empty
		err  string
	}{
		"one":                     {string(one), string(one), ""},
		"several, with comments":  {join([]byte("# CA one"), one, []byte("# CA two"), two), string(one) + string(two), ""},
		"one twice":               {join(one, two, one), string(one) + string(two), ""},
		"nothing":                 {"", "", "contains no PEM certificate"},
		"not PEM":                 {"hello", "", "contains no PEM certificate"},
		"a serving certificate":   {join(one, leaf), "", `block 2, "CN=leaf": is not the certificate of a CA`},
		"an ended one":            {string(ended), "", `block 1, "CN=ended": ended on 2025-12-31 23:00:00`},
		"a key":                   {"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n", "", `PEM block 1 is of type "PRIVATE KEY", allowed is CERTIFICATE`},
		"no certificate in it":    {"-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n", "", "certificate 1 cannot be parsed: x509"},
		"cut off":                 {string(one) + string(two[:len(two)/2]), "", "1 of 2 PEM blocks cannot be read"},
		"damaged in front of one": {strings.Replace(string(one), "\nM", "\n!", 1) + string(two), "", "1 of 2 PEM blocks cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCABundle([]byte(c.text), now)
			switch {
			case c.err == "" && (err != nil || string(got) != c.want):
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || got != nil):
				t.Errorf("got %q, %v, want the error %q", got, err, c.err)
			case err != nil && strings.Contains(err.Error(), "c2VjcmV0"):
				t.Errorf("the error repeats the text: %v", err)
			}
		})
	}
}

// FuzzParse: what is accepted stays what it was, and is a host to call.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"https://gatehouse.example:9443", "https://[::1]:1/", "system/gate:8443", "https://a:b@c", "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseURL(text); err == nil {
			u, err := url.Parse(s.URL + webhooks.MutatePath)
			if err != nil || u.Scheme != "https" || u.Path != webhooks.MutatePath || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				t.Errorf("%q gives %q: %v", text, s.URL, err)
			}
			if again, err := ParseURL(s.URL); err != nil || again != s {
				t.Errorf("%q gives %q, which gives %q, %v", text, s.URL, again.URL, err)
			}
		}
		if s, err := ParseService(text); err == nil && (s.Namespace == "" || s.Service == "" || s.Port < 1 || s.Port > 65535) {
			t.Errorf("%q gives %+v", text, s)
		}
		if bundle, err := ParseCABundle([]byte(text), time.Time{}); err == nil {
			if again, err := ParseCABundle(bundle, time.Time{}); err != nil || !bytes.Equal(again, bundle) {
				t.Errorf("%q gives %q, which gives %q, %v", text, bundle, again, err)
			}
		}
	})
}
