package login

import "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"

// Event is a finished call of one of the endpoints, for logs and metrics.
type Event = telemetry.Call
