package session

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// callbackPath is where the browser comes back to.
const callbackPath = "/callback"

// ParseListen reads HOST:PORT, where HOST is an address of this machine's
// loopback or localhost. Nobody else can come back with a code.
func ParseListen(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil || port == "" {
		return fmt.Errorf("%q: must be HOST:PORT (hint: 127.0.0.1:0 is any free port)", text)
	}
	if addr, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !addr.IsLoopback()) {
		return fmt.Errorf("%q: the host must be 127.0.0.1, [::1] or localhost, because the browser returns to this machine", text)
	}
	return nil
}

// browser sends a person to the issuer, and waits for the browser to come back.
func (o *OIDC) browser(ctx context.Context, i *issuer) (*Credential, error) {
	if i.config.Endpoint.AuthURL == "" || i.config.Endpoint.TokenURL == "" {
		return nil, fmt.Errorf("%s: the issuer has no authorization or token endpoint for logins in a browser (hint: --device)", o.Issuer)
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, err
	}
	address := host
	if host == "localhost" {
		address = "127.0.0.1" // what the name resolves to is not asked
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, port))
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the browser: %w (hint: --listen HOST:PORT)", err)
	}
	_, port, err = net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	i.config.RedirectURL = "http://" + net.JoinHostPort(host, port) + callbackPath
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	return o.callback(ctx, listener, state, func(answer url.Values) (*Credential, error) {
		if err := o.checkAnswer(i, answer); err != nil {
			return nil, err
		}
		token, err := i.config.Exchange(i.context(ctx), answer.Get("code"), oauth2.VerifierOption(verifier))
		if err != nil {
			return nil, o.failed(ctx, err)
		}
		return o.credential(ctx, i, token, nonce)
	}, func() {
		options := []oauth2.AuthCodeOption{oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)}
		if o.Account != "" {
			// Otherwise a browser that is logged in with another account comes back with that one at once.
			options = append(options, oauth2.SetAuthURLParam("login_hint", o.Account), oauth2.SetAuthURLParam("prompt", "select_account"))
		}
		o.send(i.config.AuthCodeURL(state, options...))
	})
}

// send shows the URL, and opens it.
func (o *OIDC) send(target string) {
	if o.Open == nil {
		o.remark("to log in, open this address in a browser on this machine:\n%s", target)
		return
	}
	o.remark("opening a browser to log in; if none opens, open this address on this machine:\n%s", target)
	// Some browsers stay in the foreground.
	go func() {
		if err := o.Open(target); err != nil {
			o.remark("cannot open a browser: %s", printable(err.Error()))
		}
	}()
}

func (o *OIDC) remark(format string, args ...any) {
	_, _ = fmt.Fprintf(o.Remarks, "gatehouse: "+format+"\n", args...)
}

// checkAnswer looks at what the browser came back with, the right state aside.
func (o *OIDC) checkAnswer(i *issuer, answer url.Values) error {
	switch {
	// RFC 9207: an answer of another issuer is not for this one.
	case answer.Has("iss") && answer.Get("iss") != o.Issuer, i.names && !answer.Has("iss"):
		return fmt.Errorf("%s: the response is from issuer %q", o.Issuer, printable(answer.Get("iss")))
	case answer.Get("error") != "":
		return o.refused(answer.Get("error"), answer.Get("error_description"))
	case answer.Get("code") == "":
		return fmt.Errorf("%s: the response has no authorization code", o.Issuer)
	}
	return nil
}

// callback serves the one request that comes back with the state. Conclude is
// called with its answer, once, and the browser shows how it went. Ready is
// called when requests are taken.
func (o *OIDC) callback(
	ctx context.Context, listener net.Listener, state string, conclude func(url.Values) (*Credential, error), ready func(),
) (*Credential, error) {
	type result struct {
		credential *Credential
		err        error
	}
	done := make(chan result, 1)
	var once sync.Once
	server := &http.Server{
		ReadTimeout: requestTimeout, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := r.URL.Query()
			right := r.Method == http.MethodGet && r.URL.Path == callbackPath && len(answer["state"]) == 1 &&
				subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(state)) == 1
			first := false
			if right {
				once.Do(func() { first = true })
			}
			if !first {
				page(w, http.StatusBadRequest, "No login is waiting for this response.")
				return
			}
			c, err := conclude(answer)
			if err != nil {
				page(w, http.StatusOK, "The login failed: "+err.Error()+". You can close this page.")
			} else {
				page(w, http.StatusOK, "You are logged in as "+printable(c.User)+". You can close this page.")
			}
			done <- result{c, err}
		}),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready()
	var r result
	select {
	case r = <-done:
	case err := <-served:
		return nil, fmt.Errorf("the browser cannot return: %w", err)
	case <-ctx.Done():
		r.err = context.Cause(ctx)
	}
	// The page is on its way; a browser that does not read it is not waited for.
	const grace = 2 * time.Second
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		_ = server.Close() // nothing is left to save
	}
	return r.credential, r.err
}

// page writes all that the browser shows. It loads nothing, and what the issuer
// said is text in it.
func page(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<!doctype html><title>Gatehouse</title><p>%s</p>\n", html.EscapeString(text)) // the browser may have gone
}
