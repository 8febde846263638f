package slapd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

func (s *Server) configuration() string { return filepath.Join(s.directory, "slapd.conf") }

// environment is for a server that was unpacked and not installed.
func (s *Server) environment() []string {
	return append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(s.program, "lib"))
}

// configure writes what the server reads when it starts.
func (s *Server) configure(o Options) error {
	err := s.certify(o)
	if err != nil {
		return err
	}
	database := filepath.Join(s.directory, "data")
	err = os.Mkdir(database, 0o700)
	if err != nil {
		return err
	}

	var b strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	for _, name := range []string{"core", "cosine", "inetorgperson", "nis"} {
		line("include %q", filepath.Join(s.program, "schema", name+".schema"))
	}
	modules := filepath.Join(s.program, "modules")
	_, err = os.Stat(modules)
	if err == nil {
		line("modulepath %q", modules)
		line("moduleload back_mdb")
		if o.PasswordPolicy != "" {
			line("moduleload ppolicy")
		}
	}
	line("TLSCACertificateFile %q", s.file("ca.crt"))
	line("TLSCertificateFile %q", s.file("tls.crt"))
	line("TLSCertificateKeyFile %q", s.file("tls.key"))
	if o.NoAnonymous {
		line("disallow bind_anon")
		line("require authc")
	}
	line("pidfile %q", s.file("pid"))
	line("threads 4")
	line("database mdb")
	line("suffix %q", Suffix)
	line("rootdn %q", adminDN)
	line("rootpw %q", s.AdminPassword)
	line("directory %q", database)
	line("maxsize 67108864")
	// A test's data need not outlive a power cut.
	line("dbnosync")
	if o.SizeLimit > 0 {
		line("limits * size.soft=%d size.hard=%d size.prtotal=unlimited", o.SizeLimit, o.SizeLimit)
	} else {
		line("limits * size=unlimited")
	}
	line("access to attrs=userPassword by self =xw by anonymous auth by * none")
	line("access to * by * read")
	if o.PasswordPolicy != "" {
		line("overlay ppolicy")
		line("ppolicy_default %q", o.PasswordPolicy)
	}
	return os.WriteFile(s.configuration(), []byte(b.String()), 0o600)
}

func (s *Server) file(name string) string { return filepath.Join(s.directory, name) }

func (s *Server) certify(o Options) error {
	authority, err := cluster.NewAuthority("slapd")
	if err != nil {
		return err
	}
	hosts := o.Hosts
	if len(hosts) == 0 {
		hosts = []string{address, "localhost"}
	}
	certificate, key, err := authority.Serve(hosts...)
	if err != nil {
		return err
	}
	s.CertificateAuthority = string(authority.CertPEM())
	return errors.Join(
		os.WriteFile(s.file("ca.crt"), authority.CertPEM(), 0o600),
		os.WriteFile(s.file("tls.crt"), certificate, 0o600),
		os.WriteFile(s.file("tls.key"), key, 0o600),
	)
}

// load puts entries into the database of a server that does not run.
func (s *Server) load(ldif string) error {
	if ldif == "" {
		return nil
	}
	//nolint:gosec,noctx // it reads standard input to its end and ends
	command := exec.Command(filepath.Join(s.program, "slapd"), "-T", "add", "-f", s.configuration())
	command.Env = s.environment()
	command.Stdin = strings.NewReader(ldif)
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}
