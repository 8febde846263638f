package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/certmetrics"
)

// certificateFlagsOf are those that a command line gives.
func certificateFlagsOf(t *testing.T, args ...string) *CertificateOptions {
	t.Helper()
	f, cmd := &CertificateOptions{}, &cobra.Command{}
	f.addFlags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if problems := f.Validate(true); len(problems) > 0 {
		t.Fatal(problems)
	}
	return f
}

// What is read back does not depend on who writes it, and nothing is written where
// there is nothing.
func TestRegistrationsOfSources(t *testing.T) {
	t.Parallel()
	const (
		secret = "--self-signed=127.0.0.1 --self-signed-secret=a/b"
	)
	for _, c := range []struct {
		name, flags, registrations string
		published                  bool
	}{
		{"a Secret", secret, "gatehouse", true},
		{"a Secret, and others write", secret + " --publish-ca-bundle=false", "gatehouse", false},
		{"a Secret and a name", secret + " --registration=mine", "mine", true},
		{"a Secret and a name, and others write", secret + " --registration=mine --publish-ca-bundle=false", "mine", false},
		{"a Secret and no name", secret + " --registration=", "", false},
		{"a Secret and no name, and others write", secret + " --registration= --publish-ca-bundle=false", "", false},
		{"memory", "--self-signed=127.0.0.1", "", false},
		{"memory and a name", "--self-signed=127.0.0.1 --registration=mine", "mine", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := certificateFlagsOf(t, strings.Fields(c.flags)...)
			if got := strings.Join(f.registrationNames(), " "); got != c.registrations {
				t.Errorf("looks at %q, want %q", got, c.registrations)
			}
			log := slog.New(slog.DiscardHandler)
			ctx, cancel := context.WithCancel(t.Context())
			access := &rest.Config{Host: "https://127.0.0.1:1"}
			client, err := f.certificateClient(access)
			if err != nil {
				t.Fatal(err)
			}
			options := &Options{CertificateOptions: *f}
			called, err := options.registrations(access, client, nil, log)
			if err != nil {
				t.Fatal(err)
			}
			cs, err := f.certificates(ctx, client, called.trusted(), nil, certmetrics.New[string](prometheus.NewRegistry(), nil))
			if err != nil {
				t.Fatal(err)
			}
			if read := called.reader != nil; read != (c.registrations != "") {
				t.Errorf("reads back: %v", read)
			}
			if writes := called.writer != nil; writes != c.published {
				t.Errorf("writes: %v", writes)
			}
			if ready := cs.ready(); (ready == nil) != (c.registrations == "" && c.name == "memory") {
				t.Errorf("ready: %v", ready)
			}
			group := &errgroup.Group{}
			cs.run(ctx, group)
			called.run(ctx, group, cs, f.publishesBundles(), nil)
			cancel()
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
