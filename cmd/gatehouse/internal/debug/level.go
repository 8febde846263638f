package debug

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

const (
	// DefaultFor is how long another level holds by default, so that it ends by itself.
	DefaultFor = 10 * time.Minute
	// ShortestFor is the shortest time for another level.
	ShortestFor = time.Second
	// LongestFor is the longest time for another level.
	LongestFor = 24 * time.Hour
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

// State is the level of a log, and how long it holds.
type State struct {
	// Level is the level now, and Base the level by default: two of Levels.
	Level string `json:"level"`
	Base  string `json:"base"`
	// Until is when Base holds again, as RFC 3339 in UTC. It is empty while it does.
	Until string `json:"until,omitempty"`
}

// Level changes the level of a log for a while. It is safe for concurrent use.
type Level struct {
	variable *slog.LevelVar
	base     slog.Level
	log      *slog.Logger

	mu    sync.Mutex
	until time.Time
	back  *time.Timer
}

// NewLevel returns a Level for the variable of a log. Its current level is the base.
func NewLevel(variable *slog.LevelVar, log *slog.Logger) *Level {
	return &Level{variable: variable, base: variable.Level(), log: log}
}

// State returns the current level.
func (l *Level) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state()
}

func (l *Level) state() State {
	s := State{Level: levelName(l.variable.Level()), Base: levelName(l.base)}
	if l.back != nil {
		s.Until = l.until.UTC().Format(time.RFC3339)
	}
	return s
}

// Set changes the level for some time. The base holds without end.
func (l *Level) Set(level slog.Level, duration time.Duration) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back != nil {
		l.back.Stop()
		l.back = nil
	}
	if level == l.base {
		l.change(level, "for", "good")
		return l.state()
	}
	l.until = time.Now().Add(duration)
	var back *time.Timer
	back = time.AfterFunc(duration, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.back == back { // it was not stopped too late
			l.back = nil
			l.change(l.base, "for", "good")
		}
	})
	l.back = back
	l.change(level, "for", duration.String())
	return l.state()
}

// change changes the level, and logs that at the one of the two that logs more.
func (l *Level) change(to slog.Level, attrs ...any) {
	from := l.variable.Level()
	l.variable.Set(min(from, to))
	l.log.Warn("log level", append([]any{"level", levelName(to), "before", levelName(from)}, attrs...)...)
	l.variable.Set(to)
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
