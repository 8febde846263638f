package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// apiServerView is what an API server makes of a token, or of what else a context
// has.
type apiServerView struct {
	Outcome authn.Outcome `json:"outcome"`
	// User is who the API server says one is, for a yes.
	User *authenticationv1.UserInfo `json:"user,omitempty"`
	// Message is what it says instead, or why it was not asked.
	Message string `json:"message,omitempty"`
}

func (v *apiServerView) text() string {
	if v.Outcome != authn.Yes || v.User == nil {
		return cli.OneLine(v.Message)
	}
	text := "knows you as " + cli.OneLine(v.User.Username)
	if len(v.User.Groups) > 0 {
		text += ", groups " + cli.OneLine(strings.Join(v.User.Groups, ", "))
	}
	return text
}

// selfSubjectReviewPath is where an API server tells who one is.
const selfSubjectReviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// askAPIServer asks an API server who one is, with the token, or without one with
// what else the context has.
func askAPIServer(ctx context.Context, api *rest.Config, token string) *apiServerView {
	unknown := func(err error) *apiServerView {
		return &apiServerView{Outcome: authn.Unknown, Message: "cannot decide: " + err.Error()}
	}
	if err := checkVerified(api); err != nil {
		return unknown(err)
	}
	config := rest.CopyConfig(api)
	if token != "" {
		config = rest.AnonymousClientConfig(api)
		config.BearerToken = token
	}
	config.Timeout = cli.APIServerTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return unknown(err)
	}
	status, answer, err := selfSubjectReview(ctx, client, config.Host)
	if err != nil {
		return unknown(err)
	}
	var review authenticationv1.SelfSubjectReview
	switch {
	case status == http.StatusUnauthorized:
		return &apiServerView{Outcome: authn.No, Message: "Unauthorized"}
	case status != http.StatusCreated && status != http.StatusOK:
		return unknown(fmt.Errorf("it responds with %d %s", status, http.StatusText(status)))
	case json.Unmarshal(answer, &review) != nil || review.Status.UserInfo.Username == "":
		return unknown(errors.New("its response is not that of an API server"))
	case token != "" && review.Status.UserInfo.Username == "system:anonymous":
		return &apiServerView{Outcome: authn.No, User: &review.Status.UserInfo, Message: "not authenticated: system:anonymous"}
	}
	return &apiServerView{Outcome: authn.Yes, User: &review.Status.UserInfo}
}

// checkVerified refuses to show a token to a server that anybody could be.
func checkVerified(api *rest.Config) error {
	u, _, err := rest.DefaultServerUrlFor(api)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https":
		return errors.New("not asked: the context's server is not https")
	case api.Insecure:
		return errors.New("not asked: the context has insecure-skip-tls-verify")
	}
	return nil
}

// selfSubjectReview posts a review of oneself.
func selfSubjectReview(ctx context.Context, client *http.Client, host string) (status int, answer []byte, err error) {
	const most = 1 << 20
	body, err := json.Marshal(authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"},
	})
	if err != nil {
		return 0, nil, err
	}
	target := strings.TrimSuffix(host, "/") + selfSubjectReviewPath
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w (hint: check the address in the kubeconfig, and that the API server is running)", err)
		}
		return 0, nil, err
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, most))
	return resp.StatusCode, answer, errors.Join(err, resp.Body.Close())
}

// errCaptured ends a request that was only made to see its header.
var errCaptured = errors.New("not sent")

// capture sees the token that client-go would send, and sends nothing.
type capture struct{ token string }

func (c *capture) RoundTrip(req *http.Request) (*http.Response, error) {
	c.token, _ = strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	return nil, errCaptured
}

// tokenOf returns the token that kubectl would send: the context's own, that of its
// file, or that of its credential plugin, which is told that nobody can be asked.
// It is empty if the context proves who one is otherwise.
func tokenOf(ctx context.Context, api *rest.Config) (string, error) {
	config := rest.CopyConfig(api)
	if config.ExecProvider != nil {
		config.ExecProvider = config.ExecProvider.DeepCopy()
		config.ExecProvider.InteractiveMode = clientcmdapi.NeverExecInteractiveMode
	}
	seen := &capture{}
	config.WrapTransport = nil
	config.Wrap(func(http.RoundTripper) http.RoundTripper { return seen })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	if _, _, err = selfSubjectReview(ctx, client, "https://token.invalid"); !errors.Is(err, errCaptured) {
		return "", fmt.Errorf("cannot get its token: %w", err)
	}
	return seen.token, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
