package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// issue issues a token that the server learns of by its documents.
func (w *world) issue(t *testing.T, id string, flags ...string) string {
	t.Helper()
	output, err := gatehouse.Run(t.Context(), append([]string{"token", "issue", "--id", id, "--user", "user-of-" + id, "--config", w.config}, flags...)...)
	must(t, err)
	return w.secret(strings.TrimSpace(output))
}

// issueUnknown issues a token of which no server learns, and its document.
func (w *world) issueUnknown(t *testing.T, id string) (string, v1alpha1.AccessToken) {
	t.Helper()
	output, err := gatehouse.Run(t.Context(), "token", "issue", "--id", id, "--user", "user-of-"+id, "--output", "json")
	must(t, err)
	var issued struct {
		Token    string
		Document v1alpha1.AccessToken
	}
	must(t, json.Unmarshal([]byte(output), &issued))
	return w.secret(issued.Token), issued.Document
}

// write writes a document as 'token issue' would.
func (w *world) write(t *testing.T, name string, document any) {
	t.Helper()
	text, err := yaml.Marshal(document)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(w.config, name), text, 0o600))
}

// whoami asks an API server whom a token belongs to.
func whoami(t *testing.T, c *cluster.Cluster, token string) (authenticationv1.UserInfo, error) {
	t.Helper()
	config := c.Config()
	config.CertData, config.KeyData, config.BearerToken = nil, nil, token
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

func (w *world) eventuallyKnown(t *testing.T, token string) {
	t.Helper()
	support.Eventually(t, "a new token", func() error {
		_, err := whoami(t, w.Cluster, token)
		return err
	})
}

func TestLogin(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	w.expectTraces(`"tokenID":`, "gatehouse_reviews_total{", `"kind":"Event"`, "sha256:")
	full := w.issue(t, "full", "--user", "jane", "--uid", "4711", "--group", "dev", "--group", "eng", "--extra", "example.org/team=blue", "--extra", "example.org/team=green")
	bare := w.issue(t, "bare")
	own := w.issue(t, "own-audience", "--audience", "https://kubernetes.default.svc.cluster.local")
	vault := w.issue(t, "other-audience", "--audience", "vault")
	wrong, _ := w.issueUnknown(t, "full")
	unknown, _ := w.issueUnknown(t, "nobody-knows")
	expired, document := w.issueUnknown(t, "expired")
	document.Spec.ExpiresAt = metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	w.write(t, "token-expired.yaml", document)
	last := w.issue(t, "last")
	w.eventuallyKnown(t, last)

	jane := authenticationv1.UserInfo{
		Username: "jane", UID: "4711", Groups: []string{"dev", "eng", "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{"example.org/team": {"blue", "green"}},
	}
	plain := func(id string) authenticationv1.UserInfo {
		return authenticationv1.UserInfo{Username: "user-of-" + id, Groups: []string{"system:authenticated"}}
	}
	for _, test := range []struct {
		name, token string
		want        authenticationv1.UserInfo // none: Unauthorized
	}{
		{"right", full, jane},
		{"right, with nothing but a name", bare, plain("bare")},
		{"for the API server's audience", own, plain("own-audience")},
		{"for another audience", vault, authenticationv1.UserInfo{}},
		{"wrong secret", wrong, authenticationv1.UserInfo{}},
		{"unknown id", unknown, authenticationv1.UserInfo{}},
		{"expired", expired, authenticationv1.UserInfo{}},
		{"cut off", full[:len(full)-1], authenticationv1.UserInfo{}},
		{"foreign", w.secret("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06YWRtaW4ifQ.c2lnbmF0dXJlIG9mIG5vYm9keQ"), authenticationv1.UserInfo{}},
		{"short", "x", authenticationv1.UserInfo{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			check(t, w.Cluster, test.token, test.want)
		})
	}

	t.Run("v1", func(t *testing.T) {
		// TokenReview v1, by another API server of the same cluster.
		flags, err := w.apiServerFlags(t.Context())
		must(t, err)
		second := cluster.New(t, cluster.Options{Join: w.Cluster, APIServerFlags: append(flags("v1"), "--audit-log-path=-")})
		check(t, second, full, jane)
		check(t, second, own, plain("own-audience"))
		for _, token := range []string{vault, wrong, unknown, expired} {
			check(t, second, token, authenticationv1.UserInfo{})
		}
	})

	t.Run("kubectl", func(t *testing.T) {
		kubectl := w.Kubectl(t.Context(), "--kubeconfig=/dev/null", "--server="+w.Config().Host, "--certificate-authority="+w.CAFile(), "--token="+full, "auth", "whoami", "--output=json")
		output, err := kubectl.Output()
		must(t, err)
		var review authenticationv1.SelfSubjectReview
		must(t, json.Unmarshal(output, &review))
		if review.Status.UserInfo.Username != "jane" {
			t.Errorf("kubectl says %s", output)
		}
	})

	// A service in the cluster shows a token to the API server, which shows it to Gatehouse.
	t.Run("token review for a service", func(t *testing.T) {
		for token, audiences := range map[string][]string{vault: {"vault"}, full: nil} {
			review, err := w.Client().AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"vault"}},
			}, metav1.CreateOptions{})
			must(t, err)
			if review.Status.Authenticated != (audiences != nil) || !slices.Equal(review.Status.Audiences, audiences) {
				t.Errorf("%.20s…: got %+v, want the audiences %q", token, review.Status, audiences)
			}
		}
	})
}

// check compares who a token belongs to with who it should, and wants a token of nobody to be refused.
func check(t *testing.T, c *cluster.Cluster, token string, want authenticationv1.UserInfo) {
	t.Helper()
	got, err := whoami(t, c, token)
	if want.Username == "" {
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("got %v, %v, want that it is refused", got, err)
		}
		return
	}
	must(t, err)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
