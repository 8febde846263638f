package monitoring

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
)

// The operator gives what a PodMonitor finds labels of its own, in place of Gatehouse's of the same names, which it calls
// exported_NAME: alerts and the dashboard would read the port's name for an endpoint. Each such label is dropped.
func TestMonitorsKeepLabels(t *testing.T) {
	t.Parallel()
	server := start(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // #nosec G402 -- who answers is not asked
	for _, path := range []string{"/mutate", "/validate", "/authenticate"} {                                   // each is counted once it was called
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+server.Reviews.String()+path, http.NoBody)
		must(t, err)
		response, err := client.Do(request)
		must(t, err)
		must(t, response.Body.Close())
	}
	_, exposed, err := server.Get(t.Context(), "/metrics")
	must(t, err)
	shared := 0
	for _, label := range []string{"container", "endpoint", "instance", "job", "namespace", "pod", "service"} {
		if !strings.Contains(exposed, "{"+label+`="`) && !strings.Contains(exposed, ","+label+`="`) {
			continue
		}
		shared++
		const path = "../../manifests/chart/gatehouse/templates/monitoring.yaml"
		if strings.Count(read(t, path), "\n    relabelings:\n    - action: labeldrop\n      regex: "+label+"\n") != 1 {
			t.Errorf("%s does not drop the operator's label %q", path, label)
		}
	}
	if shared == 0 {
		t.Error("Gatehouse and the operator have no label in common, so that nothing need be dropped")
	}
}
