package e2e

import (
	"bytes"
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
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// tokenReplicas is how many servers know the tokens.
const tokenReplicas = 2

// tokenCluster is a cluster whose access tokens are custom resources. Its API server asks one of the replicas about each
// token.
type tokenCluster struct {
	*world
	certified *http.Client
	// kubeconfigs are those of people, by name.
	kubeconfigs map[string]string
	// sessions is the issuer that the replicas know besides.
	sessions *sessionIssuer
}

// newTokenCluster starts a cluster and the replicas, each with the rights that 'gatehouse manifests' prints.
func newTokenCluster(t *testing.T) *tokenCluster {
	t.Helper()
	_, err := gatehouse.Binary()
	must(t, err)
	c := &tokenCluster{world: &world{dir: t.TempDir()}, kubeconfigs: map[string]string{}}
	must(t, c.certificates())
	pair, err := tls.LoadX509KeyPair(c.path("client.crt"), c.path("client.key"))
	must(t, err)
	c.certified = c.client(t, pair)

	must(t, os.Mkdir(c.path("issuers"), 0o700))
	c.sessions = newSessionIssuer(t, c.path("issuers"))
	relay := newRelay(t)
	kubeconfig, err := gatehouse.Run(t.Context(), "manifests", "--authentication", "--url", "https://"+relay.address(),
		"--ca-file", c.path("ca.crt"), "--client-cert", c.path("client.crt"), "--client-key", c.path("client.key"))
	must(t, err)
	must(t, os.WriteFile(c.path("token-webhook.yaml"), []byte(kubeconfig), 0o600))
	c.Cluster = cluster.New(t, cluster.Options{APIServerFlags: []string{
		"--authentication-token-webhook-config-file=" + c.path("token-webhook.yaml"), "--authentication-token-webhook-version=v1",
		"--authentication-token-webhook-cache-ttl=" + cacheTTL.String(),
	}})
	must(t, c.CreateNamespace(t.Context(), system, nil))
	must(t, c.applyDefinitions(t.Context()))
	c.register(t)
	c.kubeconfig(t, "server", "system:serviceaccount:"+system+":gatehouse", "system:serviceaccounts", "system:serviceaccounts:"+system)
	for i := range tokenReplicas {
		c.start(t, i)
	}
	relay.to(c.servers...)
	if cluster.Namespaced() {
		must(t, c.endpoints(t.Context(), "gatehouse", c.servers...))
	}
	return c
}

// register applies the registration and the rights.
func (c *tokenCluster) register(t *testing.T) {
	t.Helper()
	printed, err := gatehouse.Run(t.Context(), "manifests", "--service", system+"/gatehouse", "--ca-file", c.path("ca.crt"), "--custom-resources", "--back-channel-logout")
	must(t, err)
	must(t, c.apply(t.Context(), printed))
}

func (c *tokenCluster) start(t *testing.T, number int) {
	t.Helper()
	log := c.path(fmt.Sprintf("replica-%d.log", number))
	showIfFailed(t, fmt.Sprintf("replica %d", number), log)
	server, err := gatehouse.Start(t.Context(), log, "--custom-resources", "--kubeconfig", c.kubeconfigs["server"], "--namespace", system,
		"--config", c.path("issuers"), "--back-channel-logout", "24h",
		"--replica", "replica-"+strconv.Itoa(number), "--tls-cert", c.path("tls.crt"), "--tls-key", c.path("tls.key"), "--client-ca", c.path("ca.crt"),
		"--listen", net.JoinHostPort(cluster.ListenAddress(), "0"), "--ops-listen", "127.0.0.1:0", "--drain-delay", "0s")
	must(t, err)
	t.Cleanup(server.Kill)
	c.servers = append(c.servers, server)
}

// kubeconfig makes the kubeconfig of a person.
func (c *tokenCluster) kubeconfig(t *testing.T, name, user string, groups ...string) {
	t.Helper()
	access, err := c.ConfigFor(user, groups...)
	must(t, err)
	c.kubeconfigs[name] = c.path(name + ".kubeconfig")
	must(t, cluster.WriteKubeconfig(c.kubeconfigs[name], access.Host, access.CAData, access.CertData, access.KeyData))
}

// tokenRun is what a command said.
type tokenRun struct {
	out, remarks string
	code         int
}

// token runs 'gatehouse token' with a kubeconfig. The result of one that could not be run has the code -1.
func (c *tokenCluster) token(ctx context.Context, kubeconfig string, args ...string) tokenRun {
	binary, err := gatehouse.Binary()
	if err != nil {
		return tokenRun{remarks: err.Error(), code: -1}
	}
	args = append([]string{"token", args[0], "--kubeconfig", kubeconfig}, args[1:]...)
	command := exec.CommandContext(ctx, binary, args...)
	var out, remarks bytes.Buffer
	command.Stdout, command.Stderr = &out, &remarks
	err = command.Run()
	r := tokenRun{out: out.String(), remarks: remarks.String(), code: -1}
	if _, ended := errors.AsType[*exec.ExitError](err); err == nil || ended {
		r.code = command.ProcessState.ExitCode()
	}
	return r
}

// wants fails unless the command ended like this and said all of these.
func (r tokenRun) wants(t *testing.T, code int, says ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("the exit code is %d, want %d", r.code, code)
	}
	for _, text := range says {
		if !strings.Contains(r.out+r.remarks, text) {
			t.Errorf("does not say %q", text)
		}
	}
	if t.Failed() {
		t.Fatalf("standard output:\n%s\nstandard error:\n%s", r.out, r.remarks)
	}
}

// ask asks one replica about a token.
func (c *tokenCluster) ask(ctx context.Context, server *gatehouse.Server, token string) (authenticationv1.TokenReviewStatus, error) {
	review := authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token},
	}
	code, err := postJSON(ctx, c.certified, "https://"+server.Reviews.String()+"/authenticate", nil, review, &review)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("it answers %d", code)
	}
	return review.Status, err
}

// everyReplica waits until every replica says yes or no to a token.
func (c *tokenCluster) everyReplica(t *testing.T, token string, yes bool) {
	t.Helper()
	for i, server := range c.servers {
		support.Eventually(t, fmt.Sprintf("replica %d says %v", i, yes), func() error {
			status, err := c.ask(t.Context(), server, token)
			if err == nil && status.Authenticated != yes {
				err = fmt.Errorf("got %+v", status)
			}
			return err
		})
	}
}

// get is a field of a custom resource.
func (c *tokenCluster) get(ctx context.Context, resource, name, path string) (string, error) {
	out, err := c.Kubectl(ctx, "get", resource, name, "--output", "jsonpath="+path).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// tokenObject is an AccessToken that somebody has made by hand.
func tokenObject(id, user, more string) (document, token string) {
	var random [25]byte
	copy(random[:], id)
	token, hash := authn.NewToken(id, random)
	return fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: AccessToken
metadata: {name: %s}
spec: {sha256: %s, user: {username: %s%s}, expiresAt: "2999-01-01T00:00:00Z"}
`, id, hash, user, more), token
}

func TestTokensInTheCluster(t *testing.T) {
	t.Parallel()
	c := newTokenCluster(t)
	c.kubeconfig(t, "limited", "limited")
	c.kubeconfig(t, "issuer", "issuer")
	must(t, c.apply(t.Context(), `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: token-issuer}
rules: [{apiGroups: [gatehouse.dev], resources: [accesstokens], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: token-issuer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: token-issuer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: issuer}]
`))
	admin := c.Kubeconfig()

	t.Run("nobody without a right issues", func(t *testing.T) {
		r := c.token(t.Context(), c.kubeconfigs["limited"], "issue", "--id", "ci", "--user", "ci-bot")
		r.wants(t, 2, `no token was issued: accesstokens.gatehouse.dev is forbidden: User "limited" cannot create resource "accesstokens"`,
			"(hint: bind the ClusterRole gatehouse-admin, or a role that allows create of accesstokens in gatehouse.dev)")
		if r.out != "" {
			t.Errorf("something was shown: %q", r.out)
		}
		c.token(t.Context(), c.kubeconfigs["limited"], "list").wants(t, 2, "bind the ClusterRole gatehouse-admin, or a role that allows list of accesstokens in gatehouse.dev")
		c.token(t.Context(), c.kubeconfigs["limited"], "revoke", "--user", "ci-bot").wants(t, 2, "nothing was revoked: ", "a role that allows create of tokenrevocations in gatehouse.dev")
	})
	t.Run("a right to create is enough", func(t *testing.T) {
		r := c.token(t.Context(), c.kubeconfigs["issuer"], "issue", "--id", "by-issuer", "--user", "robot")
		r.wants(t, 0, "AccessToken/by-issuer is in the cluster; the token is valid until ", "cannot decide whether every replica accepts the token yet: ")
		c.everyReplica(t, strings.TrimSpace(r.out), true)
	})
	t.Run("issued, used, listed, revoked", func(t *testing.T) { c.lifeOfAToken(t) })
	t.Run("all of a user", func(t *testing.T) {
		one := c.token(t.Context(), admin, "issue", "--id", "jane-1", "--user", "jane")
		two := c.token(t.Context(), admin, "issue", "--id", "jane-2", "--user", "jane", "-o", "json")
		one.wants(t, 0)
		two.wants(t, 0, `"kind": "AccessToken"`, `"name": "jane-2"`)
		var issued struct{ Token string }
		must(t, json.Unmarshal([]byte(two.out), &issued))
		c.everyReplica(t, strings.TrimSpace(one.out), true)
		c.token(t.Context(), admin, "revoke", "--user", "jane", "--dry-run").wants(t, 0, "would write a TokenRevocation, in the cluster", "nothing was changed")
		c.everyReplica(t, issued.Token, true)
		c.token(t.Context(), admin, "revoke", "--user", "jane", "--reason", "laptop stolen").wants(t, 0, "wrote a TokenRevocation, in the cluster: everything issued to jane before ")
		c.everyReplica(t, strings.TrimSpace(one.out), false)
		c.everyReplica(t, issued.Token, false)
		again := c.token(t.Context(), admin, "issue", "--id", "jane-3", "--user", "jane")
		again.wants(t, 0)
		c.everyReplica(t, strings.TrimSpace(again.out), true)
	})
	t.Run("a revocation made by hand", func(t *testing.T) {
		r := c.token(t.Context(), admin, "issue", "--id", "bob", "--user", "bob")
		r.wants(t, 0)
		c.everyReplica(t, strings.TrimSpace(r.out), true)
		must(t, c.apply(t.Context(), fmt.Sprintf("\napiVersion: gatehouse.dev/v1alpha1\nkind: TokenRevocation\nmetadata: {name: bob}\nspec: {user: bob, issuedBefore: %q}\n",
			time.Now().UTC().Add(2*time.Second).Format(time.RFC3339))))
		c.everyReplica(t, strings.TrimSpace(r.out), false)
		c.token(t.Context(), admin, "list", "--user", "bob", "-o", "json").wants(t, 0, `"state":"revoked","revokedBy":"bob"}`)
	})
	t.Run("a session that ends at its issuer", func(t *testing.T) { c.backChannelLogout(t) })
	t.Run("expired", func(t *testing.T) {
		r := c.token(t.Context(), admin, "issue", "--id", "brief", "--user", "brief", "--ttl", "3s")
		r.wants(t, 0)
		support.Eventually(t, "the token expires", func() error {
			list := c.token(t.Context(), admin, "list")
			if !strings.Contains(list.out, "brief") || !strings.Contains(list.out, " expired") {
				return errors.New(list.out + list.remarks)
			}
			return nil
		})
		c.everyReplica(t, strings.TrimSpace(r.out), false)
	})
	t.Run("wrong input", func(t *testing.T) {
		c.token(t.Context(), admin, "issue", "--id", "x", "--user", "x", "--group", "system:masters").wants(t, 1, "no token was issued:", `"system:masters" is reserved`)
		c.token(t.Context(), admin, "issue", "--id", "by-issuer", "--user", "x").wants(t, 2, "AccessToken/by-issuer exists already and is not overwritten (hint: another --id, or gatehouse token revoke --kubeconfig ")
		c.token(t.Context(), admin, "revoke", "nobody-has-this").wants(t, 1, `there is no AccessToken "nobody-has-this" in the cluster (hint: gatehouse token list --kubeconfig `)
		c.token(t.Context(), admin, "list", "--context", "none").wants(t, 2, "the kubeconfig has no context \"none\"")
	})
	// The last: without the webhook anything may be applied.
	t.Run("a reserved group", func(t *testing.T) { c.reservedGroup(t) })
}

// lifeOfAToken is what the guide tells.
func (c *tokenCluster) lifeOfAToken(t *testing.T) {
	t.Helper()
	admin := c.Kubeconfig()
	began := time.Now()
	r := c.token(t.Context(), admin, "issue", "--id", "ci", "--user", "ci-bot", "--group", "deployers", "--ttl", "24h")
	r.wants(t, 0, "AccessToken/ci is in the cluster; the token is valid until ", " and is not shown again")
	token := strings.TrimSpace(r.out)
	if !strings.HasPrefix(token, "gatehouse_ci_") {
		t.Fatalf("no token is shown: %q", token)
	}
	for i, server := range c.servers { // at once: an API server would remember a no
		if status, err := c.ask(t.Context(), server, token); err != nil || !status.Authenticated {
			t.Errorf("when the token is shown, replica %d says %+v (%v)", i, status, err)
		}
	}
	user, err := whoami(t, c.Cluster, token)
	must(t, err)
	if user.Username != "ci-bot" || len(user.Groups) == 0 || user.Groups[0] != "deployers" {
		t.Errorf("the API server says %+v", user)
	}
	support.Eventually(t, "the last use", func() error {
		text, err := c.get(t.Context(), "accesstokens", "ci", "{.status.lastUsed}")
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, text)
		if err == nil && (at.Before(began.Add(-time.Second)) || at.After(time.Now())) {
			err = fmt.Errorf("it is %s", at)
		}
		return err
	})
	used, err := c.get(t.Context(), "accesstokens", "ci", "{.status.lastUsed}")
	must(t, err)
	managers, err := c.Kubectl(t.Context(), "get", "accesstokens", "ci", "--show-managed-fields", "--output", "jsonpath={.metadata.managedFields[*].manager}").Output()
	must(t, err)
	if !strings.Contains(string(managers), "gatehouse-tokens") {
		t.Errorf("managed by %s", managers)
	}
	support.Eventually(t, "the token in use", func() error {
		out, err := c.Kubectl(t.Context(), "get", "ghat", "ci").CombinedOutput()
		if err == nil && !strings.Contains(strings.Join(strings.Fields(string(out)), " "), " ci True InUse False ci-bot ") {
			err = errors.New(string(out))
		}
		return err
	})
	c.token(t.Context(), admin, "list").wants(t, 0, "LAST USED", used, "ci-bot", " good")
	c.token(t.Context(), admin, "list", "--user", "ci-bot", "-o", "json").wants(t, 0, `{"id":"ci","user":{"username":"ci-bot","groups":["deployers"]},"issuedAt":"`, `"lastUsedAt":"`+used+`","state":"good"}`)
	object, err := c.Kubectl(t.Context(), "get", "accesstokens", "ci", "--output", "yaml").Output()
	must(t, err)
	if secret := token[strings.LastIndexByte(token, '_')+1:]; bytes.Contains(object, []byte(secret)) {
		t.Error("the object holds the token")
	}

	c.token(t.Context(), admin, "revoke", "ci", "--dry-run").wants(t, 0, "would remove AccessToken ci of ci-bot, in the cluster", "nothing was changed")
	c.everyReplica(t, token, true)
	c.token(t.Context(), admin, "revoke", token).wants(t, 0, "removed AccessToken ci of ci-bot, in the cluster", "within seconds")
	c.everyReplica(t, token, false)
	support.Eventually(t, "the API server's caches run out", func() error {
		_, err := whoami(t, c.Cluster, token)
		if err == nil {
			return errors.New("the token is good still")
		}
		return nil
	})
}

// reservedGroup makes a token by hand that is refused, and one that gets past the refusal.
func (c *tokenCluster) reservedGroup(t *testing.T) {
	t.Helper()
	document, token := tokenObject("root", "root", `, groups: ["system:masters"]`)
	support.Eventually(t, "the refusal", func() error {
		err := c.apply(t.Context(), document)
		if err == nil {
			_, _ = c.Kubectl(t.Context(), "delete", "accesstoken", "root").CombinedOutput()
			return errors.New("it was applied")
		}
		if !strings.Contains(err.Error(), `"system:masters" is reserved`) {
			t.Fatal(err)
		}
		return nil
	})
	out, err := c.Kubectl(t.Context(), "delete", "validatingwebhookconfiguration", "gatehouse").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	support.Eventually(t, "the webhook is not asked any more", func() error { return c.apply(t.Context(), document) })
	support.Eventually(t, "the condition", func() error {
		message, err := c.get(t.Context(), "accesstokens", "root", `{.status.conditions[?(@.type=="Compiled")].message}`)
		if err == nil && !strings.Contains(message, `"system:masters" is reserved`) {
			err = fmt.Errorf("it says %q", message)
		}
		return err
	})
	for i, server := range c.servers {
		if status, err := c.ask(t.Context(), server, token); err != nil || status.Authenticated {
			t.Errorf("replica %d: %+v %v", i, status, err)
		}
	}
	c.token(t.Context(), c.Kubeconfig(), "list").wants(t, 0, " unused", "AccessToken/root is not used: ", `"system:masters" is reserved`)
	c.token(t.Context(), c.Kubeconfig(), "revoke", "root").wants(t, 0, "removed AccessToken root of root")
}

// relay gives an API server one address for several servers, each connection to the next of them.
type relay struct {
	listener net.Listener
	targets  atomic.Pointer[[]string]
	next     atomic.Int64
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(cluster.ListenAddress(), "0"))
	must(t, err)
	r := &relay{listener: listener}
	t.Cleanup(func() { _ = listener.Close() })
	go r.run()
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

// to makes these the servers.
func (r *relay) to(servers ...*gatehouse.Server) {
	var targets []string
	for _, s := range servers {
		targets = append(targets, s.Reviews.String())
	}
	r.targets.Store(&targets)
}

func (r *relay) run() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.pass(from)
	}
}

func (r *relay) pass(from net.Conn) {
	defer from.Close() //nolint:errcheck // it is over
	targets := r.targets.Load()
	if targets == nil {
		return
	}
	to, err := new(net.Dialer).Dial("tcp", (*targets)[int(r.next.Add(1))%len(*targets)])
	if err != nil {
		return
	}
	defer to.Close() //nolint:errcheck // it is over
	ended := make(chan struct{}, 2)
	copying := func(a, b net.Conn) {
		_, _ = io.Copy(a, b)
		ended <- struct{}{}
	}
	go copying(from, to)
	go copying(to, from)
	<-ended
}
