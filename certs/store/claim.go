package store

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// Claim checks the files that WriteDir would replace in a directory without a state, and
// changes nothing. inherited reports whether there are files of a Gatehouse whose CA has no
// key any more: older versions kept no state. Files of another CA are a ForeignError that
// names them. If there is a state, even a damaged one, nothing is inherited.
func (s *DirStore) Claim(ctx context.Context) (inherited bool, err error) {
	record, err := s.Load(ctx)
	if err != nil {
		return false, err
	}
	if _, err := rotation.Decode(record.Data); !errors.Is(err, rotation.ErrEmpty) {
		return false, nil
	}
	var found [3]exportedFile
	for i, name := range []string{CAFile, ClientCertFile, ClientKeyFile} {
		if found[i], err = readExported(filepath.Join(s.dir, name)); err != nil {
			return false, err
		}
	}
	ca, cert, key := found[0], found[1], found[2]
	ca.ours = len(ca.certs) > 0 && !slices.ContainsFunc(ca.certs, func(c *x509.Certificate) bool { return !pki.IsAuthorityName(c.Subject.CommonName) })
	cert.ours = len(cert.certs) > 0 && pki.IsAuthorityName(cert.certs[0].Issuer.CommonName)
	key.ours = cert.ours || ca.ours && !cert.there // the key is written first
	var foreign []string
	for _, c := range []exportedFile{ca, cert, key} {
		if c.there && !c.ours {
			foreign = append(foreign, c.name)
		}
		inherited = inherited || c.there
	}
	if len(foreign) > 0 {
		return false, &ForeignError{
			Place: "directory " + s.dir, Problem: "it has " + strings.Join(foreign, ", ") + ", of another CA without its key",
			Remedy: "use another directory, or move these files away",
		}
	}
	return inherited, nil
}

// exportedFile is a file of a name that WriteDir writes.
type exportedFile struct {
	name        string
	there, ours bool
	// certs are the certificates in content.
	content []byte
	certs   []*x509.Certificate
}

// readExported reads a file of certificates. An empty one counts as missing.
func readExported(file string) (exportedFile, error) {
	c := exportedFile{name: filepath.Base(file)}
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a link to nowhere
		c.there = true
		return c, nil
	case err != nil:
		return c, fileError("file "+file, "read", err)
	case !info.Mode().IsRegular(), info.Size() > largestAuthority: // opening some of those makes a reader wait
		c.there = true
		return c, nil
	}
	c.content, err = os.ReadFile(file) //nolint:gosec // in a directory that whoever starts the program names
	if err != nil {
		return c, fileError("file "+file, "read", err)
	}
	c.there = len(bytes.Trim(c.content, "\x00 \t\r\n")) > 0
	if blocks, err := pki.DecodePEM(file, c.content); err == nil {
		c.certs, _ = pki.ParseCertificates(file, blocks) // what is none is nobody's of ours
	}
	return c, nil
}

// checkReplaceable returns a ForeignError if a CAFile holds neither a CA of the state nor
// another one of Gatehouse.
func checkReplaceable(file string, ca exportedFile, state *rotation.State) error {
	if !ca.there {
		return nil
	}
	for _, cert := range ca.certs {
		for _, a := range []*rotation.Authority{state.Current, state.Pending, state.Previous} {
			if pki.IsAuthorityName(cert.Subject.CommonName) || a != nil && a.Cert.Equal(cert) {
				return nil
			}
		}
	}
	return &ForeignError{
		Place: "file " + file, Problem: fmt.Sprintf("it holds no CA of %s", AuthorityFile),
		Remedy: "move it away: Gatehouse writes it again",
	}
}
