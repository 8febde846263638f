package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// waits returns what the script waits for, by its name: what is asked until there is no error any more. It is for what takes
// effect some time after it was done.
func (s *stage) waits() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"there is a token":                 s.readToken,
		"the API server uses the webhooks": s.usesWebhooks,
		"Gatehouse has logged the login": func(ctx context.Context) error {
			return s.shell(ctx, "grep -q endpoint=authenticate "+gatehouseLog).Run()
		},
		"the changed policy is in force": func(ctx context.Context) error { return s.refuses(ctx, "report") },
		"the baseline is in force":       s.baselined,
		// Reviews are written every two seconds.
		"the pods are in the recording": func(ctx context.Context) error {
			text, _ := s.shell(ctx, "gatehouse replay --config new-config --kind Pod recording").CombinedOutput() // the exit code says that there are changes
			if !bytes.Contains(text, []byte("Pod/checkout")) || !bytes.Contains(text, []byte("Pod/report")) {
				return errors.New("they are not")
			}
			return nil
		},
		"the API server asks about custom resources": func(ctx context.Context) error {
			if s.cluster.Kubectl(ctx, "create", "--dry-run=server", "-f", s.path("resources/tags.yaml")).Run() == nil {
				return errors.New("a policy with errors would be stored")
			}
			return nil
		},
	}
}

// readToken takes the token from what was printed last.
func (s *stage) readToken(context.Context) error {
	s.token = regexp.MustCompile(`gatehouse_jane-laptop_[a-z2-7]{47}`).FindString(s.printed)
	if s.token == "" {
		return errors.New("no token was printed")
	}
	return nil
}

// mistyped returns the token with another first character of its secret: one that
// still shows when the token is shortened.
func mistyped(token string) string {
	at := strings.LastIndexByte(token, '_') + 1
	if strings.HasPrefix(token[at:], "x") {
		return token[:at] + "y" + token[at+1:]
	}
	return token[:at] + "x" + token[min(at+1, len(token)):]
}

// start starts a server of the script, which ends the one before it, and returns when it is ready.
func (s *stage) start(ctx context.Context, words []string) error {
	words = slices.DeleteFunc(words, func(word string) bool { return word == `\` || word == "&" || word == "…" })
	if words[0] == "kube-apiserver" {
		return s.startCluster(ctx, words[1:])
	}
	if s.gatehouse != nil {
		if err := s.gatehouse.Kill(); err != nil {
			return err
		}
	}
	s.gatehouse = cluster.NewProcess(cluster.ProcessOptions{
		Path: s.path("bin/gatehouse"), Args: words[1:slices.Index(words, "2>>")], Env: s.environment(), Dir: s.dir, Log: s.path(gatehouseLog), Ready: s.ready,
	})
	return s.gatehouse.Start(ctx)
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
func (s *stage) startCluster(ctx context.Context, flags []string) error {
	for i := range flags {
		flags[i] = strings.Replace(flags[i], "-file=", "-file="+s.dir+"/", 1)
	}
	s.progress("starting etcd and kube-apiserver…")
	var err error
	if s.cluster, err = cluster.Start(ctx, cluster.Options{Dir: s.path("cluster"), APIServerFlags: flags}); err != nil {
		return err
	}
	s.progress("making the namespace %q…", namespace)
	var document corev1.Namespace
	err = errors.Join(
		s.writeKubeconfig(),
		os.Symlink(s.cluster.Kubeconfig(), s.path("admin.kubeconfig")),
		readDocument(s.path("config/namespace.yaml"), &document),
	)
	if err != nil {
		return err
	}
	return s.cluster.CreateNamespace(ctx, namespace, document.Labels)
}

// usesWebhooks is nil if the API server asks Gatehouse: it learns of webhooks, as
// of roles, some time after they were written.
func (s *stage) usesWebhooks(ctx context.Context) error {
	pod, err := s.try(ctx, "checkout")
	switch {
	case err != nil:
		return fmt.Errorf("the pod checkout cannot be created: %w", err)
	case !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == sidecar }):
		return errors.New("the pod checkout gets no sidecar")
	}
	return s.refuses(ctx, "miner")
}

// baselined is nil if Gatehouse refuses new pods without an owner, and not the one that existed.
func (s *stage) baselined(ctx context.Context) error {
	pod, err := s.try(ctx, "report")
	if err == nil {
		return fmt.Errorf("the pod %s can be created", pod.Name)
	}
	if !strings.Contains(err.Error(), "a pod needs the label team") {
		return err
	}
	_, err = s.try(ctx, "checkout")
	if apierrors.IsAlreadyExists(err) {
		return nil // it was admitted
	}
	return err
}

// try asks the API server what would become of a pod if Jane created it.
func (s *stage) try(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	err := readDocument(s.path("pods/"+name+".yaml"), pod)
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
