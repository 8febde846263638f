package registration

import (
	"net"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

	"github.com/gatehouse-dev/gatehouse/certs/source"
)

// injectCAFrom asks cert-manager to fill in the caBundle of a configuration
// from a Certificate, NAMESPACE/NAME.
const injectCAFrom = certmanagerv1.WantInjectAnnotation

// certificates are what cert-manager needs to issue the serving certificate: a
// CA of its own for Gatehouse, so that no other certificate is trusted, and
// a certificate from it.
func (o *Options) certificates() []Document {
	use := "Mount the Secret " + o.Name + servingSecret + "."
	if o.grantsCertificateRights() {
		use = "Gatehouse reads the Secret " + o.Name + servingSecret + " by the API."
	}
	var documents []Document
	dns, addresses := o.Server.names()
	for _, object := range source.CertManagerObjects(o.Namespace, o.Name, dns, addresses, nil) {
		documents = append(documents, Document{object: object})
	}
	documents[0].comment = "cert-manager: a CA for Gatehouse alone, and the serving certificate from it. " + use
	return documents
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
