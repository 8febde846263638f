package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// scopesConfig defines the named scopes of the tests.
const scopesConfig = `apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
scopes:
- name: names
  rules:
  - {apiGroups: [""], resources: [pods], resourceNames: [web], verbs: [get, list, watch, create, patch, deletecollection]}
- name: everything
  rules:
  - {apiGroups: ["*"], resources: ["*", "*/status", "*/scale"], verbs: ["*"]}
  - {nonResourceURLs: ["*"], verbs: ["*"]}
- name: named
  rules:
  - {apiGroups: [""], resources: [users], resourceNames: [bob], verbs: [impersonate]}
  - {apiGroups: [""], resources: [serviceaccounts/token], namespaces: [shop], verbs: [create]}
  - {apiGroups: [""], resources: [secrets], verbs: [get]}
  - {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}
  - {nonResourceURLs: [/metrics, "/logs/*"], verbs: [get]}
`

// scopesWorld is an API server that asks Gatehouse who a token is, and about requests of tokens with a scope, as the files that
// 'gatehouse manifests' prints say.
type scopesWorld struct {
	*world
	relay *relay
	// log is that of the server.
	log string
}

// newScopesWorld starts both. The AuthorizationConfiguration can be changed before.
func newScopesWorld(t *testing.T, change func(authorization string) string) *scopesWorld {
	t.Helper()
	_, err := gatehouse.Binary()
	must(t, err)
	w := &scopesWorld{world: &world{dir: t.TempDir()}, relay: newRelay(t)}
	w.config = w.path("config")
	must(t, w.certificates())
	must(t, os.Mkdir(w.config, 0o700))
	must(t, os.WriteFile(filepath.Join(w.config, "authentication.yaml"), []byte(scopesConfig), 0o600))
	show := func(mode string, flags ...string) string {
		printed, err := gatehouse.Run(t.Context(), append([]string{
			"manifests", mode, "--url", "https://" + w.relay.address(),
			"--ca-file", w.path("ca.crt"), "--client-cert", w.path("client.crt"), "--client-key", w.path("client.key"),
		}, flags...)...)
		must(t, err)
		return printed
	}
	kubeconfig, authorization, both := strings.Cut(show("--authorization", "--kubeconfig-path", w.path("authorization-kubeconfig.yaml")), "\n---\n")
	if !both {
		t.Fatal("manifests --authorization prints one file")
	}
	for name, content := range map[string]string{
		"token-webhook.yaml": show("--authentication"), "authorization-kubeconfig.yaml": kubeconfig, "authorization.yaml": change(authorization),
	} {
		must(t, os.WriteFile(w.path(name), []byte(content), 0o600))
	}
	w.Cluster = cluster.New(t, cluster.Options{APIServerFlags: []string{
		"--authentication-token-webhook-config-file=" + w.path("token-webhook.yaml"), "--authentication-token-webhook-version=v1",
		"--authentication-token-webhook-cache-ttl=1m", "--authorization-config=" + w.path("authorization.yaml"),
	}})
	for _, name := range []string{"shop", "other"} {
		must(t, w.CreateNamespace(t.Context(), name, nil))
	}
	w.bind(t, "cluster-admin", "jane", "carol")
	w.bind(t, "system:auth-delegator", "gatehouse")
	w.start(t)
	return w
}

// bind gives users a role.
func (w *scopesWorld) bind(t *testing.T, role string, users ...string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + strings.ReplaceAll(role, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user})
	}
	_, err := w.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	must(t, err)
}

// start starts the server, which asks the API server as the user gatehouse.
func (w *scopesWorld) start(t *testing.T) {
	t.Helper()
	w.startWith(t, "--kubeconfig", w.path("gatehouse.kubeconfig"))
}

// startWith starts the server with flags.
func (w *scopesWorld) startWith(t *testing.T, flags ...string) {
	t.Helper()
	access, err := w.ConfigFor("gatehouse")
	must(t, err)
	must(t, cluster.WriteKubeconfig(w.path("gatehouse.kubeconfig"), access.Host, access.CAData, access.CertData, access.KeyData))
	w.log = w.path("gatehouse.log")
	showIfFailed(t, "gatehouse", w.log)
	w.gatehouse, err = gatehouse.Start(t.Context(), w.log, slices.Concat([]string{
		"--config", w.config, "--authorize", "--log-level", "debug",
		"--listen", net.JoinHostPort(cluster.ListenAddress(), "0"), "--ops-listen", "127.0.0.1:0", "--drain-delay", "0s",
	}, w.serving, flags)...)
	must(t, err)
	t.Cleanup(w.gatehouse.Kill)
	w.relay.to(w.gatehouse)
}

// access issues a token of jane, who is a cluster administrator, with a scope, and returns how to use it.
func (w *scopesWorld) access(t *testing.T, id string, flags ...string) *rest.Config {
	t.Helper()
	config := rest.AnonymousClientConfig(w.Config())
	config.BearerToken = w.issue(t, id, append([]string{"--user", "jane", "--ttl", "1h"}, flags...)...)
	return config
}

// ask sends a request, "METHOD /path", and returns the status and the body of the answer.
func (w *scopesWorld) ask(ctx context.Context, as *rest.Config, text, body string, header http.Header) (int, string, error) {
	method, path, _ := strings.Cut(text, " ")
	client, err := rest.HTTPClientFor(as)
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, method, as.Host+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header = header.Clone()
	if request.Header == nil {
		request.Header = http.Header{}
	}
	if body != "" && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// eventually waits until a request gets a status.
func (w *scopesWorld) eventually(t *testing.T, as *rest.Config, text string, status int) string {
	t.Helper()
	var answer string
	support.Eventually(t, fmt.Sprintf("%s: %d", text, status), func() error {
		got, body, err := w.ask(t.Context(), as, text, "", nil)
		if err == nil && got != status {
			err = fmt.Errorf("%d %s", got, body)
		}
		answer = body
		return err
	})
	return answer
}

const outsideOfScope = "outside of the scope of this token"

// TestScopes: a real kube-apiserver enforces scopes on what it really asks: each request of the table, of a cluster administrator, is
// inside or outside of the scope of the token, as the table says.
func TestScopes(t *testing.T) {
	t.Parallel()
	w := newScopesWorld(t, func(authorization string) string { return authorization })
	as := map[string]*rest.Config{
		"view":       w.access(t, "view", "--scope", "view"),
		"shop":       w.access(t, "shop", "--scope", "view", "--namespace", "shop"),
		"edit":       w.access(t, "edit", "--scope", "edit"),
		"names":      w.access(t, "names", "--scope", "names"),
		"everything": w.access(t, "everything", "--scope", "everything"),
		"named":      w.access(t, "named", "--scope", "named"),
		"plain":      w.access(t, "plain"),
	}
	for _, config := range as {
		w.eventually(t, config, "GET /version", http.StatusOK)
	}

	const (
		inside, outside = true, false
		shop            = "/api/v1/namespaces/shop/"
		dry             = "?dryRun=All"
		pod             = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"},"spec":{"containers":[{"name":"a","image":"a"}]}}`
		role            = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"new"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`
		tokenRequest    = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`
		review          = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods","namespace":"shop"}}}`
		rulesReview     = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"shop"}}`
		whoamiReview    = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
		accessReview    = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"bob","nonResourceAttributes":{"path":"/","verb":"get"}}}`
	)
	as2 := http.Header{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}}
	impersonate := func(user string) http.Header { return http.Header{"Impersonate-User": {user}} }
	patch := http.Header{"Content-Type": {"application/merge-patch+json"}}
	for _, test := range []struct {
		token, request, body string
		header               http.Header
		inside               bool
	}{
		// names, collections, watches, across namespaces
		{"view", "GET " + shop + "pods/web", "", nil, inside},
		{"view", "GET " + shop + "pods", "", nil, inside},
		{"view", "GET /api/v1/pods?watch=true&timeoutSeconds=1", "", nil, inside},
		{"view", "GET /api/v1/nodes/n1", "", nil, inside},
		{"view", "GET /apis/apps/v1/namespaces/shop/deployments/web/scale", "", nil, inside},
		{"view", "GET " + shop + "pods/web/status", "", nil, inside},
		{"view", "GET " + shop + "pods/web/log", "", nil, inside},
		{"view", "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/view", "", nil, inside},
		{"view", "GET " + shop + "secrets/db", "", nil, outside},
		{"view", "GET " + shop + "secrets", "", nil, outside},
		{"view", "GET /api/v1/secrets?watch=true&timeoutSeconds=1", "", nil, outside},
		{"view", "GET /api/v1/watch/secrets?timeoutSeconds=1", "", nil, outside},
		{"view", "POST " + shop + "pods" + dry, pod, nil, outside},
		{"view", "DELETE " + shop + "pods/web" + dry, "", nil, outside},
		{"view", "DELETE " + shop + "pods" + dry, "", nil, outside},
		{"view", "PATCH " + shop + "pods/web" + dry, "{}", patch, outside},
		{"view", "PUT " + shop + "pods/new/status" + dry, pod, nil, outside},
		// what connects
		{"view", "GET " + shop + "pods/web/exec?command=ls", "", nil, outside},
		{"view", "POST " + shop + "pods/web/exec?command=ls", "", nil, outside},
		{"view", "GET " + shop + "pods/web/portforward", "", nil, outside},
		{"view", "GET " + shop + "pods/web/proxy/", "", nil, outside},
		{"view", "GET " + shop + "services/web/proxy/", "", nil, outside},
		{"view", "GET /api/v1/nodes/n1/proxy/metrics", "", nil, outside},
		// discovery, and reviews of the user itself
		{"shop", "GET /api", "", nil, inside},
		{"shop", "GET /apis", "", as2, inside},
		{"shop", "GET /apis/apps/v1", "", nil, inside},
		{"shop", "GET /openapi/v3", "", nil, inside},
		{"shop", "GET /healthz", "", nil, inside},
		{"shop", "POST /apis/authentication.k8s.io/v1/selfsubjectreviews", whoamiReview, nil, inside},
		{"shop", "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, nil, inside},
		{"shop", "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", rulesReview, nil, inside},
		{"shop", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", accessReview, nil, outside},
		{"shop", "GET /metrics", "", nil, outside},
		{"view", "GET /metrics", "", nil, outside},
		{"view", "GET /logs/kube-apiserver.log", "", nil, outside},
		{"named", "GET /metrics", "", nil, inside},
		{"named", "GET /metrics/slis", "", nil, outside},
		{"named", "GET /logs/../metrics/slis", "", nil, outside},
		// narrowed to a namespace
		{"shop", "GET " + shop + "pods", "", nil, inside},
		{"shop", "GET /api/v1/namespaces/shop", "", nil, inside},
		{"shop", "GET /api/v1/namespaces/other", "", nil, outside},
		{"shop", "GET /api/v1/namespaces/other/pods", "", nil, outside},
		{"shop", "GET /api/v1/pods", "", nil, outside},
		{"shop", "GET /api/v1/pods?fieldSelector=metadata.namespace%3Dshop", "", nil, outside},
		{"shop", "GET /api/v1/namespaces", "", nil, outside},
		{"shop", "GET /api/v1/nodes", "", nil, outside},
		// names and selectors
		{"names", "GET " + shop + "pods/web", "", nil, inside},
		{"names", "GET " + shop + "pods/db", "", nil, outside},
		{"names", "GET " + shop + "pods?fieldSelector=metadata.name%3Dweb", "", nil, inside},
		{"names", "GET " + shop + "pods?fieldSelector=metadata.name%3Ddb", "", nil, outside},
		{"names", "GET " + shop + "pods?labelSelector=app%3Dweb", "", nil, outside},
		{"names", "GET " + shop + "pods", "", nil, outside},
		{"names", "POST " + shop + "pods" + dry, strings.Replace(pod, "new", "web", 1), nil, outside},
		{"names", "DELETE " + shop + "pods" + dry, "", nil, outside},
		// writes
		{"edit", "POST " + shop + "pods" + dry, pod, nil, inside},
		{"edit", "DELETE " + shop + "configmaps" + dry, "", nil, inside},
		{"edit", "POST " + shop + "pods/web/exec?command=ls", "", nil, inside},
		{"edit", "POST " + shop + "secrets" + dry, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"new"}}`, nil, outside},
		{"edit", "POST " + shop + "serviceaccounts/default/token", tokenRequest, nil, outside},
		{"edit", "POST /api/v1/namespaces" + dry, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"new"}}`, nil, outside},
		{"edit", "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings" + dry, role, nil, outside},
		// what a wildcard does not stand for
		{"everything", "POST " + shop + "pods" + dry, pod, nil, inside},
		{"everything", "GET /metrics", "", nil, inside},
		{"everything", "GET " + shop + "secrets/db", "", nil, outside},
		{"everything", "GET " + shop + "pods/web/exec?command=ls", "", nil, outside},
		{"everything", "POST " + shop + "serviceaccounts/default/token", tokenRequest, nil, outside},
		{"everything", "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings" + dry, role, nil, outside},
		{"everything", "GET " + shop + "pods/web", "", impersonate("bob"), outside},
		// named
		{"named", "GET /api", "", impersonate("bob"), inside},
		{"named", "GET /api", "", impersonate("carol"), outside},
		{"named", "GET /api", "", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"system:masters"}}, outside},
		{"named", "POST " + shop + "serviceaccounts/default/token", tokenRequest, nil, inside},
		{"named", "POST /api/v1/namespaces/other/serviceaccounts/default/token", tokenRequest, nil, outside},
		{"named", "GET " + shop + "secrets/db", "", nil, inside},
		{"named", "GET " + shop + "secrets", "", nil, outside},
		{"named", "GET " + shop + "pods/web/exec?command=ls", "", nil, inside},
		// without a scope
		{"plain", "GET " + shop + "secrets", "", nil, inside},
		{"plain", "GET " + shop + "pods/web", "", impersonate("carol"), inside},
	} {
		t.Run(test.token+" "+test.request, func(t *testing.T) {
			t.Parallel()
			status, answer, err := w.ask(t.Context(), as[test.token], test.request, test.body, test.header)
			must(t, err)
			denied := status == http.StatusForbidden && strings.Contains(answer, outsideOfScope)
			if denied == test.inside || test.inside && (status == http.StatusForbidden || status == http.StatusUnauthorized) {
				t.Errorf("answered %d %s", status, answer)
			}
		})
	}
}

// TestScopesInTime: a changed scope is in force soon, and while Gatehouse is away requests of its tokens are denied, and no others.
func TestScopesInTime(t *testing.T) {
	t.Parallel()
	w := newScopesWorld(t, func(authorization string) string { return authorization })
	const secrets, secret, pods = "GET /api/v1/namespaces/shop/secrets", "GET /api/v1/namespaces/shop/secrets/db", "GET /api/v1/namespaces/shop/pods"
	named, plain := w.access(t, "named", "--scope", "named"), w.access(t, "plain")
	carol, err := w.ConfigFor("carol")
	must(t, err)
	w.eventually(t, named, secret, http.StatusNotFound)
	w.eventually(t, plain, secret, http.StatusNotFound)
	if enforced, err := w.gatehouse.Metric(t.Context(), "gatehouse_scopes_enforced"); err != nil || enforced != 1 {
		t.Errorf("gatehouse_scopes_enforced is %v, %v", enforced, err)
	}
	output, err := gatehouse.Run(t.Context(), "probe", "--authorization", "--kubeconfig", w.path("gatehouse.kubeconfig"))
	if err != nil || !strings.Contains(output, "enforces the scopes of tokens") {
		t.Errorf("probe says %q, %v", output, err)
	}

	// The scope gets another verb, and loses one.
	must(t, os.WriteFile(filepath.Join(w.config, "authentication.yaml"), []byte(strings.Replace(scopesConfig, "resources: [secrets], verbs: [get]", "resources: [secrets], verbs: [list]", 1)), 0o600))
	w.eventually(t, named, secrets, http.StatusOK)
	if answer := w.eventually(t, named, secret, http.StatusForbidden); !strings.Contains(answer, outsideOfScope+": named") {
		t.Errorf("answered %s", answer)
	}

	w.gatehouse.Kill()
	// Nobody else notices: neither a certificate nor a token without a scope waits for Gatehouse.
	for name, config := range map[string]*rest.Config{"a certificate": carol, "a token without a scope": plain} {
		if status, answer, err := w.ask(t.Context(), config, pods, "", nil); err != nil || status != http.StatusOK {
			t.Errorf("%s: answered %d %s, %v", name, status, answer, err)
		}
	}
	status, answer, err := w.ask(t.Context(), named, "GET /metrics", "", nil)
	if err != nil || status == http.StatusOK || strings.Contains(answer, outsideOfScope) {
		t.Errorf("a token with a scope: answered %d %s, %v", status, answer, err)
	}
	w.start(t)
	w.eventually(t, named, "GET /metrics", http.StatusOK)

	// Without access to the cluster, requests of tokens that the API server still knows show nothing, and a probe does.
	w.gatehouse.Kill()
	w.startWith(t)
	_, _, err = w.ask(t.Context(), named, "GET /metrics", "", nil)
	must(t, err)
	if _, body, err := w.gatehouse.Get(t.Context(), "/readyz?verbose"); err != nil || !strings.Contains(body, "ScopesEnforced=False: no probe has reached /authorize") {
		t.Errorf("/readyz says %s, %v", body, err)
	}
	_, err = gatehouse.Run(t.Context(), "probe", "--authorization", "--kubeconfig", w.path("gatehouse.kubeconfig"))
	must(t, err)
	support.Eventually(t, "scopes to be enforced", func() error {
		_, body, err := w.gatehouse.Get(t.Context(), "/readyz?verbose")
		if err == nil && !strings.Contains(body, "ScopesEnforced=True") {
			err = errors.New(body)
		}
		return err
	})
}

// TestScopesNotEnforced: with an API server that would let a token have all rights while Gatehouse is away, no token with a scope is
// accepted.
func TestScopesNotEnforced(t *testing.T) {
	t.Parallel()
	w := newScopesWorld(t, func(authorization string) string {
		return strings.Replace(authorization, "failurePolicy: Deny", "failurePolicy: NoOpinion", 1)
	})
	const pods = "GET /api/v1/namespaces/shop/pods"
	view, plain := w.access(t, "view", "--scope", "view"), w.access(t, "plain")
	w.eventually(t, plain, pods, http.StatusOK)
	support.Eventually(t, "the reason", func() error {
		_, body, err := w.gatehouse.Get(t.Context(), "/readyz?verbose")
		if err == nil && !strings.Contains(body, "ScopesEnforced=False: the API server does not enforce the scopes of tokens when Gatehouse does not answer") {
			err = errors.New(body)
		}
		return err
	})
	if status, answer, err := w.ask(t.Context(), view, pods, "", nil); err != nil || status != http.StatusUnauthorized {
		t.Errorf("answered %d %s, %v", status, answer, err)
	}
	if enforced, err := w.gatehouse.Metric(t.Context(), "gatehouse_scopes_enforced"); err != nil || enforced != 0 {
		t.Errorf("gatehouse_scopes_enforced is %v, %v", enforced, err)
	}
	_, err := gatehouse.Run(t.Context(), "probe", "--authorization", "--timeout", "2s", "--kubeconfig", w.path("gatehouse.kubeconfig"))
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 || !strings.Contains(err.Error(), "write failurePolicy: Deny into its --authorization-config") {
		t.Errorf("probe says %v", err)
	}
}

// TestScopeOfOIDCLogin: somebody who has logged in at an issuer narrows their own token without a right and without logging in again. The
// API server knows the narrowed one as the same user, and what ends the one ends the other.
func TestScopeOfOIDCLogin(t *testing.T) {
	t.Parallel()
	w := newScopesWorld(t, func(authorization string) string { return authorization })
	jane := w.person("jane", "dev", "eng")
	dex := newDex(t, dexOptions{Users: []dexUser{jane}})
	s := &site{world: w.world, documents: w.config, private: t.TempDir()}
	s.writeDocument(t, "issuers.yaml", issuersDocument(issuerOf(dex, "dex:")))
	key := s.loginKey(t, "first")
	must(t, os.WriteFile(filepath.Join(w.config, "authentication.yaml"), fmt.Appendf(nil, "%slogin:\n  keys: [{name: first, file: %q}]\n", scopesConfig, key.File), 0o600))
	w.gatehouse.Kill()
	w.start(t)
	s.server = w.gatehouse
	w.bind(t, "system:aggregate-to-view", "dex:jane@example.org")
	w.bind(t, "system:aggregate-to-edit", "dex:jane@example.org")

	authority := filepath.Join(t.TempDir(), "dex.crt")
	must(t, os.WriteFile(authority, dex.CertPEM(), 0o600))
	d := (&place{site: s, api: w.Cluster}).newWorkstation(t,
		"--issuer", dex.Issuer(), "--issuer-ca", authority, "--client-id", dexClient,
		"--issuer-scope", "email", "--issuer-scope", "groups", "--issuer-scope", "profile", "--issuer-scope", "offline_access")
	d.logIn(t, dex, jane)
	d.gatehouse(t, "login", "--scope", "veiw").run(t, "").says(t, 2, "the scopes are view, edit, everything, named, names")
	d.isKnownAs(t, "dex:jane@example.org", "dex:dev", "dex:eng")
	token := func(flags ...string) string {
		t.Helper()
		said := d.gatehouse(t, append([]string{"login", "-o", "token"}, flags...)...).run(t, "")
		said.says(t, 0)
		return strings.TrimSpace(said.stdout)
	}
	// No browser: the login from before is used.
	whole, narrow := token(), token("--scope", "view")
	if _, err := os.Stat(d.sentTo); err == nil {
		t.Error("a browser was opened")
	}
	const pods, secrets = "GET /api/v1/namespaces/shop/pods", "GET /api/v1/namespaces/shop/secrets"
	as := func(token string) *rest.Config {
		config := rest.AnonymousClientConfig(w.Config())
		config.BearerToken = token
		return config
	}
	w.eventually(t, as(whole), secrets, http.StatusOK)
	w.eventually(t, as(narrow), pods, http.StatusOK)
	if answer := w.eventually(t, as(narrow), secrets, http.StatusForbidden); !strings.Contains(answer, outsideOfScope+": view") {
		t.Errorf("answered %s", answer)
	}
	want, err := whoami(t, w.Cluster, whole)
	must(t, err)
	got, err := whoami(t, w.Cluster, narrow)
	must(t, err)
	if scope := fmt.Sprint(got.Extra["gatehouse.dev/scope"]); scope != "[view]" {
		t.Errorf("the scope is %s", scope)
	}
	if delete(got.Extra, "gatehouse.dev/scope"); !reflect.DeepEqual(got, want) {
		t.Errorf("the API server knows %+v, want %+v", got, want)
	}
	// A revocation ends both tokens.
	_, err = gatehouse.Run(t.Context(), "token", "revoke", "--config", w.config, "--user", "dex:jane@example.org")
	must(t, err)
	support.Eventually(t, "both to be revoked", func() error {
		for _, one := range []string{whole, narrow} {
			if said := d.gatehouse(t, "whoami", "--kubeconfig", d.kubeconfig, "--token-file", "-").run(t, one); !strings.Contains(said.stdout, "no: revoked") {
				return errors.New(said.stdout + said.stderr)
			}
		}
		return nil
	})
	d.gatehouse(t, "logout", "--kubeconfig", d.kubeconfig).run(t, "").says(t, 0, "2 logins deleted")
	d.isNobody(t)
}
