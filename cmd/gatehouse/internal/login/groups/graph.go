package groups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// graphBackend asks Microsoft Graph, as an application.
type graphBackend struct {
	client       *client
	base         *url.URL
	nameProperty string

	application clientcredentials.Config
	timeout     time.Duration
	// token is that of the application, and fetching has the fetch of one.
	token    atomic.Pointer[oauth2.Token]
	fetching singleflight.Group
}

const (
	// pageSize is the largest that Graph has.
	pageSize = "999"
	// maxPages bounds the pages of an answer that are empty: those that are not are bounded
	// by maxGroups.
	maxPages = 100
)

func newGraphBackend(configured *config.GroupSource, client *client) (backend, error) {
	c := configured.Config.Graph
	base, err := groupsource.ParseURL(strings.TrimSuffix(c.URL, "/"))
	if err != nil {
		return nil, fmt.Errorf("graph.url: %w", err)
	}
	return &graphBackend{
		client: client, base: base, nameProperty: c.NameProperty, timeout: configured.Config.Timeout.Duration,
		application: clientcredentials.Config{
			ClientID: c.ClientID, ClientSecret: string(configured.Secret), TokenURL: c.TokenURL,
			Scopes: []string{"https://" + base.Host + "/.default"}, AuthStyle: oauth2.AuthStyleInParams,
		},
	}, nil
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
		found, next, err := parsePage(reply.body, a.nameProperty)
		if err != nil {
			return nil, err
		}
		if names = append(names, found...); len(names) > limit {
			return nil, groupsource.TooMany(limit)
		}
		if next == "" {
			return names, nil
		}
		if !a.isOwn(next) {
			return nil, errors.New("the next page is at another address")
		}
		at = next
	}
	return nil, fmt.Errorf("more than %d pages", maxPages)
}

// parsePage returns the names on a page, each of which must have one, and the URL of the next
// page, "" on the last. The error holds nothing of the answer.
func parsePage(answer []byte, property string) (names []string, next string, err error) {
	var page struct {
		Next  string           `json:"@odata.nextLink"`
		Value []map[string]any `json:"value"`
	}
	if json.Unmarshal(answer, &page) != nil || page.Value == nil {
		return nil, "", errors.New("the answer is not a page of groups")
	}
	for _, group := range page.Value {
		name, ok := group[property].(string)
		if !ok {
			return nil, "", fmt.Errorf("the answer has a group without %s", property)
		}
		names = append(names, name)
	}
	return names, page.Next, nil
}

// isOwn reports whether a URL is below that of the configuration: the token goes nowhere
// else.
func (a *graphBackend) isOwn(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == a.base.Scheme && strings.EqualFold(u.Host, a.base.Host) && u.User == nil &&
		strings.HasPrefix(u.EscapedPath(), a.base.EscapedPath()+"/") && !strings.Contains(u.Path, "..")
}

// get gets a page, and renews a token that Graph does not accept, once.
func (a *graphBackend) get(ctx context.Context, at string) (*reply, error) {
	for renewed := false; ; renewed = true {
		token, err := a.bearer(ctx)
		if err != nil {
			return nil, err
		}
		reply, err := a.client.do(ctx, http.MethodGet, at, bearer(token.AccessToken), http.NoBody)
		if err != nil || reply.status != http.StatusUnauthorized || renewed {
			return reply, err
		}
		a.token.CompareAndSwap(token, nil)
	}
}

// bearer returns the token of the application, which one look-up fetches for all.
func (a *graphBackend) bearer(ctx context.Context) (*oauth2.Token, error) {
	if token := a.token.Load(); token.Valid() {
		return token, nil
	}
	done := a.fetching.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, a.client.http), a.timeout)
		defer cancel()
		token, err := a.application.Token(ctx)
		if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			err = fmt.Errorf("status %d: must be 200", e.Response.StatusCode) // the rest is the answer
		}
		if err != nil {
			return nil, &outageError{cause: fmt.Errorf("token of the application: %w", err)}
		}
		a.token.Store(token)
		return token, nil
	})
	select {
	case r := <-done:
		token, _ := r.Val.(*oauth2.Token)
		return token, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx) //nolint:wrapcheck // the caller says what it means
	}
}
