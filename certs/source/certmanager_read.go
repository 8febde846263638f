package source

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

// errNoCertManager means that the API server does not know cert-manager's kinds.
var errNoCertManager = errors.New("the API server does not know cert-manager's kinds: install cert-manager, or use --self-signed-secret")

func certificates() schema.GroupVersionResource {
	return certmanagerv1.SchemeGroupVersion.WithResource("certificates")
}

// failed explains why a request failed.
func (m *CertManager) failed(ctx context.Context, place, verb, resource string, err error) error {
	if apierrors.IsNotFound(err) && !kube.IsMissing(err) {
		return errNoCertManager
	}
	r := kube.Request{Object: place, Verb: verb, Resource: resource}
	r.Right = fmt.Sprintf("a Role in namespace %q must allow get and watch of the %s", m.cfg.Namespace, place)
	return r.Explain(ctx, err)
}

// readCertificate records the Secret's name, and returns why the Certificate is not ready.
// err is about reading it.
func (m *CertManager) readCertificate(ctx context.Context, now time.Time) (unready, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	place := m.String()
	live, err := m.cfg.Dynamic.Resource(certificates()).Namespace(m.cfg.Namespace).Get(ctx, m.cfg.Name, metav1.GetOptions{})
	switch {
	case kube.IsMissing(err):
		return nil, fmt.Errorf("%s: does not exist (hint: apply the output of gatehouse manifests --certificates cert-manager --rights)", place)
	case err != nil:
		return nil, m.failed(ctx, place, "get", "certificates", err)
	}
	var cert certmanagerv1.Certificate
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &cert); err != nil {
		return nil, fmt.Errorf("%s: cannot be decoded: %s (hint: compare the versions of cert-manager and of its CRDs)", place, kube.Sanitize(err.Error()))
	}
	if cert.Spec.SecretName == "" {
		return nil, fmt.Errorf("%s: has no spec.secretName (hint: name a Secret)", place)
	}
	m.secretName = cert.Spec.SecretName
	unready = readyProblem(&cert)
	if unready == nil {
		m.unreadySince = time.Time{}
		return nil, nil
	}
	if m.unreadySince.IsZero() || m.unreadySince.After(now) {
		m.unreadySince = now
	}
	return fmt.Errorf("%s: %w", place, unready), nil
}

// readyProblem returns why cert-manager says that a Certificate is not ready.
func readyProblem(cert *certmanagerv1.Certificate) error {
	for i := range cert.Status.Conditions {
		c := &cert.Status.Conditions[i]
		if c.Type != certmanagerv1.CertificateConditionReady {
			continue
		}
		if c.Status == cmmeta.ConditionTrue {
			return nil
		}
		return fmt.Errorf("is not ready: %q: %q (hint: see cert-manager's CertificateRequests in its namespace)", kube.Sanitize(c.Reason), kube.Sanitize(c.Message))
	}
	return errors.New("cert-manager has not processed it (hint: check that cert-manager's controller runs)")
}

// secret returns the name of a Secret for messages.
func (m *CertManager) secret(name string) string { return "Secret " + m.cfg.Namespace + "/" + name }

// readSecret reads the certificate in the Secret. It returns nil if there is none and never
// was one.
func (m *CertManager) readSecret(ctx context.Context) (*tls.Certificate, error) {
	if m.secretName == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	place := m.secret(m.secretName)
	secret, err := m.cfg.Client.CoreV1().Secrets(m.cfg.Namespace).Get(ctx, m.secretName, metav1.GetOptions{})
	switch {
	case kube.IsMissing(err) && m.current.Load() == nil:
		return nil, nil // the Certificate says why
	case kube.IsMissing(err):
		return nil, fmt.Errorf("%s: does not exist any more: cert-manager creates it again", place)
	case err != nil:
		return nil, m.failed(ctx, place, "get", "secrets", err)
	}
	found, err := parseIssued(place, secret.Data)
	if err != nil && secret.Type != corev1.SecretTypeTLS {
		return nil, fmt.Errorf("%w (it is of type %q and not %q)", err, kube.Sanitize(string(secret.Type)), corev1.SecretTypeTLS)
	}
	return found, err
}

// parseIssued parses the data of a Secret of cert-manager. An error names the key and the
// remedy, and never holds a part of the private key.
func parseIssued(place string, data map[string][]byte) (*tls.Certificate, error) {
	const remedy = " (hint: delete the Secret: cert-manager creates it again)"
	var lacks []string
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		if len(data[key]) == 0 {
			lacks = append(lacks, key+" is missing")
		}
	}
	if len(lacks) > 0 {
		return nil, errors.New(place + ": " + strings.Join(lacks, ", ") + remedy)
	}
	pair, err := pki.ParsePair(corev1.TLSCertKey, data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey, data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, kube.NewError(place+": "+kube.Sanitize(err.Error())+remedy, err)
	}
	return pair, nil
}
