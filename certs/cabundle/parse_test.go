package cabundle

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

func TestParseRegistration(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want Registration
		says []string
	}{
		{text: "gatehouse", want: Registration{Name: "gatehouse"}},
		{text: "gatehouse.example.org", want: Registration{Name: "gatehouse.example.org"}},
		{text: "mutating/gatehouse", want: Registration{Kind: "MutatingWebhookConfiguration", Name: "gatehouse"}},
		{text: "validating/gatehouse", want: Registration{Kind: "ValidatingWebhookConfiguration", Name: "gatehouse"}},
		{text: "", says: []string{`registration "": the name "" is not that of a webhook configuration`, "hint: gatehouse"}},
		{text: "mutating/", says: []string{`registration "mutating/": the name ""`}},
		{text: "/x", says: []string{`the kind "" is not known, allowed are mutating and validating`}},
		{text: "Mutating/x", says: []string{`the kind "Mutating" is not known`}},
		{text: "crd/x", says: []string{`the kind "crd" is not known, allowed are mutating and validating (hint: mutating/NAME`}},
		{text: "mutating/x/y", says: []string{`the name "x/y"`}},
		{text: "x,y", says: []string{`the name "x,y"`}},
		{text: "x\n", says: []string{`"x\n"`}},
		{text: strings.Repeat("x", 300), says: []string{"must be no more than 253"}},
	} {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			got, err := ParseRegistration(test.text)
			wantError(t, err, test.says...)
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if err == nil && got.String() != test.text {
				t.Errorf("it shows as %q", got)
			}
		})
	}
}

func FuzzParseRegistration(f *testing.F) {
	for _, seed := range []string{"gatehouse", "mutating/gatehouse", "validating/x.y", "/", "crd/x", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRegistration(text)
		if err == nil && r.String() != text {
			t.Errorf("%q is read as %q", text, r)
		}
	})
}

func TestSameHost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host, name string
		want       bool
	}{
		{"gatehouse.example.org", "Gatehouse.EXAMPLE.org", true},
		{"gatehouse.example.org.", "gatehouse.example.org", true},
		{"gatehouse.example.org", "x.gatehouse.example.org", false},
		{"*.example.org", "gatehouse.example.org", true},
		{"*.example.org", "a.b.example.org", false},
		{"*.example.org", "example.org", false},
		{"*.example.org", ".example.org", false},
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.10", false},
		{"::ffff:192.0.2.1", "192.0.2.1", true},
		{"2001:DB8::1", "2001:db8:0:0:0:0:0:1", true},
		{"192.0.2.1", "example.org", false},
		{"", "", false},
	} {
		if got := sameHost(test.host, test.name); got != test.want {
			t.Errorf("sameHost(%q, %q) is %t", test.host, test.name, got)
		}
	}
}

// FuzzParseBundle holds parseBundle to how kube-apiserver reads a caBundle.
func FuzzParseBundle(f *testing.F) {
	ca, other := newCA(f, "ca", nil), newCA(f, "other", nil)
	f.Add("")
	f.Add(ca.pem() + "\n# a comment\n" + other.pem() + ca.pem())
	f.Add(strings.Replace(ca.pem(), "M", "?", 1) + other.pem())
	f.Add(block("CERTIFICATE", map[string]string{"a": "b"}, ca.cert.Raw) + block("PRIVATE KEY", nil, []byte("x")))
	f.Add(block("CERTIFICATE", nil, []byte("garbage")) + "-----BEGIN CERTIFICATE-----")
	f.Fuzz(func(t *testing.T, raw string) {
		want := x509.NewCertPool()
		some := want.AppendCertsFromPEM([]byte(raw))
		got := parseBundle(raw)
		if !got.pool.Equal(want) || some != (len(got.certs) > 0) {
			t.Errorf("%q: read %d certificates, and not as kube-apiserver does", raw, len(got.certs))
		}
		if got.empty != (raw == "") {
			t.Errorf("%q: empty is %t", raw, got.empty)
		}
		_ = got.remark()
	})
}

func TestRead(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	ca := newCA(t, "ca", nil)
	server.put("mutating/x", func(o *configuration) {
		webhooks(ca.pem()+"-----BEGIN CERTIFICATE-----\n", map[string]string{"one": service})(o)
		o.Webhooks = append(o.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: "two", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://192.0.2.1:9443/x")}})
		o.Annotations = map[string]string{"cert-manager.io/inject-ca-from": "a/b", "cert-manager.io/inject-apiserver-ca": "true"}
		o.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{"k:{\"name\":\"one\"}":{"f:clientConfig":{"f:url":{}}}}}`)},
			{Manager: "old", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{"k:{\"name\":\"one\"}":{"f:clientConfig":{"f:caBundle":{}}}}}`), Time: &metav1.Time{Time: epoch}},
			{Manager: FieldManager, Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{"k:{\"name\":\"one\"}":{"f:clientConfig":{"f:caBundle":{}}}}}`), Time: &metav1.Time{Time: epoch.Add(time.Hour)}},
		}
	})
	got, err := Read(t.Context(), server.Client(), registrations(t, "x", "validating/y"))
	if err != nil || len(got) != 2 {
		t.Fatalf("got %+v and %v", got, err)
	}
	if s := got[1]; s.Kind != "ValidatingWebhookConfiguration" || s.Name != "y" || s.Found {
		t.Errorf("of what does not exist: %+v", s)
	}
	s := got[0]
	if s.Kind != "MutatingWebhookConfiguration" || !s.Found || s.Injector != "cert-manager.io/inject-ca-from" || s.InjectFrom != "a/b" ||
		len(s.IgnoredInjectors) != 1 || len(s.Entries) != 2 {
		t.Fatalf("got %+v", s)
	}
	one, two := s.Entries[0], s.Entries[1]
	if one.Name != "one" || one.Remark != "1 of its 2 PEM blocks are not certificates and are ignored" ||
		len(one.Bundle) != 1 || one.Bundle[0] != (Certificate{Subject: "CN=ca", ID: rotation.ID(ca.cert), NotAfter: ca.cert.NotAfter}) {
		t.Errorf("got %+v", one)
	}
	if len(one.Managers) != 2 || one.Managers[0] != (Manager{Name: FieldManager, Operation: "Apply", Time: epoch.Add(time.Hour)}) || one.Managers[1].Name != "old" {
		t.Errorf("managers are %+v", one.Managers)
	}
	if two.Remark != "no caBundle" || len(two.Managers) != 0 {
		t.Errorf("got %+v", two)
	}

	got, err = Read(t.Context(), server.Client(), registrations(t, "z"))
	if err != nil || len(got) != 2 || got[0].Found || got[1].Found {
		t.Errorf("of a name that nobody has: %+v and %v", got, err)
	}
	server.Set(certstest.Refuses(http.StatusForbidden, "by the test", "get"))
	got, err = Read(t.Context(), server.Client(), registrations(t, "x"))
	wantError(t, err, "MutatingWebhookConfiguration x: the API server refuses to get it: by the test", "ValidatingWebhookConfiguration x")
	if len(got) != 2 || got[0].Problem == "" {
		t.Errorf("of what may not be read: %+v", got)
	}
	server.Set(func(string, *http.Request) (*http.Response, error) { return nil, errAway })
	if _, err = Read(t.Context(), server.Client(), registrations(t, "x")); !errors.Is(err, errAway) {
		t.Errorf("of a server that is away: %v", err)
	}
}
