// Package clitest runs commands in tests: in the process, or as the program "gatehouse" in a process of its own.
package clitest

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// Main is the TestMain of a package whose tests run the program "gatehouse", which then has these commands alone. Call support.CleanEnvironment before it.
func Main(m *testing.M, commands ...func(cli.Streams) *cobra.Command) {
	testscript.Main(m, map[string]func(){"gatehouse": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := cli.Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, commands...)
		stop()
		os.Exit(code)
	}})
}

// Result is what a run printed, and its exit code.
type Result struct {
	Code     int
	Out, Err string
}

// Run runs one of the commands in this process, with stdin as its input.
func Run(ctx context.Context, stdin string, args []string, commands ...func(cli.Streams) *cobra.Command) Result {
	var out, remarks bytes.Buffer
	code := cli.Run(ctx, args, cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &remarks}, commands...)
	return Result{code, out.String(), remarks.String()}
}

// CIToken is an access token, and CIDocument the document of it: issued from a Counter at noon of 2026-11-20, for a
// day.
const (
	CIToken    = "gatehouse_ci_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyyxyccrrq"
	CIDocument = `apiVersion: gatehouse.dev/v1alpha1
kind: AccessToken
metadata:
  creationTimestamp: "2026-11-20T12:00:00Z"
  name: ci
spec:
  expiresAt: "2026-11-21T12:00:00Z"
  sha256: ff158ae576e77fc40c3eb48c6af07920eaf32c4a4a0f1e119df0207f1e181a6e
  user:
    username: jane
`
)
