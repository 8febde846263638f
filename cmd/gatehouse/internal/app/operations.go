package app

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry/tracing"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// OperationOptions are the flags of serve about debugging, tracing and memory.
type OperationOptions struct {
	profiling       bool
	tracingEndpoint string
	tracingRatio    float64
}

// addFlags adds the flags to a command.
func (f *OperationOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.profiling, "profiling", false, "serve /debug/pprof/ on --ops-listen, only for callers on the same host, such as kubectl port-forward")
	flags.StringVar(&f.tracingEndpoint, "tracing-endpoint", "", "URL of a collector that receives traces of reviews with OTLP over HTTP; the default path is /v1/traces")
	flags.Float64Var(&f.tracingRatio, "tracing-sample-ratio", 0, "share of reviews to trace if the API server sends no trace with them, from 0 to 1; reviews with a sampled trace are always traced")
}

// validate adds the problems of the flags.
func (f *OperationOptions) validate(p *problems) {
	if p.changed("tracing-endpoint") {
		if _, err := tracing.ParseEndpoint(f.tracingEndpoint); err != nil {
			p.add("--tracing-endpoint: %w", err)
		}
	}
	p.needs(p.changed("tracing-endpoint"), "--tracing-endpoint", "tracing-sample-ratio")
	if r := f.tracingRatio; math.IsNaN(r) || r < 0 || r > 1 {
		p.add("--tracing-sample-ratio %g: must be from 0 to 1", r)
	}
}

// addTracing adds the tracer of reviews.
func (w *wiring) addTracing(context.Context) error {
	f := &w.Operations
	if f.tracingEndpoint == "" {
		return nil
	}
	endpoint, err := tracing.ParseEndpoint(f.tracingEndpoint)
	if err != nil {
		return fmt.Errorf("--tracing-endpoint: %w", err)
	}
	// Logged when serve starts with --tracing-endpoint.
	w.log.Info("tracing enabled", "endpoint", endpoint.String(), "ratioWithoutTrace", f.tracingRatio)
	tracer := tracing.New(tracing.Config{
		Endpoint: endpoint, Ratio: f.tracingRatio, Version: build.Version(), Instance: replicaName(w.replica), Log: w.log,
	})
	w.add(part{metrics: tracer, run: endless(tracer.Run), observe: tracer.Review})
	return nil
}

// Debug returns the handler of profiles, of the level of the log, which it sets through the
// variable, of the active configuration, and of the directory of the recording, "" for none.
func (f *OperationOptions) Debug(level *slog.LevelVar, log *slog.Logger, recording string, configuration func() *config.Config) http.Handler {
	return debug.Handler(debug.Options{Level: debug.NewLevel(level, log), Profiling: f.profiling, Recording: recording, Configuration: configuration})
}
