// Package certmanager runs cert-manager's real controllers for tests: the ones that issue certificates from issuers of
// the kinds selfSigned and CA, and cainjector, which writes their authorities into webhook configurations.
//
// They run beside the control plane, not in it, as its administrator. What they do not have of an installed
// cert-manager is its own admission webhook: nothing but the schema refuses a Certificate, so that one may last for
// less than an hour.
package certmanager

import (
	"path/filepath"
	"testing"

	"github.com/cert-manager/cert-manager/pkg/client/clientset/versioned"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// Namespace is where cert-manager would be installed: Secrets that a ClusterIssuer names are there.
const Namespace = "cert-manager"

// CertManager are running controllers. On Linux they never outlive this process, however this one ends.
type CertManager struct {
	client     versioned.Interface
	cainjector *cluster.Process
}

// New installs the definitions of cert-manager's objects, starts both programs for one test and ends them with the test; the
// objects stay. They may take a moment until they do their work. A failed test's output includes the end of what they logged.
// A cluster has one CertManager at a time.
func New(t testing.TB, c *cluster.Cluster) *CertManager {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("start cert-manager: %v", err)
		}
	}
	programs, err := support.Built("certmanager", "certmanager")
	must(err)
	m := &CertManager{}
	m.client, err = versioned.NewForConfig(c.Config())
	must(err)
	for _, args := range [][]string{
		{"apply", "--server-side", "--filename", filepath.Join(programs, "crds")}, {"wait", "--for=condition=Established", "crd", "--all"},
	} {
		output, err := c.Kubectl(t.Context(), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("install the definitions of cert-manager: %v: %s", err, output)
		}
	}
	err = c.CreateNamespace(t.Context(), Namespace, nil)
	if !apierrors.IsAlreadyExists(err) { // an earlier start may have created it
		must(err)
	}
	dir := t.TempDir()
	start := func(name string, flags ...string) *cluster.Process {
		process := cluster.NewProcess(cluster.ProcessOptions{
			Path: filepath.Join(programs, name), Args: append([]string{"--kubeconfig=" + c.Kubeconfig(), "--v=2"}, flags...),
			Log: filepath.Join(dir, name+".log"), Ready: cluster.Started,
		})
		must(process.Start(t.Context()))
		t.Cleanup(func() {
			if err := process.Stop(); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("%s logged:\n%s", name, process.Tail(0))
			}
		})
		return process
	}
	start("controller", "--cluster-resource-namespace="+Namespace)
	m.cainjector = start("cainjector")
	return m
}

// CAInjector returns the process that writes authorities into webhook configurations.
func (m *CertManager) CAInjector() *cluster.Process { return m.cainjector }

// Client returns a client of cert-manager's objects for the cluster's administrator.
func (m *CertManager) Client() versioned.Interface { return m.client }
