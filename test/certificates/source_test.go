package certificates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const (
	// oldSecret and newSecret are those of the two sources, the second one as the guide calls it.
	oldSecret, newSecret = "gatehouse-ca", "gatehouse-ca-2"
	// silent are replicas that do not write the bundle.
	silent = "--publish-ca-bundle=false"
)

// change is a hook whose replicas change from one source to another. It is registered as both kinds, with two mutating
// webhooks, one of which nobody calls.
type change struct {
	*hook
	// begun is how many replicas were started, and all are those of them that came to be ready.
	begun int
	all   programs
}

func newChange(t *testing.T) *change {
	t.Helper()
	c := &change{hook: newHook(t)}
	validating := c.registration().Webhooks[0]
	entry := func(name, group, resource string) admissionregistrationv1.MutatingWebhook {
		to := validating.ClientConfig.DeepCopy()
		to.Service.Path = new("/mutate")
		rules := []admissionregistrationv1.RuleWithOperations{*validating.Rules[0].DeepCopy()}
		rules[0].APIGroups, rules[0].Resources = []string{group}, []string{resource}
		return admissionregistrationv1.MutatingWebhook{
			Name: name, ClientConfig: *to, Rules: rules, NamespaceSelector: validating.NamespaceSelector,
			FailurePolicy: validating.FailurePolicy, SideEffects: validating.SideEffects,
			TimeoutSeconds: validating.TimeoutSeconds, AdmissionReviewVersions: validating.AdmissionReviewVersions,
		}
	}
	configurations := c.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := configurations.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: c.name},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{entry("mutate.gatehouse.dev", "", "configmaps"), entry("idle.gatehouse.dev", "apps", "deployments")},
	}, metav1.CreateOptions{FieldManager: "installer"})
	must(t, err)
	t.Cleanup(func() {
		err := configurations.Delete(context.WithoutCancel(t.Context()), c.name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return c
}

// bundles are those of all webhooks of both kinds.
func (c *change) bundles(ctx context.Context) ([][]byte, error) {
	api := c.Client().AdmissionregistrationV1()
	mutating, err := api.MutatingWebhookConfigurations().Get(ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	validating, err := api.ValidatingWebhookConfigurations().Get(ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var list [][]byte
	for i := range mutating.Webhooks {
		list = append(list, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	for i := range validating.Webhooks {
		list = append(list, validating.Webhooks[i].ClientConfig.CABundle)
	}
	return list, nil
}

// trusting reports whether all webhooks trust CAs and no others.
func (c *change) trusting(t *testing.T, bundles ...[]byte) error {
	t.Helper()
	found, err := c.bundles(t.Context())
	if err != nil {
		return err
	}
	want := rotation.Bundle(certificatesIn(t, bytes.Join(bundles, []byte("\n"))))
	for i, bundle := range found {
		if got := rotation.Bundle(certificatesIn(t, bundle)); !bytes.Equal(got, want) {
			err = errors.Join(err, fmt.Errorf("webhook %d trusts\n%swant\n%s", i, got, want))
		}
	}
	return err
}

// ca is the CA in a Secret.
func (c *change) ca(t *testing.T, name string) []byte {
	t.Helper()
	found, err := c.Client().CoreV1().Secrets(c.name).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return found.Data[rotation.KeyBundle]
}

// begin starts a replica, and does not wait. It ends with the test.
func (c *change) begin(t *testing.T, secret string, flags ...string) *start {
	t.Helper()
	const config = "../../manifests/examples/log-shipper" // which has nothing to say about ConfigMaps
	ops, err := cluster.UnusedAddress("127.0.0.1")
	must(t, err)
	c.begun++
	name := fmt.Sprintf("replica-%d", c.begun)
	s := &start{ops: ops, log: filepath.Join(t.TempDir(), name), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), heldBack)
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		s.server, s.err = gatehouse.Start(ctx, s.log, append([]string{
			"--config", config, "--listen", net.JoinHostPort(cluster.ListenAddress(), "0"), "--ops-listen", ops,
			"--kubeconfig", c.Kubeconfig(), "--self-signed", c.host(), "--self-signed-secret", c.name + "/" + secret,
			"--registration", c.name, "--replica", name, "--rotation-hold", lag.String(), "--drain-delay", lag.String(),
		}, flags...)...)
	}()
	t.Cleanup(s.stop)
	return s
}

// ready waits until a replica is ready, as an endpoint has to be.
func (c *change) ready(t *testing.T, s *start) *program {
	t.Helper()
	s.accepted(t)
	p := &program{s.server, newNetwork(t, cluster.ListenAddress(), s.server.Reviews.String(), thinking), filepath.Base(s.log)}
	c.all = append(c.all, p)
	return p
}

func (ps programs) ports() []int {
	var ports []int
	for _, p := range ps {
		ports = append(ports, p.port())
	}
	return ports
}

// pair starts two replicas of a source, and waits until they are ready.
func (c *change) pair(t *testing.T, secret string, flags ...string) programs {
	t.Helper()
	first, second := c.begin(t, secret, flags...), c.begin(t, secret, flags...)
	return programs{c.ready(t, first), c.ready(t, second)}
}

// replace has the hook call other replicas, as a rollout does that leaves none unavailable: those that are called are
// told to stop when the others are called too, and their endpoints go a moment later.
func (c *change) replace(t *testing.T, l *load, old, with programs) {
	t.Helper()
	c.endpoints(t, slices.Concat(old.ports(), with.ports())...)
	for _, p := range with {
		support.Eventually(t, p.name+" is called", func() error {
			if p.work().handshakes == 0 {
				return errNotYet
			}
			return nil
		})
	}
	l.more(t, enough/20)
	old.untrusted(t)
	for _, p := range old {
		must(t, p.Signal(syscall.SIGTERM))
	}
	c.endpoints(t, with.ports()...)
}

// left waits until replicas that were told to stop have done so. (One to which a connection was made that nobody used
// takes some seconds more than its drain delay.)
func (ps programs) left(t *testing.T) {
	t.Helper()
	for _, p := range ps {
		if code, err := p.Wait(t.Context()); err != nil || code != 0 {
			t.Errorf("a replica that was told to stop ends with %d, %v", code, err)
		}
	}
}

// Replicas change from one source to another by the commands of the guide, and no call fails.
func TestChangeOfSource(t *testing.T) {
	c := newChange(t)
	ps := c.pair(t, oldSecret)
	c.endpoints(t, ps.ports()...)
	l := c.load(t, func() work { return c.all.work() })
	old := c.ca(t, oldSecret)
	must(t, c.trusting(t, old))

	// 1. Nobody writes.
	quiet := c.pair(t, oldSecret, silent)
	c.replace(t, l, ps, quiet)
	must(t, c.trusting(t, old))

	// 2. The new source.
	waiting := c.begin(t, newSecret, silent)
	refused := []string{"MutatingWebhookConfiguration " + c.name, "ValidatingWebhookConfiguration " + c.name, unknownAuthority}
	waiting.unready(t, refused...)
	l.last(t, lag)
	ps.left(t)
	waiting.unready(t, refused...)
	must(t, c.trusting(t, old))

	// 3. Both CAs.
	said, err := c.run(t, publishCommands(t))
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	next := c.ca(t, newSecret)
	must(t, c.trusting(t, old, next))
	if took := waiting.accepted(t); took > watched {
		t.Errorf("the first new replica was ready %s after its CA was trusted, want %s at most", took, watched)
	}
	moved := programs{c.ready(t, waiting), c.ready(t, c.begin(t, newSecret, silent))}
	c.replace(t, l, quiet, moved)
	must(t, c.trusting(t, old, next))

	// 4. Publishing again.
	final := c.pair(t, newSecret)
	c.replace(t, l, moved, final)
	support.Eventually(t, "the old CA leaves the bundles", func() error { return c.trusting(t, next) })
	must(t, c.Client().CoreV1().Secrets(c.name).Delete(t.Context(), oldSecret, metav1.DeleteOptions{}))
	l.last(t, lag)
	l.noneFailed(t, enough)
	final.untrusted(t)
	must(t, c.trusting(t, next))
}

// publishCommands returns the commands of the guide that put the new CA beside the old one.
func publishCommands(t *testing.T) string {
	t.Helper()
	const path = "../../docs/certificates.md"
	text, err := os.ReadFile(path)
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Changing the source\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n").FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 || !strings.Contains(section, "`"+silent+"`") || !strings.Contains(section, "`--self-signed-secret`") {
		t.Fatalf("%s describes other steps for a change of the source than this test takes", path)
	}
	return blocks[1][1]
}

// run runs commands of the guide as they stand there, but for the names of the hook's objects, and returns what they say.
// There is kubectl, and little else.
func (c *change) run(t *testing.T, commands string) (string, error) {
	t.Helper()
	tools := t.TempDir()
	for _, name := range []string{"base64", "cat", "sed", "tr"} {
		path, err := exec.LookPath(name)
		must(t, err)
		must(t, os.Symlink(path, filepath.Join(tools, name)))
	}
	kubectl := c.Kubectl(t.Context())
	must(t, os.Symlink(kubectl.Path, filepath.Join(tools, "kubectl")))

	commands = strings.NewReplacer("gatehouse-system", c.name, newSecret, newSecret, "gatehouse", c.name).Replace(commands)
	shell := exec.CommandContext(t.Context(), "/bin/sh", "-c", commands)
	shell.Dir = t.TempDir()
	shell.Env = append(kubectl.Env, "PATH="+tools)
	said, err := shell.CombinedOutput()
	return string(said), err
}
