package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
)

// certificateFlagsOf are those that a command line gives.
func certificateFlagsOf(t *testing.T, args ...string) *CertificateOptions {
	t.Helper()
	f, cmd := &CertificateOptions{}, &cobra.Command{}
	f.addFlags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	p := &problems{changed: f.changed}
	if f.validate(p, true); len(p.all) > 0 {
		t.Fatal(p.all)
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
			w := newWiring(&Options{CertificateOptions: *f}, &rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
			defer w.close()
			for _, add := range []func(context.Context) error{w.addConfiguration, w.addCertificateEvents, w.addRegistrations, w.addCertificates} {
				if err := add(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if read := w.called.reader != nil; read != (c.registrations != "") {
				t.Errorf("reads back: %v", read)
			}
			if writes := w.called.writer != nil; writes != c.published {
				t.Errorf("writes: %v", writes)
			}
			if ready := w.serving.ready(); (ready == nil) != (c.registrations == "" && c.name == "memory") {
				t.Errorf("ready: %v", ready)
			}
			ends := func(context.Context) error { return nil }
			if err := w.run(t.Context(), ends); err != nil {
				t.Error(err)
			}
		})
	}
}
