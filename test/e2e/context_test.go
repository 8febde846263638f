package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const (
	// contextUser is who the server is to the API server.
	contextUser = "gatehouse-context"
	// paramsNamespace is for params, and contextNamespace for what is reviewed.
	paramsNamespace  = "context-params"
	contextNamespace = "context"
	// secretOfParam is in a Secret that is a param.
	secretOfParam = "tr0ub4dor-and-three"
)

// contextServer is a server that looks up everything in the cluster, and its configuration.
type contextServer struct {
	*world
	server *gatehouse.Server
	config string
	log    string
}

// try creates a ConfigMap that a policy is about, as a dry run.
func (l *contextServer) try(client kubernetes.Interface, namespace, about, name string, data ...string) error {
	_, err := client.CoreV1().ConfigMaps(namespace).Create(context.Background(), configMap(name, map[string]string{"context": about}, data...), dryRun)
	return err
}

// logs waits until the log has all of these.
func (l *contextServer) logs(t *testing.T, texts ...string) {
	t.Helper()
	support.Eventually(t, "the log", func() error {
		content, err := os.ReadFile(l.log)
		for _, text := range texts {
			if err == nil && !strings.Contains(string(content), text) {
				err = fmt.Errorf("it does not say %q", text)
			}
		}
		return err
	})
}

// grant gives the server rights.
func (l *contextServer) grant(t *testing.T, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	roles := l.Client().RbacV1()
	_, err := roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	l.bind(t, name, name)
}

func (l *contextServer) bind(t *testing.T, name, role string) {
	t.Helper()
	_, err := l.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: contextUser}},
	}, metav1.CreateOptions{})
	must(t, err)
}

func reading(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list", "watch"}}
}

// newWorld is a control plane without other webhooks, that may be stopped.
func newWorld(t *testing.T) *world {
	t.Helper()
	_, err := gatehouse.Binary()
	must(t, err)
	w := &world{dir: t.TempDir()}
	must(t, w.certificates())
	w.Cluster = cluster.New(t, cluster.Options{})
	t.Cleanup(func() {
		for _, s := range w.servers {
			s.Kill()
		}
	})
	must(t, w.CreateNamespace(t.Context(), system, nil))
	return w
}

// startContextServer starts a server that may look up nothing yet, and gives it its rights while it waits for them.
func startContextServer(t *testing.T, w *world) *contextServer {
	t.Helper()
	l := &contextServer{world: w, config: w.path("config"), log: w.path("context.log")}
	showIfFailed(t, "gatehouse serve", l.log)
	must(t, os.CopyFS(l.config, os.DirFS("testdata/context")))
	access, err := w.ConfigFor(contextUser)
	must(t, err)
	kubeconfig := w.path("context.kubeconfig")
	must(t, cluster.WriteKubeconfig(kubeconfig, access.Host, access.CAData, access.CertData, access.KeyData))
	for _, namespace := range []string{paramsNamespace, contextNamespace} {
		must(t, w.CreateNamespace(t.Context(), namespace, nil))
	}
	_, err = w.Client().CoreV1().ConfigMaps(paramsNamespace).Create(t.Context(), configMap("limits", nil, "most=1"), metav1.CreateOptions{})
	must(t, err)

	var started sync.WaitGroup
	started.Go(func() {
		l.server, err = w.serve(t.Context(), "context", l.config, append(w.certificateFor(t, "context"), "--kubeconfig", kubeconfig)...)
	})
	l.logs(t, `"kind":"Namespace.v1"`, `cannot list resource \"namespaces\"`, "the ClusterRole gatehouse-context must allow get, list and watch of namespaces")
	l.grant(t, "context-reader", reading("", "namespaces", "configmaps"), reading("context.example.com", "limits"))
	l.bind(t, "context-delegator", "system:auth-delegator")
	started.Wait()
	must(t, err)
	must(t, w.register(t.Context(), "context", l.config, l.server))
	support.Eventually(t, "the registration", func() error {
		return refusal(l.try(w.Client(), contextNamespace, "named", "x", "a=1", "b=2"), 422, "at most 1")
	})
	return l
}

// What policies look up comes from the cluster, and follows it.
func TestContextFromTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := startContextServer(t, w)
	client := w.Client()

	t.Run("param by name", func(t *testing.T) {
		must(t, l.try(client, contextNamespace, "named", "x", "a=1"))
		limits, err := client.CoreV1().ConfigMaps(paramsNamespace).Update(t.Context(), configMap("limits", nil, "most=2"), metav1.UpdateOptions{})
		must(t, err)
		support.Eventually(t, "the change of the param", func() error { return l.try(client, contextNamespace, "named", "x", "a=1", "b=2") })
		must(t, client.CoreV1().ConfigMaps(paramsNamespace).Delete(t.Context(), limits.Name, metav1.DeleteOptions{}))
		support.Eventually(t, "the end of the param", func() error {
			return refusal(l.try(client, contextNamespace, "named", "x"), 422, `there is no ConfigMap "limits" in namespace "`+paramsNamespace+`"`)
		})
		l.logs(t, `there is no ConfigMap \"limits\" in namespace \"`+paramsNamespace)
		support.Eventually(t, "the missing param in /readyz?verbose", func() error {
			_, body, err := l.server.Get(t.Context(), "/readyz?verbose")
			if err == nil && !strings.Contains(body, `Params=False: ValidatingAdmissionPolicyBinding`) {
				err = fmt.Errorf("it says %s", body)
			}
			return err
		})
		_, err = client.CoreV1().ConfigMaps(paramsNamespace).Create(t.Context(), configMap("limits", nil, "most=1"), metav1.CreateOptions{})
		must(t, err)
		support.Eventually(t, "the param again", func() error { return l.try(client, contextNamespace, "named", "x", "a=1") })
	})
	t.Run("params by selector", func(t *testing.T) {
		must(t, l.try(client, contextNamespace, "selected", "red"))
		for name, taken := range map[string]string{"first": "red", "second": "green"} {
			_, err := client.CoreV1().ConfigMaps(contextNamespace).Create(t.Context(), configMap(name, map[string]string{"taken": "true"}, "name="+taken), metav1.CreateOptions{})
			must(t, err)
		}
		for taken, by := range map[string]string{"red": "taken by first", "green": "taken by second"} {
			support.Eventually(t, "the param", func() error {
				return refusal(l.try(client, contextNamespace, "selected", taken), 422, by)
			})
		}
		must(t, l.try(client, contextNamespace, "selected", "blue"))
		must(t, l.try(client, paramsNamespace, "selected", "red"))
	})
	t.Run("namespace that is new", func(t *testing.T) {
		// Each is created and used at once: the server has to know it by then.
		for i := range 20 {
			name := fmt.Sprint("context-new-", i)
			_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"context": "strict"}, Annotations: map[string]string{"context/owner": "ann"},
			}}, metav1.CreateOptions{})
			must(t, err)
			err = refusal(l.try(client, name, "namespace", "x", "owner=bob"), 422, "owned by ann")
			if err != nil {
				t.Error(err)
			}
			must(t, l.try(client, name, "namespace", "x", "owner=ann"))
		}
		must(t, l.try(client, contextNamespace, "namespace", "x", "owner=bob"))
		namespace, err := client.CoreV1().Namespaces().Get(t.Context(), "context-new-0", metav1.GetOptions{})
		must(t, err)
		namespace.Annotations["context/owner"] = "bob"
		_, err = client.CoreV1().Namespaces().Update(t.Context(), namespace, metav1.UpdateOptions{})
		must(t, err)
		support.Eventually(t, "the new annotation", func() error { return l.try(client, namespace.Name, "namespace", "x", "owner=bob") })
	})
	t.Run("kind that is new", func(t *testing.T) {
		err := refusal(l.try(client, contextNamespace, "custom", "x"), 422, "failed to find resource referenced by paramKind", "context.example.com/v1")
		if err != nil {
			t.Error(err)
		}
		must(t, w.apply(t.Context(), readDocuments(t, "context-definition.yaml")))
		support.Eventually(t, "the kind", func() error { return w.apply(t.Context(), readDocuments(t, "context-limit.yaml")) })
		support.Eventually(t, "the param of the new kind", func() error {
			return refusal(l.try(client, contextNamespace, "custom", "x", "a=1", "b=2"), 422, "at most 1 by a Limit")
		})
		must(t, l.try(client, contextNamespace, "custom", "x", "a=1"))
	})
	t.Run("authorizer", l.authorizer)
	t.Run("missing right", l.missingRight)
}

// authorizer is answered by the RoleBindings of the cluster.
func (l *contextServer) authorizer(t *testing.T) {
	roles := l.Client().RbacV1()
	for name, rule := range map[string]rbacv1.PolicyRule{
		"writer":  {APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		"deleter": {APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"delete"}},
	} {
		_, err := roles.Roles(contextNamespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		must(t, err)
	}
	bind := func(user, role string) {
		_, err := roles.RoleBindings(contextNamespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	bind("ann", "writer")
	bind("ann", "deleter")
	bind("bob", "writer")
	ann, bob := l.clientFor(t, "ann"), l.clientFor(t, "bob")
	support.Eventually(t, "who may delete secrets", func() error { return l.try(ann, contextNamespace, "authorizer", "x") })
	support.Eventually(t, "who may not", func() error {
		return refusal(l.try(bob, contextNamespace, "authorizer", "x"), 422, "only for who may delete secrets")
	})
	bind("bob", "deleter")
	support.Eventually(t, "who may by now", func() error { return l.try(bob, contextNamespace, "authorizer", "x") })
}

// missingRight is told of with what to do, and all other policies go on.
func (l *contextServer) missingRight(t *testing.T) {
	client := l.Client()
	_, err := client.CoreV1().Secrets(paramsNamespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "limits", Labels: map[string]string{"most": "1"}},
		StringData: map[string]string{"password": secretOfParam},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(l.config, "secret.yaml"), []byte(readDocuments(t, "context-secret.yaml")), 0o600))
	l.logs(t, `"kind":"Secret.v1"`, `User \"`+contextUser+`\" cannot list resource \"secrets\"`,
		`a Role in namespace \"context-params\" must allow get, list and watch of secrets`)
	support.Eventually(t, "the policy that cannot be evaluated", func() error {
		return refusal(l.try(client, contextNamespace, "secret", "x"), 422, "is not read from the cluster yet", `resource "secrets"`)
	})
	must(t, l.try(client, contextNamespace, "named", "x", "a=1"))
	errs, err := l.server.Metric(t.Context(), "gatehouse_cluster_watch_errors_total", `kind="Secret.v1"`, `reason="forbidden"`)
	must(t, err)
	synced, err := l.server.Metric(t.Context(), "gatehouse_cluster_synced", `kind="Secret.v1"`)
	must(t, err)
	if errs < 1 || synced != 0 {
		t.Errorf("%v errors are counted, synced is %v", errs, synced)
	}
	if got := readiness(t, l.server); got != "ok\n" {
		t.Errorf("a server that was ready is not any more: %q", got)
	}

	l.grant(t, "context-secrets", reading("", "secrets"))
	support.Eventually(t, "the right that is given", func() error {
		return refusal(l.try(client, contextNamespace, "secret", "x", "a=1", "b=2"), 422, "too many for a secret limit")
	})
	log, err := os.ReadFile(l.log)
	must(t, err)
	for _, text := range []string{secretOfParam, base64.StdEncoding.EncodeToString([]byte(secretOfParam)), "Response Body"} {
		if strings.Contains(string(log), text) {
			t.Errorf("the log, at its lowest level, holds %q", text)
		}
	}
	must(t, os.Remove(filepath.Join(l.config, "secret.yaml")))
	support.Eventually(t, "what nobody names is not kept", func() error {
		_, metrics, err := l.server.Get(t.Context(), "/metrics")
		if err == nil && strings.Contains(metrics, `gatehouse_cluster_objects{kind="Secret.v1"}`) {
			err = errors.New("secrets are")
		}
		return err
	})
}
