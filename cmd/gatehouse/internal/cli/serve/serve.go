// Package serve has the commands of the server: serve and log-level.
package serve

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/app"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/internal/jsonout"
)

// NewCommand returns the command "gatehouse serve".
func NewCommand(s cli.Streams) *cobra.Command {
	var f app.Options
	cmd := &cobra.Command{
		Use:   "serve [--config DIR] [--custom-resources]",
		Short: "Run the webhook server",
		Long: `Serve answers token reviews on /authenticate and admission reviews on /mutate and
/validate over TLS, by the documents in a directory. It also answers users on /login
and /whoami, who need no client certificate.

Serve activates changes in the directory without a restart, as a whole or not at
all: an invalid configuration never replaces a valid one. A directory that loses all
its documents is invalid. If a file loses all its documents, serve logs a warning and
uses the rest; with --on-emptied-file refuse it keeps the active configuration.

At the start there is no configuration to keep. Serve then prints all errors in the
documents and exits with 2. Errors in the expressions of policies do not prevent the
start: the failurePolicy of the policy decides about the objects that it matches,
exceptions with errors exempt nothing, and /readyz reports ok. The log repeats the
errors every ten minutes, and the metric gatehouse_config_last_load_successful is 0.

With --kubeconfig or --in-cluster, serve reads the objects that documents refer to
from the cluster: it watches the namespaces, params and presets that the documents
name, and the authorizer of policies asks the API server. Serve then ignores
namespaces and other objects in the directory.

With --custom-resources, serve also uses the custom resources of Gatehouse in the
cluster, with or without a directory. You change them with kubectl apply, and their
status shows the result: an invalid one does not affect the others. The directory may
then be empty at the start.

The serving certificate comes from files (--tls-cert), such as a mounted Secret of
cert-manager, or from a CA of Gatehouse's own (--self-signed), which replicas share in a
Secret or which is stored in a directory. With --registration, the server becomes ready
when the webhook configurations trust its certificate. With --publish-ca-bundle it
writes their caBundle itself, and no call fails during a rotation of the CA. If the
disk is full or read-only, it starts if it can read the CA, and logs what it cannot
write.

With --record, serve writes the reviews that it answers, with the answers and what they
depended on, to a directory: 'gatehouse replay' decides them again by another
configuration. Reviews never wait for the disk. Values of Secrets, of environment
variables and others are replaced by a mark, and tokens are not recorded.

Health and metrics are on a second listener without TLS: /livez, /readyz and
/metrics. /readyz?verbose also shows whether reviews can be recorded. On the same host, it also answers /log-level, and /debug/pprof/ with
--profiling.

On SIGTERM, the server reports that it is not ready, closes each connection after its
answer, answers for the drain delay, and stops.

Exit codes: 0 stopped by a signal, 2 it cannot serve: wrong usage, an invalid
configuration or certificate, or an address that is in use.`,
		Example: `  # with a certificate from files, which serve reads again when they change
  gatehouse serve --config /etc/gatehouse --tls-cert tls.crt --tls-key tls.key --client-ca client-ca.crt

  # on one machine, with its own CA; serve writes the CA and a client certificate
  # for the API server to ./gatehouse-certs
  gatehouse serve --config ./config --listen 127.0.0.1:9443 --self-signed 127.0.0.1 --self-signed-dir ./gatehouse-certs

  # in a pod, as one of several replicas, which share a CA in a Secret and publish
  # it in the webhook configurations "gatehouse"
  gatehouse serve --config /etc/gatehouse --in-cluster --self-signed gatehouse.gatehouse-system.svc \
    --self-signed-secret gatehouse-system/gatehouse-ca --client-ca client-ca.crt

  # the same, with custom resources and no directory
  gatehouse serve --custom-resources --in-cluster --self-signed gatehouse.gatehouse-system.svc \
    --self-signed-secret gatehouse-system/gatehouse-ca --client-ca client-ca.crt

  # in a pod, with a certificate that cert-manager issues
  gatehouse serve --config /etc/gatehouse --in-cluster --tls-cert /etc/gatehouse-tls/tls.crt \
    --tls-key /etc/gatehouse-tls/tls.key --registration gatehouse --client-ca client-ca.crt

  # record reviews for 'gatehouse replay', up to 5 GiB of the last two weeks
  gatehouse serve --config ./config --self-signed 127.0.0.1 --record ./recording \
    --record-max-bytes 5Gi --record-max-age 14d`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.Validate(); err != nil {
				return err
			}
			return app.Run(cmd.Context(), &f, logger(&f, s))
		},
	}
	f.AddFlags(cmd)
	cli.GroupFlags(cmd,
		cli.FlagGroup{Title: "Configuration", Flags: []string{"config", "on-emptied-file", "custom-resources"}},
		cli.FlagGroup{Title: "Cluster", Flags: []string{"in-cluster", "kubeconfig", "namespace", "replica", "registration", "manage-registration"}},
		cli.FlagGroup{Title: "Certificate", Flags: []string{"tls-cert", "tls-key", "tls-min-version", "self-signed", "self-signed-secret", "self-signed-dir", "publish-ca-bundle", "rotation-hold"}},
		cli.FlagGroup{Title: "Caller and login", Flags: []string{"client-ca", "require-client-certificate", "audit-authentication", "back-channel-logout"}},
		cli.FlagGroup{Title: "Address and limit", Flags: []string{"listen", "ops-listen", "max-in-flight-bytes", "max-connections", "drain-delay"}},
		cli.FlagGroup{Title: "Recording", Flags: []string{"record", "record-config", "record-max-age", "record-max-bytes"}},
		cli.FlagGroup{Title: "Audit", Flags: []string{"audit-every", "audit-exclude-namespace", "audit-qps"}},
		cli.FlagGroup{Title: "Log, trace and profile", Flags: []string{"log-level", "log-format", "profiling", "tracing-endpoint", "tracing-sample-ratio"}},
	)
	return cmd
}

// logger returns the log of the server, as the flags say.
func logger(f *app.Options, s cli.Streams) *slog.Logger {
	_ = f.Level.UnmarshalText([]byte(f.LogLevel)) // checked with the flags
	o := &slog.HandlerOptions{Level: &f.Level}
	if f.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(s.Err, o))
	}
	return slog.New(slog.NewJSONHandler(jsonout.NewWriter(s.Err), o))
}
