package source

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// sources are each source at its best: it has a certificate.
func sources(t testing.TB) map[string]certs.Source {
	t.Helper()
	dir := dirOf(t, newCA(t).Valid(t, time.Hour))
	files, err := NewFiles(filesIn(dir))
	if err != nil {
		t.Fatal(err)
	}
	own, err := NewSelfSigned(t.Context(), SelfSignedConfig{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]certs.Source{"files": files, "self-signed": own}
}

// TestGetCertificateDoesNoWork holds what every handshake pays: the certificate and
// its parsed leaf are there, and nothing is made anew.
func TestGetCertificateDoesNoWork(t *testing.T) {
	for name, source := range sources(t) {
		first, err := source.GetCertificate(nil)
		if err != nil || first.Leaf == nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := testing.AllocsPerRun(100, func() {
			if again, err := source.GetCertificate(nil); err != nil || again != first {
				t.Errorf("%s: another certificate (%v)", name, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations a handshake", name, n)
		}
	}
}
