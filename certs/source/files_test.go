package source

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

const day = 24 * time.Hour

// followed is a running Files over tls.crt and tls.key of a directory.
func followed(t *testing.T, dir string, c *certstest.Clock) (*Files, *observer) {
	t.Helper()
	return gated(t, dir, nil, 0, c)
}

// filesIn configures Files over tls.crt and tls.key of a directory.
func filesIn(dir string) FilesConfig {
	return FilesConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Now: certstest.NewClock().Now}
}

func serving(t *testing.T, s certs.Source) []byte {
	t.Helper()
	pair, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if pair.Leaf == nil {
		t.Fatal("the leaf is not parsed")
	}
	return pki.EncodeCertificate(pair.Certificate[0])
}

func TestFilesFollowTheKubeletsSwapOfALink(t *testing.T) {
	ca := newCA(t)
	first, second := ca.Valid(t, day), ca.Valid(t, 2*day)
	dir := t.TempDir()
	for name, p := range map[string]certPair{"..v1": first, "..v2": second} {
		if err := os.Rename(dirOf(t, p), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..v1", "..data")
	link(filepath.Join("..data", "tls.crt"), "tls.crt")
	link(filepath.Join("..data", "tls.key"), "tls.key")

	f, o := followed(t, dir, certstest.NewClock())
	if !bytes.Equal(serving(t, f), first.Cert) {
		t.Fatal("the first pair is not served")
	}
	// Nobody ticks: the change itself has to be noticed.
	link("..v2", "..data_tmp")
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	o.Await("the second pair", inUse(second.Until))
	if !bytes.Equal(serving(t, f), second.Cert) {
		t.Error("the second pair is not served")
	}
}

// Whatever is found in place of a good pair, the last good one stays, what is
// wrong is said once, and a good pair is taken when it comes.
func TestFilesKeepTheLastGoodPair(t *testing.T) {
	ca := newCA(t)
	good, next := ca.Valid(t, day), ca.Valid(t, 2*day)
	cases := []struct {
		name string
		edit func(t *testing.T, dir string)
		says string
	}{
		{"certificate half-written", func(t *testing.T, dir string) {
			certstest.Write(t, filepath.Join(dir, "tls.crt"), next.Cert[:len(next.Cert)/2])
		}, "tls.crt: 0 of 1 PEM blocks can be read: the file is half-written or damaged"},
		{"chain half-written", func(t *testing.T, dir string) {
			chain := append(slices.Clone(good.Cert), pki.EncodeCertificate(ca.Cert.Raw)...)
			certstest.Write(t, filepath.Join(dir, "tls.crt"), chain[:len(chain)-10])
		}, "tls.crt: 1 of 2 PEM blocks can be read"},
		{"key half-written", func(t *testing.T, dir string) {
			certstest.Write(t, filepath.Join(dir, "tls.key"), next.Key[:len(next.Key)-30])
		}, "tls.key: 0 of 1 PEM blocks can be read"},
		{"key emptied", func(t *testing.T, dir string) {
			certstest.Write(t, filepath.Join(dir, "tls.key"), nil)
		}, "tls.key: is empty"},
		{"certificate replaced and key not", func(t *testing.T, dir string) {
			certstest.Write(t, filepath.Join(dir, "tls.crt"), next.Cert)
		}, "certificate and key do not match: "},
		{"key replaced and certificate not", func(t *testing.T, dir string) {
			certstest.Write(t, filepath.Join(dir, "tls.key"), next.Key)
		}, "certificate and key do not match: "},
		{"certificate removed", func(t *testing.T, dir string) {
			certstest.Remove(t, filepath.Join(dir, "tls.crt"))
		}, "no such file or directory: check the path"},
		{"expired pair", func(t *testing.T, dir string) {
			old := ca.Pair(t, leafTemplate(certstest.Noon.Add(-2*day), certstest.Noon.Add(-time.Second)))
			put(t, dir, old)
		}, "tls.crt: expired at 2026-11-20T11:59:59Z: renew it"},
		{"pair of tomorrow", func(t *testing.T, dir string) {
			early := ca.Pair(t, leafTemplate(certstest.Noon.Add(day), certstest.Noon.Add(2*day)))
			put(t, dir, early)
		}, "tls.crt: not valid before 2026-11-21T12:00:00Z"},
		{"directory removed", func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, "no such file or directory"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tls")
			if err := os.Rename(dirOf(t, good), dir); err != nil {
				t.Fatal(err)
			}
			f, o := followed(t, dir, certstest.NewClock())
			c.edit(t, dir)
			e := o.Await(c.says, func(e certs.Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), c.says) })
			if want := "rejected, the previous certificate stays active until 2026-11-21T12:00:00Z: "; !strings.HasPrefix(e.Err.Error(), want) {
				t.Errorf("got %v, want it to begin with %q", e.Err, want)
			}
			if !e.NotAfter.Equal(good.Until) {
				t.Errorf("in use until %v, want %v", e.NotAfter, good.Until)
			}
			if !bytes.Equal(serving(t, f), good.Cert) {
				t.Error("the good pair is no longer served")
			}
			if err := f.Healthy(); err != nil {
				t.Errorf("unhealthy with a valid certificate: %v", err)
			}

			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, dir, next)
			o.Tick()
			o.Await("recovery", inUse(next.Until))
			if !bytes.Equal(serving(t, f), next.Cert) {
				t.Error("the next pair is not served")
			}
		})
	}
}

// That changes are not noticed at once is a remark about what is so, and says
// neither that the pair in use is bad nor that a bad one is good.
func TestFilesRemarkThatNothingIsWatched(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	if err := os.Rename(dirOf(t, newCA(t).Valid(t, day)), dir); err != nil {
		t.Fatal(err)
	}
	_, o := followed(t, dir, certstest.NewClock())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	const gone = "tls.crt: no such file"
	refused := o.Await("the missing pair", func(e certs.Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), gone) })
	o.Tick()
	e := o.Await("the remark", func(e certs.Event) bool {
		return slices.ContainsFunc(e.Warnings, func(w string) bool { return strings.Contains(w, "are detected only every 10s") })
	})
	if e.Err == nil || e.Err.Error() != refused.Err.Error() || len(refused.Warnings) > 0 {
		t.Errorf("got %+v after %+v", e, refused)
	}
	o.Tick()
	o.Quiet()
}

func TestFilesAndTime(t *testing.T) {
	ca := newCA(t)
	good := ca.Valid(t, day)
	dir := dirOf(t, good)
	now := certstest.NewClock()
	f, o := followed(t, dir, now)

	// A pair for later waits until its time has come.
	later := ca.Pair(t, leafTemplate(certstest.Noon.Add(time.Hour), certstest.Noon.Add(3*day)))
	put(t, dir, later)
	o.Await("the pair for later", func(e certs.Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), "not valid before") })
	if !bytes.Equal(serving(t, f), good.Cert) {
		t.Error("a pair is served before its time")
	}
	now.Advance(2 * time.Hour)
	o.Tick()
	o.Await("its time", inUse(later.Until))

	// One that nobody renews expires, and every probe is told.
	now.Advance(3 * day)
	if err := f.Healthy(); err == nil || !strings.Contains(err.Error(), "tls.crt: expired at 2026-11-23T12:00:00Z: renew it") {
		t.Errorf("Healthy: %v", err)
	}
	o.Tick()
	e := o.Await("the expiry", func(e certs.Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), "expired") })
	if !e.NotAfter.Equal(later.Until) {
		t.Errorf("in use until %v", e.NotAfter)
	}

	// Between two that have expired the newer file wins, and a good one ends it.
	old := ca.Pair(t, leafTemplate(certstest.Noon.Add(-day), certstest.Noon.Add(2*day)))
	put(t, dir, old)
	o.Await("another expired pair", func(e certs.Event) bool { return e.Err != nil && e.NotAfter.Equal(old.Until) })
	fresh := ca.Valid(t, 10*day)
	put(t, dir, fresh)
	o.Await("a good pair", inUse(fresh.Until))
	if err := f.Healthy(); err != nil {
		t.Errorf("Healthy: %v", err)
	}
}

// The server has to come up for the pair that will replace the expired one.
func TestFilesStartWithAnExpiredPair(t *testing.T) {
	old := newCA(t).Pair(t, leafTemplate(certstest.Noon.Add(-2*day), certstest.Noon.Add(-day)))
	f, _ := followed(t, dirOf(t, old), certstest.NewClock())
	if err := f.Healthy(); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("Healthy: %v", err)
	}
}

func TestNewFilesErrors(t *testing.T) {
	ca := newCA(t)
	good, other := ca.Valid(t, day), ca.Valid(t, day)
	caPEM := pki.EncodeCertificate(ca.Cert.Raw)
	block := func(kind string, data []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}) }
	cases := []struct {
		name      string
		cert, key []byte
		says      string
	}{
		{"not PEM", []byte("\x30\x82"), good.Key, "tls.crt: holds no PEM block: convert it from DER or PKCS #12"},
		{"empty", []byte(" \n"), good.Key, "tls.crt: is empty"},
		{"swapped", good.Key, good.Cert, "tls.crt: holds a private key and no certificate: are the two files swapped?"},
		{"certificate twice", good.Cert, good.Cert, "tls.key: holds a certificate and no private key: are the two files swapped?"},
		{"a request in place of a certificate", block("CERTIFICATE REQUEST", []byte("x")), good.Key, `tls.crt: holds a PEM block of type "CERTIFICATE REQUEST" and no CERTIFICATE`},
		{"a public key in place of a key", good.Cert, block("PUBLIC KEY", []byte("x")), `tls.key: holds a PEM block of type "PUBLIC KEY" and no PRIVATE KEY`},
		{"not a certificate inside", block("CERTIFICATE", []byte("x")), good.Key, "tls.crt: PEM block 1 is not a valid certificate"},
		{"damaged in the middle", bytes.Join([][]byte{good.Cert, bytes.Replace(caPEM, []byte("MII"), []byte("!!!"), 1), caPEM}, nil), good.Key, "tls.crt: 2 of 3 PEM blocks can be read"},
		{"not a key inside", good.Cert, block("PRIVATE KEY", []byte("x")), "tls.key: the PRIVATE KEY cannot be read: write it as PKCS #8"},
		{"encrypted key", good.Cert, block("ENCRYPTED PRIVATE KEY", []byte("x")), "tls.key: the private key is encrypted"},
		{"encrypted key, old form", good.Cert, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("x"), Headers: map[string]string{"DEK-Info": "AES-256-CBC,00"}}), "tls.key: the private key is encrypted"},
		{"pair of two issues", good.Cert, other.Key, "certificate and key do not match: "},
		{"CA in front of the leaf", append(slices.Clone(caPEM), good.Cert...), good.Key, "is number 2 in the file: put it first"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := dirOf(t, certPair{Cert: c.cert, Key: c.key})
			_, err := NewFiles(filesIn(dir))
			if err == nil || !strings.HasPrefix(err.Error(), "serving certificate: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestFilesReadWhatOthersWrite(t *testing.T) {
	ca := newCA(t)
	good := ca.Valid(t, day)
	der8, _ := pem.Decode(good.Key)
	key, err := x509.ParsePKCS8PrivateKey(der8.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := leafTemplate(certstest.Noon.Add(-time.Hour), certstest.Noon.Add(day))
	if template.SerialNumber, err = pki.NewSerial(); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, &rsaKey.PublicKey, ca.Key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})
	cases := map[string]certPair{
		"text before the blocks":          {Cert: append([]byte("subject=CN = test\n"), good.Cert...), Key: good.Key},
		"certificate and key in one file": {Cert: append(slices.Clone(good.Key), good.Cert...), Key: append(slices.Clone(good.Cert), good.Key...)},
		"ECDSA in SEC 1":                  {Cert: good.Cert, Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})},
		"RSA in PKCS #1":                  {Cert: pki.EncodeCertificate(der), Key: pkcs1},
		"RSA in PKCS #1 under another type": {
			Cert: pki.EncodeCertificate(der), Key: bytes.ReplaceAll(pkcs1, []byte("RSA PRIVATE"), []byte("PRIVATE")),
		},
		"line ends of another system": {Cert: bytes.ReplaceAll(good.Cert, []byte("\n"), []byte("\r\n")), Key: good.Key},
	}
	for name, p := range cases {
		t.Run(name, func(t *testing.T) {
			dir := dirOf(t, p)
			f, err := NewFiles(filesIn(dir))
			if err != nil {
				t.Fatal(err)
			}
			addr := serveTLS(t, &tls.Config{GetCertificate: f.GetCertificate, MinVersion: tls.VersionTLS13})
			if err := dialTLS(addr, &tls.Config{RootCAs: poolOf(ca), ServerName: "localhost", Time: certstest.NewClock().Now}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFilesRemarks(t *testing.T) {
	ca, stranger := newCA(t), newCA(t)
	from, until := certstest.Noon.Add(-time.Hour), certstest.Noon.Add(day)
	noNames := leafTemplate(from, until)
	noNames.DNSNames, noNames.IPAddresses = nil, nil
	clientOnly := leafTemplate(from, until)
	clientOnly.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	anyUse := leafTemplate(from, until)
	anyUse.ExtKeyUsage = nil
	caKey, err := pki.EncodeKey(ca.Key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	withChain := func(p certPair, issuer *testAuthority) certPair {
		p.Cert = append(slices.Clone(p.Cert), pki.EncodeCertificate(issuer.Cert.Raw)...)
		return p
	}
	cases := []struct {
		name string
		pair certPair
		want []string
	}{
		{"ordinary", ca.Valid(t, day), nil},
		{"for any use", ca.Pair(t, anyUse), nil},
		{"with its chain", withChain(ca.Valid(t, day), ca), nil},
		{"with somebody else's chain", withChain(ca.Valid(t, day), stranger), []string{"certificate 2 of the file did not sign the one before it"}},
		{"without names", ca.Pair(t, noNames), []string{"no subject alternative names"}},
		{"for clients", ca.Pair(t, clientOnly), []string{"not for servers"}},
		{"a CA", certPair{Cert: pki.EncodeCertificate(ca.Cert.Raw), Key: caKey}, []string{"that of a CA", "no subject alternative names"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := newObserver(t)
			dir := dirOf(t, c.pair)
			f, err := NewFiles(FilesConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Now: certstest.NewClock().Now, Notify: o.Notify})
			if err != nil {
				t.Fatal(err)
			}
			o.Start(func() error { return f.Run(t.Context()) })
			e := o.Await("the first look", func(certs.Event) bool { return true })
			if len(e.Warnings) != len(c.want) {
				t.Fatalf("got %q, want %q", e.Warnings, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(e.Warnings[i], want) {
					t.Errorf("got %q, want %q", e.Warnings[i], want)
				}
			}
		})
	}
}

// Clients look at the whole way to their root: a CA that is not valid yet, or an
// intermediate one that has expired, is as bad as a certificate that is.
func TestFilesChainAndTime(t *testing.T) {
	root := func(from, until time.Time) *testAuthority {
		a, err := pki.NewAuthority(from.Add(rotation.Backdate), until.Sub(from)-rotation.Backdate)
		if err != nil {
			t.Fatal(err)
		}
		return &testAuthority{Authority: a}
	}
	below := func(above *testAuthority, from, until time.Time) *testAuthority {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "intermediate"}, NotBefore: from, NotAfter: until,
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: []byte{2},
		}, above.Cert, &key.PublicKey, above.Key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return &testAuthority{Authority: &rotation.Authority{Cert: cert, Key: key}}
	}
	good := root(certstest.Noon.Add(-day), certstest.Noon.Add(100*day))
	later := root(certstest.Noon.Add(day), certstest.Noon.Add(100*day))
	ended := root(certstest.Noon.Add(-10*day), certstest.Noon.Add(-day))
	for name, c := range map[string]struct {
		issuer  *testAuthority
		chain   []*testAuthority
		healthy string // contained in the error; "" is none
		remark  string
	}{
		"no chain":                    {good, nil, "", ""},
		"a good one":                  {below(good, certstest.Noon.Add(-day), certstest.Noon.Add(day)), []*testAuthority{good}, "", ""},
		"a CA that starts tomorrow":   {later, []*testAuthority{}, `certificate 2 of the chain, "CN=gatehouse self-signed CA `, ""},
		"a root that starts tomorrow": {below(later, certstest.Noon.Add(-day), certstest.Noon.Add(day)), []*testAuthority{later}, `certificate 3 of the chain, "CN=gatehouse self-signed CA `, ""},
		"an intermediate that ended":  {below(good, certstest.Noon.Add(-10*day), certstest.Noon.Add(-day)), []*testAuthority{good}, `certificate 2 of the chain, "CN=intermediate", is expired at `, "certificate 2 of the file expired"},
		"a root that ended, which is of no consequence to clients with a newer one": {ended, []*testAuthority{}, "", "certificate 2 of the file expired at "},
	} {
		t.Run(name, func(t *testing.T) {
			// It is issued without regard to the end of its issuer, as others do.
			issuer := *c.issuer.Cert
			issuer.NotAfter = certstest.Noon.Add(day)
			p := (&testAuthority{Authority: &rotation.Authority{Cert: &issuer, Key: c.issuer.Key}}).Valid(t, day)
			if c.chain != nil {
				for _, a := range append([]*testAuthority{c.issuer}, c.chain...) {
					p.Cert = append(p.Cert, pki.EncodeCertificate(a.Cert.Raw)...)
				}
			}
			dir := dirOf(t, p)
			f, err := NewFiles(filesIn(dir))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Healthy(); err == nil && c.healthy != "" || err != nil && (c.healthy == "" || !strings.Contains(err.Error(), c.healthy)) {
				t.Errorf("Healthy: %v, want %q", err, c.healthy)
			}
			if got := strings.Join(warningsOf(f.current.Load(), certstest.Noon), "; "); c.remark == "" && got != "" || !strings.Contains(got, c.remark) {
				t.Errorf("remarks are %q, want %q", got, c.remark)
			}
			// What clients cannot accept yet does not replace what they can.
			before := good.Valid(t, day)
			dir = dirOf(t, before)
			follower, o := followed(t, dir, certstest.NewClock())
			put(t, dir, p)
			if c.healthy == "" {
				return
			}
			o.Await("a pair that is refused", func(e certs.Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), c.healthy) })
			if !bytes.Equal(serving(t, follower), before.Cert) {
				t.Error("a good pair makes way for one that clients cannot accept")
			}
		})
	}
}
