// Package serve has the commands of the server: serve and log-level.
package serve

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/app"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/debug"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
)

func NewCommand(s cli.Streams) *cobra.Command {
	var f app.Options
	cmd := &cobra.Command{
		Use:   "serve [--config DIR] [--custom-resources]",
		Short: "Answer the API server's webhooks",
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
	flags := cmd.Flags()
	flags.StringVar(&f.Config, "config", "", "directory of documents (required without --custom-resources)")
	flags.StringVar(&f.OnEmptiedFile, "on-emptied-file", app.EmptiedFileWarn, "what to do when a file of --config is still there and has lost all its documents: warn (use the rest) or refuse (keep the configuration in use)")
	flags.BoolVar(&f.CustomResources, "custom-resources", false, "use the custom resources of the cluster as documents too: SidecarProfiles, AdmissionPolicies and their bindings, PolicyExceptions, AccessTokens and TokenRevocations")
	flags.StringVar(&f.Namespace, "namespace", "", "namespace that this runs in, with --custom-resources (default: that of the service account, else "+install.DefaultNamespace+")")
	flags.DurationVar(&f.CountPods, "count-pods-every", 0, "how long after one count of the pods that profiles match the next one begins, such as 5m, for the status of SidecarProfiles, with --custom-resources; it takes the right to list pods in all namespaces (default: no counts)")
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file; its current context is the cluster in which policies and profiles look things up")
	flags.BoolVar(&f.InCluster, "in-cluster", false, "look things up in the cluster of the pod that this runs in, as its service account")
	flags.StringVar(&f.Listen, "listen", app.DefaultListen, "address for reviews")
	flags.StringVar(&f.OpsListen, "ops-listen", app.DefaultOpsListen, "address for health and metrics")
	app.AddCertificateFlags(&f.CertificateOptions, cmd)
	app.AddOperationFlags(&f.Operations, cmd)
	flags.StringVar(&f.TlsMinVersion, "tls-min-version", "1.3", "lowest TLS version: 1.3 or 1.2")
	flags.BoolVar(&f.Audit, "audit-authentication", false, "log every token review at level info, also those that end in a yes: who, by which source, which token's id")
	flags.StringVar(&f.StateDir, "state-dir", "", "directory to keep in when access tokens were last used; without it nobody knows, but for custom resources, whose status tells")
	flags.Int64Var(&f.InFlight, "max-in-flight-bytes", 0, "bytes that reviews in progress, and decoding them, may take in memory at one time, more than 33554432; more reviews are shed (default: what the memory limit leaves, 128 MiB without one)")
	flags.IntVar(&f.Connections, "max-connections", 0, "connections without a client certificate that may be open at one time, at least 16 (default: what the memory limit and that of open files leave, at most 2048)")
	flags.DurationVar(&f.DrainDelay, "drain-delay", 15*time.Second, "how long to go on answering after SIGTERM")
	flags.StringVar(&f.LogLevel, "log-level", "info", "lowest level that is logged: debug (every review), info (denials, and what exceptions let pass), warn or error")
	flags.StringVar(&f.LogFormat, "log-format", "json", "json or text")
	for name, values := range map[string][]string{
		"tls-min-version": {"1.3", "1.2"},
		"on-emptied-file": {app.EmptiedFileWarn, app.EmptiedFileRefuse},
		"log-level":       debug.Levels(),
		"log-format":      {"json", "text"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flags exist
	}
	for _, name := range []string{"namespace", "count-pods-every", "listen", "ops-listen", "max-in-flight-bytes", "max-connections", "drain-delay"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	_ = cmd.MarkFlagFilename("kubeconfig")
	for _, name := range []string{"config", "state-dir"} {
		_ = cmd.MarkFlagDirname(name)
	}
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
