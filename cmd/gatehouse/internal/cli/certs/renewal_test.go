package certs

import (
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
)

func TestRenewalRemarks(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	signed := func(d time.Duration) certmanagerv1.CertificateStatus {
		from := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		return certmanagerv1.CertificateStatus{NotBefore: &metav1.Time{Time: from}, NotAfter: &metav1.Time{Time: from.Add(d)}}
	}
	before := func(d time.Duration) certmanagerv1.CertificateSpec {
		return certmanagerv1.CertificateSpec{RenewBefore: &metav1.Duration{Duration: d}}
	}
	disabled := certmanagerv1.CertificateSpec{Renewal: &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.CertificateRenewalPolicyDisabled}}
	const from = certmanagerv1.WantInjectAnnotation
	for name, c := range map[string]struct {
		status cabundle.Status
		spec   certmanagerv1.CertificateSpec
		signed certmanagerv1.CertificateStatus
		want   string
	}{
		"nothing":                     {status: cabundle.Status{Injector: from, InjectFrom: "shop/a"}},
		"no cainjector":               {spec: disabled},
		"shorter than the default":    {cabundle.Status{Injector: from, InjectFrom: "shop/a"}, before(30 * day), certmanagerv1.CertificateStatus{}, ""},
		"as long as the default":      {cabundle.Status{Injector: from, InjectFrom: "shop/a"}, before(90 * day), certmanagerv1.CertificateStatus{}, "a renewBefore of 90d, which cert-manager ignores because the certificate lasts 90d"},
		"longer than what was signed": {cabundle.Status{Injector: from, InjectFrom: "shop/a"}, before(30 * day), signed(7 * day), "a renewBefore of 30d, which cert-manager ignores because the certificate lasts 7d"},
		"not renewed":                 {cabundle.Status{Injector: from, InjectFrom: "shop/a"}, disabled, certmanagerv1.CertificateStatus{}, "the Certificate shop/a is not renewed"},
		"a Certificate that is not there": {
			status: cabundle.Status{Injector: from, InjectFrom: "shop/b"}, want: "how the Certificate shop/b is renewed cannot be read: ",
		},
		"two annotations": {
			status: cabundle.Status{Injector: certmanagerv1.WantInjectFromSecretAnnotation, InjectFrom: "shop/s", IgnoredInjectors: []string{from}}, spec: disabled,
			want: "takes the annotation cert-manager.io/inject-ca-from-secret, and ignores cert-manager.io/inject-ca-from",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&certmanagerv1.Certificate{
				TypeMeta: metav1.TypeMeta{APIVersion: "cert-manager.io/v1", Kind: "Certificate"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"},
				Spec: c.spec, Status: c.signed,
			})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(renewalRemarks(t.Context(), fake.NewSimpleDynamicClient(runtime.NewScheme(), &unstructured.Unstructured{Object: object}), &c.status), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
