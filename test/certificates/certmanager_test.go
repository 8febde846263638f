package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/certmanager"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// stall is how long cainjector hangs while a CA is changed.
const stall = 2 * lag

// managed is a hook for which cert-manager issues: a Certificate of its name.
type managed struct {
	*hook
	cm *certmanager.CertManager
	// kubeconfig is the program's, and mount the directory of its Secret.
	kubeconfig, mount string
}

// leafSecret is the name of the Certificate's Secret, authority that of the CA that is made for it alone, and
// authoritySecret that of the Secret of that.
func (m *managed) leafSecret() string      { return m.name + "-tls" }
func (m *managed) authority() string       { return m.name + "-ca" }
func (m *managed) authoritySecret() string { return m.authority() + "-tls" }

// The program with cert-manager's own controllers, which issue its certificate and fill in the registration, and the printed rights.
func TestCertManager(t *testing.T) {
	m := &managed{newHook(t), nil, shared.Get(t).Kubeconfig(), t.TempDir()}
	m.cm = installed(t, m.Cluster)
	injected(t, m)
}

// installed starts cert-manager for one test. Nothing of it stays.
func installed(t *testing.T, c *cluster.Cluster) *certmanager.CertManager {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config())
	must(t, err)
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := definitions.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
		}
		support.Eventually(t, "definitions are gone", func() error {
			list, err := definitions.List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = errNotYet
			}
			return err
		})
	})
	return certmanager.New(t, c)
}

// flags are those of 'gatehouse serve' with the hook's Certificate.
func (m *managed) flags(replica, ops string) []string {
	const config = "../../manifests/examples/log-shipper" // which has nothing to say about ConfigMaps
	return []string{
		"--config", config, "--listen", net.JoinHostPort(cluster.ListenAddress(), "0"), "--ops-listen", ops,
		"--kubeconfig", m.kubeconfig, "--tls-cert", filepath.Join(m.mount, "tls.crt"), "--tls-key", filepath.Join(m.mount, "tls.key"),
		"--registration", m.name, "--replica", replica, "--rotation-hold", lag.String(),
	}
}

// mounts keeps the Secret in the directory until the test ends, as a kubelet does, and waits until it is there.
func (m *managed) mounts(t *testing.T) {
	t.Helper()
	written := ""
	read := func(ctx context.Context) error {
		found, err := m.Client().CoreV1().Secrets(m.name).Get(ctx, m.leafSecret(), metav1.GetOptions{})
		if err != nil || found.ResourceVersion == written {
			return err
		}
		// The link is replaced, so that both files change at the same time.
		data, link := filepath.Join(m.mount, "..v"+found.ResourceVersion), filepath.Join(m.mount, "..new")
		err = errors.Join(os.Mkdir(data, 0o700), os.Symlink(filepath.Base(data), link))
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if len(found.Data[key]) == 0 {
				err = errors.Join(err, errNotYet)
			}
			err = errors.Join(err, os.WriteFile(filepath.Join(data, key), found.Data[key], 0o600))
			if written == "" {
				err = errors.Join(err, os.Symlink(filepath.Join("..data", key), filepath.Join(m.mount, key)))
			}
		}
		if err == nil {
			err = os.Rename(link, filepath.Join(m.mount, "..data"))
		}
		written = found.ResourceVersion
		return err
	}
	support.Eventually(t, "the Secret of the Certificate", func() error { return read(t.Context()) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var mounting sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		mounting.Wait()
	})
	mounting.Go(func() {
		for ctx.Err() == nil {
			if err := read(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("the Secret cannot be mounted: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(lag / 4):
			}
		}
	})
}

// replicas starts two replicas and has the hook call them.
func (m *managed) replicas(t *testing.T) programs {
	t.Helper()
	m.mounts(t)
	var (
		ps    programs
		ports []int
	)
	begin := time.Now()
	for _, name := range []string{"replica-0", "replica-1"} {
		server, err := gatehouse.Start(t.Context(), filepath.Join(t.TempDir(), "log"), m.flags(name, "127.0.0.1:0")...)
		must(t, err)
		t.Cleanup(server.Kill)
		t.Logf("%s is ready %s after the first was started", name, time.Since(begin).Round(time.Millisecond))
		p := &program{server, newNetwork(t, server.Reviews.String()), name}
		ps, ports = append(ps, p), append(ports, p.port())
	}
	m.endpoints(t, ports...)
	return ps
}

// inject tells cainjector to fill in the hook's registration.
func (m *managed) inject(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, certmanagerv1.WantInjectAnnotation, m.name+"/"+m.name)
	_, err := m.configurations().Patch(t.Context(), m.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "installer"})
	must(t, err)
}

// renew has a certificate issued again at once, as 'cmctl renew' does, and returns it.
func (m *managed) renew(t *testing.T, name, secret string) *x509.Certificate {
	t.Helper()
	before, err := m.issued(t.Context(), secret)
	must(t, err)
	certificates := m.cm.Client().CertmanagerV1().Certificates(m.name)
	support.Eventually(t, "a renewal", func() error {
		found, err := certificates.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range found.Status.Conditions {
			if condition.Type == certmanagerv1.CertificateConditionIssuing && condition.Status == cmmetav1.ConditionTrue {
				return nil // it is being issued as it is
			}
		}
		found.Status.Conditions = append(found.Status.Conditions, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmetav1.ConditionTrue, Reason: "ManuallyTriggered",
			ObservedGeneration: found.Generation, LastTransitionTime: new(metav1.Now()),
		})
		_, err = certificates.UpdateStatus(t.Context(), found, metav1.UpdateOptions{})
		return err
	})
	var after *x509.Certificate
	support.Eventually(t, "another certificate", func() error {
		after, err = m.issued(t.Context(), secret)
		if err == nil && after.Equal(before) {
			err = errNotYet
		}
		return err
	})
	return after
}

// changeCA has a new CA issued, and then a certificate of it, both of which it returns.
func (m *managed) changeCA(t *testing.T) (ca, leaf *x509.Certificate) {
	t.Helper()
	ca = m.renew(t, m.authority(), m.authoritySecret())
	support.Eventually(t, "a certificate of the new CA", func() error {
		leaf = m.renew(t, m.name, m.leafSecret())
		return leaf.CheckSignatureFrom(ca)
	})
	return ca, leaf
}

// issued is the certificate in a Secret.
func (m *managed) issued(ctx context.Context, secret string) (*x509.Certificate, error) {
	found, err := m.Client().CoreV1().Secrets(m.name).Get(ctx, secret, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(found.Data[corev1.TLSCertKey])
	if block == nil {
		return nil, errors.New("there is no certificate in the Secret " + secret)
	}
	return x509.ParseCertificate(block.Bytes)
}

// passage is how long things took, from the moment that they were asked for.
type passage struct {
	// trusted is when the registration accepted the new certificate, and first and last are when the first replica
	// served it and the last one did.
	trusted, first, last time.Duration
}

func (p passage) String() string {
	return fmt.Sprintf("trusted after %s, served after %s to %s",
		p.trusted.Round(time.Millisecond), p.first.Round(time.Millisecond), p.last.Round(time.Millisecond))
}

// follow waits until all replicas serve a certificate. None may before the registration accepts it.
func (m *managed) follow(t *testing.T, ps programs, leaf *x509.Certificate, authorities ...*x509.Certificate) passage {
	t.Helper()
	var (
		p      passage
		begin  = time.Now()
		roots  = certs.Bundle(authorities)
		serves = map[*program]bool{}
	)
	support.Eventually(t, "the new certificate is served", func() error {
		for _, r := range ps {
			got, err := look(t.Context(), r.Reviews.String(), m.host(), roots)
			if err != nil {
				return err
			}
			serves[r] = got.Equal(leaf)
			if serves[r] && p.first == 0 {
				p.first = time.Since(begin)
			}
		}
		bundle, err := m.bundle(t.Context()) // after what is served was seen
		if err != nil {
			return err
		}
		if err := trustedBy(bundle, leaf, m.host()); err != nil {
			if p.first != 0 {
				t.Fatal("a replica serves a certificate that the registration does not accept")
			}
			return err
		}
		if p.trusted == 0 {
			p.trusted = time.Since(begin)
		}
		for _, r := range ps {
			if !serves[r] {
				return fmt.Errorf("%s does not serve it", r.name)
			}
		}
		p.last = time.Since(begin)
		return nil
	})
	return p
}

// untrusted fails the test if an API server has ever refused the certificate of a replica.
func (ps programs) untrusted(t *testing.T) {
	t.Helper()
	for _, p := range ps {
		n, err := p.Metric(t.Context(), "gatehouse_tls_handshake_errors_total", `reason="untrusted"`)
		must(t, err)
		if n > 0 {
			t.Errorf("%s says that its certificate was refused in %.0f handshakes", p.name, n)
		}
	}
}

// certificatesIn are those of a bundle.
func certificatesIn(t *testing.T, bundle []byte) []*x509.Certificate {
	t.Helper()
	var list []*x509.Certificate
	for {
		var block *pem.Block
		block, bundle = pem.Decode(bundle)
		if block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		list = append(list, cert)
	}
	if rest := bytes.TrimSpace(bundle); len(rest) > 0 {
		t.Errorf("the bundle ends with %q", rest)
	}
	return list
}

// hang makes cainjector hang until it is told to go on.
func (m *managed) hang(t *testing.T) (goOn func()) {
	t.Helper()
	must(t, m.cm.CAInjector().Signal(syscall.SIGSTOP))
	goOn = sync.OnceFunc(func() { must(t, m.cm.CAInjector().Signal(syscall.SIGCONT)) })
	t.Cleanup(goOn)
	return goOn
}

// install applies what 'gatehouse manifests' prints, but for the webhook configurations, and has the program run with the
// rights in it and no more.
func (m *managed) install(t *testing.T) {
	t.Helper()
	printed, err := gatehouse.Run(t.Context(), "manifests", "--certificates", "cert-manager", "--part", "rights,certificates",
		"--name", m.name, "--namespace", m.name, "--service", m.name+"/"+service)
	must(t, err)
	kubectl := m.Kubectl(t.Context(), "apply", "-f", "-")
	kubectl.Stdin = strings.NewReader(printed)
	if said, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}

	request, err := m.Client().CoreV1().ServiceAccounts(m.name).CreateToken(t.Context(), m.name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	access, config := m.Config(), clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthority: m.CAFile()}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	m.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, m.kubeconfig))
	for _, right := range []authorizationv1.ResourceAttributes{ // one of each role
		{Verb: "watch", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Name: m.name},
		{Verb: "watch", Resource: "namespaces"},
	} {
		support.Eventually(t, "the rights", func() error {
			review, err := m.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + m.name + ":" + m.name, ResourceAttributes: &right},
			}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("to %s %s is not allowed", right.Verb, right.Resource)
			}
			return err
		})
	}
}

// forbidden fails the test if a replica was not allowed something.
func (ps programs) forbidden(t *testing.T) {
	t.Helper()
	for _, p := range ps {
		log, err := os.ReadFile(p.Log())
		must(t, err)
		for line := range bytes.Lines(log) {
			if bytes.Contains(line, []byte("orbidden")) || bytes.Contains(line, []byte("cannot")) {
				t.Errorf("%s logs: %s", p.name, line)
			}
		}
	}
}
