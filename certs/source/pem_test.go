package source

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

// FuzzParsePair reads what anybody may have written into a Secret or a file.
func FuzzParsePair(f *testing.F) {
	a := newCA(f)
	good := a.Valid(f, day)
	sec1, err := x509.MarshalECPrivateKey(parsed0(f, good))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Cert, good.Key)
	f.Add(append(append([]byte{}, good.Cert...), pki.EncodeCertificate(a.Cert.Raw)...), good.Key)
	f.Add(good.Key, good.Cert)
	f.Add(good.Cert[:len(good.Cert)/2], sec1)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		found, err := parseIssued("Secret a/b", map[string][]byte{"tls.crt": cert, "tls.key": key})
		if err != nil {
			if text := err.Error(); len(text) > 2000 || !strings.HasPrefix(text, "Secret a/b: ") || strings.ContainsAny(text, "\n\x00\x1b") {
				t.Errorf("an error that nobody wants to read: %q", text)
			}
			return
		}
		if found.Leaf == nil || len(found.Certificate) == 0 {
			t.Fatal("half a pair")
		}
		// What is accepted can be served: the key is the certificate's.
		if _, err := tls.X509KeyPair(cert, key); err != nil && strings.Contains(err.Error(), "does not match") {
			t.Error(err)
		}
	})
}

func parsed0(t testing.TB, p certPair) *ecdsa.PrivateKey {
	t.Helper()
	key, ok := parsed(t, p).PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("not an ECDSA key")
	}
	return key
}
