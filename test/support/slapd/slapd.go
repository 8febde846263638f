// Package slapd runs real OpenLDAP servers for tests.
//
// A server is a process of its own, on ports of 127.0.0.1 that it keeps over
// restarts, with a certificate of its own authority: by ldaps://, or by ldap://
// with StartTLS. It ends with the test that started it, and with this process
// however that ends.
package slapd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// Suffix is the DN that all entries are below. Its own entry has to be loaded like
// any other.
const Suffix = "dc=example,dc=org"

const (
	// startTimeout is many times what a start takes, also on a busy machine.
	startTimeout = 30 * time.Second
	address      = "127.0.0.1"
	// adminDN may do everything. There is no such entry.
	adminDN = "cn=admin," + Suffix
)

// Options say how a server is to be. The zero value is an empty server that lets
// everybody search.
type Options struct {
	// LDIF are the entries to begin with, parents first. The schemas are core,
	// cosine, inetorgperson and nis, passwords may be plain, and nothing of it is
	// checked but the schema.
	LDIF string
	// NoAnonymous refuses whatever is asked before a bind with a password.
	NoAnonymous bool
	// PasswordPolicy adds the password policy overlay with this DN as its default
	// policy, if it is not empty.
	PasswordPolicy string
	// SizeLimit is how many entries the server returns to one search that has no
	// pages; 0 is no limit.
	SizeLimit int
	// Hosts are what the certificate is for. Without any it is for 127.0.0.1 and
	// localhost.
	Hosts []string
}

// Server is a running server. Its methods are safe for concurrent use but for
// Stop, Start, Pause and Resume.
type Server struct {
	// Plain and TLS are the URLs, ldap://127.0.0.1:PORT and
	// ldaps://127.0.0.1:PORT. The plain one takes StartTLS, and does not insist.
	Plain, TLS string
	// CertificateAuthority verifies its certificate, in PEM.
	CertificateAuthority string
	// AdminPassword is that of an account that may do everything.
	AdminPassword string

	t         testing.TB
	program   string
	directory string
	log       string
	process   *cluster.Process
	// skipped are the parts of the log that are about starts.
	skipped []span
}

// span is a part of a text, from one offset to another.
type span struct{ from, to int }

// New starts a server for a test and stops it when the test ends. The output of
// a failed test has the end of what the server logged. Without bin/slapd the
// test fails: a skipped test looks like a passed one.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	program, err := support.Built("slapd", "slapd")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, program: program, directory: t.TempDir(), AdminPassword: rand.Text()}
	s.log = filepath.Join(s.directory, "log")
	err = s.configure(o)
	if err != nil {
		t.Fatalf("configure slapd: %v", err)
	}
	err = s.load(o.LDIF)
	if err != nil {
		t.Fatalf("load slapd: %v", err)
	}
	t.Cleanup(s.end)
	plain, err := cluster.UnusedAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := cluster.UnusedAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	s.Plain, s.TLS = "ldap://"+plain, "ldaps://"+encrypted
	s.Start()
	return s
}

// Start starts a server that was stopped, on the same ports and with the same
// entries.
func (s *Server) Start() {
	s.t.Helper()
	before, err := logged(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = cluster.NewProcess(cluster.ProcessOptions{
		Path: filepath.Join(s.program, "slapd"), Args: []string{"-f", s.configuration(), "-h", s.Plain + "/ " + s.TLS + "/", "-d", "stats"},
		Env: s.environment(), Log: s.log, Ready: s.ready(len(before)),
	})
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.process.Start(ctx); err != nil {
		s.t.Fatalf("start slapd: %v", err)
	}
}

// ready returns a function that connects to both ports, and waits until the server has logged that. Log leaves that out.
func (s *Server) ready(before int) func(context.Context) error {
	probes := 0
	return func(ctx context.Context) error {
		for _, port := range []string{strings.TrimPrefix(s.Plain, "ldap://"), strings.TrimPrefix(s.TLS, "ldaps://")} {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", port)
			if err != nil {
				return err
			}
			probes++
			_ = connection.Close() // nothing was written
		}
		return support.Poll(ctx, func() error {
			now, err := logged(s.log)
			if err == nil && bytes.Count(now[before:], []byte(" closed (")) < probes {
				err = errors.New("it has not closed the connections")
			}
			if err == nil {
				s.skipped = append(s.skipped, span{before, len(now)})
			}
			return err
		})
	}
}

func logged(path string) ([]byte, error) {
	content, err := os.ReadFile(path) //nolint:gosec // a path of our own making
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

// Stop ends the server, which closes its connections, and waits until it has
// ended. A server that does not run is stopped already.
func (s *Server) Stop() {
	s.t.Helper()
	err := s.process.Stop()
	if err != nil {
		s.t.Fatalf("stop slapd: %v", err)
	}
}

// Pause suspends the server: connections are taken, by the kernel, and nothing is
// answered until Resume. It returns when the server does nothing any more, which is
// later than the signal.
func (s *Server) Pause() {
	s.t.Helper()
	if err := s.process.Suspend(); err != nil {
		s.t.Fatalf("pause slapd: %v", err)
	}
}

// Resume lets a suspended server go on.
func (s *Server) Resume() {
	s.t.Helper()
	err := s.process.Signal(syscall.SIGCONT)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatalf("resume slapd: %v", err)
	}
}

// Admin returns a connection that may read and change everything. It is closed
// when the test ends.
func (s *Server) Admin() *ldap.Conn {
	s.t.Helper()
	connection, err := ldap.DialURL(s.Plain)
	if err != nil {
		s.t.Fatalf("connect to slapd: %v", err)
	}
	s.t.Cleanup(func() { _ = connection.Close() })
	err = connection.Bind(adminDN, s.AdminPassword)
	if err != nil {
		s.t.Fatalf("bind to slapd: %v", err)
	}
	return connection
}

// Log returns what the server has logged up to now, but for its starts: connections, operations and
// their results, one a line, such as
//
//	conn=1001 op=1 BIND dn="uid=jane,ou=people,dc=example,dc=org" method=128
//
// The server writes a line before it answers.
func (s *Server) Log() string {
	s.t.Helper()
	content, err := logged(s.log)
	if err != nil {
		s.t.Fatalf("read slapd's log: %v", err)
	}
	var kept []byte
	from := 0
	for _, skip := range s.skipped {
		kept = append(kept, content[from:skip.from]...)
		from = skip.to
	}
	return string(append(kept, content[from:]...))
}

// end stops the server at the end of the test.
func (s *Server) end() {
	if s.process != nil {
		err := s.process.Stop()
		if err != nil {
			s.t.Errorf("stop slapd: %v", err)
		}
	}
	if s.t.Failed() {
		s.t.Logf("slapd logged:\n%s", s.process.Tail(0))
	}
}
