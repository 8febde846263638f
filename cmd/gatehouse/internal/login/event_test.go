package login_test

import (
	"log/slog"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Every reason of this package is a label of its own in the metrics.
func TestReasonLabels(t *testing.T) {
	t.Parallel()
	observe := telemetry.New(slog.New(slog.DiscardHandler), "v1")
	reasons := map[string]bool{
		login.ReasonMethod: true, login.ReasonMediaType: true, login.ReasonBodyTooLarge: true, login.ReasonRateLimited: true,
		login.ReasonSlowed: true, login.ReasonOverload: true, login.ReasonInternal: true,
	}
	for reason := range reasons {
		observe.Login(&telemetry.Call{Path: login.Path, Decision: review.Refused, Reason: reason})
	}
	families, err := observe.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "gatehouse_logins_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "reason" {
					delete(reasons, label.GetValue())
				}
			}
		}
	}
	if len(reasons) > 0 {
		t.Errorf("reasons without a label: %v", reasons)
	}
}
