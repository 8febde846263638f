package login

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cli/browser"
	"github.com/spf13/pflag"
	"k8s.io/client-go/util/homedir"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/session"
)

// loginTimeout is how long a person may take to log in elsewhere.
const loginTimeout = 5 * time.Minute

// defaultListen is any free port.
const defaultListen = "127.0.0.1:0"

// loginFlags are the flags that describe a login. None of them is a secret.
type loginFlags struct {
	issuer, issuerCA, issuerCAData string
	clientID, clientSecretFile     string
	// scopes are those of OAuth that the issuer is asked for, and scope is Gatehouse's for the session.
	scopes []string
	scope  string
	// account is one of several at the issuer.
	account           string
	device, noBrowser bool
	listen            string

	server, serverCA, serverCAData string
	directory, username            string
	passwordStdin                  bool
	// name is who logs in this time, if username is not part of the login.
	name string

	cacheDir   string
	tokenStore string
}

// tokenStoreVariable is the environment variable that replaces --token-store, also where kubectl runs login.
const tokenStoreVariable = "GATEHOUSE_TOKEN_STORE"

// add adds the flags that describe a login.
func (f *loginFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.issuer, "issuer", "", "URL of the OpenID Connect issuer")
	flags.StringVar(&f.issuerCA, "issuer-ca", "", "file with the CAs of the issuer's certificate, in PEM (default the system's)")
	flags.StringVar(&f.issuerCAData, "issuer-ca-data", "", "the CAs of --issuer-ca in base64, in place of a file")
	flags.StringVar(&f.clientID, "client-id", "", "client ID at the issuer")
	flags.StringVar(&f.clientSecretFile, "client-secret-file", "", "file with the client secret (default: none, for a public client)")
	flags.StringArrayVar(&f.scopes, "issuer-scope", nil, "OAuth scope to request from the issuer besides openid, such as email or groups; repeatable")
	flags.StringVar(&f.account, "account", "", "account at the issuer, by its name or address, if you have several: each has a stored login of its own")
	flags.BoolVar(&f.device, "device", false, "log in on another device, such as a phone, with a code")
	flags.BoolVar(&f.noBrowser, "no-browser", false, "print the URL to open, and open no browser")
	flags.StringVar(&f.listen, "listen", defaultListen, "address on this machine that the browser returns to, HOST:PORT")
	flags.StringVar(&f.server, "server", "", "URL of Gatehouse, https://HOST:PORT, for logins with user name and password, for --scope, and for whoami")
	flags.StringVar(&f.serverCA, "server-ca", "", "file with the CAs of Gatehouse's certificate, in PEM (default the system's)")
	flags.StringVar(&f.serverCAData, "server-ca-data", "", "the CAs of --server-ca in base64, in place of a file")
	flags.StringVar(&f.directory, "directory", "", "LDAP directory of the user, if Gatehouse has several")
	flags.StringVar(&f.username, "username", "", "user name (default: login asks for it)")
	flags.StringVar(&f.scope, "scope", "", "scope that narrows the session: view, edit, or one of the AuthenticationConfiguration (default: all of your rights)")
	cli.RefuseEmpty(flags, "scope", "account")
	flags.StringVar(&f.cacheDir, "cache-dir", "", "directory for stored logins (default $KUBECACHEDIR/gatehouse or ~/.kube/cache/gatehouse)")
	flags.StringVar(&f.tokenStore, "token-store", "", "where tokens are stored: auto (the keyring if it is unlocked, else files), keyring, file or none (default $"+tokenStoreVariable+" or auto)")
}

// named reports whether the flags name a way to log in.
func (f *loginFlags) named() bool { return f.issuer != "" || f.server != "" }

// given returns the flags that have a value, as the beginning of a sentence about them; empty if
// none of these has.
func (f *loginFlags) given(flags ...string) string {
	has := map[string]bool{
		"issuer-ca": f.issuerCA != "", "issuer-ca-data": f.issuerCAData != "", "client-id": f.clientID != "",
		"client-secret-file": f.clientSecretFile != "", "account": f.account != "", "issuer-scope": len(f.scopes) > 0, "scope": f.scope != "",
		"device": f.device, "no-browser": f.noBrowser, "listen": f.listen != defaultListen,
		"server-ca": f.serverCA != "", "server-ca-data": f.serverCAData != "",
		"directory": f.directory != "", "username": f.username != "", "password-stdin": f.passwordStdin,
	}
	flags = slices.DeleteFunc(flags, func(flag string) bool { return !has[flag] })
	switch last := len(flags) - 1; {
	case last < 0:
		return ""
	case last == 0:
		return "--" + flags[0] + " is"
	default:
		return "--" + strings.Join(flags[:last], ", --") + " and --" + flags[last] + " are"
	}
}

// check reports everything that is wrong with the flags at once, and puts URLs in
// order.
func (f *loginFlags) check() error {
	var problems cli.Problems
	misplaced := func(where string, flags ...string) {
		names := f.given(flags...)
		problems.Add(names != "", "%s %s", names, where)
	}
	problems.Add(!f.named(), "say where to log in: --issuer URL with --client-id ID, or --server URL")
	if f.issuer != "" {
		err := session.ParseIssuer(f.issuer)
		problems.Add(err != nil, "--issuer: %w", err)
		problems.Add(f.clientID == "", "--client-id is required with --issuer")
		misplaced("valid only for a login with user name and password, without --issuer", "directory", "username", "password-stdin")
		problems.Add(f.scope != "" && f.server == "", "--scope with --issuer needs --server: Gatehouse exchanges the token of the issuer for one with the scope (hint: --server https://HOST:PORT)")
		if f.device {
			misplaced("valid only for a login in a browser, without --device", "no-browser", "listen")
		}
	} else {
		misplaced("valid only with --issuer", "issuer-ca", "issuer-ca-data", "client-id", "client-secret-file", "issuer-scope", "account", "device", "no-browser", "listen")
		problems.Add(f.passwordStdin && f.username == "" && f.name == "", "--username is required with --password-stdin")
	}
	if f.server != "" {
		server, err := registration.ParseURL(f.server)
		problems.Add(err != nil, "--server: %w", err)
		f.server = server.URL
	} else {
		misplaced("valid only with --server", "server-ca", "server-ca-data")
	}
	err := session.ParseAccount(f.account)
	problems.Add(err != nil, "--account: %w", err)
	err = session.ParseListen(f.listen)
	problems.Add(err != nil, "--listen: %w", err)
	problems.Add(f.issuerCA != "" && f.issuerCAData != "", "--issuer-ca and --issuer-ca-data exclude each other")
	problems.Add(f.serverCA != "" && f.serverCAData != "", "--server-ca and --server-ca-data exclude each other")
	for _, scope := range f.scopes {
		problems.Add(scope == "" || strings.ContainsAny(scope, " ,\"\\"), "--issuer-scope %q: must be one scope (hint: repeat the flag)", scope)
	}
	_, err = session.ParseStore(f.tokenStore)
	problems.Add(err != nil, "--token-store: %w", err)
	return problems.Err()
}

// cache returns the cache of logins. Interactive says that a person can be asked to unlock the keyring.
func (f *loginFlags) cache(interactive bool) (*session.Cache, error) {
	store, err := session.ParseStore(cmp.Or(f.tokenStore, os.Getenv(tokenStoreVariable)))
	if err != nil {
		name := "--token-store"
		if f.tokenStore == "" {
			name = tokenStoreVariable
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	cache := &session.Cache{Dir: f.cacheDir, Store: store, Keyring: session.OSKeyring{}, Program: cli.DisplayName(os.Args[0])}
	if store == session.StoreKeyring && interactive {
		cache.UnlockTimeout = time.Minute
	}
	if f.cacheDir != "" {
		return cache, nil
	}
	cache.Dir, err = session.DefaultDir(os.Getenv("KUBECACHEDIR"), homedir.HomeDir())
	return cache, err
}

// method returns the way to log in that checked flags describe.
func (f *loginFlags) method(s cli.Streams) (session.Method, error) {
	if f.issuer == "" {
		_, roots, err := f.serverCAs()
		if err != nil {
			return nil, err
		}
		var prompter session.Prompter = session.Terminal{}
		if f.passwordStdin {
			prompter = session.ScriptInput{Secret: s.In}
		}
		return &session.Password{
			Server: f.server, Roots: roots, Directory: f.directory, Username: f.username, Scope: f.scope, Name: f.name, Prompter: prompter, Now: time.Now,
		}, nil
	}
	_, roots, err := readCAs("--issuer-ca", f.issuerCA, f.issuerCAData)
	if err != nil {
		return nil, err
	}
	o := &session.OIDC{
		Issuer: f.issuer, Roots: roots, ClientID: f.clientID, Scopes: f.scopes, Account: f.account, Device: f.device, Listen: f.listen,
		Timeout: loginTimeout, Remarks: s.Err, Now: time.Now,
	}
	if f.clientSecretFile != "" {
		secret, err := readBounded("--client-secret-file", f.clientSecretFile)
		if err != nil {
			return nil, err
		}
		o.ClientSecret = strings.TrimSpace(string(secret))
	}
	if !f.noBrowser {
		o.Open = func(url string) error { return openBrowser(s.Err, url) }
	}
	return o, nil
}

// openBrowser opens a URL. Output of the browser goes to remarks: standard output is for a token.
func openBrowser(remarks io.Writer, url string) error {
	browser.Stdout, browser.Stderr = remarks, remarks
	return browser.OpenURL(url)
}

// serverCAs returns the CAs of Gatehouse.
func (f *loginFlags) serverCAs() (pem []byte, roots *x509.CertPool, err error) {
	return readCAs("--server-ca", f.serverCA, f.serverCAData)
}

// readCAs returns the CAs in a file or in base64, without either the system's, whose PEM text is empty.
func readCAs(flag, file, data string) (pem []byte, roots *x509.CertPool, err error) {
	if file != "" {
		pem, err = readBounded(flag, file)
	} else if pem, err = base64.StdEncoding.DecodeString(data); err != nil {
		err = fmt.Errorf("%s-data: must be base64", flag)
	}
	if err != nil {
		return nil, nil, err
	}
	if roots, err = session.Roots(pem); err != nil {
		err = fmt.Errorf("%s: %w", flag, err)
	}
	return pem, roots, err
}

// readBounded reads a file of a flag.
func readBounded(flag, path string) ([]byte, error) {
	data, err := cli.ReadFile(path, 1)
	if err == nil && len(data) == 0 {
		err = errors.New("is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %q %w", flag, path, err)
	}
	return data, nil
}

// args returns the equivalent flags, for a kubeconfig that is used on another
// machine: CAs are in them. The path of a client's secret is made absolute.
func (f *loginFlags) args() ([]string, error) {
	var args []string
	var errs []error
	text := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	ca := func(flag, file, data string) {
		pem, _, err := readCAs("--"+flag, file, data)
		errs = append(errs, err)
		text(flag+"-data", base64.StdEncoding.EncodeToString(pem))
	}
	path := func(flag, file string) {
		if file != "" {
			whole, err := filepath.Abs(file)
			if err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
			}
			text(flag, whole)
		}
	}
	text("issuer", f.issuer)
	ca("issuer-ca", f.issuerCA, f.issuerCAData)
	text("client-id", f.clientID)
	path("client-secret-file", f.clientSecretFile)
	for _, scope := range f.scopes {
		text("issuer-scope", scope)
	}
	text("account", f.account)
	if f.device {
		args = append(args, "--device")
	}
	if f.noBrowser {
		args = append(args, "--no-browser")
	}
	if f.listen != defaultListen {
		text("listen", f.listen)
	}
	text("server", f.server)
	ca("server-ca", f.serverCA, f.serverCAData)
	text("directory", f.directory)
	text("username", f.username)
	text("scope", f.scope)
	path("cache-dir", f.cacheDir)
	text("token-store", f.tokenStore)
	return args, errors.Join(errs...)
}
