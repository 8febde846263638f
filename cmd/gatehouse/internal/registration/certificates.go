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
	// caDuration is how long the CA is good for. It is long because a new CA
	// reaches the API server and Gatehouse at different moments, and calls in
	// between fail on clusters whose cert-manager does not merge bundles
	// (before 1.21).
	caDuration = 5 * 365 * 24 * time.Hour
	// servingDuration is how long the serving certificate is good for.
	// cert-manager renews it after two thirds of that, and Gatehouse loads it
	// from the mounted Secret without a restart.
	servingDuration = 90 * 24 * time.Hour
	// keySize is that of P-256: a handshake with it costs a thirtieth of one
	// with RSA-2048.
	keySize = 256
)

// certificates are what cert-manager needs to issue the serving certificate: a
// CA of its own for Gatehouse, so that nobody else's certificate is trusted, and
// a certificate from it.
func (o *Options) certificates() []Document {
	var (
		selfSigned = o.Name + "-selfsigned"
		authority  = o.Name + "-ca"
		key        = certmanagerv1.CertificatePrivateKey{
			Algorithm:      certmanagerv1.ECDSAKeyAlgorithm,
			Size:           keySize,
			RotationPolicy: certmanagerv1.RotationPolicyAlways,
		}
	)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: o.Namespace} }
	typed := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: certmanagerv1.SchemeGroupVersion.String(), Kind: kind}
	}
	issuer := func(name string) cmmeta.IssuerReference {
		return cmmeta.IssuerReference{Name: name, Kind: certmanagerv1.IssuerKind, Group: certmanagerv1.SchemeGroupVersion.Group}
	}
	serving := certmanagerv1.CertificateSpec{
		SecretName: o.Name + servingSecret,
		Duration:   &metav1.Duration{Duration: servingDuration},
		Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth},
		PrivateKey: key.DeepCopy(),
		IssuerRef:  issuer(authority),
	}
	serving.DNSNames, serving.IPAddresses = o.Server.names()
	use := "Mount the Secret " + o.Name + servingSecret + "."
	if o.grantsRights() {
		use = "Gatehouse reads the Secret " + o.Name + servingSecret + " by the API."
	}
	return []Document{
		{
			comment: "cert-manager: a CA for Gatehouse alone, and the serving certificate from it. " + use,
			object: &certmanagerv1.Issuer{
				TypeMeta: typed(certmanagerv1.IssuerKind), ObjectMeta: meta(selfSigned),
				Spec: certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
			},
		},
		{object: &certmanagerv1.Certificate{
			TypeMeta: typed(certmanagerv1.CertificateKind), ObjectMeta: meta(authority),
			Spec: certmanagerv1.CertificateSpec{
				CommonName: authority,
				SecretName: authority,
				Duration:   &metav1.Duration{Duration: caDuration},
				IsCA:       true,
				Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageCertSign},
				PrivateKey: key.DeepCopy(),
				IssuerRef:  issuer(selfSigned),
			},
		}},
		{object: &certmanagerv1.Issuer{
			TypeMeta: typed(certmanagerv1.IssuerKind), ObjectMeta: meta(authority),
			Spec: certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: authority}}},
		}},
		{object: &certmanagerv1.Certificate{
			TypeMeta: typed(certmanagerv1.CertificateKind), ObjectMeta: meta(o.Name), Spec: serving,
		}},
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
