package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startTimeout is how long a server may take until it answers.
const startTimeout = 30 * time.Second

// The names of Gatehouse among the servers.
const (
	gatehouseServer = "gatehouse"
	oldServer       = "old"
)

// server is a running process that answers reviews.
type server struct {
	kind          string // nullServer, gatehouseServer, oldServer or usualServer
	configuration string // of Gatehouse, else empty
	documents     string // the directory of that configuration
	certificates  string // the directory that Gatehouse writes certificates to
	address       string
	operations    string // where metrics are asked for
	operator      *http.Transport
	ca            string
	certificate   *tls.Certificate // that clients present, or nil
	process       *exec.Cmd
	ended         chan error // receives what became of the process, once
	log           *os.File   // what the process wrote to stderr
	clients       map[string]*client
}

// startChild starts this program as one of the servers that it holds.
func startChild(ctx context.Context, executable, mode, directory string) (*server, error) {
	s := &server{kind: mode}
	command := exec.CommandContext(ctx, executable, mode) //nolint:gosec // this very program
	// The child ends with its stdin, so it cannot outlive this process.
	if _, err := command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.start(command, filepath.Join(directory, mode+".log")); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var announced announcement
	if err == nil {
		err = json.Unmarshal(line, &announced)
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("%s did not say where it listens: %w%s", mode, err, s.lastWords())
	}
	s.address, s.ca, s.operations = announced.Address, announced.CA, announced.Operations
	return s, nil
}

// newGatehouse starts gatehouse serve with one of the configurations.
func newGatehouse(ctx context.Context, kind, binary, configuration, directory string) (*server, error) {
	name := kind + "-" + strings.ReplaceAll(configuration, " ", "-")
	s := &server{
		kind: kind, configuration: configuration,
		documents:    filepath.Join(directory, name),
		certificates: filepath.Join(directory, name+"-certificates"),
	}
	for _, made := range []string{s.documents, s.certificates} {
		if err := os.MkdirAll(made, 0o700); err != nil {
			return nil, err
		}
	}
	if err := writeDocuments(s.documents, configuration, time.Now()); err != nil {
		return nil, err
	}
	// Another process can take a port between its choice and its use.
	var err error
	for range 3 {
		if err = s.startGatehouse(ctx, binary, filepath.Join(directory, name+".log")); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: gatehouse serve with %s: %w", kind, configuration, err)
	}
	return s, nil
}

// startGatehouse starts gatehouse serve on free ports and waits until it is
// ready. After an error it runs no more.
func (s *server) startGatehouse(ctx context.Context, binary, logFile string) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	operations, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	s.address, s.operations = address, operations
	certificate, err := s.certificateFlags()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, binary, append([]string{ //nolint:gosec // the program to measure, named by who runs this
		"serve", "--config", s.documents, "--listen", address, "--ops-listen", operations,
	}, certificate...)...)
	if err := s.start(command, logFile); err != nil {
		return err
	}
	err = s.waitReady(ctx, "http://"+operations+"/readyz")
	if err == nil && s.configuration != fileCertificate {
		err = s.readCertificates()
	}
	if err != nil {
		s.stop()
		return fmt.Errorf("%w%s", err, s.lastWords())
	}
	return nil
}

// start starts the command with stderr, and stdout if nobody reads it, going
// to a file.
func (s *server) start(command *exec.Cmd, logFile string) error {
	log, err := os.Create(logFile) //nolint:gosec // in the directory that this run made
	if err != nil {
		return err
	}
	command.Stderr = log
	if command.Stdout == nil {
		command.Stdout = log
	}
	s.process, s.log = command, log
	s.ended = make(chan error, 1)
	s.clients = make(map[string]*client)
	s.operator = &http.Transport{DisableCompression: true}
	if err := command.Start(); err != nil {
		_ = log.Close()
		return err
	}
	go func() { s.ended <- command.Wait() }()
	return nil
}

// waitReady asks until it is answered with 200.
func (s *server) waitReady(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	direct := &http.Client{Transport: &http.Transport{}}
	defer direct.CloseIdleConnections()
	last := errors.New("not asked yet")
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready after %v: %w", startTimeout, last)
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("ended before it was ready: %w", errors.Join(err, last))
		case <-every.C:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
		if err != nil {
			return err
		}
		response, err := direct.Do(request)
		if err != nil {
			last = err
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
		last = fmt.Errorf("status %s, body %s", response.Status, excerpt(text))
	}
}

// readCertificates reads what --self-signed-dir was filled with.
func (s *server) readCertificates() error {
	ca, err := os.ReadFile(filepath.Join(s.certificates, "ca.crt"))
	if err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(s.certificates, "apiserver-client.crt"), filepath.Join(s.certificates, "apiserver-client.key"))
	if err != nil {
		return err
	}
	s.ca, s.certificate = string(ca), &certificate
	return nil
}

// client returns the one client that calls the server over a protocol.
func (s *server) client(protocol string) (*client, error) {
	if c := s.clients[protocol]; c != nil {
		return c, nil
	}
	c, err := newClient(s.address, protocol, s.ca, s.certificate)
	if err != nil {
		return nil, err
	}
	s.clients[protocol] = c
	return c, nil
}

// stop kills the process, without a drain, and waits for its end.
func (s *server) stop() {
	for _, c := range s.clients {
		c.transport.CloseIdleConnections()
	}
	s.operator.CloseIdleConnections()
	_ = s.process.Process.Kill()
	s.ended <- <-s.ended
	_ = s.log.Close()
}

// lastWords returns the end of what the process wrote, for an error.
func (s *server) lastWords() string {
	text, err := os.ReadFile(s.log.Name())
	if err != nil || len(text) == 0 {
		return ""
	}
	const most = 2_000
	return "\n" + strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// freeAddress returns a loopback address whose port was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
