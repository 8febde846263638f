// Package certmanager runs cert-manager's real controllers for tests: the ones that issue certificates from issuers of
// the kinds selfSigned and CA, and cainjector, which writes their authorities into webhook configurations.
//
// They run beside the control plane, not in it, as its administrator. What they do not have of an installed
// cert-manager is its own admission webhook: nothing but the schema refuses a Certificate, so that one may last for
// less than an hour.
package certmanager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cert-manager/cert-manager/pkg/client/clientset/versioned"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

const fieldManager = "gatehouse-test"

// Namespace is where cert-manager would be installed: Secrets that a ClusterIssuer names are there.
const Namespace = "cert-manager"

// startTimeout is ten times what a start takes on an idle machine.
const startTimeout = time.Minute

// CertManager are running controllers. On Linux they never outlive this process, however this one ends.
type CertManager struct {
	cluster *cluster.Cluster
	client  versioned.Interface

	controller, cainjector *cluster.Process
}

// New starts the controllers for one test and ends them with the test. A failed test's output includes the end of what
// they logged.
func New(t testing.TB, c *cluster.Cluster) *CertManager {
	t.Helper()
	m, err := Start(t.Context(), c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := m.Stop()
		if err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, process := range []*cluster.Process{m.controller, m.cainjector} {
				t.Logf("%s logged:\n%s", process.Name(), tail(process.Log()))
			}
		}
	})
	return m
}

// Start installs the definitions of cert-manager's objects, starts both programs and returns when an issuer was found
// ready and a webhook configuration was written to. The directory receives their logs. The context bounds the start
// only, which takes a minute at most; [CertManager.Stop] ends them. A cluster has one CertManager at a time.
func Start(ctx context.Context, c *cluster.Cluster, dir string) (*CertManager, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	m := &CertManager{cluster: c}
	err := m.start(ctx, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start cert-manager: %w", err), m.Stop())
	}
	return m, nil
}

func (m *CertManager) start(ctx context.Context, dir string) error {
	programs, err := support.Built("certmanager", "certmanager")
	if err != nil {
		return err
	}
	m.client, err = versioned.NewForConfig(m.cluster.Config())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "--filename", filepath.Join(programs, "crds")}, {"wait", "--for=condition=Established", "crd", "--all"},
	} {
		output, err := m.cluster.Kubectl(ctx, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("install the definitions: %w: %s", err, output)
		}
	}
	err = m.cluster.CreateNamespace(ctx, Namespace, nil)
	if err != nil && !apierrors.IsAlreadyExists(err) { // an earlier start may have created it
		return err
	}

	process := func(name string, ready func(context.Context) error, flags ...string) *cluster.Process {
		return cluster.NewProcess(cluster.ProcessOptions{
			Path:  filepath.Join(programs, name),
			Args:  append([]string{"--kubeconfig=" + m.cluster.Kubeconfig(), "--v=2"}, flags...),
			Log:   filepath.Join(dir, name+".log"),
			Ready: ready,
		})
	}
	m.controller = process("controller", m.issues, "--cluster-resource-namespace="+Namespace)
	m.cainjector = process("cainjector", m.injects)
	for _, process := range []*cluster.Process{m.controller, m.cainjector} {
		err := process.Start(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// Controller returns the process that issues certificates. Its Start waits until it does.
func (m *CertManager) Controller() *cluster.Process { return m.controller }

// CAInjector returns the process that writes authorities into webhook configurations. Its Start waits until it does.
func (m *CertManager) CAInjector() *cluster.Process { return m.cainjector }

// Client returns a client of cert-manager's objects for the cluster's administrator.
func (m *CertManager) Client() versioned.Interface { return m.client }

// tail returns the last lines of a file.
func tail(path string) []byte {
	const size = 8 << 10              // a screenful and a half
	content, err := os.ReadFile(path) //nolint:gosec // a path of our own making
	if err != nil {
		return []byte(err.Error())
	}
	if len(content) <= size {
		return content
	}
	_, rest, _ := bytes.Cut(content[len(content)-size:], []byte("\n"))
	return rest
}

// Stop ends both programs. Their objects stay. Stopping twice is harmless.
func (m *CertManager) Stop() error {
	var errs []error
	for _, process := range []*cluster.Process{m.cainjector, m.controller} {
		if process != nil {
			errs = append(errs, process.Stop())
		}
	}
	return errors.Join(errs...)
}
