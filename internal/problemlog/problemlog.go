// Package problemlog logs a problem of background work once, and again when it is over, instead of at each attempt.
package problemlog

import (
	"log/slog"
	"sync"
)

// Log logs problems. It is safe for concurrent use.
type Log struct {
	log     *slog.Logger
	message string

	mu    sync.Mutex
	known map[string]string // the kind of each problem, by what fails
}

// New returns a Log whose lines have a message.
func New(log *slog.Logger, message string) *Log {
	return &Log{log: log, message: message, known: map[string]string{}}
}

// Report logs that something fails, unless it was logged and its kind is the same. The hint says
// what to do, and what depends on it.
func (l *Log) Report(what, kind, text, hint string) {
	l.mu.Lock()
	before, known := l.known[what]
	l.known[what] = kind
	l.mu.Unlock()
	if !known || before != kind {
		l.log.Warn(l.message, "error", text, "hint", hint)
	}
}

// Recover logs that something that failed works again.
func (l *Log) Recover(what string) {
	l.mu.Lock()
	_, known := l.known[what]
	delete(l.known, what)
	l.mu.Unlock()
	if known {
		l.log.Info(l.message, "recovered", what)
	}
}

// Retain forgets, without a line, the problems that a function returns false for.
func (l *Log) Retain(isRelevant func(what string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for what := range l.known {
		if !isRelevant(what) {
			delete(l.known, what)
		}
	}
}
