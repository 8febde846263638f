package certmanager

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

var shared cluster.Shared

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m, shared.Stop)) }

const (
	authorityName = "authority"
	servingName   = "serving"
	dnsName       = "gatehouse.gatehouse-system.svc"
)

func TestIssueAndInject(t *testing.T) {
	c := shared.Get(t)
	m := New(t, c)
	namespace := c.NewNamespace(t, nil)

	// The usual chain: an authority that signs itself, and an issuer that it is the authority of.
	createIssuer(t, m, namespace, "self-signed", certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}})
	createCertificate(t, m, namespace, authorityName, certmanagerv1.CertificateSpec{
		IsCA: true, CommonName: authorityName, IssuerRef: cmmetav1.IssuerReference{Name: "self-signed"},
	})
	createIssuer(t, m, namespace, authorityName, certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: authorityName}})
	createCertificate(t, m, namespace, servingName, certmanagerv1.CertificateSpec{
		DNSNames: []string{dnsName}, IssuerRef: cmmetav1.IssuerReference{Name: authorityName},
	})
	injected, untouched := namespace+"-injected", namespace+"-untouched"
	createConfiguration(t, c, injected, map[string]string{certmanagerv1.WantInjectAnnotation: namespace + "/" + servingName})
	createConfiguration(t, c, untouched, nil)

	secret := issued(t, c, namespace, servingName)
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(issued(t, c, namespace, authorityName).Data[corev1.TLSCertKey])
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: dnsName, Roots: roots})
	must(t, err)

	want := secret.Data[cmmetav1.TLSCAKey]
	await(t, func(ctx context.Context) error {
		got, err := caBundle(ctx, c, injected)
		if err == nil && (len(got) == 0 || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want))) {
			err = fmt.Errorf("the caBundle is %q, want %q", got, want)
		}
		return err
	})
	got, err := caBundle(t.Context(), c, untouched)
	if err != nil || len(got) != 0 {
		t.Errorf("the caBundle of a configuration without the annotation is %q, %v", got, err)
	}
}

func TestProgramsCanBeKilledAndStartedAgain(t *testing.T) {
	m := New(t, shared.Get(t))
	for name, program := range map[string]struct {
		process *cluster.Process
		works   func(context.Context) error
	}{
		"controller": {m.Controller(), m.issues},
		"cainjector": {m.CAInjector(), m.injects},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, program.process.Kill())
			if program.works(t.Context()) == nil {
				t.Error("it works after it was killed")
			}
			must(t, program.process.Start(t.Context())) // which waits until it works again
		})
	}
}

func TestOutsideTheRepository(t *testing.T) {
	t.Chdir("/")
	_, err := directory()
	if err == nil || !strings.Contains(err.Error(), "hint: ") {
		t.Errorf("got %v, want an error with a hint", err)
	}
}

func createIssuer(t *testing.T, m *CertManager, namespace, name string, config certmanagerv1.IssuerConfig) {
	t.Helper()
	_, err := m.Client().CertmanagerV1().Issuers(namespace).Create(t.Context(), &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.IssuerSpec{IssuerConfig: config},
	}, metav1.CreateOptions{})
	must(t, err)
}

// createCertificate makes one whose Secret has its name.
func createCertificate(t *testing.T, m *CertManager, namespace, name string, spec certmanagerv1.CertificateSpec) {
	t.Helper()
	spec.SecretName = name
	_, err := m.Client().CertmanagerV1().Certificates(namespace).Create(t.Context(), &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{})
	must(t, err)
}

// createConfiguration makes one that is never called.
func createConfiguration(t *testing.T, c *cluster.Cluster, name string, annotations map[string]string) {
	t.Helper()
	sideEffects := admissionregistrationv1.SideEffectClassNone
	_, err := c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "test.gatehouse.test", SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					Service: &admissionregistrationv1.ServiceReference{Namespace: "gatehouse-system", Name: "gatehouse"},
				},
			}},
		}, metav1.CreateOptions{})
	must(t, err)
}

func caBundle(ctx context.Context, c *cluster.Cluster, name string) ([]byte, error) {
	found, err := c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.Webhooks[0].ClientConfig.CABundle, nil
}

// issued waits for a certificate in a Secret.
func issued(t *testing.T, c *cluster.Cluster, namespace, name string) *corev1.Secret {
	t.Helper()
	var secret *corev1.Secret
	await(t, func(ctx context.Context) error {
		var err error
		secret, err = c.Client().CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(secret.Data[corev1.TLSCertKey]) == 0 {
			err = errors.New("there is no " + corev1.TLSCertKey)
		}
		return err
	})
	return secret
}

// await waits for what comes about by itself.
func await(t *testing.T, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	must(t, eventually(ctx, ask))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
