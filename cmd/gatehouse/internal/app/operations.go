package app

import (
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
	memoryRatio     float64

	// changed reports whether a flag was set on the command line.
	changed func(name string) bool
}

// addFlags adds the flags to a command.
func (f *OperationOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.changed = flags.Changed
	flags.BoolVar(&f.profiling, "profiling", false, "serve /debug/pprof/ on --ops-listen, only for callers on the same host, such as kubectl port-forward")
	flags.StringVar(&f.tracingEndpoint, "tracing-endpoint", "", "URL of a collector that receives traces of reviews with OTLP over HTTP; the default path is /v1/traces")
	flags.Float64Var(&f.tracingRatio, "tracing-sample-ratio", 0, "share of reviews to trace if the API server sends no trace with them, from 0 to 1; reviews with a sampled trace are always traced")
	flags.Float64Var(&f.memoryRatio, "memory-limit-ratio", 0.9, "share of the cgroup's memory limit that becomes Go's soft memory limit, from 0 to 1; 0 sets none; GOMEMLIMIT in the environment takes precedence")
}

// Validate returns all problems of the flags.
func (f *OperationOptions) Validate() []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if f.changed("tracing-endpoint") {
		if _, err := tracing.ParseEndpoint(f.tracingEndpoint); err != nil {
			problem("--tracing-endpoint: %w", err)
		}
	} else if f.changed("tracing-sample-ratio") {
		problem("--tracing-sample-ratio needs --tracing-endpoint")
	}
	for _, ratio := range []struct {
		flag  string
		value float64
	}{{"tracing-sample-ratio", f.tracingRatio}, {"memory-limit-ratio", f.memoryRatio}} {
		if math.IsNaN(ratio.value) || ratio.value < 0 || ratio.value > 1 {
			problem("--%s %g: must be from 0 to 1", ratio.flag, ratio.value)
		}
	}
	return problems
}

// tracer returns the tracer of reviews, nil without --tracing-endpoint. The replica is the
// name of this process, empty for that of the host.
func (f *OperationOptions) tracer(replica string, log *slog.Logger) (*tracing.Tracer, error) {
	if f.tracingEndpoint == "" {
		return nil, nil //nolint:nilnil // nothing is traced
	}
	endpoint, err := tracing.ParseEndpoint(f.tracingEndpoint)
	if err != nil {
		return nil, fmt.Errorf("--tracing-endpoint: %w", err)
	}
	log.Info("tracing enabled", "endpoint", endpoint.String(), "ratioWithoutTrace", f.tracingRatio)
	return tracing.New(tracing.Config{
		Endpoint: endpoint, Ratio: f.tracingRatio, Version: build.Version(), Instance: replicaName(replica), Log: log,
	}), nil
}

// Debug returns the handler of profiles, of the level of the log, which it sets through the
// variable, of the active configuration, and of the directory of the recording, "" for none.
func (f *OperationOptions) Debug(level *slog.LevelVar, log *slog.Logger, recording string, configuration func() *config.Config) http.Handler {
	return debug.Handler(debug.Options{Level: debug.NewLevel(level, log), Profiling: f.profiling, Recording: recording, Configuration: configuration})
}
