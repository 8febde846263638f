package cluster

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// What libraries say is logged at the level debug, and what they say of requests
// and answers, which may hold secrets, never.
func TestLibrariesAreQuiet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		level slog.Level
		want  string
	}{
		{slog.LevelDebug, "level=DEBUG msg=told a.b=c\nlevel=DEBUG msg=failed a.b=c\n"},
		{slog.LevelDebug - 8, "level=DEBUG msg=told a.b=c\nlevel=DEBUG msg=failed a.b=c\n"},
		{slog.LevelInfo, ""},
	} {
		var text strings.Builder
		handler := slog.NewTextHandler(&text, &slog.HandlerOptions{Level: test.level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		log := logr.FromSlogHandler(quiet{handler}.WithGroup("a").WithAttrs([]slog.Attr{slog.String("b", "c")}))
		log.Info("told")
		log.Error(nil, "failed")
		for v := 1; v <= 10; v++ {
			log.V(v).Info("Response Body", "body", "secret")
		}
		if got := text.String(); got != test.want {
			t.Errorf("at %s: got %q, want %q", test.level, got, test.want)
		}
	}
}
