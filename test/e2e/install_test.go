package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// install is a server that runs as the ServiceAccount that 'gatehouse manifests' prints, with the rights and the command
// line of that.
type install struct {
	*world
	namespace, name string
	// printing is the command line that prints its manifests, and listen the address in them.
	printing []string
	listen   string
	// flags are those of serve.
	flags []string
	log   string
}

// newInstall is an install of which nothing is applied yet. The arguments are for 'gatehouse manifests'.
func (w *world) newInstall(t *testing.T, namespace, name string, arguments ...string) *install {
	t.Helper()
	i := &install{world: w, namespace: namespace, name: name, log: w.path(name + ".log"), listen: net.JoinHostPort(cluster.ListenAddress(), "0")}
	address := []string{"--service", namespace + "/" + name}
	if !cluster.Namespaced() {
		var err error
		i.listen, err = cluster.UnusedAddress(cluster.ListenAddress())
		must(t, err)
		address = []string{"--url", "https://" + i.listen}
	}
	i.printing = slices.Concat([]string{"manifests", "--certificates", "self-signed", "--name", name, "--namespace", namespace}, address, arguments)
	showIfFailed(t, name, i.log)
	return i
}

// showIfFailed shows the end of a server's log if the test fails.
func showIfFailed(t *testing.T, name, path string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(path)
			const most = 16 << 10
			t.Logf("%s logged, at the end:\n%s", name, log[max(0, len(log)-most):])
		}
	})
}

// manifests are what the install is made of.
func (i *install) manifests(t *testing.T, arguments ...string) string {
	t.Helper()
	printed, err := gatehouse.Run(t.Context(), slices.Concat(i.printing, arguments)...)
	must(t, err)
	return printed
}

// rewritten are manifests after a change of each object.
func rewritten(t *testing.T, printed string, change func(o *unstructured.Unstructured)) string {
	t.Helper()
	var all []string
	for text := range strings.SplitSeq(printed, "\n---\n") {
		var o unstructured.Unstructured
		must(t, yaml.Unmarshal([]byte(text), &o.Object))
		if o.GetKind() == "" {
			continue // the header
		}
		change(&o)
		content, err := yaml.Marshal(o.Object)
		must(t, err)
		all = append(all, string(content))
	}
	return strings.Join(all, "---\n")
}

// narrow takes rights away from a role, and returns the rules that it had.
func narrow(t *testing.T, o *unstructured.Unstructured, taken func(resource, verb string) bool) []rbacv1.PolicyRule {
	t.Helper()
	var role rbacv1.ClusterRole
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
	var rules []rbacv1.PolicyRule
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			one := rule
			one.Resources = []string{resource}
			one.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return taken(resource, verb) })
			if len(one.Verbs) > 0 {
				rules = append(rules, one)
			}
		}
	}
	o.Object["rules"] = rules
	return role.Rules
}

// eachWebhook changes the webhooks of a configuration.
func eachWebhook(t *testing.T, o *unstructured.Unstructured, change func(webhook map[string]any)) {
	t.Helper()
	list, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	must(t, err)
	for i := range list {
		change(list[i].(map[string]any))
	}
	o.Object["webhooks"] = list
}

// command makes flags of the command line in what was printed, and more. Words in it that stand for something are replaced.
func (i *install) command(t *testing.T, printed string, replaced map[string]string, more ...string) {
	t.Helper()
	for line := range strings.Lines(printed) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "# gatehouse serve "); ok {
			i.flags = strings.Fields(command)
		}
	}
	for n, word := range i.flags {
		if by, ok := replaced[word]; ok {
			i.flags[n] = by
		}
	}
	i.flags = append(i.flags, "--listen", i.listen, "--ops-listen", "127.0.0.1:0", "--replica", i.name, "--drain-delay", "0s", "--rotation-hold", "1s")
	i.flags = append(i.flags, more...)
}

// kubeconfig is a flag for the ServiceAccount, with a token as a pod has it, in place of --in-cluster. The API server is at
// the address, or at its own for "".
func (i *install) kubeconfig(t *testing.T, reach string) string {
	t.Helper()
	request, err := i.Client().CoreV1().ServiceAccounts(i.namespace).CreateToken(t.Context(), i.name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	access, config := i.Config(), clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthority: i.CAFile()}
	if reach != "" {
		config.Clusters["c"] = &clientcmdapi.Cluster{Server: reach, CertificateAuthority: i.path("ca.crt")}
	}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: i.secret(request.Status.Token)}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig") // not where no secret may be
	must(t, clientcmd.WriteToFile(*config, path))
	return "--kubeconfig=" + path
}

// readLog is the log, "" before there is one.
func (i *install) readLog(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(i.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(log)
}

// reviewer asks the server itself, as the API server does, which need not be there for it.
type reviewer struct {
	url, namespace string
	client         *http.Client
}

// newReviewer asks who is at the address about pods of the namespace, and trusts it as the API server does with that caBundle.
func (i *install) newReviewer(bundle []byte, to netip.AddrPort, namespace string) *reviewer {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	name := i.name + "." + i.namespace + ".svc"
	if !cluster.Namespaced() {
		name = to.Addr().String()
	}
	return &reviewer{"https://" + to.String() + "/validate", namespace, &http.Client{
		Timeout: deadline, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS13}},
	}}
}

// ask is the refusal of a pod of that name, "" for none.
func (r *reviewer) ask(ctx context.Context, name string) (string, error) {
	review := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","name":%[2]q,"namespace":%[1]q,
		"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"userInfo":{"username":"somebody"},
		"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[2]q,"namespace":%[1]q},"spec":{"containers":[{"name":"a","image":"a"}]}}}}`, r.namespace, name)
	var answer struct {
		Response struct {
			Allowed bool
			Status  struct{ Message string }
		}
	}
	code, err := postJSON(ctx, r.client, r.url, nil, json.RawMessage(review), &answer)
	switch {
	case err != nil:
		return "", err
	case code != http.StatusOK:
		return "", fmt.Errorf("it answers %d", code)
	case answer.Response.Allowed:
		return "", nil
	}
	return "refused: " + answer.Response.Status.Message, nil
}
