package certmetrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/certmetrics"
)

func newMetrics() (*prometheus.Registry, *certmetrics.Metrics) {
	registry := prometheus.NewRegistry()
	return registry, certmetrics.New(registry, []string{"untrusted", "client-certificate", "protocol", "abandoned", "other"})
}

// shows compares metrics with what they should be, without their help.
func shows(t *testing.T, registry *prometheus.Registry, want string, names ...string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	help := ""
	for _, f := range families {
		for _, name := range names {
			if f.GetName() == name {
				help += "# HELP " + name + " " + f.GetHelp() + "\n# TYPE " + name + " " + strings.ToLower(f.GetType().String()) + "\n"
			}
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(help+want), names...); err != nil {
		t.Error(err)
	}
}

// TestCertificateEvents shows when what is in use ends. An Event that says nothing of an end leaves the end that is known.
func TestCertificateEvents(t *testing.T) {
	t.Parallel()
	registry, observe := newMetrics()
	failed := errors.New("failed")
	for _, e := range []certs.Event{
		{Subject: certs.ServingCertificate, NotAfter: time.Unix(300, 0)},
		{Subject: certs.SelfSignedCA, NotAfter: time.Unix(900, 0), Reason: certs.ReasonRotation, Message: "a new CA"},
		{Subject: certs.SelfSignedCA, Reason: certs.ReasonStoreFailed, Err: failed},
		{Subject: certs.ServingCertificate, Reason: certs.ReasonExpiring, Err: failed, NotAfter: time.Unix(400, 0)},
		{Subject: registration.Subject, Reason: certs.ReasonWritten, Message: "written"},
		{Subject: certs.ClientCA, NotAfter: time.Unix(600, 0)},
	} {
		observe.Certificate(e)
	}
	observe.CA(func() *certs.State { return &certs.State{Next: &certs.Authority{}} }, func() bool { return true })
	observe.Writer(registration.NewWriter(registration.WriterConfig{}))
	shows(t, registry, `gatehouse_ca_rotation_phase{phase="Activated"} 0
gatehouse_ca_rotation_phase{phase="Published"} 1
gatehouse_ca_rotation_phase{phase="Stable"} 0
gatehouse_ca_store_last_successful 1
gatehouse_certificate_not_after_timestamp_seconds{subject="client CA"} 600
gatehouse_certificate_not_after_timestamp_seconds{subject="self-signed CA"} 900
gatehouse_certificate_not_after_timestamp_seconds{subject="serving certificate"} 400
gatehouse_registration_overwritten_total 0
gatehouse_registration_write_failures_total 0
`, "gatehouse_certificate_not_after_timestamp_seconds", "gatehouse_registration_overwritten_total", "gatehouse_registration_write_failures_total",
		"gatehouse_ca_rotation_phase", "gatehouse_ca_store_last_successful")
}

// TestRenewalRefused tells a renewal that somebody has to mend from one that waits,
// and from what is about something else.
func TestRenewalRefused(t *testing.T) {
	t.Parallel()
	const name = "gatehouse_certificate_renewal_refused"
	registry, observe := newMetrics()
	shows(t, registry, name+" 0\n", name)
	failed := errors.New("certificate and key do not match")
	for _, step := range []struct {
		what  string
		event certs.Event
		want  string
	}{
		{"in use", certs.Event{Subject: certs.ServingCertificate}, "0"},
		{"another subject fails", certs.Event{Subject: certs.ClientCA, Err: failed}, "0"},
		{"refused", certs.Event{Subject: certs.ServingCertificate, Err: failed}, "1"},
		{"another subject is all right", certs.Event{Subject: certs.ClientCA}, "1"},
		{"waits", certs.Event{Subject: certs.ServingCertificate, Err: fmt.Errorf("tls.crt: %w: why", certs.ErrWaiting)}, "0"},
		{"expired", certs.Event{Subject: certs.ServingCertificate, Reason: certs.ReasonExpiring, Err: failed}, "1"},
		{"in use with a remark", certs.Event{Subject: certs.ServingCertificate, Warnings: []string{"odd"}}, "0"},
	} {
		observe.Certificate(step.event)
		t.Log(step.what)
		shows(t, registry, name+" "+step.want+"\n", name)
	}
}

// TestRegistrations shows each registration.
func TestRegistrations(t *testing.T) {
	t.Parallel()
	registry, observe := newMetrics()
	observe.Registrations(func() []registration.Verdict {
		return []registration.Verdict{{Kind: registration.Mutating, Name: "gatehouse"}, {Kind: registration.Validating, Name: "gatehouse", Err: errors.New("no")}}
	})
	shows(t, registry, `gatehouse_ca_bundle_trusted{kind="MutatingWebhookConfiguration",name="gatehouse"} 1
gatehouse_ca_bundle_trusted{kind="ValidatingWebhookConfiguration",name="gatehouse"} 0
`, "gatehouse_ca_bundle_trusted")
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}
