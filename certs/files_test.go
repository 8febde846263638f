package certs

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
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const day = 24 * time.Hour

// followed is a running Files over tls.crt and tls.key of a directory.
func followed(t *testing.T, dir string, c *clock) (*Files, *observer) {
	t.Helper()
	o := newObserver(t)
	f, err := NewFiles(FilesConfig{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Now: c.Now, Notify: o.notify,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.ticks = o.ticks
	o.start(func() error { return f.Run(t.Context()) })
	o.await("the first look", func(Event) bool { return true })
	return f, o
}

func serving(t *testing.T, s Source) []byte {
	t.Helper()
	pair, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if pair.Leaf == nil {
		t.Fatal("the leaf is not parsed")
	}
	return encodeCertificate(pair.Certificate[0])
}

func TestFilesFollowTheKubeletsSwapOfALink(t *testing.T) {
	ca := newCA(t)
	first, second := ca.valid(t, day), ca.valid(t, 2*day)
	dir := t.TempDir()
	for name, p := range map[string]pair{"..v1": first, "..v2": second} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "tls.crt"), p.cert)
		write(t, filepath.Join(dir, name, "tls.key"), p.key)
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

	f, o := followed(t, dir, newClock())
	if !bytes.Equal(serving(t, f), first.cert) {
		t.Fatal("the first pair is not served")
	}
	// Nobody ticks: the change itself has to be noticed.
	link("..v2", "..data_tmp")
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	o.await("the second pair", inUse(second.until))
	if !bytes.Equal(serving(t, f), second.cert) {
		t.Error("the second pair is not served")
	}
}

// Whatever is found in place of a good pair, the last good one stays, what is
// wrong is said once, and a good pair is taken when it comes.
func TestFilesKeepTheLastGoodPair(t *testing.T) {
	ca := newCA(t)
	good, next := ca.valid(t, day), ca.valid(t, 2*day)
	cases := []struct {
		name string
		edit func(t *testing.T, dir string)
		says string
	}{
		{"certificate half-written", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "tls.crt"), next.cert[:len(next.cert)/2])
		}, "tls.crt: 0 of 1 PEM blocks can be read: the file is half-written or damaged"},
		{"chain half-written", func(t *testing.T, dir string) {
			chain := append(slices.Clone(good.cert), encodeCertificate(ca.Cert.Raw)...)
			write(t, filepath.Join(dir, "tls.crt"), chain[:len(chain)-10])
		}, "tls.crt: 1 of 2 PEM blocks can be read"},
		{"key half-written", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "tls.key"), next.key[:len(next.key)-30])
		}, "tls.key: 0 of 1 PEM blocks can be read"},
		{"key emptied", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "tls.key"), nil)
		}, "tls.key: is empty"},
		{"certificate replaced and key not", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "tls.crt"), next.cert)
		}, "certificate and key do not match: "},
		{"key replaced and certificate not", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "tls.key"), next.key)
		}, "certificate and key do not match: "},
		{"certificate removed", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "tls.crt"))
		}, "no such file or directory: check the path"},
		{"expired pair", func(t *testing.T, dir string) {
			old := ca.pair(t, leaf(noon.Add(-2*day), noon.Add(-time.Second)))
			write(t, filepath.Join(dir, "tls.crt"), old.cert)
			write(t, filepath.Join(dir, "tls.key"), old.key)
		}, "tls.crt: expired at 2026-11-20T11:59:59Z: renew it"},
		{"pair of tomorrow", func(t *testing.T, dir string) {
			early := ca.pair(t, leaf(noon.Add(day), noon.Add(2*day)))
			write(t, filepath.Join(dir, "tls.crt"), early.cert)
			write(t, filepath.Join(dir, "tls.key"), early.key)
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
			f, o := followed(t, dir, newClock())
			c.edit(t, dir)
			e := o.await(c.says, func(e Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), c.says) })
			if want := "not in use, the one before it is until 2026-11-21T12:00:00Z: "; !strings.HasPrefix(e.Err.Error(), want) {
				t.Errorf("got %v, want it to begin with %q", e.Err, want)
			}
			if !e.NotAfter.Equal(good.until) {
				t.Errorf("in use until %v, want %v", e.NotAfter, good.until)
			}
			if !bytes.Equal(serving(t, f), good.cert) {
				t.Error("the good pair is no longer served")
			}
			if err := f.Healthy(); err != nil {
				t.Errorf("unhealthy with a valid certificate: %v", err)
			}

			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "tls.key"), next.key)
			write(t, filepath.Join(dir, "tls.crt"), next.cert)
			o.tick()
			o.await("recovery", inUse(next.until))
			if !bytes.Equal(serving(t, f), next.cert) {
				t.Error("the next pair is not served")
			}
		})
	}
}

func TestFilesSayThingsOnce(t *testing.T) {
	good := newCA(t).valid(t, day)
	dir := dirOf(t, good)
	_, o := followed(t, dir, newClock())
	remove(t, filepath.Join(dir, "tls.key"))
	o.await("the missing key", func(e Event) bool { return e.Err != nil })
	o.tick()
	o.tick()
	o.quiet()
	write(t, filepath.Join(dir, "tls.key"), good.key)
	o.await("the same pair again", inUse(good.until))
	o.tick()
	o.quiet()
}

// That changes are not noticed at once is a remark about what is so, and says
// neither that the pair in use is bad nor that a bad one is good.
func TestFilesRemarkThatNothingIsWatched(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	if err := os.Rename(dirOf(t, newCA(t).valid(t, day)), dir); err != nil {
		t.Fatal(err)
	}
	_, o := followed(t, dir, newClock())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	const gone = "tls.crt: no such file"
	refused := o.await("the missing pair", func(e Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), gone) })
	o.tick()
	e := o.await("the remark", func(e Event) bool {
		return slices.ContainsFunc(e.Warnings, func(w string) bool { return strings.Contains(w, "are noticed every 10s only") })
	})
	if e.Err == nil || e.Err.Error() != refused.Err.Error() || len(refused.Warnings) > 0 {
		t.Errorf("got %+v after %+v", e, refused)
	}
	o.tick()
	o.quiet()
}

func TestFilesTakeAnotherChainOfTheSameLeaf(t *testing.T) {
	ca := newCA(t)
	good := ca.valid(t, day)
	dir := dirOf(t, good)
	f, o := followed(t, dir, newClock())
	write(t, filepath.Join(dir, "tls.crt"), append(slices.Clone(good.cert), encodeCertificate(ca.Cert.Raw)...))
	o.tick()
	if pair, err := f.GetCertificate(nil); err != nil || len(pair.Certificate) != 2 {
		t.Errorf("the chain is not served: %v", err)
	}
}

func TestFilesAndTime(t *testing.T) {
	ca := newCA(t)
	good := ca.valid(t, day)
	dir := dirOf(t, good)
	now := newClock()
	f, o := followed(t, dir, now)

	// A pair for later waits until its time has come.
	later := ca.pair(t, leaf(noon.Add(time.Hour), noon.Add(3*day)))
	write(t, filepath.Join(dir, "tls.key"), later.key)
	write(t, filepath.Join(dir, "tls.crt"), later.cert)
	o.await("the pair for later", func(e Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), "not valid before") })
	if !bytes.Equal(serving(t, f), good.cert) {
		t.Error("a pair is served before its time")
	}
	now.advance(2 * time.Hour)
	o.tick()
	o.await("its time", inUse(later.until))

	// One that nobody renews expires, and every probe is told.
	now.advance(3 * day)
	if err := f.Healthy(); err == nil || !strings.Contains(err.Error(), "tls.crt: expired at 2026-11-23T12:00:00Z: renew it") {
		t.Errorf("Healthy: %v", err)
	}
	o.tick()
	e := o.await("the expiry", func(e Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), "expired") })
	if !e.NotAfter.Equal(later.until) {
		t.Errorf("in use until %v", e.NotAfter)
	}

	// Between two that have expired the newer file wins, and a good one ends it.
	old := ca.pair(t, leaf(noon.Add(-day), noon.Add(2*day)))
	write(t, filepath.Join(dir, "tls.key"), old.key)
	write(t, filepath.Join(dir, "tls.crt"), old.cert)
	o.await("another expired pair", func(e Event) bool { return e.Err != nil && e.NotAfter.Equal(old.until) })
	fresh := ca.valid(t, 10*day)
	write(t, filepath.Join(dir, "tls.key"), fresh.key)
	write(t, filepath.Join(dir, "tls.crt"), fresh.cert)
	o.await("a good pair", inUse(fresh.until))
	if err := f.Healthy(); err != nil {
		t.Errorf("Healthy: %v", err)
	}
}

// The server has to come up for the pair that will replace the expired one.
func TestFilesStartWithAnExpiredPair(t *testing.T) {
	old := newCA(t).pair(t, leaf(noon.Add(-2*day), noon.Add(-day)))
	f, _ := followed(t, dirOf(t, old), newClock())
	if err := f.Healthy(); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("Healthy: %v", err)
	}
}

func TestNewFilesErrors(t *testing.T) {
	ca := newCA(t)
	good, other := ca.valid(t, day), ca.valid(t, day)
	caPEM := encodeCertificate(ca.Cert.Raw)
	block := func(kind string, data []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}) }
	cases := []struct {
		name      string
		cert, key []byte
		says      string
	}{
		{"not PEM", []byte("\x30\x82"), good.key, "tls.crt: holds no PEM block: convert it from DER or PKCS #12"},
		{"empty", []byte(" \n"), good.key, "tls.crt: is empty"},
		{"swapped", good.key, good.cert, "tls.crt: holds a private key and no certificate: are the two files swapped?"},
		{"certificate twice", good.cert, good.cert, "tls.key: holds a certificate and no private key: are the two files swapped?"},
		{"a request in place of a certificate", block("CERTIFICATE REQUEST", []byte("x")), good.key, `tls.crt: holds a PEM block of type "CERTIFICATE REQUEST" and no CERTIFICATE`},
		{"a public key in place of a key", good.cert, block("PUBLIC KEY", []byte("x")), `tls.key: holds a PEM block of type "PUBLIC KEY" and no PRIVATE KEY`},
		{"not a certificate inside", block("CERTIFICATE", []byte("x")), good.key, "tls.crt: PEM block 1 is not a certificate that can be read"},
		{"damaged in the middle", bytes.Join([][]byte{good.cert, bytes.Replace(caPEM, []byte("MII"), []byte("!!!"), 1), caPEM}, nil), good.key, "tls.crt: 2 of 3 PEM blocks can be read"},
		{"not a key inside", good.cert, block("PRIVATE KEY", []byte("x")), "tls.key: the PRIVATE KEY cannot be read: write it as PKCS #8"},
		{"encrypted key", good.cert, block("ENCRYPTED PRIVATE KEY", []byte("x")), "tls.key: the private key is encrypted"},
		{"encrypted key, old form", good.cert, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("x"), Headers: map[string]string{"DEK-Info": "AES-256-CBC,00"}}), "tls.key: the private key is encrypted"},
		{"pair of two issues", good.cert, other.key, "certificate and key do not match: "},
		{"CA in front of the leaf", append(slices.Clone(caPEM), good.cert...), good.key, "is number 2 in the file: put it first"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := dirOf(t, pair{cert: c.cert, key: c.key})
			_, err := NewFiles(FilesConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")})
			if err == nil || !strings.HasPrefix(err.Error(), "serving certificate: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestFilesReadWhatOthersWrite(t *testing.T) {
	ca := newCA(t)
	good := ca.valid(t, day)
	der8, _ := pem.Decode(good.key)
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
	template := leaf(noon.Add(-time.Hour), noon.Add(day))
	if template.SerialNumber, err = newSerial(); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, &rsaKey.PublicKey, ca.Key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})
	cases := map[string]pair{
		"text before the blocks":          {cert: append([]byte("subject=CN = test\n"), good.cert...), key: good.key},
		"certificate and key in one file": {cert: append(slices.Clone(good.key), good.cert...), key: append(slices.Clone(good.cert), good.key...)},
		"ECDSA in SEC 1":                  {cert: good.cert, key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})},
		"RSA in PKCS #1":                  {cert: encodeCertificate(der), key: pkcs1},
		"RSA in PKCS #1 under another type": {
			cert: encodeCertificate(der), key: bytes.ReplaceAll(pkcs1, []byte("RSA PRIVATE"), []byte("PRIVATE")),
		},
		"line ends of another system": {cert: bytes.ReplaceAll(good.cert, []byte("\n"), []byte("\r\n")), key: good.key},
	}
	for name, p := range cases {
		t.Run(name, func(t *testing.T) {
			dir := dirOf(t, p)
			f, err := NewFiles(FilesConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Now: newClock().Now})
			if err != nil {
				t.Fatal(err)
			}
			addr := serve(t, &tls.Config{GetCertificate: f.GetCertificate, MinVersion: tls.VersionTLS13})
			if _, err := dial(addr, &tls.Config{RootCAs: poolOf(ca), ServerName: "localhost", Time: newClock().Now}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFilesRemarks(t *testing.T) {
	ca, stranger := newCA(t), newCA(t)
	from, until := noon.Add(-time.Hour), noon.Add(day)
	noNames := leaf(from, until)
	noNames.DNSNames, noNames.IPAddresses = nil, nil
	clientOnly := leaf(from, until)
	clientOnly.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	anyUse := leaf(from, until)
	anyUse.ExtKeyUsage = nil
	caKey, err := encodeKey(ca.Key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	withChain := func(p pair, issuer *authority) pair {
		p.cert = append(slices.Clone(p.cert), encodeCertificate(issuer.Cert.Raw)...)
		return p
	}
	cases := []struct {
		name string
		pair pair
		want []string
	}{
		{"ordinary", ca.valid(t, day), nil},
		{"for any use", ca.pair(t, anyUse), nil},
		{"with its chain", withChain(ca.valid(t, day), ca), nil},
		{"with somebody else's chain", withChain(ca.valid(t, day), stranger), []string{"certificate 2 of the file did not sign the one before it"}},
		{"without names", ca.pair(t, noNames), []string{"no subject alternative names"}},
		{"for clients", ca.pair(t, clientOnly), []string{"not for servers"}},
		{"a CA", pair{cert: encodeCertificate(ca.Cert.Raw), key: caKey}, []string{"that of a CA", "no subject alternative names"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := newObserver(t)
			dir := dirOf(t, c.pair)
			f, err := NewFiles(FilesConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Now: newClock().Now, Notify: o.notify})
			if err != nil {
				t.Fatal(err)
			}
			o.start(func() error { return f.Run(t.Context()) })
			e := o.await("the first look", func(Event) bool { return true })
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

// Clients connect all the time while pairs are replaced, and none fails.
func TestFilesServeWhileRotating(t *testing.T) {
	const rotations, clients = 5, 4
	ca := newCA(t)
	first := ca.valid(t, day)
	dir := dirOf(t, first)
	f, o := followed(t, dir, newClock())
	addr := serve(t, &tls.Config{GetCertificate: f.GetCertificate, MinVersion: tls.VersionTLS13})

	stop := make(chan struct{})
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		seen  = map[string]bool{}
	)
	for range clients {
		group.Go(func() {
			config := &tls.Config{RootCAs: poolOf(ca), ServerName: "localhost", Time: newClock().Now}
			for {
				select {
				case <-stop:
					return
				default:
				}
				cert, err := dial(addr, config)
				if err != nil {
					t.Errorf("handshake: %v", err)
					return
				}
				mu.Lock()
				seen[cert.SerialNumber.String()] = true
				mu.Unlock()
			}
		})
	}
	for i := range rotations {
		next := ca.valid(t, time.Duration(i+2)*day)
		write(t, filepath.Join(dir, "tls.crt"), next.cert)
		write(t, filepath.Join(dir, "tls.key"), next.key)
		o.await("the next pair", inUse(next.until))
		last, err := dial(addr, &tls.Config{RootCAs: poolOf(ca), ServerName: "localhost", Time: newClock().Now})
		if err != nil || !last.NotAfter.Equal(next.until) {
			t.Errorf("rotation %d: %v", i, err)
		}
	}
	close(stop)
	group.Wait()
	if len(seen) < 2 {
		t.Errorf("clients saw %d certificates: they did not connect while pairs were replaced", len(seen))
	}
}

// Clients look at the whole way to their root: a CA that is not valid yet, or an
// intermediate one that has expired, is as bad as a certificate that is.
func TestFilesChainAndTime(t *testing.T) {
	root := func(from, until time.Time) *authority {
		a, err := newAuthority(from.Add(rotation.Backdate), until.Sub(from)-rotation.Backdate)
		if err != nil {
			t.Fatal(err)
		}
		return &authority{a}
	}
	below := func(above *authority, from, until time.Time) *authority {
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
		return &authority{&rotation.Authority{Cert: cert, Key: key}}
	}
	good := root(noon.Add(-day), noon.Add(100*day))
	later := root(noon.Add(day), noon.Add(100*day))
	ended := root(noon.Add(-10*day), noon.Add(-day))
	for name, c := range map[string]struct {
		issuer  *authority
		chain   []*authority
		healthy string // contained in the error; "" is none
		remark  string
	}{
		"no chain":                    {good, nil, "", ""},
		"a good one":                  {below(good, noon.Add(-day), noon.Add(day)), []*authority{good}, "", ""},
		"a CA that starts tomorrow":   {later, []*authority{}, `certificate 2 of the chain, "CN=gatehouse self-signed CA `, ""},
		"a root that starts tomorrow": {below(later, noon.Add(-day), noon.Add(day)), []*authority{later}, `certificate 3 of the chain, "CN=gatehouse self-signed CA `, ""},
		"an intermediate that ended":  {below(good, noon.Add(-10*day), noon.Add(-day)), []*authority{good}, `certificate 2 of the chain, "CN=intermediate", is expired at `, "certificate 2 of the file expired"},
		"a root that ended, which is of no consequence to clients with a newer one": {ended, []*authority{}, "", "certificate 2 of the file expired at "},
	} {
		t.Run(name, func(t *testing.T) {
			// It is issued without regard to the end of its issuer, as others do.
			issuer := *c.issuer.Cert
			issuer.NotAfter = noon.Add(day)
			p := (&authority{&rotation.Authority{Cert: &issuer, Key: c.issuer.Key}}).valid(t, day)
			if c.chain != nil {
				for _, a := range append([]*authority{c.issuer}, c.chain...) {
					p.cert = append(p.cert, encodeCertificate(a.Cert.Raw)...)
				}
			}
			dir := dirOf(t, p)
			f, err := NewFiles(FilesConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Now: newClock().Now})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Healthy(); err == nil && c.healthy != "" || err != nil && (c.healthy == "" || !strings.Contains(err.Error(), c.healthy)) {
				t.Errorf("Healthy: %v, want %q", err, c.healthy)
			}
			if got := strings.Join(remarks(f.current.Load(), noon), "; "); c.remark == "" && got != "" || !strings.Contains(got, c.remark) {
				t.Errorf("remarks are %q, want %q", got, c.remark)
			}
			// What clients cannot accept yet does not replace what they can.
			before := good.valid(t, day)
			dir = dirOf(t, before)
			follower, o := followed(t, dir, newClock())
			write(t, filepath.Join(dir, "tls.key"), p.key)
			write(t, filepath.Join(dir, "tls.crt"), p.cert)
			if c.healthy == "" {
				return
			}
			o.await("a pair that is refused", func(e Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), c.healthy) })
			if !bytes.Equal(serving(t, follower), before.cert) {
				t.Error("a good pair makes way for one that clients cannot accept")
			}
		})
	}
}
