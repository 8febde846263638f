package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

var shared cluster.Shared

// childVariable makes this test binary play one of the parts in children instead of running tests.
const childVariable = "CLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		os.Exit(cluster.RunInNamespace(children[name]))
	}
	os.Exit(cluster.RunInNamespace(m, shared.Stop))
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
		fmt.Println(os.Getpid(), c.Etcd().PID(), c.APIServer().PID(), c.Dir())
		select {}
	},
	// broken fails to start a control plane, for a reason that is found late.
	"broken": func() int {
		c, err := cluster.Start(context.Background(), cluster.Options{APIServerFlags: []string{"--no-such-flag"}})
		fmt.Println(c != nil, err)
		if err == nil {
			return 1
		}
		return 0
	},
	// report tells what arrived.
	"report": func() int {
		directory, err := os.Getwd()
		fmt.Println(cluster.Namespaced(), strings.Join(os.Args[1:], " "), directory, err)
		fmt.Fprintln(os.Stderr, cluster.ListenAddress())
		return 7
	},
	// signals waits for a signal and tells which.
	"signals": func() int {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
		fmt.Println("waiting")
		fmt.Println(<-signals)
		return 0
	},
	// suicide is ended by a signal.
	"suicide": func() int {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	},
}

// deadline bounds every wait in these tests, on a busy machine too.
const deadline = 30 * time.Second

// eventually waits for a condition that comes about by itself.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	end := time.Now().Add(deadline)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var errNotYet = errors.New("not yet")
