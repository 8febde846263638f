package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// The clients that dex knows. They are public: they have no secret, and any loopback address is a redirect of theirs.
const (
	dexClient      = "gatehouse"
	otherDexClient = "somebody-else"
)

// dexOptions say how a dex differs from the default one. The zero value is the default one, without people.
type dexOptions struct {
	// Users are the people who can log in.
	Users []dexUser
	// IDTokenTTL is how long ID tokens are good for. The default is an hour.
	IDTokenTTL time.Duration
}

// dexUser is somebody who can log in, by the address and the password.
type dexUser struct {
	Email, Password string
	// ID is a part of the claim sub.
	ID string
	// Name and Groups are claims.
	Name   string
	Groups []string
}

// dexServer is a running dex: a real OpenID Connect issuer with people who have passwords, and with the grants that command
// lines use: password, authorization code with a loopback redirect, device code, refresh token.
//
// It keeps everything in memory, so that a dex that was stopped and started again has other signing keys and knows none
// of the tokens that it issued before. On Linux it never outlives this process, however this one ends.
type dexServer struct {
	process   *cluster.Process
	issuer    string
	authority *cluster.Authority
	client    *http.Client
}

// dexStartTimeout is a hundred times what a start takes on an idle machine.
const dexStartTimeout = 30 * time.Second

// newDex starts a dex for one test and ends it with the test.
func newDex(t *testing.T, options dexOptions) *dexServer {
	t.Helper()
	binary, err := support.Built("dex", "dex")
	must(t, err)
	s := &dexServer{}
	s.authority, err = cluster.NewAuthority("dex")
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.authority.CertPEM())
	s.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		Timeout:   dexStartTimeout,
	}
	dir := t.TempDir()
	s.process = cluster.NewProcess(cluster.ProcessOptions{
		Path: binary, Args: []string{"serve", s.configure(t, dir, &options)}, Log: filepath.Join(dir, "dex.log"),
		Ready: func(ctx context.Context) error {
			_, err := s.get(ctx, s.issuer+"/healthz")
			return err
		},
	})
	must(t, s.Start(t.Context()))
	t.Cleanup(s.Kill)
	return s
}

// Start starts a dex that does not run: at the same address, with new keys. It returns when dex answers.
func (s *dexServer) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, dexStartTimeout, fmt.Errorf("gave up after %s", dexStartTimeout))
	defer cancel()
	s.client.CloseIdleConnections()
	return s.process.Start(ctx)
}

// Kill ends dex and returns when it is gone. It does nothing if dex does not run.
func (s *dexServer) Kill() {
	_ = s.process.Kill() // it may have ended already
}

// Suspend makes dex hang: connections are accepted and nothing is answered, until [dexServer.Resume].
func (s *dexServer) Suspend() error { return s.process.Suspend() }

// Resume makes a dex that hangs go on.
func (s *dexServer) Resume() error { return s.process.Signal(syscall.SIGCONT) }

// Issuer returns the issuer's URL: the claim iss.
func (s *dexServer) Issuer() string { return s.issuer }

// CertPEM returns the authority of the certificate.
func (s *dexServer) CertPEM() []byte { return s.authority.CertPEM() }

// get asks for a page and returns it. An answer other than 200 is an error.
func (s *dexServer) get(ctx context.Context, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	return dexAnswer(s.client, request)
}

func dexAnswer(client *http.Client, request *http.Request) (string, error) {
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", request.URL.Redacted(), response.Status, content)
	}
	return string(content), err
}

// configure writes the configuration and what it names, and returns its file.
func (s *dexServer) configure(t *testing.T, dir string, options *dexOptions) string {
	t.Helper()
	const host = "127.0.0.1"
	address, err := cluster.UnusedAddress(host)
	must(t, err)
	s.issuer = "https://" + address + "/dex"
	cert, key, err := s.authority.Serve(host)
	must(t, err)
	file := func(name string) string { return filepath.Join(dir, name) }
	config, err := json.Marshal(dexConfiguration(t, options, s.issuer, map[string]any{
		"https": address, "tlsCert": file("dex.crt"), "tlsKey": file("dex.key"),
	}))
	must(t, err)
	for name, content := range map[string][]byte{"dex.crt": cert, "dex.key": key, "dex.json": config} {
		must(t, os.WriteFile(file(name), content, 0o600))
	}
	return file("dex.json")
}

// dexConfiguration returns dex's configuration file.
func dexConfiguration(t *testing.T, options *dexOptions, issuer string, web map[string]any) map[string]any {
	t.Helper()
	ttl := options.IDTokenTTL
	if ttl == 0 {
		ttl = time.Hour
	}
	var clients []map[string]any
	for _, id := range []string{dexClient, otherDexClient} {
		clients = append(clients, map[string]any{"id": id, "name": id, "public": true})
	}
	var users []map[string]any
	for _, u := range options.Users {
		hash, err := bcrypt.GenerateFromPassword([]byte(u.Password), bcrypt.DefaultCost) // the least that dex takes
		must(t, err)
		users = append(users, map[string]any{"email": u.Email, "username": u.Name, "userID": u.ID, "groups": u.Groups, "hash": string(hash)})
	}
	return map[string]any{
		"issuer":           issuer,
		"storage":          map[string]any{"type": "memory"},
		"web":              web,
		"expiry":           map[string]any{"idTokens": ttl.String()},
		"oauth2":           map[string]any{"passwordConnector": "local", "skipApprovalScreen": true},
		"enablePasswordDB": true,
		"staticPasswords":  users,
		"staticClients":    clients,
	}
}

// dexTokens are what dex gives out for a grant.
type dexTokens struct {
	ID      string `json:"id_token"`
	Refresh string `json:"refresh_token"`
}

// Password logs somebody in to a client by the password grant (RFC 6749, section 4.3).
func (s *dexServer) Password(ctx context.Context, client, email, password string) (dexTokens, error) {
	form := url.Values{
		"grant_type": {"password"}, "client_id": {client}, "username": {email}, "password": {password},
		"scope": {"openid profile email groups offline_access"},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.issuer+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		return dexTokens{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var tokens dexTokens
	text, err := dexAnswer(s.client, request)
	if err == nil {
		err = json.Unmarshal([]byte(text), &tokens)
	}
	if err != nil {
		return dexTokens{}, fmt.Errorf("get tokens from dex: %w", err)
	}
	return tokens, nil
}
