package auditlog

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// event is an event of audit.k8s.io/v1, as far as it is read.
type event struct {
	id, stage, level, verb string
	uri                    *url.URL
	// user is the user as whom the request was made: the impersonated one, if there is one.
	user rawjson.Value
	// at is when the request was received.
	at       time.Time
	code     string
	resource struct{ group, version, name, subresource string }
	// namespace and name are those of the object, as far as the URL has them.
	namespace, name   string
	request, response rawjson.Value
}

// parseEvent reads an event. The error says why it is none.
func parseEvent(v rawjson.Value) (*event, error) {
	if v.Kind() != rawjson.Object {
		return nil, fmt.Errorf("is %s, and no audit event", v.Kind())
	}
	if kind, version := v.Get("kind").Text(), v.Get("apiVersion").Text(); kind != "Event" || version != "audit.k8s.io/v1" {
		return nil, fmt.Errorf("is no audit event: it has kind %q and apiVersion %q, and not Event and audit.k8s.io/v1", truncate.Runes(kind, 60), truncate.Runes(version, 60))
	}
	e := new(event)
	received := ""
	for name, v := range v.Members() {
		switch {
		case name.Is("auditID"):
			e.id = v.Text()
		case name.Is("stage"):
			e.stage = v.Text()
		case name.Is("level"):
			e.level = v.Text()
		case name.Is("verb"):
			e.verb = v.Text()
		case name.Is("requestURI"):
			e.uri, _ = url.Parse(v.Text()) // without one, there are no options
		case name.Is("user") && e.user == nil, name.Is("impersonatedUser") && v.Kind() == rawjson.Object:
			e.user = v
		case name.Is("requestReceivedTimestamp"):
			received = v.Text()
		case name.Is("responseStatus"):
			e.code = string(v.Get("code"))
		case name.Is("objectRef"):
			e.resource.group, e.resource.version = v.Get("apiGroup").Text(), v.Get("apiVersion").Text()
			e.resource.name, e.resource.subresource = v.Get("resource").Text(), v.Get("subresource").Text()
			e.namespace, e.name = v.Get("namespace").Text(), v.Get("name").Text()
		case name.Is("requestObject"):
			e.request = v
		case name.Is("responseObject"):
			e.response = v
		}
	}
	var err error
	if e.at, err = time.Parse(time.RFC3339Nano, received); err != nil {
		return nil, fmt.Errorf("is no audit event: requestReceivedTimestamp %q is no time", truncate.Runes(received, 60))
	}
	return e, nil
}

// query returns the parameters of the request.
func (e *event) query() url.Values {
	if e.uri == nil {
		return nil
	}
	return e.uri.Query()
}

// hasFailed reports whether the API server answered with an error.
func (e *event) hasFailed() bool {
	return strings.HasPrefix(e.code, "4") || strings.HasPrefix(e.code, "5")
}
