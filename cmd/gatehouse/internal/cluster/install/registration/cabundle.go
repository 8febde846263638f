package registration

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
)

// ParseCABundle checks the PEM text of CA certificates and returns it without
// what the API server does not need, such as comments: the bytes depend on the
// certificates alone. A certificate that is not a CA's, that has ended, or a
// block that is no certificate or cannot be read is an error.
func ParseCABundle(text []byte, now time.Time) ([]byte, error) {
	certificates, err := pemcert.Parse(text)
	if err != nil {
		return nil, err
	}
	var bundle bytes.Buffer
	for i, certificate := range certificates {
		switch {
		case !certificate.IsCA:
			return nil, fmt.Errorf("block %d, %q: is not the certificate of a CA (hint: use the certificate that signed the serving certificate)", i+1, certificate.Subject)
		case now.After(certificate.NotAfter):
			return nil, fmt.Errorf("block %d, %q: ended on %s", i+1, certificate.Subject, certificate.NotAfter.UTC().Format(time.DateTime))
		case slices.ContainsFunc(certificates[:i], certificate.Equal):
			continue
		}
		if err := pem.Encode(&bundle, &pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}); err != nil {
			return nil, err
		}
	}
	return bundle.Bytes(), nil
}
