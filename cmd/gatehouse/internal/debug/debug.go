// Package debug answers, beside health and metrics, what is for the operator alone
// while a process runs: profiles of it, and the level of its log.
package debug

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"
)

const (
	// LevelPath is where the level of the log is read and changed.
	LevelPath = "/log-level"
	// profilesPath is where net/http/pprof wants to be, and go tool pprof looks.
	profilesPath = "/debug/pprof/"
	// maxBody bounds what asks for another level, in bytes.
	maxBody = 1 << 10
)

// Options say what is answered.
type Options struct {
	// Level is what LevelPath reads and changes. Required.
	Level *Level
	// Profiling answers /debug/pprof/ too.
	Profiling bool
}

// Handler answers GET and PUT of LevelPath, and the profiles of net/http/pprof
// below /debug/pprof/. Whoever is not on the same host hears 403: these can slow a
// process down, and there is nothing by which to tell who asks. kubectl exec and
// kubectl port-forward come from the pod's own loopback address.
//
// Importing net/http/pprof registers handlers with http.DefaultServeMux, which
// nothing serves here.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(LevelPath, o.Level.serve)
	if o.Profiling {
		mux.HandleFunc(profilesPath, pprof.Index)
		mux.HandleFunc(profilesPath+"cmdline", pprof.Cmdline)
		mux.HandleFunc(profilesPath+"profile", pprof.Profile)
		mux.HandleFunc(profilesPath+"symbol", pprof.Symbol)
		mux.HandleFunc(profilesPath+"trace", pprof.Trace)
	} else {
		mux.HandleFunc("/debug/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "there are no profiles (hint: gatehouse serve --profiling)", http.StatusNotFound)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.RemoteAddr) {
			http.Error(w, "this is answered on the same host only (hint: kubectl exec, or kubectl port-forward and localhost)", http.StatusForbidden)
			return
		}
		// A page in a browser can have its own name resolve to 127.0.0.1, and so reach
		// what somebody has forwarded to themselves.
		if r.Host != "localhost" && !strings.HasPrefix(r.Host, "localhost:") && !isLoopback(r.Host) {
			http.Error(w, fmt.Sprintf("host %.100q: must be localhost or 127.0.0.1, with a port", r.Host), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isLoopback tells whether an address, with a port or without, is of this host.
func isLoopback(address string) bool {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(strings.Trim(address, "[]"))
	return err == nil && ip.IsLoopback()
}

// Change is what a PUT of LevelPath asks for.
type Change struct {
	// Level is one of Levels.
	Level string `json:"level"`
	// For is a duration, as 30m. Nothing stands for DefaultFor.
	For string `json:"for,omitempty"`
}

func (l *Level) serve(w http.ResponseWriter, r *http.Request) {
	state := l.State
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			status := http.StatusBadRequest
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, fmt.Sprintf("the body cannot be read: it must be complete, and have at most %d bytes", maxBody), status)
			return
		}
		change, err := parseChange(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		state = func() State { return l.Set(change.level, change.lasts) }
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		http.Error(w, "only GET and PUT are answered here", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(state()); err != nil {
		return // The caller has gone away, and hears nothing.
	}
}

// change is a Change that can be made.
type change struct {
	level slog.Level
	lasts time.Duration
}

// parseChange reads a Change as JSON, or as text: LEVEL, or LEVEL FOR.
func parseChange(body []byte) (change, error) {
	var asked Change
	if trimmed := bytes.TrimSpace(body); bytes.HasPrefix(trimmed, []byte("{")) {
		decoder := json.NewDecoder(bytes.NewReader(trimmed))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&asked); err != nil {
			return change{}, errors.New(`the body cannot be read (hint: {"level":"debug","for":"10m"})`)
		}
		if decoder.More() {
			return change{}, errors.New("there is more behind the JSON object")
		}
	} else {
		words := strings.Fields(string(trimmed))
		if len(words) > 2 {
			return change{}, errors.New("the body has more than two words (hint: debug 10m)")
		}
		words = append(words, "", "")
		asked = Change{Level: words[0], For: words[1]}
	}
	return asked.parse()
}

func (c Change) parse() (change, error) {
	level, known := parseLevel(c.Level)
	if !known {
		return change{}, fmt.Errorf("level %.100q: must be %s", c.Level, strings.Join(Levels(), ", "))
	}
	lasts := DefaultFor
	if c.For != "" {
		var err error
		if lasts, err = time.ParseDuration(c.For); err != nil || lasts < ShortestFor || lasts > LongestFor {
			return change{}, fmt.Errorf("for %.100q: must be a time from %s to %s (hint: 10m)", c.For, ShortestFor, LongestFor)
		}
	}
	return change{level, lasts}, nil
}
