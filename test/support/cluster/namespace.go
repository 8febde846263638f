package cluster

import (
	"fmt"
	"os"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// ServiceAddress is the address in the network namespace at which webhooks under test listen. It stands for a pod's
// address: a Service's endpoint must not be a loopback address. All of 192.0.2.0/24, a range reserved for
// documentation, is usable there, so that several replicas can have an address each.
const ServiceAddress = "192.0.2.10"

// NamespaceVariable is the environment variable that reports whether this process runs in a network namespace made by
// [RunInNamespace]. Set to "off" by a person, it makes tests run in place.
const NamespaceVariable = "GATEHOUSE_TEST_NAMESPACE"

// The values of NamespaceVariable.
const (
	namespaceOff    = "off"
	namespaceEnter  = "enter"
	namespaceInside = "inside"
)

const loopbackAddress = "127.0.0.1"

// Namespaced reports whether this process runs in a network namespace of its own, where [ServiceAddress] works.
func Namespaced() bool {
	return os.Getenv(NamespaceVariable) == namespaceInside
}

// ListenAddress returns where a webhook under test listens so that the API server reaches it: [ServiceAddress] in the
// namespace, else a loopback address.
func ListenAddress() string {
	if Namespaced() {
		return ServiceAddress
	}
	return loopbackAddress
}

// RunInNamespace runs a package's tests in a network namespace of its own and returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m)) }
//
// Everything that the tests start lives in there: no port clashes with one of the host's, nothing reaches another
// machine, and [ServiceAddress] is theirs. The test program runs itself again for that, with the same arguments,
// streams and working directory; signals go on to it, its exit code comes back, and it dies with its parent.
//
// Where no namespace can be made, the tests run in place, standard error says why, and [Namespaced] tells the tests.
//
// The tests get [support.CleanEnvironment].
//
// The cleanups run after the tests, in the process that ran them. An error of theirs makes the exit code 1.
func RunInNamespace(m interface{ Run() int }, cleanups ...func() error) int {
	support.CleanEnvironment()
	code, done := enterNamespace()
	if done {
		return code
	}
	code = m.Run()
	for _, cleanup := range cleanups {
		err := cleanup()
		if err == nil {
			continue
		}
		fmt.Fprintln(os.Stderr, "cluster: clean up:", err)
		if code == 0 {
			code = 1
		}
	}
	return code
}
