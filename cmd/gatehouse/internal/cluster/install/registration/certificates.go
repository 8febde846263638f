package registration

import (
	"net"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// injectCAFrom asks cert-manager to fill in the caBundle of a configuration
// from a Certificate, NAMESPACE/NAME.
const injectCAFrom = certmanagerv1.WantInjectAnnotation

const (
	// authorityDuration is the life of a CA, and servingDuration that of a serving
	// certificate. cert-manager renews both after two thirds of that.
	authorityDuration = 5 * 365 * 24 * time.Hour
	servingDuration   = 90 * 24 * time.Hour
	// servingKeySize is that of P-256: a handshake with it takes a thirtieth of the time
	// that RSA-2048 takes.
	servingKeySize = 256
)

// certificates are what cert-manager needs to issue the serving certificate: a
// CA of its own for Gatehouse, so that no other certificate is trusted, and
// a certificate from it.
func (o *Options) certificates() []Document {
	use := "Mount the Secret " + o.Name + servingSecret + "."
	var (
		selfSigned = o.Name + "-selfsigned"
		authority  = o.Name + "-ca"
	)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: o.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "gatehouse"}}
	}
	issuer := func(name string, config certmanagerv1.IssuerConfig) Document {
		return Document{object: &certmanagerv1.Issuer{
			TypeMeta:   metav1.TypeMeta{APIVersion: certmanagerv1.SchemeGroupVersion.String(), Kind: certmanagerv1.IssuerKind},
			ObjectMeta: meta(name), Spec: certmanagerv1.IssuerSpec{IssuerConfig: config},
		}}
	}
	certificate := func(name, issuer string, life time.Duration, spec certmanagerv1.CertificateSpec) Document {
		spec.SecretName = name + servingSecret // of the authority too: a CA of our own may have NAME-ca
		spec.Duration = &metav1.Duration{Duration: life}
		spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{
			Algorithm: certmanagerv1.ECDSAKeyAlgorithm, Size: servingKeySize, RotationPolicy: certmanagerv1.RotationPolicyAlways,
		}
		spec.IssuerRef = cmmeta.IssuerReference{Name: issuer, Kind: certmanagerv1.IssuerKind, Group: certmanagerv1.SchemeGroupVersion.Group}
		return Document{object: &certmanagerv1.Certificate{
			TypeMeta:   metav1.TypeMeta{APIVersion: certmanagerv1.SchemeGroupVersion.String(), Kind: certmanagerv1.CertificateKind},
			ObjectMeta: meta(name), Spec: spec,
		}}
	}
	first := issuer(selfSigned, certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}})
	first.comment = "cert-manager: a CA for Gatehouse alone, and the serving certificate from it. " + use
	dns, addresses := o.Server.names()
	return []Document{
		first,
		certificate(authority, selfSigned, authorityDuration, certmanagerv1.CertificateSpec{
			CommonName: authority, IsCA: true, Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageCertSign},
		}),
		issuer(authority, certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: authority + servingSecret}}),
		certificate(o.Name, authority, servingDuration, certmanagerv1.CertificateSpec{
			DNSNames: dns, IPAddresses: addresses,
			Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth},
		}),
	}
}

// names are the names and addresses that the API server verifies the serving
// certificate for: NAME.NAMESPACE.svc for a Service, and the other names under
// which people and probes call it.
func (s Server) names() (dns, addresses []string) {
	if s.Namespace != "" {
		name := s.Service + "." + s.Namespace
		return []string{name + ".svc", name + ".svc.cluster.local", name, s.Service}, nil
	}
	host := s.host()
	if net.ParseIP(host) != nil {
		return nil, []string{host}
	}
	return []string{host}, nil
}
