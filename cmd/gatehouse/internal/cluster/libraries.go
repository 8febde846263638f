package cluster

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// LogLibraries makes the libraries that this package uses, which write to
// standard error in a form of their own, write to a log at its lowest level:
// what they have to say that matters is logged by this package, and once. It
// holds for the whole process and is called before anything else.
func LogLibraries(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(quiet{log.Handler()}))
}

// quiet lowers everything to the level debug, and drops what was below info
// before: at their most talkative, these libraries write down whole objects,
// Secrets among them.
type quiet struct{ slog.Handler }

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && q.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler. Errors come without having been asked for.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if !q.Enabled(ctx, r.Level) {
		return nil
	}
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
