package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The hints say how an API server shows a client certificate, for the reader of its log.
const (
	authenticationHint = "set client-certificate and client-key in the API server's webhook kubeconfig, and --client-ca to the CA that signed it"
	authorizationHint  = "set client-certificate and client-key in the kubeconfig of the API server's AuthorizationConfiguration, and --client-ca to the CA that signed it"
	admissionHint      = "name a kubeConfigFile in the API server's AdmissionConfiguration, with client-certificate and client-key for the user SERVICE.NAMESPACE.svc, and set --client-ca to the CA that signed it"
)

func always(*http.Request) bool { return true }

func never(*http.Request) bool { return false }

// isVerified reports whether the caller has shown a client certificate of a trusted CA.
func isVerified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// requireCertificate returns a function that admits only callers with a verified client
// certificate: callers of the authentication webhook can try tokens, and callers of the
// admission webhooks can try out policies.
func requireCertificate(hint string, now func() time.Time) func(*http.Request) error {
	return func(r *http.Request) error {
		switch {
		case !isVerified(r):
			return fmt.Errorf("a client certificate is required here (hint: %s)", hint)
		case now().After(r.TLS.PeerCertificates[0].NotAfter):
			// The certificate expired after the connection was made.
			return errors.New("the client certificate has expired")
		default:
			return nil
		}
	}
}
