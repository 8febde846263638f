// Package debug serves profiles of the process, the level of its log, and its recording, to callers on the same host.
package debug

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/jsonout"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const (
	// LevelPath is the path of the level of the log.
	LevelPath = "/log-level"
	// ConfigurationPath is the path of the documents of the server's own directory that decide about objects, as YAML.
	ConfigurationPath = "/debug/configuration"
	// profilesPath is the path that net/http/pprof and go tool pprof require.
	profilesPath = "/debug/pprof/"
	// maxBody bounds the body of a request for another level, in bytes.
	maxBody = 1 << 10
)

// Options configure a Handler.
type Options struct {
	// Level is the level of LevelPath. Required.
	Level *Level
	// Profiling enables /debug/pprof/.
	Profiling bool
	// Recording is the directory of the recording, "" if none is written.
	Recording string
	// Configuration returns Own of the active configuration, nil before one is active. Required.
	Configuration func() *config.Config
}

// Handler answers GET and PUT of LevelPath, the profiles of net/http/pprof below
// /debug/pprof/, ConfigurationPath, and the recording at and below RecordingPath. Callers from another host get
// 403: these requests can slow down the process and read what users have sent, and callers are
// not authenticated. kubectl exec and kubectl port-forward come from the pod's own loopback
// address.
//
// Importing net/http/pprof registers handlers with http.DefaultServeMux, which
// nothing serves here.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(LevelPath, o.Level.serve)
	mux.HandleFunc(ConfigurationPath, serveConfiguration(o.Configuration))
	if o.Profiling {
		mux.HandleFunc(profilesPath, pprof.Index)
		mux.HandleFunc(profilesPath+"cmdline", pprof.Cmdline)
		mux.HandleFunc(profilesPath+"profile", pprof.Profile)
		mux.HandleFunc(profilesPath+"symbol", pprof.Symbol)
		mux.HandleFunc(profilesPath+"trace", pprof.Trace)
	} else {
		mux.HandleFunc("/debug/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "profiling is off (hint: gatehouse serve --profiling)", http.StatusNotFound)
		})
	}
	if o.Recording != "" {
		mux.HandleFunc(RecordingPath, recording{o.Recording}.list)
		mux.HandleFunc(RecordingPath+"/{name}", recording{o.Recording}.file)
	} else {
		off := func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "recording is off (hint: gatehouse serve --record DIR)", http.StatusNotFound)
		}
		mux.HandleFunc(RecordingPath, off)
		mux.HandleFunc(RecordingPath+"/", off)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.RemoteAddr) {
			http.Error(w, "only callers on the same host are allowed (hint: kubectl exec, or kubectl port-forward and localhost)", http.StatusForbidden)
			return
		}
		// DNS rebinding: the name of a page in a browser can resolve to 127.0.0.1, and so
		// reach a forwarded port.
		if r.Host != "localhost" && !strings.HasPrefix(r.Host, "localhost:") && !isLoopback(r.Host) {
			http.Error(w, fmt.Sprintf("host %.100q: must be localhost or 127.0.0.1, with a port", r.Host), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isLoopback reports whether an address, with a port or without, is of this host.
func isLoopback(address string) bool {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(strings.Trim(address, "[]"))
	return err == nil && ip.IsLoopback()
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
		level, known := parseLevel(strings.TrimSpace(string(body)))
		if !known {
			http.Error(w, fmt.Sprintf("level %.100q: must be %s", body, strings.Join(Levels(), ", ")), http.StatusBadRequest)
			return
		}
		state = func() State { return l.Set(level) }
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		http.Error(w, "only GET and PUT are allowed", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := jsonout.Encode(w, "", state()); err != nil {
		return // the caller has closed the connection
	}
}

// serveConfiguration answers ConfigurationPath.
func serveConfiguration(active func() *config.Config) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isRead(w, r) {
			return
		}
		c := active()
		if c == nil {
			http.Error(w, "no configuration is active yet", http.StatusServiceUnavailable)
			return
		}
		text, err := c.Encode(func([]byte) []byte { return nil }) // there is no Secret in it
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(text) // the caller may have closed the connection
	}
}
