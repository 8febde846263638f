package groups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// graphBackend asks Microsoft Graph, as an application.
type graphBackend struct {
	client             *client
	base               *url.URL
	tokenURL           string
	form, nameProperty string

	mu sync.Mutex
	// token is that of the application, until it is renewed at a time.
	token string
	renew time.Time
	// renewing is held while a token is fetched.
	renewing chan struct{}
}

const (
	// pageSize is the largest that Graph has.
	pageSize = "999"
	// maxPages bounds the pages of an answer that are empty: those that are not are bounded
	// by maxGroups.
	maxPages = 100
	// renewBefore is how long before its end a token is not used any more.
	renewBefore = time.Minute
)

func newGraphBackend(configured *config.GroupSource, connections int, agent string) (backend, error) {
	c := configured.Config.Graph
	base, err := groupsource.ParseURL(strings.TrimSuffix(cmp.Or(c.URL, groupsource.DefaultGraphURL), "/"))
	if err != nil {
		return nil, fmt.Errorf("graph.url: %w", err)
	}
	a := &graphBackend{
		base: base, nameProperty: cmp.Or(c.NameProperty, groupsource.DefaultNameProperty), renewing: make(chan struct{}, 1),
		tokenURL: cmp.Or(c.TokenURL, "https://login.microsoftonline.com/"+c.TenantID+"/oauth2/v2.0/token"),
		form: url.Values{
			"grant_type": {"client_credentials"}, "client_id": {c.ClientID}, "client_secret": {string(configured.Secret)},
			"scope": {"https://" + base.Host + "/.default"},
		}.Encode(),
	}
	a.client, err = newClient(configured.Config.CertificateAuthority, nil, connections, agent)
	return a, err
}

func (a *graphBackend) ask(ctx context.Context, q *authn.GroupQuery, limit int) ([]string, error) {
	if q.User == "." || q.User == ".." {
		return nil, errors.New("the user is not the id of an object")
	}
	at := a.base.String() + "/users/" + url.PathEscape(q.User) + "/transitiveMemberOf/microsoft.graph.group?$select=id," + a.nameProperty + "&$top=" + pageSize
	var names []string
	for range maxPages {
		reply, err := a.get(ctx, at)
		switch {
		case err != nil:
			return nil, err
		case reply.status == http.StatusNotFound && names == nil:
			return nil, nil
		case reply.status != http.StatusOK:
			return nil, reply.failure()
		}
		page, err := groupsource.ParsePage(reply.body, a.nameProperty)
		if err != nil {
			return nil, err //nolint:wrapcheck // it says that the answer is invalid
		}
		if names = append(names, page.Names...); len(names) > limit {
			return nil, groupsource.TooManyError(limit)
		}
		if page.Next == "" {
			return names, nil
		}
		if !a.isOwn(page.Next) {
			return nil, errors.New("the next page is at another address")
		}
		at = page.Next
	}
	return nil, fmt.Errorf("more than %d pages", maxPages)
}

// isOwn reports whether a URL is below that of the configuration: the token goes nowhere
// else.
func (a *graphBackend) isOwn(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == a.base.Scheme && strings.EqualFold(u.Host, a.base.Host) && u.User == nil &&
		strings.HasPrefix(u.EscapedPath(), a.base.EscapedPath()+"/") && !strings.Contains(u.Path, "..")
}

// get gets a page. It waits as long as Graph asks for, if there is time for that, and renews a
// token that Graph does not accept, once.
func (a *graphBackend) get(ctx context.Context, at string) (*reply, error) {
	renewed := false
	for {
		token, err := a.bearer(ctx)
		if err != nil {
			return nil, err
		}
		reply, err := a.client.do(ctx, http.MethodGet, at, bearer(token), http.NoBody)
		if err != nil {
			return nil, err
		}
		switch wait := reply.retryAfter(); {
		case reply.status == http.StatusUnauthorized && !renewed:
			renewed = true
			a.drop(token)
		case wait > 0 && fits(ctx, wait):
			if err := rest(ctx, wait); err != nil {
				return nil, err
			}
		default:
			return reply, nil
		}
	}
}

// fits reports whether a wait leaves time before the context ends.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, limited := ctx.Deadline()
	return !limited || time.Until(deadline) > wait
}

// rest waits.
func rest(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx) //nolint:wrapcheck // the caller says what it means
	}
}

// drop forgets a token that was not accepted.
func (a *graphBackend) drop(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == token {
		a.token = ""
	}
}

// known returns the token, "" if it has to be fetched.
func (a *graphBackend) known() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !time.Now().Before(a.renew) {
		return ""
	}
	return a.token
}

// bearer returns the token of the application, which one look-up fetches for all.
func (a *graphBackend) bearer(ctx context.Context) (string, error) {
	if token := a.known(); token != "" {
		return token, nil
	}
	select {
	case a.renewing <- struct{}{}:
		defer func() { <-a.renewing }()
	case <-ctx.Done():
		return "", context.Cause(ctx) //nolint:wrapcheck // the caller says what it means
	}
	if token := a.known(); token != "" {
		return token, nil
	}
	reply, err := a.client.do(ctx, http.MethodPost, a.tokenURL, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, strings.NewReader(a.form))
	if err != nil {
		return "", fmt.Errorf("token of the application: %w", err)
	}
	if reply.status != http.StatusOK {
		return "", fmt.Errorf("token of the application: %w", reply.failure())
	}
	token, seconds, err := groupsource.ParseToken(reply.body)
	if err != nil {
		return "", &outageError{cause: fmt.Errorf("token of the application: %w", err)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	const most = 24 * 60 * 60
	a.token, a.renew = token, time.Now().Add(max(time.Duration(min(seconds, most))*time.Second-renewBefore, leastPause))
	return token, nil
}
