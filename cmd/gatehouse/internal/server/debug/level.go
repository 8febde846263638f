package debug

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Levels returns the names of levels, the one that logs most first.
func Levels() []string { return []string{"debug", "info", "warn", "error"} }

// DescribeLevels returns what a level must be, with a hint for what was given.
func DescribeLevels(given string) string {
	text := "one of " + strings.Join(Levels(), ", ")
	if near := diagnostic.DidYouMean(given, Levels()...); near != "" {
		text += " (hint: " + near + ")"
	}
	return text
}

// State is the level of a log, and the one with which serve was started: two of Levels.
type State struct {
	Level string `json:"level"`
	Base  string `json:"base"`
}

// Level changes the level of a log. It is safe for concurrent use.
type Level struct {
	variable *slog.LevelVar
	base     slog.Level
	log      *slog.Logger

	mu sync.Mutex
}

// NewLevel returns a Level for the variable of a log. Its current level is the base.
func NewLevel(variable *slog.LevelVar, log *slog.Logger) *Level {
	return &Level{variable: variable, base: variable.Level(), log: log}
}

// State returns the current level.
func (l *Level) State() State {
	return State{Level: levelName(l.variable.Level()), Base: levelName(l.base)}
}

// Set changes the level, and logs that at the one of the two that logs more.
func (l *Level) Set(to slog.Level) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.variable.Level()
	l.variable.Set(min(from, to))
	// Logged when somebody changes the log level with "gatehouse log-level".
	l.log.Warn("log level", "level", levelName(to), "before", levelName(from))
	l.variable.Set(to)
	return l.State()
}

func levelName(level slog.Level) string { return strings.ToLower(level.String()) }

// parseLevel parses one of Levels, in any case.
func parseLevel(text string) (slog.Level, bool) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(text, level.String()) {
			return level, true
		}
	}
	return 0, false
}
