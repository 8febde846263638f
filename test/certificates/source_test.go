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
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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
	// annotation is cainjector's.
	annotation = "cert-manager.io/inject-ca-from"
)

// change is a hook whose replicas change from one source to another. It is registered as both kinds, with two mutating
// webhooks, one of which nobody calls.
type change struct {
	*hook
	guide guide
	// begun is how many replicas were started, and all are those of them that came to be ready.
	begun int
	all   programs
}

func newChange(t *testing.T) *change {
	t.Helper()
	c := &change{hook: newHook(t), guide: readGuide(t)}
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
	said, err := c.run(t, c.guide.publish)
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

// The control: replicas of the new source that publish take away the CA of the old ones, and calls fail.
func TestChangeOfSourceWhilePublishing(t *testing.T) {
	c := newChange(t)
	ps := c.pair(t, oldSecret)
	c.endpoints(t, ps.ports()...)
	l := c.load(t, func() work { return c.all.work() })
	l.more(t, enough/20)
	if failed := l.Failed(); failed > 0 {
		t.Errorf("%d calls failed before the new source: %s", failed, l.Why())
	}
	c.begin(t, newSecret)
	support.Eventually(t, "a call fails", func() error {
		if l.Failed() == 0 {
			return errNotYet
		}
		return nil
	})
	l.someFailed(t, unknownAuthority)
}

// The commands of the guide do what it says to bundles that cainjector or somebody else wrote, which end without a newline
// here. When something gets in their way, the bundles stay as they were.
func TestCommandsForChangeOfSource(t *testing.T) {
	c := newChange(t)
	yesterday := time.Now().AddDate(0, 0, -1)
	old := bytes.TrimSpace(bundleOf(newCA(t, "old", yesterday)))
	next := bytes.TrimSpace(bundleOf(newCA(t, "new", yesterday)))
	c.fill(t, old)
	_, err := c.Client().CoreV1().Secrets(c.name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: newSecret}, Data: map[string][]byte{rotation.KeyBundle: next},
	}, metav1.CreateOptions{})
	must(t, err)

	for _, test := range []struct {
		name, commands string
		want           [][]byte
	}{
		{"cainjector's annotation", c.guide.annotate, [][]byte{old}},
		{"both CAs", c.guide.publish, [][]byte{old, next}},
		{"the new CA alone", c.guide.retire, [][]byte{next}},
	} {
		if said, err := c.run(t, test.commands); err != nil {
			t.Fatalf("%s: %v: %s", test.name, err, said)
		}
		if err := c.trusting(t, test.want...); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if c.annotated(t) {
			t.Errorf("%s: the annotation is still there", test.name)
		}
	}

	for _, test := range []struct{ name, meanwhile, want string }{
		{
			"somebody changes the configurations in between",
			`[ "$1" != replace ] || "$kubectl" label --overwrite ` + kinds + " " + c.name + ` changed=$$`,
			"the object has been modified",
		},
		{"what is trusted cannot be read", `case "$*" in *caBundle*) echo no >&2; exit 1; esac`, "no\nno\n"},
	} {
		c.fill(t, old)
		said, err := c.run(t, c.guide.publish, test.meanwhile)
		if err == nil || !strings.Contains(said, test.want) {
			t.Errorf("%s: the commands end with %v: %s", test.name, err, said)
		}
		if err := c.trusting(t, old); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// kinds are those that the guide's commands are about.
const kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"

// fill gives all webhooks a bundle, and both configurations cainjector's annotation, as if cainjector had done so.
func (c *change) fill(t *testing.T, bundle []byte) {
	t.Helper()
	api := c.Client().AdmissionregistrationV1()
	mutating, err := api.MutatingWebhookConfigurations().Get(t.Context(), c.name, metav1.GetOptions{})
	must(t, err)
	mutating.Annotations = map[string]string{annotation: c.name}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = bundle
	}
	_, err = api.MutatingWebhookConfigurations().Update(t.Context(), mutating, metav1.UpdateOptions{})
	must(t, err)
	validating, err := api.ValidatingWebhookConfigurations().Get(t.Context(), c.name, metav1.GetOptions{})
	must(t, err)
	validating.Annotations = map[string]string{annotation: c.name}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = bundle
	}
	_, err = api.ValidatingWebhookConfigurations().Update(t.Context(), validating, metav1.UpdateOptions{})
	must(t, err)
}

// annotated reports whether one of the configurations has cainjector's annotation.
func (c *change) annotated(t *testing.T) bool {
	t.Helper()
	api := c.Client().AdmissionregistrationV1()
	mutating, err := api.MutatingWebhookConfigurations().Get(t.Context(), c.name, metav1.GetOptions{})
	must(t, err)
	validating, err := api.ValidatingWebhookConfigurations().Get(t.Context(), c.name, metav1.GetOptions{})
	must(t, err)
	return metav1.HasAnnotation(mutating.ObjectMeta, annotation) || metav1.HasAnnotation(validating.ObjectMeta, annotation)
}

// guide is what the guide says to type.
type guide struct {
	// annotate takes cainjector's annotation away, publish puts the new CA beside the old one, and retire takes the old
	// one out.
	annotate, publish, retire string
}

// readGuide reads the commands in the guide's section about a change of the source.
func readGuide(t *testing.T) guide {
	t.Helper()
	const (
		path = "../../docs/certificates.md"
		// leftOut is what the guide leaves out of the commands for both CAs, to come to the new one alone.
		leftOut = "cat old-ca.crt; echo;"
	)
	text, err := os.ReadFile(path)
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Changing the source\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n").FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 {
		t.Fatalf("%s shows %d blocks of commands for a change of the source, want 2", path, len(blocks))
	}
	g := guide{annotate: blocks[0][1], publish: blocks[1][1]}
	g.retire = strings.Replace(g.publish, leftOut, "", 1)
	if said := strings.Join(strings.Fields(section), " "); g.retire == g.publish || !strings.Contains(said, "without `"+leftOut+"`") {
		t.Fatalf("%s does not say to leave out %q of\n%s", path, leftOut, g.publish)
	}
	for _, flag := range []string{silent, "--self-signed-secret"} {
		if !strings.Contains(section, "`"+flag+"`") {
			t.Fatalf("%s does not say %s for a change of the source: this test is about other steps", path, flag)
		}
	}
	return g
}

// run runs commands of the guide as they stand there, but for the names of the hook's objects, and returns what they say.
// There is kubectl, and little else, and each call of it begins with other commands, which know it as $kubectl.
func (c *change) run(t *testing.T, commands string, before ...string) (string, error) {
	t.Helper()
	tools := t.TempDir()
	for _, name := range []string{"base64", "cat", "sed", "tr"} {
		path, err := exec.LookPath(name)
		must(t, err)
		must(t, os.Symlink(path, filepath.Join(tools, name)))
	}
	kubectl := c.Kubectl(t.Context())
	wrapper := strings.Join(slices.Concat([]string{"#!/bin/sh"}, before, []string{`exec "$kubectl" "$@"`, ""}), "\n")
	must(t, os.WriteFile(filepath.Join(tools, "kubectl"), []byte(wrapper), 0o700))

	commands = strings.NewReplacer("gatehouse-system", c.name, newSecret, newSecret, "gatehouse", c.name).Replace(commands)
	shell := exec.CommandContext(t.Context(), "/bin/sh", "-c", commands)
	shell.Dir = t.TempDir()
	shell.Env = slices.Concat(kubectl.Env, []string{"kubectl=" + kubectl.Path, "PATH=" + tools})
	said, err := shell.CombinedOutput()
	return string(said), err
}
