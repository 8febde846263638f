package cluster

import (
	"os"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New starts a control plane for one test and stops it when the test ends. A failed test's output includes the end of
// the API server's log.
func New(t testing.TB, options Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := c.Stop()
		if err != nil {
			t.Error(err)
		}
	})
	c.LogOnFailure(t)
	return c
}

// Shared is one control plane for all tests of a package, started by the first that asks. The tests keep apart by
// namespaces, see [Cluster.NewNamespace]:
//
//	var shared cluster.Shared
//
//	func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m, shared.Stop)) }
//
//	func TestSomething(t *testing.T) { c := shared.Get(t); … }
type Shared struct {
	// Options are read at the first Get.
	Options Options

	once    sync.Once
	cluster *Cluster
	err     error
}

// Get returns the running control plane. A failed test's output includes what the API server logged during the test.
// After a failed start every test that asks fails.
func (s *Shared) Get(t testing.TB) *Cluster {
	t.Helper()
	s.once.Do(func() {
		s.cluster, s.err = Start(t.Context(), s.Options)
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	s.cluster.LogOnFailure(t)
	return s.cluster
}

// Stop stops the control plane if one was started: a cleanup for [RunInNamespace].
func (s *Shared) Stop() error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Stop()
}

// LogOnFailure adds what the API server logs from now on, or the end of that, to the test's output if the test fails.
func (c *Cluster) LogOnFailure(t testing.TB) {
	t.Helper()
	offset := 0
	info, err := os.Stat(c.apiServer.log)
	if err == nil {
		offset = int(info.Size())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s logged:\n%s", apiServerProgram, c.apiServer.Tail(offset))
		}
	})
}

// Minor returns the minor version of the API server, such as 37.
func (c *Cluster) Minor(t testing.TB) int {
	t.Helper()
	version, err := c.Client().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	minor, err := strconv.Atoi(version.Minor)
	if err != nil {
		t.Fatal(err)
	}
	return minor
}

// NewNamespace makes a namespace for one test with a name of its own, as [Cluster.CreateNamespace] does. It is not
// deleted afterwards: that is kube-controller-manager's work, and the whole control plane goes soon enough.
func (c *Cluster) NewNamespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	created, err := c.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	err = c.completeNamespace(t.Context(), created.Name)
	if err != nil {
		t.Fatal(err)
	}
	return created.Name
}
