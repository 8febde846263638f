package debug

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// ConfigurationPath is the path of the documents of the server's own directory that decide about objects, as YAML.
const ConfigurationPath = "/debug/configuration"

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
