package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// The names that occur in the documents and in the commands.
const (
	namespace = "shop"
	sidecar   = "log-shipper"
	user      = "jane"
	group     = "dev"
)

// gatehouseLog is what the server logs to.
const gatehouseLog = "gatehouse.log"

// cacheTTL is how long the API server believes an answer about a token, besides
// the 10 seconds for which it remembers any token that was good: short, so that
// who removes a token sees it refused soon.
const cacheTTL = "5s"

// setUp starts everything, as an administrator would, and returns when all of it
// is in effect.
func (s *stage) setUp(ctx context.Context) {
	s.out.heading("Setting up", "A directory of documents is all that Gatehouse is configured with.")
	s.issueToken(ctx)
	s.note("Is there anything wrong with the documents?")
	s.must(ctx, "gatehouse lint --config config", succeeds, prints("0 errors"))
	s.note("The server, with a certificate of its own. It records what it is asked.")
	s.serve(ctx, 9, "--config", configDir, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--record", recordDir)
	s.startCluster(ctx)
	s.register(ctx)
}

func (s *stage) issueToken(ctx context.Context) {
	s.note("Jane gets a token. The document that makes it known holds its hash.")
	s.must(ctx, "gatehouse token issue --id jane-laptop --user jane --group dev --config config", succeeds, func(o output) string {
		s.token = regexp.MustCompile(`gatehouse_jane-laptop_[a-z2-7]{47}`).FindString(o.text)
		if s.token == "" {
			return "it printed no token"
		}
		return ""
	})
}

// serve starts the server with these flags and a certificate of its own, and
// returns when it is ready. It shows the command, broken behind so many words.
func (s *stage) serve(ctx context.Context, words int, flags ...string) {
	args := append(append([]string{"serve"}, flags...), "--self-signed", "127.0.0.1", "--self-signed-dir", certsDir, "--log-format", "text")
	s.do(func() error {
		s.out.command("gatehouse " + strings.Join(args[:words], " ") + " \\\n  " + strings.Join(args[words:], " ") + " 2>> " + gatehouseLog + " &")
		s.gatehouse = cluster.NewProcess(cluster.ProcessOptions{
			Path: s.path("bin/gatehouse"), Args: args, Env: s.environment(), Dir: s.dir, Log: s.path(gatehouseLog), Ready: s.ready,
		})
		ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("gave up after %s", waitLimit))
		defer cancel()
		return s.gatehouse.Start(ctx)
	})
}

// ready learns the addresses of the server from its log, and asks it.
func (s *stage) ready(ctx context.Context) error {
	log, err := os.ReadFile(s.path(gatehouseLog))
	if err != nil {
		return err
	}
	for key, value := range map[string]*string{"reviews": &s.address, "ops": &s.ops} {
		found := regexp.MustCompile(` ` + key + `=(\S+)`).FindSubmatch(log)
		if found == nil {
			return fmt.Errorf("%s says no %s=", gatehouseLog, key)
		}
		*value = string(found[1])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.ops+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close() // the status is all there is to know
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", response.Status)
	}
	return nil
}

// startCluster starts a control plane that asks Gatehouse who its users are, with
// a namespace in which they may create pods.
func (s *stage) startCluster(ctx context.Context) {
	const kubeconfig = "authentication.yaml"
	s.note("The API server asks it about tokens: that is a file, and flags.")
	s.must(ctx, "gatehouse manifests --authentication --url https://"+s.address+" --ca-file certs/ca.crt \\\n"+
		"  --client-cert certs/apiserver-client.crt --client-key certs/apiserver-client.key > "+kubeconfig, succeeds)
	s.do(func() (err error) {
		s.out.command("kube-apiserver --authentication-token-webhook-config-file=" + kubeconfig + " \\\n" +
			"  --authentication-token-webhook-version=v1 --authentication-token-webhook-cache-ttl=" + cacheTTL + " … &")
		s.progress("starting etcd and kube-apiserver…")
		s.cluster, err = cluster.Start(ctx, cluster.Options{
			Dir: s.path("cluster"),
			APIServerFlags: []string{
				"--authentication-token-webhook-config-file=" + s.path(kubeconfig),
				"--authentication-token-webhook-version=v1",
				"--authentication-token-webhook-cache-ttl=" + cacheTTL,
			},
		})
		return err
	})
	s.do(s.writeKubeconfig)
	s.do(func() error {
		s.progress("making the namespace %q…", namespace)
		var document corev1.Namespace
		err := readDocument(s.path(configDir+"/namespace.yaml"), &document)
		if err != nil {
			return err
		}
		return s.cluster.CreateNamespace(ctx, document.Name, document.Labels)
	})
	s.note("What the group dev may do is for RBAC to say, as ever.")
	s.must(ctx, "kubectl --context admin create role dev --verb=get,list,create,delete --resource=pods", succeeds)
	s.must(ctx, "kubectl --context admin create rolebinding dev --role=dev --group=dev", succeeds)
}

// register tells the API server to ask Gatehouse, and waits until it does: it
// learns of webhooks, as of roles, some time after they were written.
func (s *stage) register(ctx context.Context) {
	s.note("The API server asks it about pods too: those are two objects.")
	s.must(ctx, "gatehouse manifests --url https://"+s.address+" --ca-file certs/ca.crt --config config |\n"+
		"  kubectl --context admin apply -f -", succeeds,
		prints("mutatingwebhookconfiguration.admissionregistration.k8s.io/gatehouse created"),
		prints("validatingwebhookconfiguration.admissionregistration.k8s.io/gatehouse created"))
	s.until(ctx, "the API server uses the webhooks", func(ctx context.Context) error {
		pod, err := s.try(ctx, "checkout")
		switch {
		case err != nil:
			return fmt.Errorf("the pod checkout cannot be created: %w", err)
		case !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == sidecar }):
			return errors.New("the pod checkout gets no sidecar")
		}
		return s.refuses(ctx, "miner")
	})
}

// try asks the API server what would become of a pod if Jane created it.
func (s *stage) try(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	err := readDocument(s.path(podsDir+"/"+name+".yaml"), pod)
	if err != nil {
		return nil, err
	}
	// Not by her token: what is asked while things start must not be what the API
	// server remembers of it.
	config := s.cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{group}}
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// refuses is nil if Gatehouse would refuse the pod.
func (s *stage) refuses(ctx context.Context, name string) error {
	_, err := s.try(ctx, name)
	switch {
	case err == nil:
		return fmt.Errorf("the pod %s can be created", name)
	case !strings.Contains(err.Error(), "validate.gatehouse.dev"):
		return err
	}
	return nil
}

// printKept says where everything is and what to try.
func (s *stage) printKept() {
	s.out.heading("Everything is left running", "Ctrl-C ends it and removes "+s.dir+". In another terminal:")
	// The one place where a token is shown whole: it is theirs to use.
	s.out.line(`
  cd %[1]s
  export KUBECONFIG=$PWD/kubeconfig PATH=$PWD/bin:$PATH
  export TOKEN=%[2]s

Then try:

  # who the token says you are
  kubectl --token $TOKEN auth whoami

  # a pod of your own: edit it, and see what it gets or why it is refused
  sed 's/checkout/cart/' pods/checkout.yaml > pods/cart.yaml
  kubectl --token $TOKEN create -f pods/cart.yaml --dry-run=server -o yaml

  # change the sidecar, or a policy; check it; the next pod is treated by it
  sed 's/3.2.4/3.2.10/' config/log-shipper.yaml > new && mv new config/log-shipper.yaml
  gatehouse lint --config config
  kubectl --token $TOKEN create -f pods/cart.yaml --dry-run=server -o yaml | grep image:

  # the custom resources that there are, and what became of them
  kubectl --context admin get gatehouse -A -o wide
  kubectl --context admin describe sidecarprofile tracer

  # what the API server was told to ask; the context admin needs no token
  kubectl --context admin get mutatingwebhookconfiguration,validatingwebhookconfiguration

  # take Jane's token away: what the API server remembers of it is gone within 15s
  rm config/token-jane-laptop.yaml

Gatehouse's log   %[1]s/gatehouse.log
Its metrics       http://%[3]s/metrics
API server's log  %[1]s/cluster/kube-apiserver.log
`, s.dir, s.token, s.ops)
}
