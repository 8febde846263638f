package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// childVariable makes this test binary play one of the parts in children instead of running tests.
const childVariable = "CLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		os.Exit(cluster.RunInNamespace(children[name]))
	}
	os.Exit(cluster.RunInNamespace(m))
}

// child is what a child process does in the place of tests.
type child func() int

func (c child) Run() int { return c() }

var children = map[string]child{
	// cluster runs a control plane until it is killed.
	"cluster": func() int {
		c, err := cluster.Start(context.Background(), cluster.Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(os.Getpid(), c.Etcd().PID(), c.APIServer().PID())
		select {}
	},
	// report tells what arrived.
	"report": func() int {
		directory, err := os.Getwd()
		fmt.Println(cluster.Namespaced(), strings.Join(os.Args[1:], " "), directory, err)
		fmt.Fprintln(os.Stderr, cluster.ListenAddress())
		return 7
	},
}

var errNotYet = errors.New("not yet")
