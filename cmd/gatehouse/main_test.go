package main

import (
	"net"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

func TestMain(m *testing.M) {
	support.CleanEnvironment()
	testscript.Main(m, map[string]func(){"gatehouse": main, "kubectl-gatehouse": main})
}

// TestScripts runs the scenarios in testdata/script, each a story of the real
// command with its output.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("UPDATE_GOLDEN") != "",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			var listening net.ListenConfig
			taken, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = taken.Close() })
			env.Setenv("GATEHOUSE_TOKEN_STORE", "file")        // not the keyring of whoever runs the tests
			env.Setenv("TAKEN_ADDRESS", taken.Addr().String()) // for a server that cannot have it
			return nil
		},
	})
}
