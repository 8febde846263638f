package ldap

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/ldapconfig"
)

// Options are what a Directory is made of.
type Options struct {
	// Config is the configuration. It is not changed afterwards.
	Config *v1alpha1.Directory
	// BindPassword is the password of Config.BindDN, and empty without one.
	BindPassword string
	// Now is the clock that accounts expire by. Nil is time.Now.
	Now func() time.Time
}

// Directory is an LDAP or Active Directory service: one or more servers with the same entries. It is safe for concurrent
// use. Each method gives up after the timeout of the configuration or when its context ends; a login passes one context to
// all of them, so that they share one timeout.
type Directory struct {
	options Options
	servers []*server
	// places bound the connections, and waiting is how many requests wait for one.
	places  chan struct{}
	waiting atomic.Int64
	now     func() time.Time
	// nobody is a DN that no entry has.
	nobody string
}

var _ authn.Directory = (*Directory)(nil)

var (
	errNoBindPassword  = errors.New("the password of bindDN is empty; hint: see bindPasswordFile")
	errNULBindPassword = errors.New("the password of bindDN has a NUL in it; hint: see bindPasswordFile")
	errNoBindDN        = errors.New("there is a password, but no bindDN")
)

// New returns a Directory. It connects to nobody yet. The error is what Check
// finds, or about the password of the account that searches.
func New(o Options) (*Directory, error) {
	err := ldapconfig.Check(o.Config).Err()
	switch {
	case err != nil:
		return nil, err
	case o.Config.BindDN == "" && o.BindPassword != "":
		return nil, errNoBindDN
	case o.Config.BindDN != "" && o.BindPassword == "":
		return nil, errNoBindPassword
	case strings.Contains(o.BindPassword, "\x00"):
		return nil, errNULBindPassword
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if text := o.Config.CertificateAuthority; text != "" {
		trust.RootCAs, err = pemcert.Pool([]byte(text))
		if err != nil {
			return nil, err
		}
	}
	d := &Directory{
		options: o, places: make(chan struct{}, cmp.Or(o.Config.MaxConnections, ldapconfig.DefaultMaxConnections)), now: o.Now,
		nobody: "cn=gatehouse-" + strings.ToLower(rand.Text()) + "," + o.Config.UserSearch.BaseDN,
	}
	if d.now == nil {
		d.now = time.Now
	}
	for _, text := range o.Config.Servers {
		parsed, err := ldapconfig.ParseServer(text)
		if err != nil {
			return nil, err
		}
		config := trust.Clone()
		config.ServerName = parsed.Host
		d.servers = append(d.servers, &server{address: parsed, tls: config})
	}
	return d, nil
}

// Same reports whether New would return just such a Directory for other options of
// the same clock, so that this one keeps its numbers.
func (d *Directory) Same(o Options) bool {
	return d.options.BindPassword == o.BindPassword && reflect.DeepEqual(d.options.Config, o.Config)
}

// Find returns the account with this name. The error wraps ErrNoAccount if the name cannot be that of an account, such as
// one with control characters, if no entry or several entries have it, if the account is disabled or has expired, or if
// the entry does not have exactly one value of each attribute that is needed. The text of the error says which of these,
// for the operator, and does not repeat the name, because people type passwords there by mistake.
func (d *Directory) Find(ctx context.Context, name string) (*authn.Account, error) {
	if !ldapconfig.IsName(name) {
		return nil, authn.ErrNoAccount
	}
	var account *authn.Account
	err := d.search(ctx, func(ctx context.Context, c *connection) error {
		var err error
		account, err = d.find(ctx, c, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return account, nil
}

// Verify checks the password of an account by a bind on a connection of its own. A nil account is checked too, so that a
// login with an unknown name takes as long. An empty password and one with a NUL are wrong, and are never sent. If it
// cannot be decided whether the password is right, the error wraps authn.ErrPasswordSent if a server may have seen the
// password, and not if no server was reached or all were busy. No error has the password, nor the text of the server's
// answer.
func (d *Directory) Verify(ctx context.Context, account *authn.Account, password string) error {
	if !isPassword(password) {
		return authn.ErrWrongPassword
	}
	dn := d.nobody
	if account != nil {
		dn = account.DN
	}
	return d.ask(ctx, func(ctx context.Context, s *server) error {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer c.close()
		// A server that does not know the password policy's control passes it over.
		result, err := c.bind(ctx, dn, password, ldap.NewControlBeheraPasswordPolicy())
		switch {
		case errors.Is(err, errUnauthenticated):
			return err
		case err != nil:
			return s.bindFailure(ctx, err)
		case account == nil:
			return authn.ErrWrongPassword
		}
		return restricted(result)
	})
}

// Groups returns the names of the account's groups as the directory has them,
// sorted, each once.
func (d *Directory) Groups(ctx context.Context, account *authn.Account) ([]string, error) {
	search := d.options.Config.GroupSearch
	if search == nil {
		return nil, nil
	}
	var names []string
	err := d.search(ctx, func(ctx context.Context, c *connection) error {
		found := newGroups(search)
		err := found.collect(ctx, c, account.Member)
		names = found.names()
		return err
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// search asks one server after the other for something, each on a connection of its own.
// The question is asked anew, from its beginning, of each.
func (d *Directory) search(ctx context.Context, question func(context.Context, *connection) error) error {
	return d.ask(ctx, func(ctx context.Context, s *server) error {
		c, err := d.open(ctx, s)
		if err != nil {
			return err
		}
		defer c.close()
		return question(ctx, c)
	})
}

// open opens a connection for searches.
func (d *Directory) open(ctx context.Context, s *server) (*connection, error) {
	c, err := s.connect(ctx)
	if err != nil || d.options.Config.BindDN == "" {
		return c, err
	}
	_, err = c.bind(ctx, d.options.Config.BindDN, d.options.BindPassword)
	if err == nil {
		return c, nil
	}
	if code, answered := resultCode(err); answered {
		// What the server says about it is about a password. Only the code is shown.
		err = ldap.NewError(code, errors.New(""))
	}
	err = s.failure(ctx, "bind as "+ldapconfig.Quote(d.options.Config.BindDN), err)
	c.close()
	return nil, err
}

// ask asks one server after the other until one gives an answer.
func (d *Directory) ask(ctx context.Context, question func(context.Context, *server) error) error {
	timeout := ldapconfig.Timeout(d.options.Config)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer func() { <-d.places }()

	var failed failures
	servers := order(d.servers, time.Now())
	for i, s := range servers {
		attempt, cancel := share(ctx, i == len(servers)-1)
		err := question(attempt, s)
		cancel()
		down, elsewhere := isServerFailure(err)
		switch {
		case !down:
			s.answered()
		case errors.Is(ctx.Err(), context.Canceled):
			// The caller has left, which is not the server's failure.
			return err
		default:
			s.failed(time.Now())
		}
		if !elsewhere {
			return err
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// enter takes a place for one connection at a time, and waits for it until the context ends.
func (d *Directory) enter(ctx context.Context) error {
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	select {
	case d.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("directory %q: all %d connections are in use: %w", d.options.Config.Name, cap(d.places), context.Cause(ctx))
	}
}
