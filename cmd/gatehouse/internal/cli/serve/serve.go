// Package serve has the commands of the server: serve and log-level.
package serve

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/app"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// NewCommand returns the command "gatehouse serve".
func NewCommand(s cli.Streams) *cobra.Command {
	var f app.Options
	cmd := &cobra.Command{
		Use:   "serve [--config DIR] [--custom-resources]",
		Short: "Run the webhook server",
		Long: `Serve answers token reviews on /authenticate and admission reviews on /mutate
and /validate, with TLS, from the documents in a directory, and people on /login
and /whoami, who need no client certificate. Changes in the
directory are picked up without a restart, whole or not at all: a broken
configuration never replaces a working one. A directory that loses all its
documents is broken, too. If a file loses all of its documents, the log warns and
the rest is used; with --on-emptied-file refuse the configuration in use stays.
Delete a file to remove what is in it.

At the start there is no working one. Documents with errors then make the
command print every finding and exit with 2. Policies with expressions that do
not compile do not, because every other gate would be open, or everything
refused: for what they match, their failurePolicy decides, exceptions with
errors let nothing pass, and /readyz says ok. The log says so every ten minutes,
and gatehouse_config_last_load_successful in the metrics is 0.

With --kubeconfig or --in-cluster, what the documents look up comes from the
cluster: namespaces, params and presets are watched, those that the documents
name and no others, and the authorizer of policies asks the API server.
Namespaces and other objects in the directory are then not looked at.

With --custom-resources those of Gatehouse in the cluster are documents too,
beside a directory or without one. They come and go by kubectl apply, and their
status tells what became of them: one with errors keeps no other from use. The
directory may then be empty at the start.

The serving certificate comes from files that somebody else renews (--tls-cert),
from a CA of its own (--self-signed) that replicas share in a Secret or that is
kept in a directory, or from cert-manager (--cert-manager). With --registration
it is ready only once the API server can trust the certificate, by what is read
back from the webhook configurations; with --publish-ca-bundle it writes their
caBundle itself, and no call fails while one CA follows another. On a
full or read-only disk it starts if the CA can be read: the log says what cannot
be written.

Health and metrics are on a second listener, without TLS: /livez, /readyz and
/metrics. It has /log-level too, and with --profiling /debug/pprof/, for callers
on the same host alone.

SIGTERM drains: the server reports unready, closes each connection behind its
answer, goes on answering for the drain delay, and then stops.

Exit codes: 0 stopped by a signal, 2 it cannot serve: bad usage, a configuration
or a certificate that cannot be used, or an address that is taken.`,
		Example: `  # with a certificate that somebody else renews
  gatehouse serve --config /etc/gatehouse --tls-cert tls.crt --tls-key tls.key --client-ca client-ca.crt

  # on one machine, with a certificate of its own; the CA and a client
  # certificate for the API server are written to ./gatehouse-certs
  gatehouse serve --config ./config --listen 127.0.0.1:9443 --self-signed 127.0.0.1 --self-signed-dir ./gatehouse-certs

  # in a pod, one of several replicas, with a CA that they share in a Secret and
  # keep in the webhook configurations "gatehouse"
  gatehouse serve --config /etc/gatehouse --in-cluster --self-signed gatehouse.gatehouse-system.svc \
    --self-signed-secret gatehouse-system/gatehouse-ca --client-ca client-ca.crt

  # the same, with custom resources and no directory
  gatehouse serve --custom-resources --in-cluster --self-signed gatehouse.gatehouse-system.svc \
    --self-signed-secret gatehouse-system/gatehouse-ca --client-ca client-ca.crt

  # in a pod, with a certificate that cert-manager issues
  gatehouse serve --config /etc/gatehouse --in-cluster --cert-manager gatehouse-system/gatehouse --client-ca client-ca.crt`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.Validate(); err != nil {
				return err
			}
			return app.Run(cmd.Context(), &f, logger(&f, s))
		},
	}
	f.AddFlags(cmd)
	return cmd
}

// logger returns the log of the server, as the flags say.
func logger(f *app.Options, s cli.Streams) *slog.Logger {
	_ = f.Level.UnmarshalText([]byte(f.LogLevel)) // checked with the flags
	o := &slog.HandlerOptions{Level: &f.Level}
	if f.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(s.Err, o))
	}
	return slog.New(slog.NewJSONHandler(s.Err, o))
}
