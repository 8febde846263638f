package source

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/certstest"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

// olderFiles are what a SelfSigned writes into a directory, without its state.
func olderFiles(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	if err := newSelfSigned(t, certstest.NewClock(), "localhost").WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, name := range []string{store.CAFile, store.ClientCertFile, store.ClientKeyFile} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = content
	}
	return files
}

// strangers are a CA and a client certificate of it, as another program makes them.
func strangers(t *testing.T) (ca, cert []byte) {
	t.Helper()
	a := certstest.NewCA(t).Authority
	template := *a.Cert
	template.Subject = pkix.Name{CommonName: "kubernetes"}
	template.RawSubject = nil
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, a.Key.Public(), a.Key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.Issue(&rotation.Authority{Cert: made, Key: a.Key}, certstest.Leaf(certstest.Noon, certstest.Noon.Add(certstest.Week)))
	if err != nil {
		t.Fatal(err)
	}
	return pki.EncodeCertificate(der), pki.EncodeCertificate(pair.Leaf.Raw)
}

func TestDirStoreClaim(t *testing.T) {
	t.Parallel()
	older := olderFiles(t)
	ca, cert := strangers(t)
	for _, c := range []struct {
		name      string
		files     map[string][]byte
		inherited bool
		// says is what is somebody else's, "" if nothing is.
		says string
	}{
		{"nothing", nil, false, ""},
		{"empty files", map[string][]byte{store.AuthorityFile: nil, store.CAFile: nil, store.ClientCertFile: []byte("\n"), store.ClientKeyFile: make([]byte, 100)}, false, ""},
		{"all of an older version", older, true, ""},
		{"an older version that was killed before the certificate", map[string][]byte{store.CAFile: older[store.CAFile], store.ClientKeyFile: older[store.ClientKeyFile]}, true, ""},
		{"the client's files of an older version", map[string][]byte{store.ClientCertFile: older[store.ClientCertFile], store.ClientKeyFile: older[store.ClientKeyFile]}, true, ""},
		{"another CA", map[string][]byte{store.CAFile: ca}, false, "it has ca.crt, of another CA"},
		{"another CA after one of ours", map[string][]byte{store.CAFile: append(older[store.CAFile], ca...)}, false, "it has ca.crt, of another CA"},
		{"text", map[string][]byte{store.CAFile: []byte("somebody's")}, false, "it has ca.crt, of another CA"},
		{"half of a file of ours", map[string][]byte{store.CAFile: older[store.CAFile][:200]}, false, "it has ca.crt, of another CA"},
		{"another's client certificate", map[string][]byte{store.CAFile: older[store.CAFile], store.ClientCertFile: cert, store.ClientKeyFile: older[store.ClientKeyFile]}, false, "it has apiserver-client.crt, apiserver-client.key, of another CA"},
		{"a key alone", map[string][]byte{store.ClientKeyFile: older[store.ClientKeyFile]}, false, "it has apiserver-client.key, of another CA"},
		{"everything of another", map[string][]byte{store.CAFile: ca, store.ClientCertFile: cert, store.ClientKeyFile: []byte("x")}, false, "it has ca.crt, apiserver-client.crt, apiserver-client.key, of another CA"},
		{"another CA beside a state that is damaged", map[string][]byte{store.AuthorityFile: []byte(`{"state.json":"{"}`), store.CAFile: ca}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, content := range c.files {
				certstest.Write(t, filepath.Join(dir, name), content)
			}
			inherited, err := store.NewDirStore(dir).Claim(t.Context())
			if c.says == "" && err != nil || inherited != c.inherited {
				t.Errorf("got %v, %v", inherited, err)
			}
			if c.says == "" {
				return
			}
			if _, ok := errors.AsType[*store.ForeignError](err); !ok || !strings.HasPrefix(err.Error(), "directory "+dir+": "+c.says+" without its key") ||
				!strings.HasSuffix(err.Error(), "(hint: use another directory, or move these files away)") {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

// Links and directories are somebody else's too, and are not opened.
func TestDirStoreClaimOfNoFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"link", "directory"} {
		dir := t.TempDir()
		file := filepath.Join(dir, store.CAFile)
		err := os.Mkdir(file, 0o700)
		if name == "link" {
			err = errors.Join(os.Remove(file), os.Symlink("nowhere", file))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.NewDirStore(dir).Claim(t.Context()); err == nil || !strings.Contains(err.Error(), "it has ca.crt, of another CA") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestWriteDirLeavesAStrangersCA(t *testing.T) {
	t.Parallel()
	older := olderFiles(t)[store.CAFile]
	ca, _ := strangers(t)
	s := newSelfSigned(t, certstest.NewClock(), "localhost")
	state := s.State()
	for _, c := range []struct {
		name  string
		there []byte
		left  bool
	}{
		{"another CA", ca, true},
		{"text", []byte("somebody's"), true},
		{"nothing", nil, false},
		{"what a power cut leaves", make([]byte, 4096), false},
		{"a CA of a state that is gone", older, false},
		{"the state's CA and another", append(rotation.Bundle(state.Trusted(certstest.Noon)), ca...), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, store.CAFile)
			certstest.Write(t, file, c.there)
			err := s.WriteDir(dir)
			content, readErr := os.ReadFile(file)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if !c.left {
				if err != nil || string(content) != string(s.CABundle()) {
					t.Errorf("got %q, %v", content, err)
				}
				return
			}
			if _, ok := errors.AsType[*store.ForeignError](err); !ok || !strings.Contains(err.Error(), "file "+file+": it holds no CA of authority.json") ||
				!strings.HasSuffix(err.Error(), "(hint: move it away: Gatehouse writes it again)") {
				t.Errorf("got %v", err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || string(content) != string(c.there) {
				t.Errorf("something was written: %v, %q, %v", entries, content, err)
			}
		})
	}
}

// While it runs, a file that somebody puts in the place of ours stays until it is
// moved away.
func TestRunLeavesAStrangersCA(t *testing.T) {
	ca, _ := strangers(t)
	now, dir := certstest.NewClock(), t.TempDir()
	file := filepath.Join(dir, store.CAFile)
	s, o := started(t, now)
	if err := s.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	certstest.Write(t, file, ca)
	o.Tick()
	o.Await("the problem", func(e certs.Event) bool {
		return e.Subject == certs.SelfSignedCA && e.Err != nil && strings.Contains(e.Err.Error(), file)
	})
	if content, err := os.ReadFile(file); err != nil || string(content) != string(ca) {
		t.Errorf("got %q, %v", content, err)
	}
	if err := s.Healthy(); err != nil {
		t.Errorf("what is served is as good as before: %v", err)
	}
	certstest.Remove(t, file)
	o.Tick()
	o.Await("the end of the problem", func(e certs.Event) bool { return e.Subject == certs.SelfSignedCA && e.Err == nil })
	if content, err := os.ReadFile(file); err != nil || string(content) != string(s.CABundle()) {
		t.Errorf("got %q, %v", content, err)
	}
}
