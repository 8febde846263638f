package cluster_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "example.com/app"}}},
	}
}

func TestVersionIsStamped(t *testing.T) {
	c := shared.Get(t)
	version, err := c.Client().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.Major != "1" || !strings.HasPrefix(version.GitVersion, "v1."+version.Minor+".") {
		t.Errorf("major %q and minor %q do not fit version %s", version.Major, version.Minor, version.GitVersion)
	}
	if os.Getenv(cluster.AssetsVariable)+os.Getenv(cluster.EnvtestVariable) != "" {
		return // whoever chose the directory knows what is in it
	}
	assets, err := cluster.Assets()
	if err != nil {
		t.Fatal(err)
	}
	if want := "v" + filepath.Base(assets); version.GitVersion != want {
		t.Errorf("the API server calls itself %s, want %s", version.GitVersion, want)
	}
}

func TestPodsAreAdmittedAsInProduction(t *testing.T) {
	c := shared.Get(t)
	for _, namespace := range []string{"default", c.NewNamespace(t, nil)} {
		created, err := c.Client().CoreV1().Pods(namespace).Create(t.Context(), pod("app"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatalf("create a pod in %s: %v", namespace, err)
		}
		if created.Spec.ServiceAccountName != "default" || len(created.Spec.Volumes) != 1 || created.Spec.Volumes[0].Projected == nil {
			t.Errorf("pod in %s: service account %q and volumes %v, want what the ServiceAccount plugin adds",
				namespace, created.Spec.ServiceAccountName, created.Spec.Volumes)
		}
	}
}

func TestNamespaceLabels(t *testing.T) {
	c := shared.Get(t)
	name := c.NewNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	_, err := c.Client().CoreV1().Pods(name).Create(t.Context(), pod("app"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("got %v, want a refusal by PodSecurity", err)
	}
	err = c.CreateNamespace(t.Context(), name, nil)
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("create %s again: got %v, want that it exists", name, err)
	}
}

func TestUsersAreSubjectToRBAC(t *testing.T) {
	c := shared.Get(t)
	for _, test := range []struct {
		user, group, wantReason string
	}{
		{"alice", "developers", `User "alice" cannot list resource "pods"`},
		{"system:node:one", "system:nodes", "can only list/watch pods with spec.nodeName field selector"}, // the Node authorizer's words
	} {
		t.Run(test.user, func(t *testing.T) {
			config, err := c.ConfigFor(test.user, test.group)
			if err != nil {
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := review.Status.UserInfo; got.Username != test.user || got.Groups[0] != test.group {
				t.Errorf("the API server sees %s in %v, want %s in %s", got.Username, got.Groups, test.user, test.group)
			}
			_, err = client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.wantReason) {
				t.Errorf("got %v, want it to be forbidden: %s", err, test.wantReason)
			}
		})
	}
}

func TestKubectl(t *testing.T) {
	c := shared.Get(t)
	t.Setenv("KUBECONFIG", "/nonexistent")
	output, err := c.Kubectl(t.Context(), "get", "namespace", "default", "--output=name").CombinedOutput()
	if err != nil || string(output) != "namespace/default\n" {
		t.Errorf("got %q, %v, want namespace/default", output, err)
	}
}

// webhook is a TLS server at cluster.ListenAddress that lets everything pass and tells how it was called.
type webhook struct {
	*httptest.Server
	port  int
	calls atomic.Int64
	// last is the latest call as "SNI PROTOCOL PATH".
	last atomic.Value
}

func newWebhook(t *testing.T, authority *cluster.Authority, host string, answer http.HandlerFunc) *webhook {
	t.Helper()
	certPEM, keyPEM, err := authority.Serve(host, cluster.ListenAddress())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	hook := &webhook{}
	hook.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hook.last.Store(fmt.Sprintf("%q %s %s", r.TLS.ServerName, r.Proto, r.URL.Path))
		hook.calls.Add(1)
		answer(w, r)
	}))
	_ = hook.Listener.Close() // it listens elsewhere
	hook.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(cluster.ListenAddress(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	hook.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	hook.EnableHTTP2 = true
	hook.StartTLS()
	t.Cleanup(hook.Close)
	hook.port = hook.Listener.Addr().(*net.TCPAddr).Port
	return hook
}

// refuse answers an admission review with no, and says who is speaking.
func refuse(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		err := json.NewDecoder(r.Body).Decode(&review)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Result: &metav1.Status{Message: "refused by " + name, Code: http.StatusForbidden},
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}
}

func TestWebhookIsCalledThroughItsService(t *testing.T) {
	c := shared.Get(t)
	const service, system, path = "gatehouse", "gatehouse-system", "/validate"
	host := service + "." + system + ".svc"
	first := newWebhook(t, c.Authority(), host, refuse("the first"))
	config, err := c.WebhookClientConfig(t.Context(), system, service, first.port, path, c.Authority().CertPEM())
	if err != nil {
		t.Fatal(err)
	}

	namespace := c.NewNamespace(t, map[string]string{"test": t.Name()})
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	registration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "refuse.gatehouse.test", ClientConfig: config, FailurePolicy: &fail, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"test": t.Name()}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	configurations := c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err = configurations.Create(t.Context(), registration, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := configurations.Delete(context.WithoutCancel(t.Context()), registration.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	refusedBy := func(want string) func() error {
		return func() error {
			_, err := c.Client().CoreV1().Pods(namespace).Create(t.Context(), pod("app"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				return errNotYet
			}
			if !strings.HasSuffix(err.Error(), want) {
				return fmt.Errorf("got %w, want %s", err, want)
			}
			return nil
		}
	}
	eventually(t, "the first webhook", refusedBy("refused by the first"))

	want := `"" HTTP/2.0 /validate`
	if cluster.Namespaced() {
		want = fmt.Sprintf("%q HTTP/1.1 /validate", host)
	}
	if got := first.last.Load(); got != want {
		t.Errorf("the API server called with %s, want %s", got, want)
	}
	if !cluster.Namespaced() {
		err := c.ServiceFor(t.Context(), system, service, first.port)
		if err == nil || !strings.Contains(err.Error(), "RunInNamespace") {
			t.Errorf("ServiceFor without a namespace: got %v, want an error with a hint", err)
		}
		return
	}

	// A rollout: another replica beside the first, alone, and none. Before 1.37 the API server chooses a replica for
	// each connection, not for each call, so it must not keep the ones it has.
	second := newWebhook(t, c.Authority(), host, refuse("the second"))
	reconnected := func(condition func() error) func() error {
		return func() error {
			first.CloseClientConnections()
			second.CloseClientConnections()
			return condition()
		}
	}
	err = c.ServiceFor(t.Context(), system, service, first.port, second.port)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second replica beside the first", reconnected(refusedBy("refused by the second")))
	err = c.ServiceFor(t.Context(), system, service, second.port)
	if err != nil {
		t.Fatal(err)
	}
	slices, err := c.Client().DiscoveryV1().EndpointSlices(system).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(slices.Items) != 1 || *slices.Items[0].Ports[0].Port != int32(second.port) {
		t.Errorf("endpoint slices %v, want one with port %d", slices.Items, second.port)
	}
	err = c.ServiceFor(t.Context(), system, service)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "no replica", reconnected(refusedBy(`no endpoints available for service "gatehouse"`)))
}

// A second API server on the same etcd, with flags of its own, a webhook that authenticates and the controllers.
func TestJoinWithFlagsAndControllerManager(t *testing.T) {
	first := shared.Get(t)
	directory := t.TempDir()
	answer := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview",
			"status":{"authenticated":true,"user":{"username":"bob","groups":["developers"]}}}`)
	}
	hook := newWebhook(t, first.Authority(), "gatehouse.test", answer)
	webhookConfig, auditLog, auditPolicy := filepath.Join(directory, "webhook"), filepath.Join(directory, "audit"), filepath.Join(directory, "policy")
	err := cluster.WriteKubeconfig(webhookConfig, hook.URL+"/authenticate", first.Authority().CertPEM(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(auditPolicy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	second := cluster.New(t, cluster.Options{
		Join:              first,
		Dir:               filepath.Join(directory, "second"),
		ControllerManager: true,
		APIServerFlags: []string{
			"--authentication-token-webhook-config-file=" + webhookConfig,
			"--authentication-token-webhook-version=v1",
			"--audit-log-path=" + auditLog,
			"--audit-policy-file=" + auditPolicy,
			"--authorization-mode=RBAC",
		},
	})

	config := second.Config()
	config.CertData, config.KeyData, config.BearerToken = nil, nil, "secret"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := review.Status.UserInfo.Username; got != "bob" {
		t.Errorf("the API server sees user %q, want bob, as the webhook says", got)
	}
	audit, err := os.ReadFile(auditLog)
	if err != nil || !strings.Contains(string(audit), `"username":"bob"`) {
		t.Errorf("the audit log does not tell of bob: %v", err)
	}

	namespace := second.NewNamespace(t, nil)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "app"}}, Spec: pod("").Spec}
	_, err = first.Client().AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Deployment's pod", func() error {
		pods, err := first.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) != 1 {
			err = errNotYet
		}
		return err
	})
}

// The API server comes back at the same address with the same data, and nobody takes its port meanwhile.
func TestAPIServerIsSuspendedKilledAndStartedAgain(t *testing.T) {
	c := shared.Get(t)
	ready := func() error {
		return c.Client().Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	}
	err := c.APIServer().Signal(syscall.SIGSTOP)
	if err != nil {
		t.Fatal(err)
	}
	err = c.APIServer().Signal(syscall.SIGCONT)
	if err != nil {
		t.Fatal(err)
	}
	err = ready()
	if err != nil {
		t.Errorf("after SIGSTOP and SIGCONT: %v", err)
	}

	err = c.APIServer().Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("start a running API server: got %v, want an error", err)
	}
	before := c.APIServer().PID()
	err = c.APIServer().Kill()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", strings.TrimPrefix(c.Config().Host, "https://"))
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen at the API server's port while it is down: got %v, %v, want %v", listener, err, syscall.EADDRINUSE)
	}
	err = c.APIServer().Signal(syscall.SIGCONT)
	if !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal a dead API server: got %v, want %v", err, os.ErrProcessDone)
	}
	err = c.APIServer().Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after := c.APIServer().PID(); after == before {
		t.Errorf("the API server still is process %d", after)
	}
	_, err = c.Client().CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Errorf("data from before: %v", err)
	}
}

func TestStartFailsWithTheProgramsOwnWords(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("TMPDIR", directory)
	_, err := cluster.Start(t.Context(), cluster.Options{APIServerFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v, want what kube-apiserver says", err)
	}
	left, err := os.ReadDir(directory)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
